"""Caller or operator ended the request."""

from collector.diagnosis.rules.shape import Rule, Signal, Tier

RULE = Rule(
    code="request_cancelled",
    fault="caller_input",
    retry="yes",
    because="the caller or an operator ended the request",
    advice=(
        "Ask the caller: it left or cancelled before the result was ready.",
        "Compare the caller's own time limit with how long the request needs.",
    ),
    signals=(
        Signal(
            r"Cannot write to closing transport|client (?:has )?(?:disconnected|closed|aborted"
            r"|left|went away)|ClientDisconnect(?:ed)?\b|Client disconnected"
            r"|disconnected (?:client|before response)|request (?:was )?(?:aborted|cancelled"
            r"|canceled) by (?:the )?(?:client|user|caller)|(?:cancelled|canceled|aborted"
            r"|interrupted) by (?:the )?(?:user|client|caller|operator)|499 Client Closed"
            r"|context canceled|StatusCode\.CANCELLED"
            r"|Job (?:was )?(?:cancelled|canceled)|job cancel(?:led|lation)"
            r"|(?:prediction|task|generation) (?:was )?(?:cancelled|canceled)|\bCancell?ationException"
            r"|InterruptProcessingException|Processing interrupted|scancel|CANCELLED (?:AT"
            r"|by)(?![^\n]{0,60}TIME LIMIT)",
            "the other side left",
            (
                "aiohttp.client_exceptions.ClientConnectionResetError: Cannot write to closing transport",
                "starlette.requests.ClientDisconnect",
                "Processing interrupted",
                "INFO: Client disconnected, aborting request",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"TIME LIMIT|PREEMPTION|preempt",
        ),
        Signal(
            r"Cancelled by cancel scope",
            "a scope of the web framework was cancelled: the client left, or a sibling task failed first",
            ("asyncio.exceptions.CancelledError: Cancelled by cancel scope 7f4b7aebd060",),
            Tier.LAST_RESORT,
            strength="possible",
            near=r"disconnect|receive|streaming|starlette|uvicorn",
        ),
        Signal(
            r"^(?:.{0,20}\s)?KeyboardInterrupt\b|received signal 2\b|\bSIGINT\b|signal 2\b"
            r"|Interrupted by (?:user\b|signal 2\b|SIGINT)",
            "an interrupt from the keyboard or by signal 2",
            ("KeyboardInterrupt", "Received SIGINT, shutting down"),
            Tier.LAST_RESORT,
            strength="likely",
            unless=r"sending|Press",
            says="the program was interrupted (signal 2)",
        ),
        Signal(
            r"Aborted request |Abort(?:ed|ing) request|abort_request"
            r"|Finished request [^\n]{0,40}abort|finish(?:ed)?_reason[^\n]{0,6}abort",
            "the engine dropped a request that nobody waited for any more",
            ("INFO 11-01 async_llm_engine.py:134] Aborted request chat-8bde1dd5.",),
            Tier.CRASH,
            strength="possible",
        ),
        Signal(
            r"^(?:asyncio\.(?:exceptions\.)?|concurrent\.futures\.\S{0,12})?CancelledError\b",
            "a task was cancelled; by whom is not in the line",
            ("asyncio.exceptions.CancelledError",),
            Tier.REPORT,
            strength="possible",
            phases=("handler", "stop"),
        ),
        Signal(
            r"due to client closing the connection|Broken pipe while sending to the client",
            "the other end closed the connection",
            (
                '[GIN] 499 | POST "/api/generate" aborting completion request due to client closing the connection',
                "BrokenPipeError: [Errno 32] Broken pipe while sending to the client",
            ),
            strength="likely",
        ),
    ),
)
