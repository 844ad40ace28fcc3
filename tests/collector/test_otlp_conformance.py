"""Clients that nobody here wrote: the JavaScript SDK from npm in all three encodings, and payloads as documented.

The Python SDK is in `test_otlp_exporter.py` and `test_otlp_grpc.py`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from otlp_bytes import JSON
from parts import on_a_port, skip_or_fail

from collector import asgi
from collector.clickhouse import Database
from collector.otlp_grpc import GrpcEdge
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from collector.settings import Settings

PACKAGES = (
    "@opentelemetry/exporter-trace-otlp-proto",
    "@opentelemetry/exporter-trace-otlp-http",
    "@opentelemetry/exporter-trace-otlp-grpc",
    "@opentelemetry/sdk-trace-node",
)
SCRIPT = """
const { NodeTracerProvider, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-node');
const [, , kind, url, compression] = process.argv;
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-' + kind);
const exporter = new OTLPTraceExporter({ url, compression });
const outcomes = [];
const told = {
  export: (spans, done) => exporter.export(spans, (result) => {
    outcomes.push({ code: result.code, error: result.error && String(result.error) });
    done(result);
  }),
  forceFlush: () => exporter.forceFlush(),
  shutdown: () => exporter.shutdown(),
};
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(told)] });
const span = provider.getTracer('js').startSpan('infer', {
  kind: 2,
  attributes: {
    'faas.invocation_id': 'job-' + kind, steps: 30, ratio: 0.5, on: true, names: ['a', 'b'], prompt: 'x'.repeat(5000),
  },
});
span.recordException(new TypeError('no such model'));
span.setStatus({ code: 2, message: 'no such model' });
span.end();
provider.forceFlush().then(() => provider.shutdown()).then(() => console.log(JSON.stringify(outcomes)));
"""


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript SDK and a script that sends one span with it."""
    folder = tmp_path_factory.mktemp("javascript")
    npm = shutil.which("npm")
    if npm is None:
        skip_or_fail("no OpenTelemetry JavaScript SDK: npm is missing")
    command = [str(npm), "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    try:
        done = subprocess.run([*command, *PACKAGES], capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        skip_or_fail("no OpenTelemetry JavaScript SDK: npm did not fetch it within 240 s")
    if done.returncode:
        skip_or_fail(f"no OpenTelemetry JavaScript SDK: npm could not fetch it: {done.stderr.strip()[-300:]}")
    (folder / "send.js").write_text(SCRIPT)
    return folder


async def stored(db: Database) -> list[SpanRow]:
    """Every span that was stored."""
    return [span_row(row) for row in await db.query(f"SELECT {SPAN_COLUMNS} FROM spans")]  # noqa: S608


@pytest.mark.parametrize("database_url", ["server"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "compression"), [("proto", "gzip"), ("http", "none"), ("http", "gzip"), ("grpc", "none"), ("grpc", "gzip")]
)
async def test_the_javascript_sdk_stores_its_spans(
    javascript: Path, settings: Settings, db: Database, kind: str, compression: str
) -> None:
    edge = GrpcEdge("127.0.0.1", 0)
    async with on_a_port(asgi.collector_only(settings, [edge.open])) as address:
        url = f"http://127.0.0.1:{edge.port}" if kind == "grpc" else f"{address}/v1/traces"
        process = await asyncio.create_subprocess_exec(
            *("node", "send.js", kind, url, compression),
            cwd=javascript,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, errors = await asyncio.wait_for(process.communicate(), 120)
        assert json.loads(said or b"null") == [{"code": 0}], errors.decode()
    [row] = await stored(db)
    assert (row.job_id, row.name, row.kind, row.status, row.scope) == (f"job-{kind}", "infer", 3, "error", "js")
    assert {key: row.attributes[key] for key in ("steps", "ratio", "on", "names")} == {
        "steps": 30,
        "ratio": 0.5,
        "on": True,
        "names": ["a", "b"],
    }
    assert len(row.trace_id) == 32
    [event] = row.events
    assert (event.name, event.attributes["exception.message"]) == ("exception", "no such model")


def documented(**span: Any) -> dict[str, Any]:
    """A request in the shape that the specification documents for JSON: upper-case ids, times as text, all fields."""
    one = {
        "traceId": "0AF7651916CD43DD8448EB211C80319C",
        "spanId": "B7AD6B7169203331",
        "parentSpanId": "00F067AA0BA902B7",
        "traceState": "",
        "flags": 257,
        "name": "a server's span",
        "kind": 2,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        "attributes": [{"key": "of.the.span", "value": {"stringValue": "some value"}}],
        "droppedAttributesCount": 0,
        "events": [{"timeUnixNano": "1544712660500000000", "name": "e", "attributes": [], "droppedAttributesCount": 0}],
        "droppedEventsCount": 0,
        "links": [],
        "droppedLinksCount": 0,
        "status": {},
        **span,
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]}
    scope = {
        "name": "my.library",
        "version": "1.0.0",
        "attributes": [{"key": "of.the.scope", "value": {"stringValue": "some value"}}],
    }
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [one], "schemaUrl": ""}]}]
    }


