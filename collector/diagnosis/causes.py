"""Why it failed: one cause from the tail, the exception record and the way the process ended.

The order of the decision, after the taxonomy's boundary rules:

1. a kill for memory that the kernel counted; a broken card;
2. harmless lines with success behind them: `no_failure`;
3. the most specific text (`shape.Tier`), and of equals the earliest;
4. an exception or crash that nothing explains; the exit code or signal alone;
5. `unknown`, with what was looked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from collector.diagnosis.answer import Confidence, Fault, Missing, Retry
from collector.diagnosis.clues import Cause, Clues
from collector.diagnosis.exits import Exit, read_exit
from collector.diagnosis.outcomes import Outcome, has_complaint, is_wrapper, read_outcome
from collector.diagnosis.reading import Reading, Statement, read
from collector.diagnosis.rules import DETAILS, INDEX, RULE_OF, SIGNALS
from collector.diagnosis.rules.match import Hit, hits_of, is_slip
from collector.diagnosis.rules.needles import grams_of
from collector.diagnosis.rules.shape import Rule, Tier, fill

_WEAKER: dict[str, Confidence] = {"certain": "likely", "likely": "possible", "possible": "possible"}
_DETAIL_LINES = 6  # an error's own text goes on for this many lines at most
_VALUE_CHARACTERS = 160  # of a value repeated in a sentence
# The platform's SDK prints an exception as a JSON object: its type, its message, then the traceback with both.
_JSON_FIELD = re.compile(r'\s*"error_(?:type|message)":')
# A warning before the error: Python's own, and TensorFlow's letter behind the time.
_MILD = re.compile(r"\w{0,30}Warning: |^\S{4,40} \S{4,40}: W ")
_QUOTED_WITHIN = 80  # statements between a message and the exception that it repeats


@dataclass(frozen=True, slots=True)
class _Found:
    """What was decided on, before it is put into words. `index` is None where no statement shows it."""

    rule: Rule
    confidence: Confidence
    index: int | None
    values: dict[str, str]
    says: str = ""
    fault: Fault | None = None
    retry: Retry | None = None
    advice: tuple[str, ...] = ()


def find_cause(clues: Clues) -> Cause:
    """The cause of a failure. Pure and deterministic; takes time in proportion to the text."""
    reading = read(clues.text, _record(clues))
    grams = grams_of(reading.blob)
    hits = hits_of(reading, SIGNALS, INDEX.worth(grams), clues.phase)
    told = _Told(clues, reading, read_outcome(reading, grams), tuple(hits), read_exit(clues))
    if _went_well(told):
        return _no_failure()
    found = _decide(told)
    return _unknown(told) if found is None else _worded(clues, reading, found)


@dataclass(frozen=True, slots=True)
class _Told:
    """All that a decision rests on."""

    clues: Clues
    reading: Reading
    outcome: Outcome
    hits: tuple[Hit, ...]
    ended: Exit | None


def _record(clues: Clues) -> str:
    """The exception record as text, its last line last."""
    if clues.exception is None:
        return ""
    last = f"{clues.exception.type}: {clues.exception.message}" if clues.exception.type else clues.exception.message
    trace = clues.exception.stacktrace.rstrip()
    return trace if trace.endswith(last.rstrip()) else f"{trace}\n{last}".lstrip("\n")


# --- deciding ----------------------------------------------------------------------------------------------------


def _decide(told: _Told) -> _Found | None:
    above = _survived(told)
    hits = _weighty(told, [hit for hit in _told_by(told) if hit.index > above or _outlasts(hit)])
    best = max(hits, key=lambda hit: (hit.tier, -hit.index), default=None)
    if best is not None and best.tier == Tier.HARDWARE:
        return _of_hit(told, best)
    if told.ended is not None and told.ended.decisive:
        return _of_exit(told, told.ended)
    raised = _exceptions(told, above)
    if best is not None and best.tier > Tier.REPORT and not _raised_before(told, raised, best):
        return _of_hit(told, best)
    if raised:
        return _of_exception(told, raised)
    if told.ended is not None:
        return _of_exit(told, told.ended)
    if best is None:
        return None
    # A report of a report: what failed is in neither.
    wrapped = any(
        index != best.index and said.exception and is_wrapper(said)
        for index, said in enumerate(told.reading.statements)
    )
    return None if wrapped and best.strength == "possible" else _of_hit(told, best)


# The line itself says that the program does without, or tries once more.
_DOES_WITHOUT = re.compile(
    r"fall(?:ing|s) back|(?:continu|proceed)ing (?:without|anyway)|\bskipping\b|\(optional\)|trying again"
    r"|will (?:be )?retr|retrying",
    re.IGNORECASE,
)


_FAILS = re.compile(r"fail|error|exception", re.IGNORECASE)  # told at level info all the same


def _told_by(told: _Told) -> list[Hit]:
    """The hits without source lines whose exception is in the tail: what was raised is what that one says."""
    statements = told.reading.statements
    ended = {said.traceback for said in statements if said.exception and said.message}
    return [hit for hit in told.hits if not (statements[hit.index].code and statements[hit.index].traceback in ended)]


def _weighty(told: _Told, hits: list[Hit]) -> list[Hit]:
    """The hits without notices (lines of level info, lines that the program says it went on from), if any is left.

    A notice that stands alone may be all there is; beside an error it is the weather, not the cause.
    """
    firm = [hit for hit in hits if not _is_notice(told, hit)]
    if firm or not hits:
        return firm
    last = max(hit.index for hit in hits)
    does_without = all(_DOES_WITHOUT.search(told.reading.statements[hit.index].text[:400]) for hit in hits)
    return [] if does_without and _exceptions(told, last) else hits


def _is_notice(told: _Told, hit: Hit) -> bool:
    said = told.reading.statements[hit.index]
    if hit.tier == Tier.HARDWARE:
        return False
    if (
        hit.tier != Tier.CRASH
        and said.level in ("debug", "info")
        and not said.exception
        and not _FAILS.search(said.text[:400])
    ):
        return True
    following = told.reading.statements[hit.index + 1 : hit.index + 2]
    return _DOES_WITHOUT.search(said.text[:400]) is not None or any(
        _GOES_ON.match(line.core) and not line.exception for line in following
    )


# The next line says that the program does without: no mere new try, which may fail the same way.
_GOES_ON = re.compile(r"(?:fall(?:ing|s) back|(?:continu|proceed)ing (?:without|anyway)|skipping)\b", re.IGNORECASE)


def _outlasts(hit: Hit) -> bool:
    """Whether a server that came up afterwards proves nothing: a broken card, a driver that is only warned about."""
    return hit.tier == Tier.HARDWARE or hit.rule.code == "gpu_driver_mismatch"


def _survived(told: _Told) -> int:
    """Where a server came up, or the next job began, and something failed only later: what stands above is not why.

    -1 where nothing is above that line.
    """
    for above in sorted({max(told.outcome.up, default=-1), told.outcome.next_job} - {-1}, reverse=True):
        if any(hit.index > above and hit.tier >= Tier.HINT for hit in told.hits) or _exceptions(told, above):
            return above
    return -1


def _raised_before(told: _Told, raised: Sequence[int], best: Hit) -> bool:
    """Whether an exception that nothing explains stands before a mere hint or crash that is no part of its story."""
    if best.tier > Tier.HINT or not raised or raised[0] >= best.index:
        return False
    if best.tier == Tier.CRASH:
        return True
    statements = told.reading.statements
    chains = {statements[hit.index].chain for hit in told.hits} | {statements[best.index].chain}
    return statements[raised[0]].chain not in chains and all(hit.index > raised[0] for hit in told.hits)


def _of_hit(told: _Told, best: Hit) -> _Found:
    signal = best.found.signal
    return _Found(
        best.rule,
        _confidence(told, best),
        _shown(told.reading, [hit for hit in told.hits if hit.rule is best.rule], best),
        best.values,
        signal.says,
        signal.fault,
        signal.retry,
        signal.advice,
    )


def _shown(reading: Reading, same: Sequence[Hit], best: Hit) -> int:
    """The statement to quote: an exception's own line rather than one that repeats its message."""
    lead = best.found.lead
    if lead is not None and not lead.search(reading.statements[best.index].text):
        for index in range(max(0, best.index - 3), best.index):
            if lead.search(reading.statements[index].text):
                return index
    here = reading.statements[best.index]
    if _JSON_FIELD.match(here.core) or (not here.exception and _MILD.search(here.text[:300])):
        told = next((hit for hit in same if hit.index > best.index and reading.statements[hit.index].exception), None)
        return told.index if told else best.index
    for index in range(best.index + 1, min(len(reading.statements), best.index + _QUOTED_WITHIN)):
        there = reading.statements[index]
        quoted = there.message[:300]
        if len(quoted) > 5 and quoted in here.text and not (here.exception and here.message.startswith(quoted)):
            return index
    return best.index


