"""What happened beside a request, put into its verdict: other requests on its worker, and its endpoint's recent life.

The rules about the request itself have spoken; these sharpen what they said where others' records tell more: who broke
the worker, whether the request itself ends its workers, and where and since when the endpoint fails in this way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.diagnosis.answer import EvidenceItem, Fault, Missing, Retry, Verdict
from collector.diagnosis.beside import Beside, Outcome, Start
from collector.diagnosis.evidence import AttemptEvidence, Evidence
from collector.diagnosis.lifecycle_case import Ruling, ending_of, event, read
from collector.diagnosis.lifecycle_words import between, clock, duration, name
from collector.diagnosis.records import SECOND_NS, Record, moment
from collector.diagnosis.standing_out import NewIn, StandsOut, new_in, stands_out
from collector.diagnosis.verdicts import VERDICTS, doc_of

CRASH_WINDOW_SECONDS: Final = 600
CRASHES_TOLD: Final = 3
IN_A_ROW: Final = 3
ALL_FAIL: Final = 0.9
"""From this rate on, a retry on the same image or release is not worth its wait."""
TAKEN_DOWN_SECONDS: Final = 60
"""A worker whose handler raised SystemExit is gone within this; its SDK first waits for what else is open."""

_EXITS: Final = frozenset({"SystemExit", "KeyboardInterrupt"})
_ENDED_BY_OTHERS: Final = frozenset({"handler_exited", "worker_crashed", "worker_killed", "self_cancelled"})
_ENDED_BY_IT: Final = frozenset({"handler_exited", "worker_crashed", "worker_killed"})
_GPU_CALLS: Final = frozenset({"cuda_error", "gpu_hardware_fault", "nccl_error"})
_ANY_GPU_CALL: Final = re.compile(r"\bCUDA\b|\bcudaError|cuBLAS|CUBLAS_|cuDNN|CUDNN_|\bNCCL\b")
# After one of these no call of the process to the GPU works any more: the context is lost until the process ends.
_LASTING: Final = re.compile(
    r"device-side assert|illegal memory access|misaligned address|illegal instruction was encountered"
    r"|unspecified launch failure|launch timed out|uncorrectable ECC|invalid program counter"
    r"|cudaError(?:Assert|IllegalAddress|LaunchFailure|LaunchTimeout|MisalignedAddress|HardwareStackError|ECCUncorrectable)"
    r"|CUDA_ERROR_(?:ASSERT|ILLEGAL_ADDRESS|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|ECC_UNCORRECTABLE)"
)


@dataclass(frozen=True, slots=True)
class _View:
    """A failed request, what was said of it, and what happened beside it."""

    evidence: Evidence
    verdict: Verdict

    @property
    def beside(self) -> Beside:
        return self.evidence.beside

    @property
    def attempt(self) -> AttemptEvidence | None:
        """The newest one."""
        return self.evidence.attempts[-1] if self.evidence.attempts else None

    def siblings(self, attempt: AttemptEvidence) -> list[Record]:
        """Ended runs of other requests on the same boot, by their end."""
        same = [
            run
            for run in self.beside.siblings
            if run.ended and run.boot_id == attempt.boot_id and run.job_id != self.evidence.job_id
        ]
        return sorted(same, key=lambda run: (run.last_ns, run.span_id))


@dataclass(frozen=True, slots=True)
class _More:
    """What a rule adds. `sentence` follows the verdict's own, unless `instead`; None leaves a word as it is."""

    sentence: str
    items: tuple[EvidenceItem, ...]
    advice: tuple[str, ...] = ()
    fault: Fault | None = None
    retry: Retry | None = None
    code: str | None = None
    cause: str | None = None
    instead: bool = False


_Rule = Callable[[_View], "_More | None"]


