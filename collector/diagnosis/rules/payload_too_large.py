"""A request or result is over a size limit."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="payload_too_large",
    fault="user_code",
    retry="no",
    because="a request or result is over a size limit[: {size} against {limit} bytes]",
    details=(
        Detail("size", r"larger than max \((\d+) vs|message size (\d+)|(\d+) bytes"),
        Detail("limit", r"vs\.? (\d+)\)|limit(?: of|:)? (\d+)|max(?:imum)? (?:size )?(\d+)"),
    ),
    advice=(
        "Upload large results to object storage and return their address.",
        "Stream the result in parts, lower its size (compression, resolution), or raise the "
        "limit on both sides where it is yours.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"(?:Received|Sent) message larger than max|\b413\b[^\n]{0,40}(?:Payload"
            r"|Request Entity|Content|Too Large|Client Error)|(?:Payload|Request Entity|Content"
            r"|Body|message|Entity) too large|PayloadTooLarge|RequestEntityTooLarge"
            r"|message too (?:big|long)|exceeds? (?:the )?(?:max(?:imum)?|allowed) (?:payload|body"
            r"|request|message|response|frame|upload|content)[ -]?(?:size|length)"
            r"|\b(?:body|payload|request(?: body| size)?|response|message|frame|output|result|upload"
            r"|content)\b(?! count)[^\n]{0,60}\bexceed(?:s|ed)?\b[^\n]{0,40}(?:limit|max|size|bytes|MB)"
            r"|LineTooLong|Got more than \d+ bytes|Chunk too big|ClientPayloadTooLarge"
            r"|1009 \(message too big\)|over size limit|EntityTooLarge|Maximum request size"
            r"|file is too large|File too large|request body too large"
            r"|too large for (?:the )?(?:queue|response|request)",
            "a size limit refuses it",
            (
                'details = "Received message larger than max (52383837 vs. 4194304)"',
                "grpc._channel._InactiveRpcError: Sent message larger than max (8388641 vs. 4194304)",
                "requests.exceptions.HTTPError: 413 Client Error: Payload Too Large for url: https://x",
                "websockets.exceptions.ConnectionClosedError: sent 1009 (message too big); no close frame received",
                "aiohttp.http_exceptions.LineTooLong: 400, message: Got more than 131072 bytes when reading",
            ),
            Tier.SPECIFIC,
            unless=(
                r"memory limit|context|tokens|KV|/dev/shm|\bINFO\b|Errno 27|shared memory|hf_xet|buffer|blocks|pool\b"
                r"|max_(?:num|bs)|batch|server maximum|pixels|time ?limit|timeout|seconds"
            ),
        ),
        Signal(
            r"(?:Failed to return job results?|Error while returning job result|job-done)[^\n]{0,200}\b(?:400|413)\b",
            "the call that hands the result in is refused with 400: the usual reason is its size",
            (
                "ERROR  | job-1 | Failed to return job results. | 400, message='Bad Request',"
                " url='https://api.runpod.ai/v2/x/job-done/y'",
            ),
            strength="possible",
            tier=Tier.RESOURCE,
            says="the platform refused the result, whose size is the usual reason",
        ),
        Signal(
            r"string (?:is )?too (?:long|large) to|(?:result|output|response"
            r"|return)[^\n]{0,40}(?:is )?too (?:large|big)|maximum (?:payload|response"
            r"|request) size",
            "the program says so",
            ("ValueError: output is too large to return (24 MB)",),
            Tier.HINT,
            strength="likely",
            unless=r"learning rate|loss|tokens|context",
        ),
        Signal(
            r"intended to send too large (?:chunked )?body|Part exceeded maximum size"
            r"|message larger than the (?:maximum|limit)",
            "a proxy or a parser refuses the size",
            (
                "client intended to send too large body: 20971520 bytes",
                "multipart: Part exceeded maximum size of 1024KB.",
            ),
        ),
        Signal(
            r"\b(?:result|response|output|payload|body)\b[^\n]{0,40}over the limit of \d",
            "the program says so with numbers",
            ("ValueError: result is 31 MB, over the limit of 20 MB for a response",),
            strength="likely",
        ),
    ),
)
