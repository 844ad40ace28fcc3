"""Application code, or a library it calls, raised an error that no other cause explains."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

# What tells this cause is mostly no text but an exception that no other rule claims: see `causes._exceptions`.
RULE = Rule(
    code="handler_exception",
    fault="user_code",
    retry="no",
    because="the handler's code failed[: {type}][: {message}]",
    details=(Detail("file", r'File "([^"]{1,120})", line'),),
    advice=(
        "Read the traceback from its first exception; the last frame in your own code is where to look.",
        "Run the same input locally; a retry of the same input fails the same way.",
    ),
    signals=(
        Signal(
            r"Exception during processing ?!!! \S|Error occurred when executing [\w |+()-]{1,60}:",
            "ComfyUI names the node that failed and the message of its exception",
            (
                "!!! Exception during processing !!! 'NoneType' object has no attribute 'shape'",
                "Error occurred when executing KSampler:",
            ),
            Tier.REPORT,
            strength="likely",
            says="a node of the workflow failed",
        ),
        Signal(
            r"Captured Handler Exception|Unhandled exception in handler|Error running handler|Exception in handler",
            "the worker's SDK caught an exception of the handler; which one is not in the line",
            ("ERROR  | job-1 | Captured Handler Exception",),
            Tier.REPORT,
            strength="possible",
            says="the handler raised an exception, which is not in the log",
        ),
        Signal(
            r"(?-i:ERROR) +\| [\w-]{8,80} \| \S|Uncaught exception \| |Error handling job: ",
            "the worker's SDK reports a job's error by its message alone, as it does for generators",
            ("ERROR  | sync-bc8046e6-09cd-u1 | list index out of range", "ERROR  | Uncaught exception | boom"),
            Tier.REPORT,
            strength="possible",
            says="the handler failed",
        ),
    ),
)
