"""The hub refuses the credentials: gated, private, or a bad token (boundary rule 7)."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="gated_model_auth",
    fault="model_config",
    retry="no",
    because="the hub refuses the credentials[ for {model}]",
    details=(
        Detail(
            "model",
            r"access to model (\S{1,120}) is restricted|huggingface\.co/(?:api/models/)?([\w.-]{1,60}/[\w.-]{1,80})",
        ),
    ),
    advice=(
        "Accept the licence of {model} on its page with the account that the token belongs to.",
        "Set HF_TOKEN in the endpoint's environment to a token of that account with read access; "
        "check that it is not empty, quoted"
        " or expired.",
    ),
    signals=(
        Signal(
            r"GatedRepoError|Cannot access gated repo|You are trying to access a gated repo"
            r"|Access to (?:model|dataset) \S+ is restricted|private or gated so make|(?:is a"
            r"|a) gated (?:repo|model|repository|dataset)"
            r"|awaiting a review from the repo authors|not in the authorized list"
            r"|must (?:be authenticated|have access) to (?:access )?it|need to (?:accept"
            r"|agree)[^\n]{0,60}(?:license|licence|terms|conditions)",
            "the hub says that the model is gated",
            (
                "huggingface_hub.utils._errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-66)",
                "OSError: You are trying to access a gated repo.",
                "Access to model google/gemma-2-2b-it is restricted. You must have access to it "
                "and be authenticated to access it.",
                "Cannot access gated repo for url "
                "https://huggingface.co/meta-llama/Llama-2-7b/resolve/main/config.json.",
            ),
            Tier.RESOURCE,
            lead=r"40[13] Client Error|GatedRepoError|Could not download",
        ),
        Signal(
            r"Invalid user token|Invalid token passed|Invalid username or password"
            r"|token (?!count|id|len|limit)(?:\S+ ){0,4}is (?:not valid|invalid|expired)"
            r"|Invalid credentials in Authorization header|Token is (?:required|not valid|invalid)"
            r"|token seems invalid"
            r"|LocalTokenNotFoundError|you (?:must|need to) (?:be logged in|log ?in"
            r"|provide a (?:valid )?token)|Bad credentials|`token` is invalid"
            r"|User Access Token[^\n]{0,60}expired",
            "the token is refused",
            (
                "requests.exceptions.HTTPError: Invalid user token. The token from HF_TOKEN "
                "environment variable is invalid.",
                "ValueError: Invalid token passed! Token is invalid",
                "huggingface_hub.errors.LocalTokenNotFoundError: Token is required (`token=True`), but no token found.",
                "OSError: 401 Client Error: Invalid credentials in Authorization header",
            ),
            Tier.RESOURCE,
            near=r"hugging|hf_|hf-|hub|token",
            unless=r"JSON|json|Unexpected token|tokenizer|api key|runpod|bentocloud|input_ids|special token|-token ",
            unless_near=r"repository not found for url",
            lead=r"40[13] Client Error",
            says="the hub refuses the access token",
        ),
        Signal(
            r"40[13] (?:Client Error|Forbidden|Unauthorized)[^\n]{0,160}(?:huggingface\.co|hf\.co"
            r"|civitai\.com|modelscope)|HTTP status client error \(40[13][^\n]{0,80}(?:huggingface"
            r"|hf\.co|civitai)"
            r"|(?:huggingface\.co|civitai\.com|hf\.co)[^\n]{0,200}(?:40[13] (?:Forbidden"
            r"|Unauthorized)|status(?: code)?:? 40[13])|ERROR 40[13]: (?:Forbidden|Unauthorized)"
            r"|fine-grained token[^\n]{0,60}(?:permission|scope|access)"
            r"|pull model manifest: 40[13]|awaiting response\.\.\. 40[13]\b|Username/Password Authentication Failed"
            r"|The requested URL returned error: 40[13]\b",
            "the hub answers 401 or 403, or a download tool says so",
            (
                "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url:"
                " https://huggingface.co/api/models/meta-llama/Meta-Llama-3-8B",
                "request error: HTTP status client error (403 Forbidden) for url "
                "(https://huggingface.co/google/gemma/resolve/main)",
            ),
            unless=r"RepositoryNotFound|EntryNotFound|retrying|ProxyError|Tunnel connection|rate limit",
            unless_near=r"repository not found|repositorynotfounderror",
            strength="likely",
        ),
        Signal(
            r"Invalid credentials in Authorization header|Authentication failed for 'https://(?:huggin"
            r"gface|hf)|Invalid apikey[^\n]{0,40}(?:model|nvcr|ngc)|enable access to public gated"
            r"|KaggleApiHTTPError: 40[13]"
            r"|(?:modelscope|huggingface|hf\.co|civitai)[^\n]{0,80}(?:token (?:is )?(?:invalid"
            r"|expired)|please login)|token has expired[^\n]{0,20}hugging",
            "a hub refuses the token",
            (
                "Invalid credentials in Authorization header",
                "fatal: Authentication failed for 'https://huggingface.co/m/x/'",
                "ngc: Error: Invalid apikey for nvcr.io model registry",
                "modelscope: HTTPError: 401 token invalid, please login",
                "kagglehub.exceptions.KaggleApiHTTPError: 403 Client Error. No permission",
            ),
            strength="likely",
        ),
        Signal(
            r"modelscope\S{0,60}[^\n]{0,40}Response \[40[13]\]|authentication has failed, please login",
            "ModelScope refuses the token",
            ("modelscope.hub.errors.HTTPError: <Response [401]>, authentication has failed, please login first",),
            strength="likely",
        ),
        Signal(
            r"must be authenticated to (?:access|download|use)|access (?:to|has) [^\n]{0,60}not been granted",
            "the model asks who downloads it",
            ("Error: You must be authenticated to access the gated model a/b",),
            strength="likely",
            near=r"hugging|gated|model|hub",
        ),
    ),
)
