"""Signs in a tail of how things ended: success, retries, wrappers that only say that something else failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from collector.diagnosis.reading import Reading, Statement
from collector.diagnosis.rules.match import places_of
from collector.diagnosis.rules.needles import NeedleIndex, needles_of

# A server that says one of these is up: what it printed before did not stop it.
_UP: Final = (
    r"Application startup complete|Uvicorn running on|Started (?:GRPCInferenceService|HTTPService)"
    r"|successfully loaded '|fired up and ready to roll|server (?:is )?(?:ready|started|listening|up and running)\b"
    r"|Running on (?:local URL|http)"
    r"|llama server listening|server is listening on|Listening on (?:http|0\.0\.0\.0|port)|To see the GUI go to"
    r"|Webserver Connected|Worker is ready|Model loaded successfully|ready to (?:serve|accept|receive)"
    r"|Startup (?:complete|finished)|Health check passed|service is ready|Connected to the server"
    r"|API is reachable|connection OK\b|is now reachable|connected to (?:ComfyUI|Ollama|backend)"
)
_NOT_UP: Final = re.compile(
    r"not (?:yet )?(?:ready|started|up)|failed|until .{0,20}ready|wait|was |error", re.IGNORECASE
)
# A request that ended well. Not proof by itself: the worker's SDK says "Finished." after failures too.
_DONE: Final = (
    r"\| Finished\.|\"message\": ?\"Finished\.|Job (?:completed|finished|succeeded)|Prompt executed in"
    r"|(?:completed|finished|uploaded|loaded|downloaded|saved) successfully"
    r"|successfully (?:completed|uploaded|downloaded|loaded|finished|saved)|download (?:completed|finished|succeeded)"
    r"|retry succeeded|succeeded (?:on|after)|attempt \d+ succeeded|Task completed|Execution completed"
)
# The program went on.
_SOFT: Final = (
    r"retry(?:ing)?\b|will (?:be )?retr|trying again|attempt #?\d+|Sleeping |backing off|back-?off|fall(?:ing)? ?back"
    r"|using [^\n]{1,40} instead|skipping|ignor(?:ed|ing)|proceeding|continuing|saving to disk|not set, |not configured"
    r"|is not available, |disabled"
)
# Something that failed for good: what came before it was not harmless, whatever came after.
_FATAL: Final = (
    r"Captured Handler Exception|EngineCore failed to start|Engine core initialization failed"
    r"|Engine process failed to start|EngineDeadError|exited with code [1-9]|ShardCannotStart"
    r"|WorkerProc initialization failed|ChildFailedError|Application startup failed|Initialization failed"
    r"|failed to start\b|Job failed|Handler failed|Failed to (?:load|initialize|start) (?:model|engine|server)"
    r"|core dumped|failed to load all models|Exception during processing"
    r"|Failed to validate prompt"
)
_MARKS: Final = tuple(re.compile(pattern, re.IGNORECASE) for pattern in (_UP, _DONE, _SOFT, _FATAL))
_INDEX: Final = NeedleIndex(needles_of(pattern) for pattern in (_UP, _DONE, _SOFT, _FATAL))
_LOOKS: Final = 400  # places of one text: marks are wanted to the last, and a tail has not many more lines

_WRAPPER_TYPE: Final = re.compile(
    r"(?:^|\.)(?:CalledProcessError|ChildFailedError|(?:MQ|Async)?(?:LLM)?EngineDeadError|RayTaskError\S*|RayActorError"
    r"|ActorDiedError|WorkerCrashedError|ProcessRaisedException|ProcessExitedException|FatalWorkerException"
    r"|BrokenProcessPool|SystemExit|DownloadError|Web[Ss]erver(?:Failed|Crashed)|ShardFailed|RemoteError"
    r"|ShardCannotStart|TerminatedWorkerError|DistBackendError"
    r"|EngineGenerateError|ExceptionGroup|BaseExceptionGroup|RetryError|CancelledError|GeneratorExit|KeyboardInterrupt"
    r"|\w*Warning|ActorUnavailableError|LocalRayletDiedError|InternalServerError"
    r"|TaskCancelledError)$"
)
_WRAPPER_TEXT: Final = re.compile(
    r"[Ss]ee (?:the )?(?:\w+ )?(?:root cause|stack trace|errors?|logs?|traceback|above|output)|EngineCore (?:failed"
    r"|encountered)"
    r"|Engine core (?:proc|initialization)|process failed to start|WorkerProc initialization failed"
    r"|Task finished unexpectedly|Background loop (?:has|is)|Failed core proc|Error raised in subprocess|actor died"
    r"|actor is dead|Prediction failed for an unknown reason|[Ww]orker failed with error|Rank \d+ scheduler died"
    r"|Initialization failed|[Ss]erver process (?:died|exited)|^cancelled$|^canceled$|DataLoader worker \(pid"
    r"|child process (?:died|failed)|process (?:died|exited|terminated) (?:unexpectedly|with)|non-zero exit status"
    r"|(?:engine|worker|server|process|backend)s? (?:is|are|was|were) (?:already )?dead|look up to see its traceback"
    r"|check the (?:stack trace|logs?|output)|unexpectedly exited|failed to load all models"
    r"|Exception in ASGI application"
    r"|unhandled errors in a TaskGroup|exit ?code|^Internal Server Error$|^Error in model execution"
    r"|[Cc]ould not start (?:the )?(?:engine|server|worker)|One or more (?:workers|processes)|Executor failed"
    r"|^unknown error$"
)
_COMPLAINT: Final = re.compile(
    r"error|warn|fail|exception|retry|not set|missing|out of|fall|unable"
    r"|could not|cannot|no bucket|invalid|abort|signal"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the signs stand, as indices of statements."""

    up: frozenset[int]
    done: frozenset[int]
    soft: frozenset[int]
    fatal: frozenset[int]
    next_job: int = -1  # where a job began when all before it had ended; -1 where one job at most is told of

    def is_soft(self, index: int) -> bool:
        """Whether the program went on: it says so in this statement or the two behind it."""
        return not self.soft.isdisjoint((index, index + 1, index + 2))


