"""The reading API: `/api/v1/*` as JSON. Thin: a question to the store, a form, an answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from collector import audit, queries
from collector.alerts.listing import list_alerts
from collector.answers import answer_of_job
from collector.app import db_of, decoded, problem_of, raw_path_tail, settings_of
from collector.auth import AdminTenant, OperateTenant, ReadTenant
from collector.clickhouse import Database
from collector.diagnosis import diagnose_tail
from collector.diagnosis.answer import Answer, Fault, State, Verdict
from collector.diagnosis.clues import CluePhase, Clues
from collector.errors import BadContentType, BadInput, NotFound, Overloaded, StallscopeError, TooLarge
from collector.json_forms import answer_json, item_json, json_bytes, object_json, verdict_json
from collector.watch.ledger import act, list_findings
from sdk_exporter.bounds import clip, tail
from sdk_exporter.contract import JOB_ID_BYTES, LOG_TAIL_BYTES
from sdk_exporter.redaction import redact

router = APIRouter(prefix="/api/v1", tags=["reading"])

FLEET_WINDOW: Final = timedelta(days=1)
"""How far back endpoints, workers and stop channels are looked for unless `since` tells."""
DIAGNOSE_BYTES: Final = 1 << 20
EVENTS_EVERY_SECONDS: Final = 1.0
EVENTS_ALIVE_SECONDS: Final = 15.0
EVENTS_LONGEST_SECONDS: Final = 600.0
"""A stream ends then, final or not; a client's EventSource comes back by itself."""
EVENTS_AT_ONCE: Final = 100
EVENTS_OF_TENANT: Final = 50
"""So that one tenant's streams leave places to others."""