def with_beside(evidence: Evidence, ruling: Ruling) -> Ruling:
    """The newest attempt's ruling, sharpened by what happened beside the request; unchanged where nothing did."""
    verdict = ruling.verdict
    for rules in (_OF_OTHERS, _OF_ITSELF, _OF_ENDPOINT):
        view = _View(evidence, verdict)
        found = next((more for rule in rules if (more := rule(view))), None)
        verdict = _sharpened(verdict, found) if found else verdict
    missing = tuple(Missing(f"{gap}: the store did not answer in time", "") for gap in evidence.beside.gaps)
    if missing:
        verdict = replace(verdict, missing=(*verdict.missing, *missing))
    return replace(ruling, verdict=verdict)


def _sharpened(verdict: Verdict, more: _More) -> Verdict:
    code = more.code or verdict.code
    usual = VERDICTS[verdict.code].advice if more.code else ()
    advice = (*more.advice, *(text for text in verdict.advice if text not in usual))
    guess = more.code is not None or more.cause is not None
    return replace(
        verdict,
        code=code,
        cause=more.cause or verdict.cause,
        title=VERDICTS[code].title,
        sentence=more.sentence if more.instead else verdict.sentence + more.sentence,
        fault=more.fault or verdict.fault,
        retry=more.retry or verdict.retry,
        confidence="likely" if guess and verdict.confidence in ("certain", "unknown") else verdict.confidence,
        evidence=(*verdict.evidence, *more.items),
        advice=tuple(dict.fromkeys(advice)),
        doc=doc_of(code),
    )


# ------------------------------------------------------------------------------------------- others on its worker


def asks_for_siblings(verdict: Verdict) -> bool:
    """Whether other requests on the worker could tell more about this one."""
    return verdict.code in _ENDED_BY_OTHERS or verdict.cause in _GPU_CALLS or _names_gpu(verdict)


def _names_gpu(verdict: Verdict) -> bool:
    vague = verdict.cause in ("unknown", "handler_exception")
    return vague and any(_ANY_GPU_CALL.search(item.text) for item in verdict.evidence if item.what == "exception")


def _taken_down(view: _View) -> _More | None:
    """The handler of another request ended the worker under this one."""
    attempt = view.attempt
    if attempt is None or attempt.run is None or view.verdict.code not in _ENDED_BY_OTHERS:
        return None
    run, death = attempt.run, attempt.death
    if run.error_type in _EXITS:
        return None
    end_ns = death.last_ns if death is not None else run.last_ns
    before = [
        other
        for other in view.siblings(attempt)
        if other.error_type in _EXITS
        and run.start_ns <= other.last_ns <= end_ns + SECOND_NS
        and end_ns - other.last_ns <= TAKEN_DOWN_SECONDS * SECOND_NS
    ]
    if not before:
        return None
    culprit = before[-1]
    ended = f"; the worker {ending_of(death).words()}" if death is not None else ""
    cause = read(culprit, phase="handler").cause.code
    return _More(
        sentence=(
            f"This request got no answer because another one ended its worker: the handler of request"
            f" {name(culprit.job_id)} on {_worker(attempt)} raised {culprit.error_type},"
            f" {duration(between(run.start, culprit.last))} after this one had begun{ended}."
        ),
        items=(event(culprit, f"the handler of request {name(culprit.job_id)} ended with {culprit.error_type}"),),
        advice=("Send the request again: it was not its own handler that failed.", *VERDICTS["handler_exited"].advice),
        fault="user_code",
        retry="yes",
        code="worker_crashed",
        cause=cause if cause not in ("unknown", "no_failure", "request_cancelled") else "handler_exception",
        instead=True,
    )