async def test_a_trace_as_the_specification_writes_it(server: httpx.AsyncClient, db: Database) -> None:
    answer = await server.post("/v1/traces", content=json.dumps(documented()), headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {})
    [row] = await stored(db)
    assert (row.trace_id, row.span_id, row.parent_id) == (
        "0af7651916cd43dd8448eb211c80319c",
        "b7ad6b7169203331",
        "00f067aa0ba902b7",
    )
    assert (row.start_ns, row.end_ns, row.kind) == (1_544_712_660_000_000_000, 1_544_712_661_000_000_000, 2)
    assert (row.name, row.scope, row.status) == ("a server's span", "my.library", "unset")
    assert (row.attributes, row.resource) == ({"of.the.span": "some value"}, {"service.name": "my.service"})
    assert [event.at_ns for event in row.events] == [1_544_712_660_500_000_000]


async def test_logs_and_metrics_as_the_specification_writes_them(server: httpx.AsyncClient) -> None:
    at = {"timeUnixNano": "1544712660300000000", "observedTimeUnixNano": "1544712660300000000"}
    values = [
        {"key": "a.text", "value": {"stringValue": "some"}},
        {"key": "a.bool", "value": {"boolValue": True}},
        {"key": "an.int", "value": {"intValue": "10"}},
        {"key": "a.double", "value": {"doubleValue": 637.704}},
        {"key": "an.array", "value": {"arrayValue": {"values": [{"stringValue": "many"}, {"stringValue": "values"}]}}},
        {"key": "a.map", "value": {"kvlistValue": {"values": [{"key": "some.key", "value": {"stringValue": "v"}}]}}},
    ]
    record = {**at, "severityNumber": 10, "severityText": "Information", "body": {"stringValue": "a log record"}}
    record |= {"traceId": "0AF7651916CD43DD8448EB211C80319C", "spanId": "B7AD6B7169203331", "attributes": values}
    job = {"key": "faas.invocation_id", "value": {"stringValue": "job-1"}}
    records = [record, {**record, "attributes": [*values, job]}]
    logs = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "my.library"}, "logRecords": records}]}]}
    answer = await server.post("/v1/logs", content=json.dumps(logs), headers=JSON)
    assert (answer.status_code, answer.json()["partialSuccess"]["rejectedLogRecords"]) == (200, "1")
    point = {"asDouble": 5, "startTimeUnixNano": "1544712660300000000", **at, "attributes": values}
    counter = {"name": "my.counter", "unit": "1", "sum": {"aggregationTemporality": 1, "dataPoints": [point]}}
    bounds = {"count": 2, "sum": 2, "bucketCounts": [1, 1], "explicitBounds": [1], "min": 0, "max": 2}
    histogram = {"name": "my.histogram", "histogram": {"aggregationTemporality": 1, "dataPoints": [{**bounds, **at}]}}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "l"}, "metrics": [counter, histogram]}]}]}
    answer = await server.post("/v1/metrics", content=json.dumps(metrics), headers=JSON)
    assert (answer.status_code, answer.json()["partialSuccess"]["rejectedDataPoints"]) == (200, "2")
    [kept] = (await server.get("/api/v1/jobs/job-1")).json()["spans"]
    assert kept["attributes"]["an.array"] == ["many", "values"]
    assert kept["attributes"]["a.map"] == {"some.key": "v"}