Limit = Annotated[int, Query(description=f"Most items, 1 to {queries.LIMIT_MAX}.")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before.")]


def _written_time(value: Any) -> Any:
    """Bare numbers are refused: nothing tells seconds from milliseconds."""
    if isinstance(value, str) and not value.strip("+-.0123456789"):
        raise ValueError("a time is RFC 3339, such as 2026-01-31T12:00:00Z")
    return value


def _in_utc(at: datetime) -> datetime:
    """A year that only its own zone keeps between 1 and 9999 is refused: no answer could tell it in UTC."""
    try:
        return at.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError("a time is between the years 1 and 9999 in UTC") from None


Since = Annotated[
    Annotated[AwareDatetime, AfterValidator(_in_utc)] | None,
    BeforeValidator(_written_time),
    Query(description="RFC 3339, with a zone."),
]
Endpoint = Annotated[str | None, Query()]


def _only(*names: str) -> Any:
    """A parameter that is not known is refused: a filter with a typing mistake must not show everything."""

    def check(request: Request) -> None:
        unknown = sorted(set(request.query_params) - set(names))
        if unknown:
            raise BadInput(f"{clip(unknown[0], 64)}: no such parameter; known are {', '.join(names) or 'none'}")
        repeated = [name for name in names if len(request.query_params.getlist(name)) > 1]
        if repeated:
            raise BadInput(f"{repeated[0]}: given twice; one value narrows a list")

    return Depends(check)


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def _now() -> datetime:
    return datetime.now(timezone.utc)


# ------------------------------------------------------------------------------------------------------------ requests


@router.get(
    "/jobs",
    dependencies=[
        _only(
            "endpoint",
            "worker",
            "state",
            "verdict",
            "cause",
            "fingerprint",
            "fault",
            "since",
            "until",
            "q",
            "limit",
            "cursor",
        )
    ],
)
async def jobs(
    request: Request,
    tenant: ReadTenant,
    endpoint: Endpoint = None,
    worker: Annotated[str | None, Query()] = None,
    state: Annotated[str | None, Query(description=" | ".join(get_args(State)))] = None,
    verdict: Annotated[str | None, Query(description="Verdict code.")] = None,
    cause: Annotated[str | None, Query(description="Cause code.")] = None,
    fingerprint: Annotated[str | None, Query()] = None,
    fault: Annotated[str | None, Query(description=" | ".join(get_args(Fault)))] = None,
    since: Since = None,
    until: Since = None,
    q: Annotated[str | None, Query(description="Text in log tails and errors.")] = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Requests, newest first: `{"items": [...], "next_cursor": ...}`."""
    filters = queries.JobFilter(
        endpoint=_id(endpoint),
        worker=_id(worker),
        state=_word("state", state, get_args(State)),
        verdict=verdict or None,
        cause=cause or None,
        fingerprint=fingerprint or None,
        fault=_word("fault", fault, get_args(Fault)),
        since=since,
        until=until,
        q=q or None,
    )
    page = await queries.list_jobs(db_of(request), tenant, filters, cursor=cursor or None, limit=limit)
    return _json({"items": [item_json(answer) for answer in page.items], "next_cursor": page.next_cursor})


@router.get("/jobs/{job_id:id}/events", dependencies=[_only()], response_class=StreamingResponse)
async def job_events(request: Request, tenant: ReadTenant) -> Response:
    """Server-sent events: one `answer` whenever it changes, the last one when it is final."""
    raw = raw_path_tail(request, "/api/v1/jobs/")
    if not raw.endswith("/events"):  # the id itself ends so, its slash sent as %2F
        return await job(request, tenant)
    job_id = _id(decoded(raw.removesuffix("/events"))) or ""
    db, streams = db_of(request), _streams_of(request)
    streams.enter(tenant)
    try:
        first = await answer_of_job(db, tenant, job_id, _now())
    except BaseException:
        streams.leave(tenant)
        raise
    events = _events(db, first, lambda: getattr(request.app.state, "stopping", False))
    return _EventStream(events, lambda: streams.leave(tenant))


@router.get("/jobs/{job_id:id}", dependencies=[_only()])
async def job(request: Request, tenant: ReadTenant) -> Response:
    """The whole answer for one request. 404 tells `never_seen` from `past_retention`."""
    job_id = _id(decoded(raw_path_tail(request, "/api/v1/jobs/")))
    if not job_id:
        raise NotFound("the path names no request")
    answer = await answer_of_job(db_of(request), tenant, job_id, _now())
    body = await asyncio.to_thread(lambda: json_bytes(answer_json(answer)))
    if not answer.final:
        return Response(body, headers={"Cache-Control": "no-store"}, media_type="application/json")
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


class _Streams:
    """Event streams of one app: counted, because each keeps asking the store."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()  # by tenant

    def enter(self, tenant: str) -> None:
        """Take a place, before anything is waited for. Raises Overloaded."""
        if self.open[tenant] >= EVENTS_OF_TENANT or self.open.total() >= EVENTS_AT_ONCE:
            raise Overloaded("as many event streams are open as may be", retry_after_seconds=30.0)
        self.open[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Give the place back."""
        self.open[tenant] -= 1


class _EventStream(StreamingResponse):
    """A stream that gives its place back however it ends: a client can be gone before its first event is made."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _streams_of(request: Request) -> _Streams:
    streams: _Streams | None = getattr(request.app.state, "event_streams", None)
    if streams is None:
        streams = request.app.state.event_streams = _Streams()
    return streams


async def _events(db: Database, answer: Answer, stopping: Callable[[], bool] = lambda: False) -> AsyncIterator[bytes]:
    """`answer` now and whenever it changed; a comment while it does not, so that proxies keep the line open.

    The digest writes a row when there is news, so that row is what is asked for every second; the whole answer only
    then, and every 15 s in case no digest runs.
    """
    try:
        loop = asyncio.get_running_loop()
        began = looked = loop.time()
        seen: int | None = None
        yield _event(answer)
        while not answer.final and not stopping() and loop.time() - began < EVENTS_LONGEST_SECONDS:
            await asyncio.sleep(EVENTS_EVERY_SECONDS)
            stored = (await queries.stored_jobs(db, answer.tenant, [answer.job_id])).get(answer.job_id)
            version = stored.version if stored else None
            if version == seen and loop.time() - looked < EVENTS_ALIVE_SECONDS:
                continue
            seen, looked = version, loop.time()
            newer = await answer_of_job(db, answer.tenant, answer.job_id, _now())
            yield _event(newer) if _news(answer, newer) else b": still open\n\n"
            answer = newer
    except StallscopeError as error:  # the answer's status is long sent: say it in the stream
        problem = problem_of(error)
        yield b"event: error\ndata: %s\n\n" % json_bytes({"code": problem.code, "retryable": problem.retryable})


def _news(answer: Answer, newer: Answer) -> bool:
    return (answer.revision, answer.state, answer.verdict.sentence, answer.phases) != (
        newer.revision,
        newer.state,
        newer.verdict.sentence,
        newer.phases,
    )


def _event(answer: Answer) -> bytes:
    # JSON has no raw line break, so one `data` line holds it whatever a log says.
    return b"event: answer\nid: %d\ndata: %s\n\n" % (answer.revision, json_bytes(item_json(answer)))


# -------------------------------------------------------------------------------------------------------------- groups


@router.get("/groups", dependencies=[_only("endpoint", "limit", "cursor")])
async def groups(
    request: Request,
    tenant: ReadTenant,
    endpoint: Endpoint = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Same failure, grouped; the one seen last first. `trend`: 24 counts of the last day, oldest first."""
    page = await queries.groups(
        db_of(request), tenant, _now(), endpoint=_id(endpoint), cursor=cursor or None, limit=limit
    )
    return _page(page)


@router.get("/groups/{fingerprint:id}", dependencies=[_only()])
async def group(request: Request, tenant: ReadTenant) -> Response:
    """One failure, and what stands out about the requests that share it."""
    fingerprint = decoded(raw_path_tail(request, "/api/v1/groups/"))
    found = await queries.group(db_of(request), tenant, fingerprint, _now())
    if found is None:
        raise NotFound("no group with this fingerprint")
    told = object_json(found)
    return _json({**told.pop("summary"), **told})


# --------------------------------------------------------------------------------------------------------------- fleet


@router.get("/endpoints", dependencies=[_only("since", "limit", "cursor")])
async def endpoints(
    request: Request,
    tenant: ReadTenant,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Endpoints heard of since then (default: a day), the one heard last first."""
    page = await queries.endpoints(db_of(request), tenant, _since(since), cursor=cursor or None, limit=limit)
    return _page(page)


@router.get("/endpoints/{endpoint_id:id}", dependencies=[_only("since")])
async def endpoint(request: Request, tenant: ReadTenant, since: Since = None) -> Response:
    """One endpoint: how its requests ended since then (default: a day), and how many workers were heard of."""
    db, endpoint_id = db_of(request), _id(decoded(raw_path_tail(request, "/api/v1/endpoints/"))) or ""
    page = await queries.endpoints(db, tenant, _since(since), endpoint=endpoint_id, limit=1) if endpoint_id else None
    if page is None or not page.items:
        raise NotFound("nothing was heard of this endpoint since then")
    counts = await queries.overview(db, tenant, _since(since), endpoint=endpoint_id)
    return _json({**object_json(page.items[0]), **object_json(counts)})


@router.get("/workers", dependencies=[_only("endpoint", "since", "limit", "cursor")])
async def workers(
    request: Request,
    tenant: ReadTenant,
    endpoint: Endpoint = None,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Workers heard of since then (default: a day), the one heard last first. `died_at` null: not known to be dead."""
    page = await queries.workers(
        db_of(request), tenant, _since(since), endpoint=_id(endpoint), cursor=cursor or None, limit=limit
    )
    return _page(page)


@router.get("/workers/{worker_id:id}", dependencies=[_only()])
async def worker(request: Request, tenant: ReadTenant) -> Response:
    """One worker within the retention, with the newest report of its stop channel (null: it sent none)."""
    db, worker_id = db_of(request), _id(decoded(raw_path_tail(request, "/api/v1/workers/"))) or ""
    since = _now() - timedelta(days=settings_of(request).retention_days)
    page = await queries.workers(db, tenant, since, worker=worker_id, limit=1) if worker_id else None
    if page is None or not page.items:
        raise NotFound("no record of this worker")
    channels = await queries.stop_channels(db, tenant, since, worker=worker_id, limit=1)
    channel = object_json(channels.items[0]) if channels.items else None
    return _json({**object_json(page.items[0]), "stop_channel": channel})


@router.get("/stop-channels", dependencies=[_only("endpoint", "worker", "since", "limit", "cursor")])
async def stop_channels(
    request: Request,
    tenant: ReadTenant,
    endpoint: Endpoint = None,
    worker: Annotated[str | None, Query()] = None,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """The newest report of each worker's stop channel since then (default: a day)."""
    page = await queries.stop_channels(
        db_of(request),
        tenant,
        _since(since),
        worker=_id(worker),
        endpoint=_id(endpoint),
        cursor=cursor or None,
        limit=limit,
    )
    return _page(page)


@router.get("/findings", dependencies=[_only("state", "code", "endpoint", "since", "limit", "cursor")])
async def findings(
    request: Request,
    tenant: ReadTenant,
    state: Annotated[str | None, Query(description="open | resolved")] = None,
    code: Annotated[str | None, Query(description="Finding code.")] = None,
    endpoint: Endpoint = None,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """What is wrong with workers and endpoints: open, or changed since then (default: a day). The last opened first."""
    page = await list_findings(
        db_of(request),
        tenant,
        _since(since),
        _now(),
        state=_word("state", state, ("open", "resolved")) or "",
        code=code or "",
        endpoint=_id(endpoint) or "",
        cursor=cursor or None,
        limit=limit,
    )
    return _page(page)


@router.get("/alerts", dependencies=[_only("state", "endpoint", "since", "limit", "cursor")])
async def alerts(
    request: Request,
    tenant: ReadTenant,
    state: Annotated[str | None, Query(description="open | resolved")] = None,
    endpoint: Endpoint = None,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Alerts that rules made, each with its rule and what became of telling people."""
    page = await list_alerts(
        db_of(request),
        tenant,
        _since(since),
        _now(),
        state=_word("state", state, ("open", "resolved")) or "",
        endpoint=_id(endpoint) or "",
        cursor=cursor or None,
        limit=limit,
    )
    return _page(page)


@router.post("/findings/{key:id}", dependencies=[_only("until")])
async def act_on_finding(request: Request, tenant: OperateTenant, until: Since = None) -> Response:
    """`/findings/{key}/acknowledge`, `/snooze?until=…` or `/reopen`; needs an operate or admin token."""
    return await _act(request, tenant, "/api/v1/findings/", until)


@router.post("/alerts/{key:id}", dependencies=[_only("until")])
async def act_on_alert(request: Request, tenant: OperateTenant, until: Since = None) -> Response:
    """The same for an alert."""
    return await _act(request, tenant, "/api/v1/alerts/", until)


async def _act(request: Request, tenant: str, prefix: str, until: datetime | None) -> Response:
    key, _, action = raw_path_tail(request, prefix).rpartition("/")
    if action not in ("acknowledge", "snooze", "reopen") or not key:
        raise NotFound("the path ends in a key and acknowledge, snooze or reopen")
    if (action == "snooze") != (until is not None):
        raise BadInput("until: needed to snooze, and only then")
    done = await act(db_of(request), tenant, decoded(key), action, _now(), until=until)
    return _json(object_json(done))


@router.get("/audit", dependencies=[_only("since", "limit", "cursor")])
async def audit_entries(
    request: Request,
    tenant: AdminTenant,
    since: Since = None,
    limit: Limit = queries.LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Changes that were asked for since then (default: a day), newest first; needs an admin token."""
    return _page(await audit.entries(db_of(request), tenant, _since(since), cursor=cursor or None, limit=limit))


# ------------------------------------------------------------------------------------------------------------ diagnose


class DiagnoseBody(BaseModel):
    """A pasted log tail and what else is known; null is the same as absent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    log_tail: str
    phase: CluePhase | None = None
    exit_code: Annotated[int, Field(ge=-(2**31), lt=2**32)] | None = None
    signal: Annotated[int, Field(ge=0, le=255)] | None = None
    oom_kill: bool | None = None


@router.post(
    "/diagnose",
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": DiagnoseBody.model_json_schema()}}}
    },
)
async def diagnose(request: Request, tenant: ReadTenant) -> Response:
    """The verdict on a pasted log tail, without any exporter. Nothing is stored. The body may have 1 MiB."""
    body = _diagnose_body(await _bounded_body(request))
    # A megabyte of what looks like secrets takes seconds: not on the loop that serves everyone.
    return _json(verdict_json(await asyncio.to_thread(_diagnosed, body)))


def _diagnosed(body: DiagnoseBody) -> Verdict:
    clues = Clues(
        # Secrets go out of what is quoted, as on every other way out.
        text=tail(redact(body.log_tail), LOG_TAIL_BYTES),
        phase=body.phase,
        exit_code=body.exit_code,
        signal=body.signal,
        oom_kill=body.oom_kill,
    )
    return diagnose_tail(clues)


async def _bounded_body(request: Request) -> bytes:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise BadContentType(f"{clip(media, 64) or 'no content type'}: send application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > DIAGNOSE_BYTES:
            raise TooLarge("the body of /api/v1/diagnose", DIAGNOSE_BYTES)
    return bytes(body)


def _diagnose_body(body: bytes) -> DiagnoseBody:
    try:
        return DiagnoseBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadInput(f"{clip(where, 64)}: {first['msg']}") from None


# -------------------------------------------------------------------------------------------------------------- shared


def _page(page: queries.Page[Any]) -> Response:
    return _json({"items": [object_json(item) for item in page.items], "next_cursor": page.next_cursor})


def _since(since: datetime | None) -> datetime:
    return since or _now() - FLEET_WINDOW


def _id(text: str | None) -> str | None:
    """An id as it is stored: cut where ids are cut at ingest. An empty one, as an empty form field sends, is none."""
    return clip(text, JOB_ID_BYTES) or None if text else None


def _word(name: str, word: str | None, known: tuple[str, ...]) -> str | None:
    if word and word not in known:
        raise BadInput(f"{name}: {clip(word, 64)!r} is none of {', '.join(known)}")
    return word or None