def _broken_before(view: _View) -> _More | None:
    """An earlier request had left the worker's GPU context broken: what fails there since is its consequence."""
    attempt = view.attempt
    if attempt is None or attempt.run is None or not attempt.run.failed or not _gpu_failed(view.verdict, attempt.run):
        return None
    run = attempt.run
    broken: list[Record] = []
    for other in reversed([one for one in view.siblings(attempt) if one.last_ns <= run.last_ns]):
        if not other.failed:
            break
        if _ANY_GPU_CALL.search(_text(other)):
            broken.append(other)
    while broken and not _LASTING.search(_text(broken[-1])):
        broken.pop()  # nothing says that this one broke it
    if not broken:
        return None
    first = broken[-1]
    cause = read(first, phase="handler").cause
    line = f": {cause.line}" if cause.line else ""
    vague = view.verdict.cause not in _GPU_CALLS
    failed = len(broken) + 1
    return _More(
        sentence=(
            f" The worker's use of its GPU had been broken since request {name(first.job_id)} failed at"
            f" {clock(first.last)}; {'both' if failed == 2 else f'all {failed}'} requests that used the GPU there"
            " failed since, and so will the next."
        ),
        items=(event(first, f"request {name(first.job_id)} was the first to fail on this worker{line}"),),
        advice=(
            f"Look at request {name(first.job_id)} for the cause: after such an error no GPU call of the process works"
            " until it ends.",
            "End the worker after an error of this kind (`refresh_worker`, or raise outside the handler), so that the"
            " next request gets a fresh process.",
        ),
        retry="yes",
        cause=cause.code if vague and cause.code in _GPU_CALLS else ("cuda_error" if vague else None),
    )


def _gpu_failed(verdict: Verdict, run: Record) -> bool:
    return verdict.cause in _GPU_CALLS or (_names_gpu(verdict) and bool(_ANY_GPU_CALL.search(_text(run))))


def _text(run: Record) -> str:
    exception, tail = run.exception, run.tail
    told = f"{exception.type}: {exception.message}\n{exception.stacktrace}" if exception else ""
    return f"{told}\n{tail.text if tail else ''}"


def _worker(attempt: AttemptEvidence) -> str:
    return f"worker {name(attempt.worker_id)}" if attempt.worker_id else "its worker"


# --------------------------------------------------------------------------------------------- the request itself


def _ends_its_workers(view: _View) -> _More | None:
    """Each worker that ran the request ended in the middle of it: it is the request that does it."""
    attempts = view.evidence.attempts
    ended = [attempt for attempt in attempts if _died_running(attempt)]
    if view.verdict.code not in _ENDED_BY_IT or len(ended) < 2 or len(ended) != len(attempts):
        return None
    items = tuple(
        event(attempt.death, f"{_worker(attempt)} ended while it ran the request", what="exit")
        for attempt in ended[:-1]
        if attempt.death
    )
    many = "Both" if len(ended) == 2 else f"All {len(ended)}"
    return _More(
        sentence=f" {many} workers that ran this request ended so.",
        items=items,
        advice=("Do not send the same request again: each worker that takes it is lost, with what else it holds.",),
        retry="no",
    )


def _died_running(attempt: AttemptEvidence) -> bool:
    run, death = attempt.run, attempt.death
    if run is None or run.ended or death is None or attempt.shutdown is not None:
        return False
    ending = ending_of(death)
    return ending.signal is not None or bool(ending.code) or bool(ending.oom_kill)


# ------------------------------------------------------------------------------------------------- its endpoint


def _crash_loop(view: _View) -> _More | None:
    """Worker after worker of the endpoint ends before it asks for work."""
    starts = view.beside.starts
    if view.verdict.code != "boot_crashed" or len(starts) < CRASHES_TOLD:
        return None
    newest = starts[-1]
    minutes = CRASH_WINDOW_SECONDS // 60
    return _More(
        sentence=f" It is the {_ordinal(len(starts))} worker of the endpoint to end before start() in {minutes} min.",
        items=tuple(_start_item(start) for start in (starts[0], newest)),
        advice=("Mend the start first: until a worker gets past it, no request of the endpoint is answered.",),
        retry="no",
    )


def _start_item(start: Start) -> EvidenceItem:
    at = moment(start.ended_ns)
    return EvidenceItem(
        "worker", "exit", f"worker {name(start.worker_id)} ended before start()", at, start.span_id or None
    )


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _came_with(view: _View) -> _More | None:
    """The failure came with an image, a release or a version of the worker SDK."""
    for dimension in ("image", "release", "sdk"):
        found = new_in(view.beside.tallies, dimension)
        if found is not None and found.count >= CRASHES_TOLD and view.beside.where.get(dimension) == found.value:
            return _new_words(found)
    return None


