"""The caller's input is refused or cannot be read."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="input_invalid",
    fault="caller_input",
    retry="no",
    because=(
        "the input of the request is not valid[: {asked} tokens where {limit} fit][: {field} is missing][: {problem}]"
    ),
    details=(
        Detail("limit", r"maximum (?:context|model|input) length (?:is|of) (\d+)|must be <= (\d+)"),
        Detail("asked", r"(?:you requested|length|resulted in|Given:?) \(?(\d+)\)?"),
        Detail(
            "field",
            r"missing (?:required )?(?:input|parameter|field|key)s?:? [`'\"]?(\w{1,40})"
            r"|[`'\"]?(\w{1,40})[`'\"]? (?:is a required|is required)",
        ),
        Detail(
            "problem",
            r"(cannot identify image file|Invalid base64[^\n]{0,40}|moov atom not found"
            r"|Incorrect padding|Invalid data found when processing input)",
        ),
    ),
    advice=(
        "Correct the request: {field} has to be given.",
        "Shorten the prompt, or ask for fewer output tokens: together they have to fit into {limit}.",
        "Have the caller check what it sends; a retry of the same request fails the same way.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"maximum context length is \d+ tokens|(?:prompt|input|sequence|request"
            r"|Input)[^\n]{0,60}(?:is |too )?(?:longer|long|larger"
            r"|exceeds?)[^\n]{0,40}(?:than )?(?:the )?(?:max\w*|model|context"
            r"|allowed)[^\n]{0,30}(?:length|tokens|context|len|size)"
            r"|exceeds? (?:the )?(?:model's )?(?:maximum )?(?:context|input|sequence) (?:length"
            r"|size|window|limit)|(?:inputs?|`inputs`)[^\n]{0,30}must have less than \d+ tokens"
            r"|`inputs` tokens \+ `max_new_tokens` must be"
            r"|token indices sequence length is longer[^\n]{0,120}error|context_length_exceeded"
            r"|(?:Requested token count|number of tokens)[^\n]{0,40}exceeds|prompt is too long"
            r"|too many tokens|exceed_context_size",
            "the prompt is longer than the model takes",
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
                "ValueError: The decoder prompt (length 138) is longer than the maximum model length of 128.",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
                "the request exceeds the available context size, try increasing it",
            ),
            unless=r"Running this sequence through the model will result in indexing errors$|KV cache|\bINFO\b"
            r"|max_num_batched_tokens|prefix_mask|sequence_id|buckets",
        ),
        Signal(
            r"cannot identify image file|UnidentifiedImageError|image file is truncated"
            r"|broken data stream when reading image|DecompressionBomb(?:Error|Warning)"
            r"|Invalid base64|Incorrect padding|binascii\.Error"
            r"|Invalid data found when processing input|moov atom not found"
            r"|could not find codec parameters"
            r"|(?:Failed|Unable|failed|unable|Could not|cannot) to (?:decode|load|read|open|parse"
            r"|download|fetch) (?:the )?(?:input )?(?:image|audio|video|base64)\b"
            r"|Error opening [^\n]{0,120}: (?:Format not recognised|System error"
            r"|File contains data)|LibsndfileError|(?:OpenCV|cv2)[^\n]{0,120}!_?s(?:rc|size)\.empty\(\)"
            r"|unsupported (?:image|audio|video|file|media) (?:format|type)|(?:image|audio"
            r"|video) (?:is )?(?:corrupt|invalid|too small)|not a valid (?:image|audio|video"
            r"|base64)",
            "the file that the caller sent cannot be read",
            (
                "PIL.UnidentifiedImageError: cannot identify image file 'input_objects/7ff.jpg'",
                "binascii.Error: Incorrect padding",
                "OSError: image file is truncated (12 bytes not processed)",
                "in.mp4: Invalid data found when processing input",
                "cv2.error: OpenCV(4.8.0) /io/opencv/modules/imgproc/src/color.cpp:182: error: "
                "(-215:Assertion failed) !_src.empty()",
            ),
            unless=r"\[Errno 2\][^\n]{0,40}'ffmpeg'|DecompressionBombWarning",
            strength="likely",
        ),
        Signal(
            r"\b(?:input|job|request|payload|body|schema)\b[^\n]{0,40}(?:validation (?:error|failed)"
            r"|is not valid|is invalid|failed validation|must be (?:a|an|one|provided|of type)"
            r"|must (?:have|contain|include)|missing (?:required )?(?:field|parameter|key|input"
            r"|'))|validation errors? for (?:\w*Request|\w*Input|\w*Body|\w*Params|\w*Payload"
            r"|\w*Schema|\w*Job)"
            r"|jsonschema\.exceptions\.ValidationError|missing (?:required )?(?:input|parameter"
            r"|field)s?\b|[`'\"]\w{1,40}[`'\"] is a required (?:property|input|field|parameter)"
            r"|\w+ is a required input|Unexpected input\. \w+ is not a valid"
            r"|RequestValidationError|value_error\.missing|Field required|(?:No|no) (?:prompt"
            r"|image|input|workflow|text|audio|url|messages?) (?:was )?(?:provided|given|specified"
            r"|found in (?:the )?(?:input|request|job))"
            r"|Please provide (?:a|an|the) '?\w+'?(?: in| parameter| field)|Invalid (?:input"
            r"|request|JSON format in input|prompt|parameters?|workflow)\b|422 Unprocessable"
            r"|BadRequestError|Bad Request: |invalid_request_error|Invalid JSON|Unknown (?:task"
            r"|method|action|operation|command)(?: type)?:? |unsupported (?:language|voice|task"
            r"|method|parameter)",
            "the input does not have the shape that the handler asks for",
            (
                "jsonschema.exceptions.ValidationError: 'prompt' is a required property",
                "prompt is a required input.",
                "Unexpected input. promt is not a valid input option.",
                "{'error': 'Missing required parameter: image_url'}",
                "ValueError: No prompt provided in the input",
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for GenerateRequest",
            ),
            strength="likely",
            not_phases=("boot", "prestart"),
            unless=(
                r"\bINFO\b|environment|env var|No input found|Job has missing|getting job|job-take"
                r"|Error Getting Worker|401|403|runpod\.ai"
                r"|tensor|dtype|\bdims?\b|dimension|\baxis\b|\barray|list of lists|embeds|_scale\b|\bmask\b"
                r"|AssertionError"
                r"|InputParam|invalid input for|SerializeError|input shape|_shape\b"
            ),
        ),
        Signal(
            r"yt_dlp\.utils\.\w+|youtube_dl\.utils\.\w+|\[youtube\][^\n]{0,60}(?:unavailable|Private video|Sign in)",
            "a video address of the caller that cannot be fetched",
            ("yt_dlp.utils.DownloadError: ERROR: [youtube] abc: Video unavailable",),
            strength="likely",
            phases=("handler", "queue"),
            says="an address in the input could not be fetched",
        ),
        Signal(
            r"\b(?:height|width|resolution|num_frames|frames)\b[^\n]{0,60}(?:divisible by|multiples? of)"
            r"|roles must alternate|Only user(?:,| and) assistant|System role not supported"
            r"|only (?:supports|accepts)[^\n]{0,30}(?:user|system)[^\n]{0,20} roles?",
            "a value or a conversation that the pipeline refuses",
            (
                "ValueError: `height` and `width` have to be divisible by 8 but are 513 and 512.",
                "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...",
                "jinja2.exceptions.TemplateError: System role not supported",
            ),
            strength="likely",
            not_phases=("boot", "prestart"),
            unless=r"\bWARN|\bINFO\b",
        ),
        Signal(
            r"extra_forbidden|Extra inputs are not permitted",
            "a strict schema refuses an unknown key of the input",
            ("  Extra inputs are not permitted [type=extra_forbidden, input_value='x', input_type=str]",),
            phases=("handler",),
            strength="likely",
        ),
        Signal(
            r"Value not in list: (?!(?:ckpt_name|vae_name|lora_name|unet_name|clip_name\d?"
            r"|control_net_name|model_name|style_model_name|gligen_name|upscale_model|\w*model\w*"
            r"|\w*ckpt\w*|\w*lora\w*):)\w+:|Required input is missing"
            r"|Failed to convert an input value|prompt_no_outputs|prompt_outputs_failed_validation"
            r"|Prompt has no outputs|Value \S{1,20} (?:smaller than min|bigger than max)"
            r"|Return type mismatch between linked nodes|invalid_prompt"
            r"|Exception when validating inner node",
            "ComfyUI refuses the workflow",
            (
                "  - Value not in list: sampler_name: 'foo' not in ['euler', 'ddim']",
                "  - Required input is missing: images",
                "invalid prompt: {'type': 'prompt_no_outputs', 'message': 'Prompt has no outputs'}",
            ),
            says="the workflow that the caller sent is not valid",
            strength="likely",
            unless=r"missing_node_type",
        ),
        Signal(
            r"(?:Client Error|HTTP Error (?:40[0134]|410|41[56]))[^\n]{0,40}(?:for url|Forbidden"
            r"|Not Found)|HTTP Error 400: Bad Request|(?:Unsupported|Invalid|No connection adapters were found for"
            r"|Missing) (?:URL|url|scheme|schema)|InvalidSchema|MissingSchema|InvalidURL"
            r"|unknown url type",
            "an address in the input cannot be fetched",
            (
                "requests.exceptions.MissingSchema: Invalid URL 'image.png': No scheme supplied.",
                "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://example.org/a.png",
            ),
            Tier.HINT,
            strength="possible",
            phases=("handler",),
            unless=r"huggingface\.co|hf\.co|civitai|runpod\.(?:ai|io|net)|127\.0\.0\.1|localhost|s3[.-]|429|5\d\d",
            says="an address in the input could not be fetched",
        ),
        Signal(
            r"(?:invalid|missing|unsupported|malformed|no valid|empty)[^\n]{0,40}\b(?:input|prompt"
            r"|image|audio|video|url|request|parameter|field|payload|workflow|language|voice|size"
            r"|resolution|aspect)s?\b"
            r"|\b(?:input|prompt|image|audio|video|url|width|height|resolution|duration|text"
            r"|num_\w+)\b[^\n]{0,60}(?:must|should|has to|cannot|can't|is not|invalid|missing"
            r"|required|is empty|too (?:long|short|small|large))",
            "an error during a job that speaks of its input",
            ("ValueError: width must be divisible by 8", "Exception: prompt cannot be empty"),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            phases=("handler", "queue"),
            unless=r"input_ids|inputs_embeds|tensor|input of size|server|dtype|bias|should be the same|c10::|weight",
        ),
        Signal(
            r"Custom validation failed for node: |Invalid (?:image|audio|video) file: "
            r"|image file is truncated|Missing data for required field|PdfReadError"
            r"|EOF marker not found|ERROR: \[\w{2,20}\] \S{1,40}: (?:Video|This video|Unsupported"
            r"|Private)|Failed to parse: [^\n]{0,60}image_url",
            "the file or the fields that the caller sent cannot be read",
            (
                "OSError: image file is truncated (12 bytes not processed)",
                "marshmallow.exceptions.ValidationError: {'prompt': ['Missing data for required field.']}",
                "pypdf.errors.PdfReadError: EOF marker not found",
                "yt_dlp.utils.DownloadError: ERROR: [youtube] x: Video unavailable",
            ),
            strength="likely",
        ),
        Signal(
            r"Could not find a backend to open|unexpected shape for input '|\[StatusCode\.INVALID_ARGUMENT\]"
            r"|InvalidDataError",
            "a decoder or a model server refuses what it is sent",
            (
                "OSError: Could not find a backend to open `/tmp/in.webp` with iomode `r`.",
                "tritonclient.utils.InferenceServerException: [StatusCode.INVALID_ARGUMENT] bad shape",
            ),
            strength="likely",
            phases=("handler",),
        ),
        Signal(
            r"\b(?:image|video|audio|resolution|picture|duration)\b[^\n]{0,40}exceeds? (?:the )?(?:allowed|maximum"
            r"|max|limit)",
            "what is asked for is over the handler's own limit",
            ("ValueError: Image size 20000x20000 exceeds the allowed 4096x4096",),
            strength="likely",
            phases=("handler",),
            errors_only=True,
        ),
    ),
)