def read_outcome(reading: Reading, grams: frozenset[str]) -> Outcome:
    """The signs of success, of going on, and of failure for good."""
    found: list[frozenset[int]] = [frozenset()] * len(_MARKS)
    for number, needles in _INDEX.worth(grams):
        found[number] = _marked(reading, needles, _MARKS[number])
    up, done, soft, fatal = found
    up = frozenset(index for index in up if not _NOT_UP.search(reading.statements[index].text))
    # A probe process may die of what it probes for: the program says so and goes on.
    fatal = frozenset(
        index
        for index in fatal
        if not reading.statements[index].harmless
        and not ("core dumped" in reading.statements[index].text and {index + 1, index + 2} & soft)
    )
    return Outcome(up, done, soft, fatal, _next_job(reading))


# The worker's SDK, as text and as a record: which job begins or ends.
_JOB: Final = re.compile(
    r"\| (?P<job>[\w-]{1,80}) \| (?P<did>Started|Finished)\."
    r'|"requestId": ?"(?P<request>[\w-]{1,80})"[^\n]{0,40}"message": ?"(?P<does>Started|Finished)\.'
)


def _next_job(reading: Reading) -> int:
    running: set[str] = set()
    seen: set[str] = set()
    found = -1
    for index, _ in places_of(reading, ("started.", "finished."), _LOOKS):
        told = _JOB.search(reading.statements[index].text[:300])
        if not told:
            continue
        job = told["job"] or told["request"]
        if "Started" in (told["did"], told["does"]):
            found = index if seen and not running and job not in seen else found
            running.add(job)
            seen.add(job)
        else:
            running.discard(job)
    return found


def _marked(reading: Reading, needles: list[str], pattern: re.Pattern[str]) -> frozenset[int]:
    places = {index for index, _ in places_of(reading, needles, _LOOKS)}
    return frozenset(index for index in places if pattern.search(reading.statements[index].text[:2000]))


def is_wrapper(said: Statement) -> bool:
    """Whether this exception only says that something else failed."""
    return bool(_WRAPPER_TYPE.search(said.exception) or _WRAPPER_TEXT.search(said.message[:600]))


def has_complaint(reading: Reading) -> bool:
    """Whether any line looks like an error or a notice at all."""
    return _COMPLAINT.search(reading.blob) is not None
