"""What the chart may say in objects that Kubernetes does not know of itself, strictly: what is not here is refused."""

from __future__ import annotations

from typing import Any, Final

TEXT: Final = {"type": "string", "minLength": 1}
TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: Final = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"}
HOSTNAMES: Final = {"type": "array", "maxItems": 16, "items": {"type": "string", "pattern": r"^(\*\.)?[a-z0-9.-]+$"}}


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these properties alone; `required` names some, with spaces between."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required.split(),
    }


def listed(item: Any) -> dict[str, Any]:
    """A list of at least one."""
    return {"type": "array", "minItems": 1, "items": item}


def resource(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A whole object."""
    metadata = closed("name namespace labels", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
    return closed(
        "apiVersion kind metadata spec",
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


SECRET_KEY: Final = closed("name key", name=TEXT, key=TEXT)
ENDPOINT: Final = closed(
    "port path",
    port=TEXT,
    path=TEXT,
    interval=DURATION,
    scheme={"enum": ["http", "https"]},
    tlsConfig={"type": "object"},
    authorization=closed("type credentials", type={"const": "Bearer"}, credentials=SECRET_KEY),
)
RULE: Final = closed("expr", record=TEXT, alert=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": DURATION})
PARENT: Final = closed("name", name=TEXT, namespace=TEXT, sectionName=TEXT, port={"type": "integer"})
BACKEND: Final = closed("name port", name=TEXT, port={"type": "integer", "minimum": 1, "maximum": 65535})
PATH: Final = closed("type value", type={"enum": ["PathPrefix", "Exact"]}, value={"type": "string", "pattern": "^/"})
HTTP_RULE: Final = closed("matches backendRefs", matches=listed(closed("path", path=PATH)), backendRefs=listed(BACKEND))

SCHEMAS: Final = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): resource(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        closed("selector endpoints", selector=closed("matchLabels", matchLabels=TEXTS), endpoints=listed(ENDPOINT)),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): resource(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        closed("groups", groups=listed(closed("name rules", name=TEXT, interval=DURATION, rules=listed(RULE)))),
    ),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): resource(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        closed("parentRefs rules", parentRefs=listed(PARENT), hostnames=HOSTNAMES, rules=listed(HTTP_RULE)),
    ),
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): resource(
        "gateway.networking.k8s.io/v1",
        "GRPCRoute",
        closed(
            "parentRefs rules",
            parentRefs=listed(PARENT),
            hostnames=HOSTNAMES,
            rules=listed(closed("backendRefs", backendRefs=listed(BACKEND))),
        ),
    ),
}
