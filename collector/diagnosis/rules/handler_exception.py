"""Application code, or a library it calls, raised an error that no other cause explains."""

from collector.diagnosis.rules.shape import Detail, Rule

# The signals of this cause are not texts but exceptions that no other rule claims: see `causes._exceptions`.
RULE = Rule(
    code="handler_exception",
    fault="user_code",
    retry="no",
    because="the code raised {type}[: {message}]",
    details=(Detail("file", r'File "([^"]{1,120})", line'),),
    advice=(
        "Read the traceback from its first exception; the last frame in your own code is where to look.",
        "Run the same input locally; a retry of the same input fails the same way.",
    ),
    signals=(),
)