def _confidence(told: _Told, best: Hit) -> Confidence:
    said = told.reading.statements[best.index]
    confidence: Confidence = best.strength
    rivals = (hit for hit in told.hits if hit.tier == best.tier and hit.rule is not best.rule)
    if told.outcome.is_soft(best.index) and not _failed_later(told, best.index):
        confidence = "possible"
    if any(abs(hit.index - best.index) > 1 for hit in rivals):
        confidence = _WEAKER[confidence]
    if said.level in ("debug", "info", "warning") and not said.exception and not _failed_later(told, best.index):
        confidence = _WEAKER[confidence]
    return confidence


def _failed_later(told: _Told, index: int) -> bool:
    if any(fatal > index for fatal in told.outcome.fatal):
        return True
    return any(said.exception or said.level == "error" for said in told.reading.statements[index + 1 :])


def _exceptions(told: _Told, above: int) -> list[int]:
    """Exceptions that nothing explains, as indices: no wrappers, nothing harmless, nothing the program went on from."""
    return [
        index
        for index, said in enumerate(told.reading.statements)
        if index > above
        and said.exception
        and not said.harmless
        and not is_wrapper(said)
        and not (said.level in ("debug", "info", "warning") and told.outcome.is_soft(index))
    ]


def _of_exception(told: _Told, raised: Sequence[int]) -> _Found:
    statements = told.reading.statements
    said = statements[raised[0]]
    different = {(statements[index].exception, statements[index].message) for index in raised}
    starting = told.clues.phase in ("boot", "prestart")
    values = {"type": said.exception.rsplit(".", 1)[-1], "message": said.message.split("\n")[0]}
    frame = _last_frame(told.reading, raised[0])
    for code, place, says in _PLACES if starting else ():
        if place.search(frame):
            return _Found(RULE_OF[code], "possible", raised[0], values, says)
    own = is_slip(said) or said.line == 0 or (said.traceback >= 0 and not _LIBRARY.search(frame))
    confidence: Confidence = "likely" if len(different) == 1 and own and not starting else "possible"
    return _Found(RULE_OF["handler_exception"], confidence, raised[0], values, "the code raised {type}[: {message}]")


