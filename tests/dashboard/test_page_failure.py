"""The page of one request, as its reader sees it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from hostile import HOSTILE
from page_reader import Seen, site, words_of
from page_samples import COMPLETED, KILLED, NOW, OOM, OOM_LINE, OOM_VERDICT, RUNNING, SENTENCE, START, at

from collector.diagnosis.answer import Answer, Attempt, EvidenceItem, LogTail, Missing, Phase, Verdict, Wasted
from dashboard.pages.failure import RECORDS_ON_A_PAGE, failure_view
from dashboard.render import html_text
from sdk_exporter.bounds import clip
from sdk_exporter.contract import JOB_ID_BYTES


def page_of(answer: Answer, now: datetime = NOW) -> Seen:
    return Seen(html_text("failure.html", failure_view(answer, site(now))))


def test_the_verdict_sentence_is_the_heading() -> None:
    assert page_of(OOM).text("h1") == SENTENCE


def test_codes_confidence_and_side_stand_under_it() -> None:
    badges = page_of(OOM).text(".badges")
    for said in ("failed", "prestart_failed", "cuda_oom", "confidence: certain", "model or worker configuration"):
        assert said in badges


def test_sections_come_in_the_order_of_need() -> None:
    assert page_of(replace(OOM, attempts=(OOM.attempts[0], replace(OOM.attempts[0], number=2)))).texts("h2") == [
        "What to do now",
        "Evidence",
        "Timeline",
        "Wasted",
        "Same failure elsewhere",
        "Beside the last good request of this endpoint",
        "What we do not know, and how to know it next time",
        "Log tail",
        "Attempts",
        "How this verdict came about",
        "Raw records",
        "Keys",
    ]


def test_evidence_tells_text_source_age_and_its_raw_record() -> None:
    page = page_of(OOM)
    first = page.all(".evidence > li")[0]
    assert first.query("pre")[0].to_text(separator="") == OOM_LINE
    assert "told by the worker" in page.texts(".evidence > li")[0]
    assert "7 min ago" in page.texts(".evidence > li")[0]
    line, raw = (link.attrs["href"] for link in first.query("a"))
    assert line == "#root-cause"
    record = page.one(raw)
    assert "00000000000000a3" in record.to_text()


def test_evidence_whose_record_is_not_here_is_not_linked() -> None:
    third = page_of(OOM).all(".evidence > li")[2]
    assert not third.query("a")
    assert "not on this page" in third.to_text()


def test_the_root_cause_line_is_marked_once_in_the_tail() -> None:
    page = page_of(OOM)
    assert page.one("#root-cause").query("code")[0].to_text(separator="") == OOM_LINE
    assert page.one("#root-cause").query(".no")[0].to_text() == "10"
    assert len(page.all(".tail li:not(.cut)")) == 11


def test_a_repeated_root_cause_line_is_marked_where_the_verdict_says() -> None:
    tail = LogTail("boom\nother\nboom\n", 16, 0, 0, 0, True, "job")
    root = replace(OOM_VERDICT.evidence[0], text="boom", line=3)
    page = page_of(replace(OOM, log_tail=tail, verdict=replace(OOM_VERDICT, evidence=(root,))))
    assert page.one("#root-cause").query(".no")[0].to_text() == "3"


def test_a_root_cause_line_that_the_tail_does_not_hold_is_said_to_be_elsewhere() -> None:
    page = page_of(replace(OOM, log_tail=LogTail("nothing here", 12, 0, 0, 0, True, "job")))
    assert not page.all("#root-cause")
    assert OOM_LINE in page.text("[aria-labelledby=tail] .note")


def test_the_tail_says_whose_output_it_is_and_what_is_missing() -> None:
    page = page_of(OOM)
    tail = " ".join(page.texts("section .meta"))
    assert "The worker's output, not tied to this request" in tail
    assert "5 KiB before it lost" in tail
    assert "1 secret redacted" in tail
    assert "colours as the worker wrote them" in tail
    assert "5 KiB of earlier output is not in the log tail." in page.texts(".unknowns li")
    job = page_of(replace(OOM, log_tail=replace(OOM.log_tail or _no_tail(), scope="job", bytes_withheld=2048)))
    assert "This request's own output." in " ".join(job.texts("section .meta"))
    assert "2 KiB of output stayed in the worker, because a setting says so." in job.texts(".unknowns li")


def _no_tail() -> LogTail:
    raise AssertionError("the sample has a tail")


def test_colour_codes_never_reach_the_page() -> None:
    text = page_of(OOM).text(".tail")
    assert "50%|█████" in text
    assert "[32m" not in text


def test_colours_and_redactions_are_shown() -> None:
    tail = "\x1b[1;31mred\x1b[0m plain \x1b[38;5;2mgreen\x1b[38;2;1;2;3many\nstill\x1b[m none "
    tail += "[REDACTED]\n\x1b[9;;mx\x1b[41m"
    page = page_of(replace(OOM, log_tail=LogTail(tail, len(tail), 0, 0, 1, True, "job")))
    runs = [(run.attrs["class"], run.to_text()) for run in page.all(".tail code span")]
    assert runs == [("c-red c-bold", "red"), ("c-green", "green"), ("redacted", "[REDACTED]")]
    assert page.texts(".tail code") == ["red plain greenany", "still none [REDACTED]", "x"]


def test_every_phase_has_its_row_with_real_times() -> None:
    page = page_of(OOM)
    rows = {row.query("th")[0].to_text().split()[0]: row for row in page.all(".phases tbody tr")}
    assert list(rows) == ["queued", "claimed", "boot", "prestart", "gated", "run", "deliver", "stop"]
    assert "2.1 s" in rows["queued"].to_text()
    assert "03:12:05.120 → 03:12:07.220" in rows["queued"].to_text()
    assert "told by caller" in rows["queued"].to_text()
    assert "✕ here" in rows["prestart"].to_text()
    assert "no record" in rows["run"].to_text()


def test_missing_parts_are_hatched_and_known_ones_are_not() -> None:
    page = page_of(OOM)
    drawn = {
        row.query("th")[0].to_text().split()[0]: [rect.attrs.get("fill") for rect in row.query("rect")[1:]]
        for row in page.all(".phases tbody tr")
    }
    assert drawn["queued"] == [None]
    assert drawn["run"] == ["url(#gap)"]
    assert drawn["deliver"] == ["url(#hatch)"]
    assert page.all("pattern#gap")
    assert page.all("pattern#hatch")


def test_a_phase_is_drawn_where_and_as_long_as_it_was() -> None:
    phases = (
        Phase("queued", 1, None, at(0), at(1), 1.0, True, "caller"),
        Phase("run", 1, "w1", at(1), at(4), 3.0, True, "worker"),
    )
    page = page_of(replace(COMPLETED, phases=phases))
    drawn = [(rect.attrs["x"], rect.attrs["width"]) for rect in page.all(".phases rect.seg")]
    assert drawn == [("0.0%", "25.0%"), ("25.0%", "75.0%")]


def test_a_boot_hours_ago_does_not_squeeze_the_request() -> None:
    page = page_of(KILLED)
    boot = next(row for row in page.texts(".phases tbody tr") if row.startswith("boot"))
    assert "began 2 h 00 min before this bar" in boot
    claimed = next(row for row in page.all(".phases tbody tr") if row.query("th")[0].to_text() == "claimed")
    assert float(claimed.query("rect.seg")[0].attrs["width"].rstrip("%")) > 50


def test_an_open_phase_is_drawn_up_to_now() -> None:
    page = page_of(RUNNING, START.replace(second=15))
    run = next(row for row in page.texts(".phases tbody tr") if row.startswith("run"))
    assert "still going" in run
    assert "its end was never told" not in run


def test_wasted_seconds_and_the_group_are_told() -> None:
    page = page_of(OOM)
    assert "5.4 s" in page.text("[aria-labelledby=wasted]")
    assert "9.4 s" in page.text("[aria-labelledby=wasted]")
    assert "12 requests" in page.text("[aria-labelledby=elsewhere]")
    assert "still held" in page_of(KILLED).text("[aria-labelledby=wasted]")


def test_unknown_waste_is_not_shown_as_zero() -> None:
    wasted = page_of(replace(KILLED, wasted=Wasted())).text("[aria-labelledby=wasted]")
    assert "not known" in wasted
    assert "0 ms" not in wasted


def test_what_is_missing_comes_as_a_setting_to_paste() -> None:
    assert page_of(KILLED).texts(".missing code.paste") == ["STALLSCOPE_HANDLER_LOGS=on"]


def test_an_inferred_verdict_says_so() -> None:
    page = page_of(KILLED)
    assert "inferred, not reported" in page.text(".badges")
    assert "Nobody reported the end. The verdict is worked out from what stopped arriving." in page.texts(
        ".unknowns li"
    )


def test_an_open_request_says_so_and_offers_to_read_again() -> None:
    page = page_of(RUNNING)
    assert "still open" in page.text(".badges")
    assert page.one("article").attrs["data-open"] == "yes"


def test_states_are_told_by_word_and_shape_too() -> None:
    assert page_of(OOM).texts(".badges .chip") == ["✕ failed"]
    assert page_of(COMPLETED).texts(".badges .chip") == ["✓ completed"]
    assert page_of(RUNNING).texts(".badges .chip") == ["◐ running"]


def test_a_success_offers_nothing_to_do_and_blames_nobody() -> None:
    page = page_of(COMPLETED)
    assert "What to do now" not in page.texts("h2")
    assert "whose side" not in page.text(".badges")
    assert "No log tail was sent: tails leave the worker with a failure only." in page.texts(".note")


def test_each_attempt_has_its_own_bar_and_verdict() -> None:
    second = Attempt(2, "w9", "b9", at(60), "running", COMPLETED.verdict)
    phases = (*OOM.phases, Phase("run", 2, "w9", at(60), None, None, False, "worker"))
    page = page_of(replace(OOM, attempts=(*OOM.attempts, second), phases=phases))
    assert len(page.all("table.phases")) == 2
    assert "Attempt 2" in page.texts(".bar-head")[0]
    assert page.texts("[aria-labelledby=attempts] tbody td:first-child") == ["2", "1"]


def test_raw_records_are_folded_and_keep_large_integers_exact() -> None:
    page = page_of(OOM)
    assert "open" not in page.one("details.records").attrs
    assert "9007199254740993" in page.text("details.records")
    assert "only its start was told" in page.text("details.records")
    assert page.one("a[href='/jobs/3f6c2d1e-7c0e-4f6e-9a43-c1a0fb3d2b11-u1.json']")


def test_more_records_than_a_page_holds_are_counted() -> None:
    spans = tuple(replace(OOM.spans[0], span_id=f"{n:016x}") for n in range(RECORDS_ON_A_PAGE + 7))
    page = page_of(replace(OOM, spans=spans))
    assert len(page.all(".record")) == RECORDS_ON_A_PAGE
    assert "7 more records in the JSON form." in page.texts(".note")


def test_megabytes_of_attributes_do_not_make_megabytes_of_page() -> None:
    heavy = {f"key.{number:05}": "v" * 5_000 for number in range(1_000)}
    spans = tuple(replace(OOM.spans[0], span_id=f"{n:016x}", attributes=heavy) for n in range(RECORDS_ON_A_PAGE))
    written = html_text("failure.html", failure_view(replace(OOM, spans=spans), site(NOW)))
    assert "(cut here; 5,000 characters, all in the JSON form)" in written
    assert "1,000 more attributes in the JSON form" in written


HEAVY = {
    "markup": "<&>'\"" * 4_000,
    "controls": "\u202e\x9b" * 8_000,
    "words": "plain " * 4_000,
    "wide": "\U0001f525" * 5_000,
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY.keys())
def test_a_page_without_its_tail_has_a_bounded_weight(text: str) -> None:
    """150 KB, with as much of everything as a worker can send. Ids are cut where they are stored."""
    id = clip(text, JOB_ID_BYTES)
    item = EvidenceItem("worker", "log_line", text, at(1))
    verdict = replace(
        OOM_VERDICT,
        sentence=text,
        evidence=tuple(replace(item, span_id=f"{number:016x}") for number in range(8)),
        advice=(text,) * 20,
        missing=(Missing(text, text),) * 20,
    )
    attempt = replace(OOM.attempts[0], verdict=verdict, worker_id=id, boot_id=id)
    heavy = {f"key.{number:05}": text for number in range(100)}
    answer = replace(
        OOM,
        job_id=id,
        endpoint_id=id,
        verdict=verdict,
        worker_ids=(id,) * 50,
        attempts=tuple(replace(attempt, number=number) for number in range(1, 51)),
        phases=tuple(replace(phase, attempt=number) for number in range(1, 51) for phase in OOM.phases),
        history=tuple(replace(revision, why=text) for revision in OOM.history * 50),
        log_tail=None,
        spans=tuple(
            replace(OOM.spans[number % 5], name=text, span_id=f"{number:016x}", attributes=heavy)
            for number in range(3_000)
        ),
    )
    page = failure_view(answer, site(NOW))
    weight = len(html_text("failure.html", page).encode())
    shown = {record.span.span_id for record in page.records}
    quoted = {item.span_id for item in verdict.evidence}
    assert weight < 150_000
    assert quoted <= shown


def test_a_log_record_is_a_line() -> None:
    said = {"stallscope.log_record.severity": "WARN", "stallscope.log_record.body": "slow <b>disk</b>"}
    record = replace(OOM.spans[0], name="log.record", attributes=said)
    page = page_of(replace(OOM, spans=(record,)))
    assert page.text(".record summary .log-record") == "WARN slow <b>disk</b>"


def test_every_verdict_links_to_its_explanation() -> None:
    hrefs = [link.attrs["href"] for link in page_of(OOM).all(".badges .codes a")]
    assert hrefs == ["/docs/verdicts#prestart_failed", "/docs/verdicts#cause-cuda_oom"]


def test_backticks_in_a_sentence_are_set_as_code() -> None:
    verdict = replace(OOM_VERDICT, sentence="The hook `load_model` failed with one ` left.")
    heading = page_of(replace(OOM, verdict=verdict)).one("h1")
    assert [code.to_text() for code in heading.query("code")] == ["load_model"]
    assert words_of(heading) == "The hook load_model failed with one ` left."


def stuffed(value: Any, text: str) -> Any:
    """`value` with `text` in every string that a worker, a caller or a rule could have written."""
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(stuffed(item, text) for item in value)
    if isinstance(value, dict):
        return {f"{text}{number}": stuffed(item, text) for number, item in enumerate([*value.values(), text])}
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"state", "fault", "retry", "confidence", "source", "what", "name", "scope", "status"}
        is_span = type(value).__name__ in ("AnswerSpan", "AnswerSpanEvent")
        changed = {
            field.name: stuffed(getattr(value, field.name), text)
            for field in fields(value)
            if field.name not in kept or (is_span and field.name == "name")
        }
        return replace(value, **changed)
    return value


@pytest.mark.parametrize("text", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_hostile_text_anywhere_is_shown_and_never_run(text: str) -> None:
    for answer in (stuffed(OOM, text), stuffed(KILLED, text)):
        written = html_text("failure.html", failure_view(answer, site(NOW)))
        page = Seen(written)
        assert page.dangers() == []
        assert [element.name for element in page.all("body > *")] == ["a", "header", "main", "footer", "dialog"]
        assert not set(written) & set("\x00\x07\x1b\x9b\u202e\u2066\ud800")


def test_the_stuffing_reaches_every_place() -> None:
    """Without escaping the test above would find something: the payload is on the page many times."""
    page = page_of(stuffed(OOM, "<script>window.pwned = 1</script>"))
    assert page.document.to_text(separator="").count("<script>window.pwned = 1</script>") > 30
    assert page.text("h1") == "<script>window.pwned = 1</script>"


def test_control_characters_are_made_visible() -> None:
    verdict = replace(OOM_VERDICT, sentence="a\x00b\x1b]8;;x\x07c\u202ed")
    assert page_of(replace(OOM, verdict=verdict)).text("h1") == "a␀b␛]8;;x␇c⟨U+202E⟩d"


def test_a_verdict_without_evidence_says_that_nothing_supports_it() -> None:
    verdict = Verdict("unknown", "unknown", "Unknown", "Nobody knows.", "unknown", "maybe", "unknown")
    page = page_of(Answer("x", "default", None, (), "unknown", True, 1, verdict))
    assert "No record supports this verdict." in page.texts(".note")
    assert "no phase of this attempt has a time" in page.text(".bar-head")
