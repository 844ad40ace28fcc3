"""The result cannot be encoded."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="output_not_serializable",
    fault="user_code",
    retry="no",
    because="the handler's result cannot be encoded[: it holds an object of type {type}]",
    details=(
        Detail(
            "type",
            r"object of type '?([\w.]{1,60})'? is not|can(?:not|'t) (?:serialize|pickle"
            r"|encode)[^\n]{0,20}'?([\w.]{2,60})'? object"
            r"|Type is not JSON serializable: ([\w.]{1,60})",
        ),
    ),
    advice=(
        "Return plain data: convert {type} objects first (.tolist(), .item(), base64 text, dict).",
        "Return only dict, list, str, numbers, bool and None; encode bytes as base64 text.",
    ),
    signals=(
        Signal(
            r"UnicodeDecodeError: 'utf-8' codec can't decode byte",
            "raw bytes in the result",
            ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x89 in position 0: invalid start byte",),
            strength="likely",
            near=r"jsonable_encoder|serialize_response|job_result|json\.dumps",
            near_lines=12,
            phases=("handler",),
        ),
        Signal(
            r"object of type '?[\w.]+'? is not (?:JSON )?serializable|not JSON[- ]serializable"
            r"|Type is not JSON serializable|Out of range float values are not JSON compliant"
            r"|Unable to serialize unknown type|PydanticSerializationError"
            r"|keys must be str, int, float, bool or None|Circular reference detected"
            r"|is not msgpack serializable|can not serialize '[\w.]+' object"
            r"|vars\(\) argument must have __dict__ attribute|Do not know how to serialize"
            r"|JSON serialization (?:failed|error)|json: unsupported (?:type|value)|(?:bytes"
            r"|ndarray|Tensor|datetime) is not (?:JSON )?serializable|surrogates not allowed",
            "the encoder's own message",
            (
                "TypeError: Object of type IntermediateValue is not JSON serializable",
                "ValueError: Out of range float values are not JSON compliant",
                "pydantic_core._pydantic_core.PydanticSerializationError: Unable to serialize "
                "unknown type: <class 'numpy.ndarray'>",
                "TypeError: Type is not JSON serializable: numpy.float32",
            ),
        ),
        Signal(
            r"Error while returning job result",
            "the worker's SDK could not encode or send the result",
            ("ERROR  | job-1 | Error while returning job result. | ",),
            Tier.HINT,
            strength="possible",
            unless=r"\b[45]\d\d\b|onnect|imeout|SSL|reset",
        ),
        Signal(
            r"(?:can't|cannot) pickle|Can't pickle|cannot be (?:pickled|serialized)"
            r"|Could not serialize|Failed to serialize|failed to encode (?:the )?(?:output|result"
            r"|response)|SerializationError",
            "an object cannot be handed over",
            ("TypeError: cannot pickle '_thread.lock' object", "TypeError: cannot pickle 'generator' object"),
            Tier.HINT,
            strength="possible",
            unless=r"No space left|StorageFull|Error while deserializ",
            not_phases=("boot", "prestart"),
        ),
    ),
)
