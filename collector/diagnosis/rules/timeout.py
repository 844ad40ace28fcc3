"""A time limit on work in progress expired. The last resort: only where nothing names why the "
"time ran out (rule 14)."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="timeout",
    fault="dependency",
    retry="maybe",
    because="a time limit expired[ after {seconds} s][: {what} did not end in time]",
    details=(
        Detail(
            "seconds",
            r"(?:timeout[=: ]+|within |after |in |TIMEOUT\(?)(\d+(?:\.\d+)?) ?(?:s\b|sec|seconds"
            r"|\)|$)|read timeout=(\d+)|watchdog_timeout=(\d+)",
        ),
        Detail(
            "what",
            r"RPC call to (\w{2,40}) timed out|(llama-server|ComfyUI|model load(?:ing)?) (?:failed to become|did not)",
        ),
    ),
    advice=(
        "Find what it waited for: the last lines before the limit, or a stack dump of the stuck process (py-spy dump).",
        "Raise the limit only if the work is known to take longer; otherwise make the work smaller.",
    ),
    missing=(Missing("what the worker printed while it waited", "STALLSCOPE_LOG_CAPTURE=all"),),
    quotes=True,
    signals=(
        Signal(
            r"Watchdog timeout|watchdog[^\n]{0,40}(?:timed out|timeout|fired|expired)"
            r"|RPC call to \w+ timed out|DUE TO TIME LIMIT"
            r"|execution timed? ?out|executionTimeout|Execution (?:time )?(?:limit"
            r"|timeout) (?:exceeded|reached)",
            "a watchdog saw no progress",
            (
                "[2025-10-17 18:26:00 TP0] Watchdog timeout (self.watchdog_timeout=300)",
                "TimeoutError: RPC call to execute_model timed out.",
                "slurmstepd: error: *** JOB 1234 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
            ),
            Tier.LAST_RESORT,
            strength="likely",
            unless=r"collective operation|NCCL|GSP|Xid|watchdog_timeout=\d+,",
            says="no progress was made within the limit[ of {seconds} s]",
            retry="yes",
        ),
        Signal(
            r"No available shared memory broadcast block found in \d+|No available block found in \d+ second",
            "a notice that a peer is slow: weaker than the error that ends the wait, where one does",
            (
                "No available shared memory broadcast block found in 60 seconds. This typically "
                "happens when some processes are hanging",
            ),
            Tier.CRASH,
            strength="likely",
            says="no progress was made within the limit[ of {seconds} s]",
            retry="yes",
        ),
        Signal(
            r"Read timed out|ReadTimeout|read timeout=|(?:did not|failed to|didn't) (?:become|get"
            r"|be|start|finish|complete|respond|come up|load)[^\n]{0,40}\b(?:within\b|in time\b"
            r"|(?:after|in) \d)|timed out (?:after|waiting|while)|timed ?out\b|TimeoutError|TimeoutExpired"
            r"|(?:request|job|task|startup|model load(?:ing)?|prediction|handler"
            r"|engine)[^\n]{0,30} (?:has )?timed? ?out|DEADLINE_EXCEEDED|Deadline Exceeded"
            r"|context deadline exceeded|"
            r"SoftTimeLimitExceeded|TimeLimitExceeded|time limit (?:exceeded|reached|expired)"
            r"|exceeded (?:the )?(?:time(?:out)? limit|timeout|maximum (?:execution )?time)"
            r"|timeout (?:exceeded|expired|reached|waiting|after|while|occurred|error)"
            r"|504 Gateway Time-?out|WORKER TIMEOUT|hit (?:its|the) timeout|GatewayTimeout|FUNCTION_INVOCATION_TIMEOUT",
            "a limit expired",
            (
                "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', "
                "port=8000): Read timed out. (read timeout=600)",
                "Failed to start llama-server: llama-server failed to become healthy within 600s",
                "[CRITICAL] WORKER TIMEOUT (pid:42)",
                "subprocess.TimeoutExpired: Command '['ffmpeg']' timed out after 60 seconds",
                "asyncio.exceptions.TimeoutError",
                "grpc._channel._InactiveRpcError: status = StatusCode.DEADLINE_EXCEEDED",
            ),
            Tier.LAST_RESORT,
            strength="likely",
            unless=(
                r"\bretry|Retrying|TLS handshake|dial tcp [\d.]+:443|the launch timed out|NCCL"
                r"|TCPStore|collective|clients"
                r"|huggingface\.co|Xid|job-take|Connection timed out|ConnectTimeout"
                r"|Timeout context manager|timeout=\d+[,)]\s?[a-z_]+=|getting job|waiting for (?:page"
                r"|selector)|ProcessGroup"
            ),
        ),
        Signal(
            r"^(?:.{0,40})?Timeout(?:Error)?:? *$",
            "an exception without words",
            ("TimeoutError", "asyncio.TimeoutError"),
            Tier.LAST_RESORT,
            strength="likely",
        ),
        Signal(
            r"Zeitüberschreitung|délai d'attente (?:dépassé|expiré)|tiempo de espera agotado"
            r"|expiró el tiempo|超时|タイムアウト|tempo limite|Превышено время|tempo scaduto|시간 초과",
            "the same in other languages",
            ("ERROR 请求超时: 模型推理 600 秒未完成", "Zeitüberschreitung beim Warten auf den Server"),
            Tier.LAST_RESORT,
            strength="likely",
            unless=r"超时时间[:：=]|timeout=",
        ),
        Signal(
            r"upstream timed out \(110|DeadlineExceeded|active longer than specified deadline",
            "a proxy or a scheduler gave up waiting",
            (
                "upstream timed out (110: Connection timed out) while reading response header from upstream",
                "DeadlineExceeded: Job was active longer than specified deadline",
            ),
            Tier.LAST_RESORT,
            strength="likely",
        ),
    ),
)
