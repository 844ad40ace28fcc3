"""The hub answers and does not serve: throttled (429) or failing (5xx). The status is kept as a detail."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

_HUB = (
    r"(?:huggingface\.co|hf\.co|hf-mirror\.com|civitai\.com|modelscope\.cn|ollama\.(?:ai|com)"
    r"|cas-(?:server|bridge)\S{0,20}\.hf\.co|cdn-lfs\S{0,20}|xethub|pypi\.org|github\.com|githubusercontent\.com"
    r"|openaipublic\S{0,30}|download\.pytorch\.org)"
)

RULE = Rule(
    code="hub_unavailable",
    fault="upstream_service",
    retry="yes",
    because="the model hub did not serve[ (HTTP {status})][: {what}]",
    details=(
        Detail("status", r"\b(429|50[0-9]|52\d)\b"),
        Detail(
            "what",
            r"\b(Too Many Requests|Gateway Time-?out|Bad Gateway"
            r"|Service (?:Temporarily )?Unavailable|Internal Server Error|rate limit)",
        ),
    ),
    advice=(
        "Retry later, with a growing wait.",
        "Put the model into the image or the network volume, so that a start needs no hub.",
        "Set HF_TOKEN: signed-in downloads have a higher limit; set HF_HUB_OFFLINE=1 where the cache holds the files.",
    ),
    missing=(Missing("what the hub was asked and answered", "HF_HUB_VERBOSITY=debug"),),
    signals=(
        Signal(
            r"429 Client Error|429 Too Many Requests|\(429[ )]|Status Code: 429"
            r"|HTTP (?:Error )?429|We had to rate limit your IP|Too Many Requests for url"
            r"|status(?:_code| code)?[=: ]+429|rate limit(?:ed)?[^\n]{0,40}(?:exceeded|reached"
            r"|your IP)",
            "the hub throttles",
            (
                "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url:"
                " https://huggingface.co/api/models/Qwen/Qwen3-30B-A3B/tree/main",
                "Download failed: request error: HTTP status client error (429 Too Many Requests) for url"
                " (https://huggingface.co/x/resolve/main/config.json)",
                "We had to rate limit your IP (203.0.113.7). To continue using our service, create a HF account",
            ),
            near=_HUB + r"|hugging|hf_hub|xet",
            unless=r"toomanyrequests|registry|docker\.io|image|openai\.com|anthropic",
        ),
        Signal(
            r"\b(?P<status>50[0-9]|52\d)(?: Server Error|:? (?:Internal Server Error|Bad Gateway"
            r"|Service (?:Temporarily )?Unavailable|Gateway Time-?out))[^\n]{0,120}"
            + _HUB
            + r"|HTTP status server error \(5\d\d[^\n]{0,160}"
            + _HUB
            + "|"
            + _HUB
            + r"[^\n]{0,160}(?:returned|status|HTTP) (?:code |error )?(?:429|5\d\d)\b",
            "the hub fails",
            (
                "requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: "
                "https://huggingface.co/api/models/x",
                "huggingface_hub.errors.HfHubHTTPError: 500 Server Error: Internal Server Error for url:"
                " https://huggingface.co/api/models/x/xet-read-token/1",
                "request error: HTTP status server error (503 Service Unavailable) for url (https://huggingface.co/x)",
            ),
        ),
        Signal(
            r"HfHubHTTPError: 5\d\d|RPC failed; HTTP (?:429|5\d\d)"
            r"|pull model manifest: (?:429|5\d\d)|(?:CAS service error"
            r"|Xet)[^\n]{0,120}(?:50\d|429|Reqwest|request middleware"
            r"|single flight error|Timer expired|IncompleteBody|did not match expected)|the hub (?:is"
            r"|seems) (?:down|unavailable)|Hugging Face Hub (?:is )?(?:down|unreachable"
            r"|unavailable)"
            r"|Server (?:Error|unavailable)[^\n]{0,60}huggingface",
            "the hub's transfer broke off",
            (
                "huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Temporarily Unavailable",
                "RuntimeError: Data processing error: CAS service error : Reqwest Error: HTTP "
                "status server error (500 Internal Server"
                " Error)",
            ),
            strength="likely",
            unless=r"No space left|dns error|failed to lookup|error trying to connect|tcp connect error",
        ),
        Signal(
            r"Read timed out|ReadTimeout(?:Error)?|IncompleteRead|Connection broken"
            r"|ChunkedEncodingError|peer closed connection without sending complete message",
            "a download from the hub broke off in the middle",
            (
                "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', "
                "port=443): Read timed out. (read timeout=10)",
            ),
            Tier.HINT,
            strength="possible",
            near=r"(?:host=')?(?:huggingface\.co|cdn-lfs|hf\.co|civitai\.com)|hf_hub_download|snapshot_download",
            unless=r"127\.0\.0\.1|localhost",
            says="a download from the model hub broke off",
        ),
        Signal(
            r"We had to rate limit your IP|CAS (?:Client|service) Error[^\n]{0,80}(?:429|5\d\d)"
            r"|requested URL returned error: (?:429|5\d\d) [^\n]{0,10}https://(?:huggingface|cdn|cas)"
            r"|pulling manifest: (?:429|5\d\d)"
            r"|(?:huggingface|hf\.co|modelscope|civitai|ollama\.ai)[^\n]{0,120}status=(?:429|5\d\d)",
            "the hub answers with a refusal for now",
            (
                "We had to rate limit your IP (1.2.3.4). To continue using our service, create a HF account",
                "CAS Client Error: Request error: HTTP status client error (429 Too Many Requests)",
                "curl: (22) The requested URL returned error: 503 https://huggingface.co/m/x",
                "error: pulling manifest: 503: upstream connect error registry.ollama.ai",
                "aria2: errorCode=29 URI=https://huggingface.co/m/x The response status is not successful. status=503",
            ),
            strength="likely",
        ),
        Signal(
            r"unable to access 'https://(?:huggingface\.co|hf\.co|github\.com)[^\n]{0,120}error: (?:429|5\d\d)",
            "git is turned away by the hub",
            ("fatal: unable to access 'https://huggingface.co/a/b/': The requested URL returned error: 503",),
            strength="likely",
        ),
    ),
)