_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3|<frozen ")
# While a worker starts, the place that an error comes from says what was being done.
_PLACES = (
    (
        "config_invalid",
        re.compile(
            r"/(?:\w*arg_utils|\w*server_args|cli_args|argparse|settings)\.py|/arg_groups/|(?:vllm|engine)/config/"
        ),
        "the settings were refused: {type}[: {message}]",
    ),
    (
        "model_unsupported",
        re.compile(
            r"/model_executor/models/|/srt/models/|/model_loader/|/model(?:ing|_loader)_\w+\.py|/weight_utils\.py"
            r"|/configuration_\w+\.py|/tokenization_\w+\.py|/quantization/|/compressed_tensors/"
        ),
        "the software could not load the model: {type}[: {message}]",
    ),
)


def _last_frame(reading: Reading, index: int) -> str:
    """The deepest frame of the traceback that an exception ends, "" where none is left of it."""
    traceback = reading.statements[index].traceback
    if traceback < 0:
        return ""
    for said in reversed(reading.statements[:index]):
        if said.traceback == traceback and said.frame:
            return said.core
    return ""


def _of_exit(told: _Told, ended: Exit) -> _Found:
    rule = RULE_OF[ended.code]
    line = next((hit.index for hit in told.hits if hit.rule is rule), None)
    return _Found(rule, ended.confidence, line, {}, ended.says, ended.fault, ended.retry, ended.advice)


# --- harmless ----------------------------------------------------------------------------------------------------


# A line without a level that says of itself that something failed.
_COMPLAINS = re.compile(
    r"\b(?:fatal|error|panic|critical|failed|giving up|gave up|aborted|cannot continue|could not|exception|unable"
    r"|invalid|terminating)\b",
    re.IGNORECASE,
)


def _went_well(told: _Told) -> bool:
    """Whether complaints were followed by success and by nothing that failed."""
    clues = told.clues
    if told.ended or clues.exception or clues.exit_code not in (None, 0) or not has_complaint(told.reading):
        return False
    unanswered = [
        index
        for index, said in enumerate(told.reading.statements)
        if (said.level == "error" or (not said.level and _COMPLAINS.search(said.core[:200])))
        and not said.harmless
        and not told.outcome.is_soft(index)
    ]
    up = max(told.outcome.up, default=-1) if clues.phase in ("boot", "prestart", None) else -1
    if up >= 0 and not _failed_after(told, up) and not any(index > up for index in unanswered):
        return True
    done = max(told.outcome.done, default=-1)
    harmless = any(said.harmless for said in told.reading.statements)
    if clues.exit_code == 0 and harmless and not told.hits and not unanswered and not _failed_around(told, -1):
        return True
    if clues.exit_code == 0 and done >= 0 and all(hit.tier == Tier.CRASH and hit.index > done for hit in told.hits):
        return True
    hard = any(not told.outcome.is_soft(hit.index) for hit in told.hits)
    return done >= 0 and not hard and not unanswered and not _failed_around(told, done)


