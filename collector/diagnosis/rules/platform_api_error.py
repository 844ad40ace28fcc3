"""A call between worker and platform failed or was lost: take job, return result, progress, heartbeat."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="platform_api_error",
    fault="platform",
    retry="maybe",
    because="a call between the worker and the platform failed[ (HTTP {status})][: {call}]",
    details=(
        Detail(
            "status",
            r"\b(4\d\d|5\d\d)\b(?=, message|[^\n]{0,20}(?:Client|Server) Error| [A-Z])|status\W{1,4}(4\d\d|5\d\d)",
        ),
        Detail(
            "call",
            r"(job-take|job-done|job-stream|ping|Failed to return job results"
            r"|Error while getting job|Error Getting Worker)",
        ),
    ),
    advice=(
        "Retry the request, and look at the platform's status page.",
        "Update the worker's SDK; check RUNPOD_AI_API_KEY and the RUNPOD_WEBHOOK_* addresses if they were set by hand.",
    ),
    missing=(Missing("what the SDK asked the platform and was answered", "RUNPOD_DEBUG_LEVEL=DEBUG"),),
    quotes=True,
    signals=(
        Signal(
            r"Error (?:while )?getting (?:job|worker)|failed to (?:get|take|fetch"
            r"|acquire) (?:a )?job\b|Failed to get job|job-take[^\n]{0,120}(?:\b[45]\d\d\b|error"
            r"|Error|failed|timed out)|Job has missing field|Timeout(?:Error)? while (?:getting"
            r"|fetching) job",
            "taking a job failed",
            (
                "ERROR  | Error while getting job: Timeout context manager should be used inside a task",
                'ERROR Error Getting Worker BadRequest with {"status":400}',
                "Failed to get job, status code: 502",
            ),
            strength="likely",
        ),
        Signal(
            r"Failed to return job results?|Error while returning job "
            r"result[^\n]{0,120}(?:\b[45]\d\d\b|onnect|imeout|SSL|reset|disconnect)"
            r"|job-done[^\n]{0,160}(?:\b[45]\d\d\b|error|timed out|refused)"
            r"|job-stream[^\n]{0,160}(?:\b[45]\d\d\b|error)|failed to (?:send|post|report|return"
            r"|deliver) (?:the )?(?:job )?(?:result|output|progress|status)|Error while (?:sending"
            r"|posting|returning) (?:the )?(?:result|progress)",
            "handing the result in failed",
            (
                "ERROR  | job-1 | Failed to return job results. | 502, message='Bad Gateway'",
                "Failed to send progress update: 500",
            ),
            strength="likely",
            unless=r"serializable|\b413\b|\b400\b|JSON",
        ),
        Signal(
            r"ping (?:Request )?Error|heartbeat (?:failed|error|request failed)"
            r"|failed to (?:send )?(?:ping|heartbeat)|Ping error",
            "a heartbeat to the platform failed; the job may go on",
            ("ERROR  | Ping Request Error: HTTPSConnectionPool(host='api.runpod.ai', port=443): Read timed out.",),
            Tier.HINT,
            strength="possible",
        ),
        Signal(
            r"\b5\d\d Server Error[^\n]{0,80}runpod\.(?:ai|io)|(?:api|rest)\.runpod\.(?:ai"
            r"|io)[^\n]{0,160}(?:\b(?:401|403|404|429|5\d\d)\b|refused|timed out|Max retries|reset"
            r"|SSL)|runpod\.error\.\w+|(?:QueryError"
            r"|AuthenticationError): [^\n]{0,80}(?:Unauthorized|runpod)"
            r"|Unauthorized request, please check your API key",
            "the platform's API refused or did not answer",
            (
                "runpod.error.AuthenticationError: Unauthorized request, please check your API key.",
                "requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: "
                "https://api.runpod.ai/v2/x/status/1",
            ),
            strength="likely",
            unless=r"\bINFO\b|not enough free GPUs|no longer any instances",
        ),
        Signal(
            r"(?:update|report) job (?:status|progress): \d{3}|Progress update failed: \d{3}",
            "the platform refused or lost a report",
            (
                "Progress update failed: 500 https://api.runpod.ai",
                "Failed to update job status: 401 Unauthorized",
            ),
            strength="likely",
        ),
    ),
)
