"""A local server that the handler depends on is not up, not ready, or has gone (boundary rule 11)."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

_LOCAL = r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1?\]|host='?(?:127\.0\.0\.1|localhost)|host\.docker\.internal)"

RULE = Rule(
    code="sidecar_unreachable",
    fault="dependency",
    retry="maybe",
    because="the local server that the handler needs does not answer[ at {address}]",
    details=(
        Detail(
            "address",
            r"((?:https?|wss?)://(?:127\.0\.0\.1|localhost|0\.0\.0\.0)(?::\d{2,5})?)"
            r"|((?:127\.0\.0\.1|localhost|0\.0\.0\.0):\d{2,5})",
        ),
        Detail("name", r"Self-Start (\S{1,40}) on port"),
    ),
    advice=(
        "Read the local server's own output: why it does not start or has gone stands there.",
        "Start it before the worker takes jobs (in a prestart hook), and wait until its health path answers.",
    ),
    missing=(Missing("the local server's own output", "python -m sdk_exporter -- /start.sh"),),
    signals=(
        Signal(
            r"(?:"
            + _LOCAL
            + r")[^\n]{0,240}(?:connection refused|Errno 111|Max retries exceeded|Failed to establish|actively refused"
            r"|Cannot connect|Connect call failed|积极拒绝|拒绝连接|Verbindungsaufbau abgelehnt|connexion refusée"
            r"|conexión (?:rehusada|rechazada)|接続を拒否|conexão recusada)"
            r"|(?:connection refused|Connect call failed|Cannot connect to host"
            r"|Failed to connect to|failed to connect|connect ECONNREFUSED|Could not connect to"
            r"|couldn't connect to|Unable to connect to)[^\n]{0,120}" + _LOCAL,
            "a connection to this very machine is refused",
            (
                "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', "
                "port=8188): Max retries exceeded with url:"
                " /prompt (Caused by NewConnectionError('Failed to establish a new connection: "
                "[Errno 111] Connection refused'))",
                "Failed to connect to server at http://127.0.0.1:8188 after multiple attempts.",
                "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8000 ssl:default",
                "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 3000)",
                "Error: connect ECONNREFUSED 127.0.0.1:11434",
            ),
            unless=r"socket\.cpp|errno: (?:97|99)|Read timed out|4317|4318|trying again|RAS|TCPStore|rdzv",
            strength="certain",
        ),
        Signal(
            r"not reachable after (?:multiple|\d+) (?:retries|attempts)|(?:server|service|ComfyUI"
            r"|backend|webui|API|upstream|Ollama|vLLM"
            r"|llama-server)[^\n]{0,60}(?:is )?(?:not reachable|unreachable|not responding"
            r"|did not (?:start|become|come up)|never (?:came|became)|is down|went away"
            r"|(?:has )?stopped responding)|failed to (?:connect to|reach) (?:the )?(?:ComfyUI"
            r"|server|backend|service|API|local|Ollama|upstream)"
            r"|(?:upstream|proxy)[^\n]{0,60}connection refused|connect\(\) failed \(111"
            r"|no live upstreams|upstream prematurely closed|502 Bad Gateway"
            r"|503 Service Unavailable[^\n]{0,60}(?:local|upstream|backend)"
            r"|could not connect to (?:ollama|the server|server|backend)",
            "the handler's own words for a server that is not there",
            (
                "ComfyUI server (127.0.0.1:8188) not reachable after multiple retries.",
                "connect() failed (111: Connection refused) while connecting to upstream",
                "ERROR: Failed to connect to ComfyUI server",
            ),
            strength="likely",
            unless=r"Read timed out|huggingface|docker|registry|api\.runpod|\bINFO\b",
        ),
        Signal(
            r"(?:Self-Start|backend|subprocess|child|llama[- ]?(?:server|runner)|sidecar|ComfyUI"
            r"|server)[^\n]{0,60}(?:unexpectedly exited|exited unexpectedly|died unexpectedly"
            r"|failed\. Restarting|crashed|terminated unexpectedly|has (?:exited|died|terminated)"
            r"|is not running|not running\b)",
            "the server's process has gone; why is in its own output",
            (
                "Self-Start ComfyUI-0 on port 7821 unexpectedly exited (if something failed, "
                "change setting `LogLevel`)",
                "llama-server exited unexpectedly",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"Engine|core|Worker|rank|nvidia|CUDA|SIGQUIT|compilation|watchdog",
            says="the local server that the handler needs has ended[ ({name})]",
        ),
        Signal(
            r"(?:service|server|model|backend|API|WebUI|engine"
            r"|Triton)[^\n]{0,20} (?:is )?not (?:yet )?ready(?: yet)?"
            r"|still waiting for (?:the )?(?:server|service|API|ComfyUI|backend)"
            r"|waiting for (?:the )?(?:server|service|API|ComfyUI|WebUI|backend"
            r"|Ollama)[^\n]{0,40}(?:\d+/\d+|retry|attempt|timed out)|(?:server"
            r"|service) (?:is )?(?:starting|loading model)[^\n]{0,20}503"
            r"|\"?Loading model\"?[^\n]{0,30}503",
            "still asking when the tail ends",
            ("INFO   | Service not ready yet. Retrying...", "Server not ready"),
            Tier.LAST_RESORT,
            strength="likely",
            says="the local server that the handler waits for did not become ready",
        ),
        Signal(
            r"WebSocketConnectionClosedException|WebSocketException|websocket[^\n]{0,60}(?:closed"
            r"|connection (?:lost|refused)|reset)|Connection to remote host was lost"
            r"|RemoteDisconnected|Remote end closed connection without response"
            r"|ServerDisconnectedError|Server disconnected|ConnectionClosedError"
            r"|ChunkedEncodingError|IncompleteRead|Connection reset by peer|Connection aborted"
            r"|ConnectionResetError|closed the WebSocket connection|RemoteProtocolError|ClientPayloadError",
            "a local server broke off its answer; why is not in this line",
            (
                "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(0 "
                "bytes read, 62 more expected)',"
                " IncompleteRead(0 bytes read, 62 more expected))",
                "websocket._exceptions.WebSocketConnectionClosedException: Connection to remote host was lost.",
                "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
            ),
            Tier.LAST_RESORT,
            strength="possible",
            unless=(
                r"https://|port=443|huggingface|amazonaws|NCCL|TCPStore|api\.runpod|job-(?:take|done)"
                r"|getting job|client disconnected|ClientDisconnected"
            ),
            unless_near=r"huggingface\.co|hf_hub|snapshot_download|upload_file|putobject",
            says="a server that the handler talks to broke off the connection",
        ),
        Signal(
            r"connection refused|ECONNREFUSED|ConnectionRefusedError|Errno 111\b"
            r"|Verbindungsaufbau abgelehnt|connexion refusée|conexión (?:rehusada|rechazada)|拒绝连接"
            r"|连接被拒绝|目标计算机积极拒绝|接続を拒否されました|conexão recusada|В соединении отказано",
            "a refused connection, with no address in the line",
            (
                "ConnectionRefusedError: [Errno 111] Connection refused",
                "curl: (7) Failed to connect to localhost port 8188: Connection refused",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"https://|port=443|RAS|NCCL|TCPStore|4317|4318|registry",
            says="a connection was refused: the server that should answer is not there",
        ),
        Signal(
            r"All connection attempts failed",
            "a client tried every address of the server",
            ("httpx.ConnectError: All connection attempts failed",),
            Tier.HINT,
            strength="likely",
            unless=r"https://",
        ),
        Signal(
            r"llama runner process no longer running",
            "Ollama's own server has gone",
            ("ollama._types.ResponseError: llama runner process no longer running: -1",),
            Tier.LAST_RESORT,
            strength="likely",
            unless=r"signal: killed|exit status 2",
        ),
    ),
)