def _failed_around(told: _Told, index: int) -> bool:
    """Whether something failed for good, before or after; a hint after success is a failure too."""
    # a traceback whose end is not here
    return any(said.frame and not said.harmless for said in told.reading.statements) or _failed_after(told, index)


def _failed_after(told: _Told, index: int) -> bool:
    """Whether something failed for good, or anything failed after this: a server came up in spite of the rest."""
    if told.outcome.fatal or any(hit.index > index for hit in told.hits):
        return True
    later = told.reading.statements[index + 1 :]
    return any((said.exception or said.frame) and not said.harmless for said in later)


# --- wording -----------------------------------------------------------------------------------------------------


def _worded(clues: Clues, reading: Reading, found: _Found) -> Cause:
    rule = found.rule
    values = _values(reading, found)
    explanation = next(
        (text for text in (fill(template, values) for template in (found.says, rule.because) if template) if text),
        rule.because,
    )
    if rule.quotes and found.index is not None and not _holds_value(explanation, values):
        quoted = _quotable(reading.statements[found.index])
        explanation = f"{explanation}: {quoted}" if quoted else explanation
    line, number = _line(reading, found.index)
    return Cause(
        code=rule.code,
        confidence=found.confidence,
        fault=found.fault or rule.fault,
        retry=found.retry or rule.retry,
        explanation=explanation,
        line=line,
        line_number=number,
        advice=tuple(text for text in (fill(template, values) for template in found.advice or rule.advice) if text),
        missing=(*rule.missing, *_missing(clues)) if found.confidence == "possible" else (),
    )


def _holds_value(explanation: str, values: dict[str, str]) -> bool:
    return any(value in explanation for value in values.values())


_QUOTABLE = re.compile(r"[^{}\[\]\n]{12,160}")


def _quotable(said: Statement) -> str:
    """The message of a line, as far as it reads well within a sentence; "" where it does not."""
    message = " ".join((said.message or said.core).split("\n")[0].split()).strip(" .,;:")
    return message if _QUOTABLE.fullmatch(message) else ""


def _values(reading: Reading, found: _Found) -> dict[str, str]:
    values = dict(found.values)
    if found.index is not None:
        text = "\n".join(said.core for said in reading.statements[found.index : found.index + _DETAIL_LINES])[:3000]
        for name, pattern in DETAILS[found.rule.code]:
            match = None if name in values else pattern.search(text)
            if match:
                values[name] = next((group for group in match.groups() if group), "")
    shown = {name: " ".join(value.split())[:_VALUE_CHARACTERS].strip(" .,;:") for name, value in values.items()}
    return {name: value for name, value in shown.items() if value}


def _line(reading: Reading, index: int | None) -> tuple[str | None, int | None]:
    if index is None or reading.statements[index].line == 0:
        return None, None
    number = reading.statements[index].line
    return reading.lines[number - 1], number


def _no_failure() -> Cause:
    return Cause(
        code="no_failure",
        confidence="likely",
        fault="unknown",
        retry="no",
        explanation="what looks like errors in the log was followed by success and by nothing that failed",
        advice=("Look elsewhere for why the request did not end well: the worker's output shows no failure.",),
        missing=_MORE,
    )


_MORE = (
    Missing("more of the worker's output before this tail", "STALLSCOPE_LOG_TAIL_BYTES=65536"),
    Missing("the output of the handler itself", "STALLSCOPE_HANDLER_LOGS=on"),
)
_ENDING = Missing(
    "how the process ended (exit code, signal, memory kills)", "python -m sdk_exporter -- python handler.py"
)


def _unknown(told: _Told) -> Cause:
    reading, clues = told.reading, told.clues
    wrapper = next(
        (index for index, said in enumerate(reading.statements) if said.exception and is_wrapper(said)),
        min(told.outcome.fatal, default=None),
    )
    line, number = _line(reading, wrapper)
    if not clues.text.strip() and clues.exception is None:
        why = "no output of the worker is at hand; exit code, signal and memory kills were looked at and name no cause"
    elif wrapper is not None:
        why = (
            "the log holds only the report that something else failed, not what; errors of GPU, memory, disk, network,"
            " model, imports and settings were looked for in what is left of it"
        )
    else:
        why = (
            "the log holds no error that names a cause; errors of GPU, memory, disk, network, model, imports, settings"
            " and input, exceptions and crashes were looked for"
        )
    return Cause("unknown", "unknown", "unknown", "maybe", why, line, number, (), _missing(clues))


def _missing(clues: Clues) -> tuple[Missing, ...]:
    """What more of the worker would have told, as far as it is not at hand already."""
    more = _MORE if clues.phase in ("handler", None) else _MORE[:1]
    if clues.exit_code is None and clues.signal is None:
        return (*more, _ENDING)
    return more
