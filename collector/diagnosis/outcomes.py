"""Signs in a tail of how things ended: success, retries, wrappers that only say that something else failed."""

from __future__ import annotations

import re

from collector.diagnosis.reading import Reading, Statement

# A server that says one of these is up: what it printed before did not stop it.
_UP = re.compile(
    r"Application startup complete|Uvicorn running on|Started (?:GRPCInferenceService|HTTPService)|successfully loaded '"
    r"|fired up and ready to roll|[Ss]erver (?:is )?(?:ready|started|listening|up and running)\b|Running on (?:local URL|http)|llama server listening"
    r"|server is listening on|Listening on (?:http|0\.0\.0\.0|port)|To see the GUI go to|Webserver Connected|Worker is ready|Model loaded successfully"
    r"|(?:is )?ready to (?:serve|accept|receive)|Startup complete|startup (?:complete|finished)|Health check passed|service is ready|Connected to the server",
)
_NOT_UP = re.compile(r"not (?:yet )?(?:ready|started|up)|failed|until .{0,20}ready|wait|was ", re.IGNORECASE)
# A request that ended well. Not proof by itself: the worker's SDK says "Finished." after failures too.
_DONE = re.compile(
    r"\| Finished\.|Job (?:completed|finished|succeeded)|Prompt executed in|(?:completed|finished|uploaded|loaded|downloaded|saved) successfully"
    r"|[Ss]uccessfully (?:completed|uploaded|downloaded|loaded|finished|saved)|[Dd]ownload (?:completed|finished|succeeded)|retry succeeded|succeeded (?:on|after)"
    r"|Task completed|Execution completed|\b100%\|",
)
_SOFT = re.compile(
    r"[Rr]etry(?:ing)?\b|will (?:be )?retr|[Tt]rying again|[Aa]ttempt #?\d+|Sleeping |back(?:ing)?[- ]?off|[Ff]all(?:ing)? ?back|[Uu]sing [^\n]{1,40} instead|[Ss]kipping"
    r"|ignor(?:ed|ing)|[Pp]roceeding|[Cc]ontinuing|saving to disk|not set, |not configured|is not available, |disabled",
)
# Something that failed for good: what came before it was not harmless, whatever came after.
_FATAL = re.compile(
    r"Captured Handler Exception|EngineCore failed to start|Engine core initialization failed|ngine process failed to start|EngineDeadError|exited with code [1-9]"
    r"|ShardCannotStart|WorkerProc initialization failed|ChildFailedError|Application startup failed|Initialization failed|failed to start\b|Job failed|Handler failed"
    r"|Failed to (?:load|initialize|start) (?:model|engine|server)|core dumped|failed to load all models|Traceback \(most recent call last\)",
)
_WRAPPER_TYPE = re.compile(
    r"(?:^|\.)(?:CalledProcessError|ChildFailedError|(?:MQ|Async)?(?:LLM)?EngineDeadError|RayTaskError\S*|RayActorError|ActorDiedError|WorkerCrashedError"
    r"|ProcessRaisedException|ProcessExitedException|FatalWorkerException|BrokenProcessPool|SystemExit|RemoteError|ShardCannotStart|TerminatedWorkerError"
    r"|DistBackendError|EngineGenerateError|ExceptionGroup|BaseExceptionGroup|RetryError|CancelledError|GeneratorExit|KeyboardInterrupt|UserWarning"
    r"|\w*Warning|StopIteration|StopAsyncIteration|ActorUnavailableError|LocalRayletDiedError|InternalServerError|TaskCancelledError)$"
)
_WRAPPER_TEXT = re.compile(
    r"[Ss]ee (?:the )?(?:root cause|stack trace|error|logs?|traceback|above|output)|Engine core (?:proc|initialization)|EngineCore (?:failed|encountered)|process failed to start"
    r"|WorkerProc initialization failed|Task finished unexpectedly|Background loop (?:has|is)|Failed core proc|Error raised in subprocess|actor died|actor is dead"
    r"|Prediction failed for an unknown reason|[Ww]orker failed with error|Rank \d+ scheduler died|Initialization failed|[Ss]erver process (?:died|exited)"
    r"|^cancelled$|^canceled$|DataLoader worker \(pid|child process (?:died|failed)|process (?:died|exited|terminated) (?:unexpectedly|with)|non-zero exit status"
    r"|(?:engine|worker|server|process|backend)s? (?:is|are|was|were) (?:already )?dead|look up to see its traceback|check the (?:stack trace|logs?|output)|unexpectedly exited"
    r"|failed to load all models|Exception in ASGI application|unhandled errors in a TaskGroup|exit ?code|^Internal Server Error$|^Error in model execution"
    r"|[Cc]ould not start (?:the )?(?:engine|server|worker)|One or more (?:workers|processes)|Executor failed|^unknown error$",
)


def last_success(reading: Reading) -> int:
    """The last statement that says that a server is up; -1 where none does."""
    return _last(reading, lambda said: bool(_UP.search(said.text)) and not _NOT_UP.search(said.text))


def last_done(reading: Reading) -> int:
    """The last statement that says that a request or step ended well; -1 where none does."""
    return _last(reading, lambda said: bool(_DONE.search(said.text)))


def _last(reading: Reading, fits: object) -> int:
    assert callable(fits)
    for index in range(len(reading.statements) - 1, -1, -1):
        if fits(reading.statements[index]):
            return index
    return -1


def is_soft(reading: Reading, index: int) -> bool:
    """Whether the program went on: it says so in this statement or the two behind it."""
    behind = [said for said in reading.statements[index : index + 3] if said.text]
    return any(_SOFT.search(said.text[:1000]) for said in behind)


def is_fatal(said: Statement) -> bool:
    return bool(_FATAL.search(said.text)) and not said.harmless


def is_wrapper(said: Statement) -> bool:
    """Whether this exception only says that something else failed."""
    return bool(_WRAPPER_TYPE.search(said.exception) or _WRAPPER_TEXT.search(said.message[:600]))


def has_complaint(reading: Reading) -> bool:
    """Whether any line looks like an error or a notice at all."""
    return bool(_COMPLAINT.search(reading.blob))


_COMPLAINT = re.compile(r"error|warn|fail|exception|retry|not set|missing|unable|could not|cannot|no bucket|invalid|abort|signal")