def _new_words(found: NewIn) -> _More:
    what = f"{_DIMENSION_WORDS[found.dimension]} {name(found.value)}"
    counts = f"{found.count} of {found.total} requests with it, 0 of {found.total_before} before it"
    return _More(
        sentence=f" First seen with {what}: {counts}.",
        items=(_counted(f"{what}, first used at {clock(moment(found.since_ns))}: {counts} failed so"),),
        advice=(f"Compare {what} with the one before, or go back to it.",),
        retry="no" if found.count >= ALL_FAIL * found.total else None,
    )


_DIMENSION_WORDS: Final = {
    "host": "host",
    "gpu": "GPU",
    "driver": "driver",
    "image": "image",
    "release": "release",
    "region": "region",
    "sdk": "worker SDK",
}


def _only_there(view: _View) -> _More | None:
    """The failure is more frequent on what this request ran on than elsewhere in its endpoint."""
    for found in stands_out(view.beside.tallies):
        if view.beside.where.get(found.dimension) == found.value:
            return _place_words(found, view.verdict)
    return None


def _place_words(found: StandsOut, verdict: Verdict) -> _More:
    what = f"{_DIMENSION_WORDS[found.dimension]} {name(found.value)}"
    counts = (
        f"{found.count} of {found.total} requests there, {found.count_elsewhere} of {found.total_elsewhere} elsewhere"
    )
    ratio = found.risk_ratio
    how = f"only on {what}" if ratio is None else f"{ratio:.0f} times as often on {what} as elsewhere"
    bound = f"{found.low:.1f} to {'any' if found.high is None else f'{found.high:.0f}'} times the rate elsewhere"
    own = found.dimension == "host" and verdict.fault != "caller_input"
    return _More(
        sentence=f" It happens {how}: {counts}.",
        items=(_counted(f"{what}: {counts} failed so; {bound}"),),
        advice=(_place_advice(found.dimension, what),),
        fault="platform" if own and verdict.fault in ("unknown", "dependency", "capacity") else None,
        retry="yes" if own else None,
    )


def _place_advice(dimension: str, what: str) -> str:
    if dimension == "host":
        return f"Send the request again: on other hosts this is rare. Tell the platform of {what}."
    if dimension in ("gpu", "driver", "region"):
        return f"Leave {what} out of what the endpoint may use until this is mended."
    return f"Compare {what} with the others, or go back to one of them."


def _all_since(view: _View) -> _More | None:
    """Every request of the endpoint has failed so for some time."""
    others = [outcome for outcome in view.beside.outcomes if outcome.job_id != view.evidence.job_id]
    row = _leading_same(others)
    own_ns = min((r.start_ns for r in view.evidence.records if r.job_id), default=None)
    if own_ns is None or len(row) + 1 < IN_A_ROW or (len(others) > len(row) and others[len(row)].first_ns > own_ns):
        return None
    since = moment(min(own_ns, *(outcome.first_ns for outcome in row)))
    count = len(row) + 1
    least = "at least " if len(row) == len(others) else ""
    return _More(
        sentence=f" Every request of the endpoint since {clock(since)} has ended so, {least}{count} of them.",
        items=(_counted(f"the endpoint's newest {count} requests ended in the same failure, since {clock(since)}"),),
    )


def _leading_same(outcomes: Sequence[Outcome]) -> list[Outcome]:
    found: list[Outcome] = []
    for outcome in outcomes:
        if not outcome.same:
            break
        found.append(outcome)
    return found


def _counted(text: str) -> EvidenceItem:
    return EvidenceItem("collector", "event", text)


_OF_OTHERS: Final[tuple[_Rule, ...]] = (_taken_down, _broken_before)
_OF_ITSELF: Final[tuple[_Rule, ...]] = (_ends_its_workers,)
_OF_ENDPOINT: Final[tuple[_Rule, ...]] = (_crash_loop, _came_with, _only_there, _all_since)
