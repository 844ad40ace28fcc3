"""A bad host is found soon, and chance makes none."""

from __future__ import annotations

from random import Random

import pytest
from fleet import Fleet, Worker

from collector.digest import Digest
from collector.watch.hosts import Tally, bad_hosts, tail
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName


def tally(host: str, bad: int, total: int, endpoint: str = "llama", tenant: str = "default") -> Tally:
    return Tally(tenant, endpoint, host, bad, total, since_ms=1_000 if bad else 0)


def test_a_host_that_fails_nine_times_as_often_is_found_by_its_eighth_failure() -> None:
    others = [tally(f"host-{number}", 1, 40) for number in range(12)]
    found = bad_hosts([tally("bad", 8, 36), *others])
    assert [one.subject for one in found] == ["bad"]
    assert found[0].sentence == (
        "8 of 36 requests on host bad failed in the last 6 h;"
        " 12 of 480 failed on the other hosts of the same endpoints."
    )


@pytest.mark.parametrize(
    "counted",
    [
        [tally("alone", 9, 9)],
        [tally("bad", 4, 4), tally("good", 0, 500)],
        [tally("bad", 9, 9), tally("good", 2, 2)],
        [tally("bad", 9, 9), tally("good", 30, 30)],
        [
            tally("a", 9, 9, "broken"),
            tally("b", 9, 9, "broken"),
            tally("a", 0, 500, "fine"),
            tally("b", 0, 500, "fine"),
        ],
        [tally("bad", 9, 9), tally("good", 0, 500, tenant="other")],
    ],
    ids=["nothing to compare with", "too few", "hardly any elsewhere", "all fail", "only the endpoint", "other tenant"],
)
def test_what_says_nothing_of_a_host_makes_no_finding(counted: list[Tally]) -> None:
    assert bad_hosts(counted) == []


def test_chance_makes_no_bad_host() -> None:
    """Two thousand fleets of fifty hosts that are all alike."""
    random = Random(7)  # noqa: S311  no secret
    for _ in range(2000):
        share, total = random.choice((0.01, 0.05, 0.2, 0.5)), random.choice((5, 20, 60))
        fleet = [tally(f"h{n}", sum(random.random() < share for _ in range(total)), total) for n in range(50)]
        assert bad_hosts(fleet) == []


def test_the_tail_is_that_of_poisson() -> None:
    assert tail(1, 1.0) == pytest.approx(0.63212, abs=1e-5)
    assert tail(5, 0.5) == pytest.approx(1.7212e-4, rel=1e-3)
    assert tail(200, 1.0) < 1e-300


async def test_a_bad_host_is_found_in_the_store(fleet: Fleet) -> None:
    jobs = []
    for number in range(30):
        host = "bad" if number % 5 == 0 else f"good-{number % 3}"
        worker = Worker(f"w-{host}")
        jobs.append(f"job-{number}")
        delivered = {Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True}
        status, told = ("error", {Key.ERROR_TYPE: "RuntimeError"}) if host == "bad" else ("ok", {})
        run = {Key.SPAN_ID: f"{1:016x}"}
        spans = [
            worker.span(fleet.now, SpanName.JOB_CLAIMED, job=jobs[-1], ago=3),
            worker.span(fleet.now, SpanName.JOB_RUN + STARTED_SUFFIX, job=jobs[-1], ago=2, told=run),
            worker.span(fleet.now, SpanName.JOB_RUN, job=jobs[-1], ago=1, status=status, told=told),
            worker.span(fleet.now, SpanName.JOB_DELIVER, job=jobs[-1], told=delivered),
        ]
        for span in spans:
            span.resource[Key.HOST_NAME] = host
        await fleet.tell(*spans)
    digest = Digest()
    digest.touched("default", jobs, [])
    await digest.round(fleet.db, fleet.settings, fleet.now)
    await fleet.calm()
    finding = await fleet.the("bad_host")
    assert finding.sentence.startswith("6 of 6 requests on host bad failed in the last 6 h; 0 of 24 failed")
    assert (finding.worker_ids, len(finding.job_ids)) == (("w-bad",), 6)
