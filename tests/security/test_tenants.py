"""One tenant's token never sees, counts or changes what is another's: tried on every route that the application has."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from clickhouse_server import ClickHouseServer
from fastapi import FastAPI
from fastapi.routing import APIRoute
from guarded import KINDS, OPENED_BY, bearer, export_of, guard_of, routes_of, token_settings
from parts import eventually, served, server_url
from starlette.routing import Route

from collector import asgi, auth, migrate
from collector.clickhouse import Database
from collector.settings import Settings
from collector.watch.ledger import Condition, changes, write
from sdk_exporter.contract import Key

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "v1ct1m"
"""In every id of the victim. An attacker may have heard of it, and a page may repeat it."""
WORDS = "words of nobody else"
"""In what the victim's records say."""
OPEN = {
    "/healthz", "/readyz", "/login", "/static/{name}", "/docs/verdicts", "/docs/verdicts.json",
    "/docs/runbooks/{name}", "/api/v1/openapi.json",
}  # fmt: skip
"""Routes that ask for no token: they hold nothing of any tenant."""
ROUTES = routes_of(asgi.server(Settings()))
"""For their descriptions only: this application is never started."""
OF_TENANTS = [r for r in ROUTES if guard_of(r) in (auth.read_tenant, auth.operate_tenant, auth.admin_tenant)]
SHOWING = [r for r in OF_TENANTS if "GET" in (r.methods or ())]
ENDING = [r for r in SHOWING if not r.path.endswith("/events")]
"""Without the stream of a request, which is open as long as the request is."""
CHANGING = [r for r in OF_TENANTS if guard_of(r) is not auth.read_tenant and "POST" in (r.methods or ())]

LOOKS = 5
"""The attacker's own requests grow older between two looks; what is another's would differ at each."""
_asked: ContextVar[list[str] | None] = ContextVar("asked", default=None)


@dataclass(frozen=True)
class Scene:
    """A server with the victim's data in it."""

    app: FastAPI
    client: httpx.AsyncClient
    known: dict[str, str]
    """Ids that are the victim's, by the name of a path or query parameter."""

    async def get(self, path: str, tenant: str, kind: str = "read") -> httpx.Response:
        """As somebody with that token."""
        return await self.client.get(path, headers=bearer(tenant, kind))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(clickhouse: ClickHouseServer) -> AsyncIterator[Scene]:
    """The victim has a failed request, a finding and an alert. The attacker has the same failure by other names, and
    the twin the same by the same names, both without the victim's words."""
    settings = Settings(database_url=server_url(clickhouse), **token_settings())  # type: ignore[arg-type]
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=14)
    app = asgi.server(settings)
    ids = {"worker_id": f"worker-{NAME}", "endpoint_id": f"endpoint-{NAME}", "job_id": f"job-{NAME}"}
    async with served(app) as client:
        await _failed(client, "victim", WORDS, **ids)
        await _failed(client, "attacker", "other words", worker_id="w", endpoint_id="e", job_id="j")
        await _failed(client, "twin", "other words", **ids)
        answer = (await client.get(f"/api/v1/jobs/{ids['job_id']}", headers=bearer("victim", "read"))).json()
        await _finding(db, ids)
        known = {
            **ids,
            "worker": ids["worker_id"],
            "endpoint": ids["endpoint_id"],
            "fingerprint": answer["group"]["fingerprint"],
            "key": f"bad_host:{NAME}:1",
            "q": NAME,
        }
        yield Scene(app, client, known)
    await db.close()


async def _failed(client: httpx.AsyncClient, tenant: str, words: str, **ids: str) -> None:
    tail = f'Traceback (most recent call last):\n  File "/app/{tenant}.py", line 1, in f\nRuntimeError: {words}\n'
    job = {Key.INVOCATION_ID: ids["job_id"]}
    body = export_of(
        ("job.claimed", job, False),
        ("job.run", {**job, Key.ERROR_TYPE: "RuntimeError", Key.LOG_TAIL: tail, Key.LOG_SCOPE: "job"}, True),
        ("stop_channel", {"stallscope.stop_channel.state": "ok"}, False),
        worker=ids["worker_id"],
        endpoint=ids["endpoint_id"],
    )
    sent = await client.post("/v1/traces", json=body, headers=bearer(tenant, "ingest"))
    assert sent.status_code == 200

    async def listed() -> bool:
        found = (await client.get("/api/v1/jobs", headers=bearer(tenant, "read"))).json()["items"]
        return [item["job_id"] for item in found] == [ids["job_id"]] and found[0]["group"] is not None

    await eventually(listed)


async def _finding(db: Database, ids: dict[str, str]) -> None:
    now = datetime.now(timezone.utc)
    seen = Condition(
        "victim",
        "bad_host",
        NAME,
        "error",
        now,
        WORDS,
        endpoint_id=ids["endpoint_id"],
        worker_ids=(ids["worker_id"],),
        job_ids=(ids["job_id"],),
    )
    await write(db, changes({}, [seen, replace(seen, rule="AnyRule")], now))


def paths_of(route: Route, known: dict[str, str]) -> Iterator[str]:
    """What one would ask this route for: ids in its path, and each parameter alone."""
    names = re.findall(r"{(\w+)(?::\w+)?}", route.path)
    assert set(names) <= set(known), f"{route.path}: tell `known` which id of the victim goes in there"
    path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: quote(known[found[1]], safe=""), route.path)
    yield path
    if names and not route.path.startswith("/api/"):
        yield from (f"{path}.json", f"{path}.md")
    asked = {field.alias for field in route.dependant.query_params} if isinstance(route, APIRoute) else set()
    for name in sorted(asked | {"q", "endpoint", "worker"}):
        if name in known:
            yield f"{path}?{name}={quote(known[name], safe='')}"


def never_heard(known: dict[str, str]) -> dict[str, str]:
    """Ids like those of `known` that nobody has."""
    return {name: value.replace(NAME, "n0b0dy") if NAME in value else value[::-1] for name, value in known.items()}


def without(text: str, ids: dict[str, str]) -> str:
    """`text` without the ids that were asked for, and without what differs from one moment to the next."""
    for value in sorted(ids.values(), key=len, reverse=True):
        for form in (value, quote(value, safe="")):
            text = text.replace(form, "ID")
    return re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+|\b\d[\d.]* ?(ms|s|min|seconds?)\b( ago)?", "TIME", text)


async def test_a_route_that_asks_for_no_token_is_one_that_holds_nothing() -> None:
    assert {route.path for route in ROUTES if guard_of(route) is None} == OPEN
    assert len(SHOWING) > 30, "the routes are found"


async def test_the_tenant_is_the_first_key_of_every_table(scene: Scene) -> None:
    keys = await scene.app.state.parts.db.query(
        "SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase() AND sorting_key != ''"
    )
    others = {row["name"] for row in keys if not re.match(r"tenant\b", row["sorting_key"])}
    assert others == {migrate.RECORDS}
    assert len(keys) > 10


@pytest.mark.parametrize("route", SHOWING, ids=lambda route: str(route.path))
async def test_to_a_stranger_it_is_as_if_it_were_not_there(
    scene: Scene, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same answer, after the same questions to the store: neither words, nor counts, nor time tell them apart."""
    monkeypatch.setattr(Database, "query", _recorded(Database.query))
    nobodys = never_heard(scene.known)
    for theirs, other in zip(paths_of(route, scene.known), paths_of(route, nobodys), strict=True):
        for _ in range(LOOKS):
            seen, control = await _looked(scene, theirs, scene.known), await _looked(scene, other, nobodys)
            if seen == control:
                break
        assert seen == control, theirs
        assert seen[0] < 500, "an error of the server would be the same for all"
        assert WORDS not in str(seen), theirs
        assert [sql for sql in seen[3] if re.search(r"\bFROM\b", sql) and "{tenant:String}" not in sql] == [], theirs


async def _looked(scene: Scene, path: str, ids: dict[str, str]) -> tuple[int, str, str, list[str]]:
    """What the attacker is told, and what the store was asked for it."""
    recording = _asked.set([])
    answer = await scene.get(path, "attacker", "admin")
    asked = sorted(_asked.get() or ())  # some pages ask several at once
    _asked.reset(recording)
    return answer.status_code, without(answer.headers.get("location", ""), ids), without(answer.text, ids), asked


def _recorded(query: Any) -> Any:
    async def recorded(self: Database, sql: str, *rest: Any, **more: Any) -> Any:
        asked = _asked.get()  # set in the task of the test, so that the loops in the background leave nothing here
        if asked is not None:
            asked.append(sql)
        return await query(self, sql, *rest, **more)

    return recorded


@pytest.mark.parametrize("route", ENDING, ids=lambda route: str(route.path))
async def test_a_tenant_of_the_same_names_sees_its_own_alone(scene: Scene, route: Route) -> None:
    for path in paths_of(route, scene.known):
        assert WORDS not in (await scene.get(path, "twin", "admin")).text, path


async def test_the_owner_sees_all_of_it(scene: Scene) -> None:
    """Or the tests above would show nothing."""
    shown = [route.path for route in ENDING for path in [next(paths_of(route, scene.known))]
             if WORDS in (await scene.get(path, "victim", "admin")).text]  # fmt: skip
    assert {"/jobs/{job_id:anything}", "/api/v1/jobs/{job_id:id}", "/jobs", "/groups/{fingerprint:anything}",
            "/api/v1/findings", "/api/v1/alerts", "/alerts"} <= set(shown)  # fmt: skip


async def test_a_cursor_of_another_tenant_leads_to_ones_own(scene: Scene) -> None:
    cursor = "WzkyMjMzNzIwMzY4NTQ3NzU4MDcsICIiXQ"  # the place before the newest of everyone
    found = (await scene.get(f"/api/v1/jobs?cursor={cursor}", "attacker")).json()["items"]
    assert [item["job_id"] for item in found] == ["j"]


async def test_a_tenant_is_named_by_its_token_and_by_nothing_else(scene: Scene) -> None:
    own = bearer("attacker", "read")["authorization"]
    smuggled: list[list[tuple[str, str]]] = [
        [("authorization", own), ("x-tenant", "victim"), ("x-scope-orgid", "victim"), ("x-forwarded-user", "victim")],
        [("authorization", own), ("cookie", f"{auth.COOKIE}=victim:x"), ("x-forwarded-for", "127.0.0.1")],
        [("authorization", own), ("authorization", "Bearer victim")],
    ]
    for headers in smuggled:
        found = await scene.client.get("/api/v1/jobs", headers=headers)
        assert [item["job_id"] for item in found.json()["items"]] == ["j"]
    for odd in (f"{own},", f"{own} victim", own.replace("Bearer ", "Basic "), "Bearer victim:", "Bearer \xe9"):
        refused = await scene.client.get("/api/v1/jobs", headers=[("authorization", odd.encode("latin-1"))])
        assert refused.status_code == 401, odd
    assert (await scene.get("/api/v1/jobs?tenant=victim", "attacker")).status_code == 400


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: str(route.path))
async def test_a_stranger_changes_nothing(scene: Scene, route: Route) -> None:
    path = next(paths_of(route, scene.known))
    for action in ("", "/acknowledge", "/reopen"):
        answer = await scene.client.post(path + action, headers=bearer("attacker", "admin"))
        assert 400 <= answer.status_code < 500
    for kind in ("findings", "alerts"):
        items = (await scene.get(f"/api/v1/{kind}", "victim")).json()["items"]
        assert items
        assert "acknowledged" not in {item["state"] for item in items}
    assert (await scene.get("/api/v1/audit", "victim", "admin")).json()["items"] == []


@pytest.mark.parametrize("route", [r for r in ROUTES if guard_of(r) is not None], ids=lambda route: str(route.path))
async def test_only_the_right_kind_of_token_opens_a_route(scene: Scene, route: Route) -> None:
    path = next(paths_of(route, {**scene.known, "name": "x"}))
    for method in sorted((route.methods or set()) - {"HEAD"}):
        nobody = await scene.client.request(method, path)
        assert nobody.status_code == 401, (method, path)
        for kind in set(KINDS) - OPENED_BY[guard_of(route)]:  # type: ignore[index]
            refused = await scene.client.request(method, path, headers=bearer("attacker", kind))
            assert refused.status_code == 403, (method, path, kind)
            assert NAME not in without(refused.text, scene.known)


async def test_numbers_over_all_tenants_are_for_the_operator(scene: Scene) -> None:
    assert (await scene.get("/metrics", "attacker", "admin")).status_code == 403
    for path in ("/healthz", "/readyz"):
        assert set((await scene.client.get(path)).json()) == {"status"}


async def test_spans_sent_under_anothers_ids_change_nothing_there(scene: Scene) -> None:
    path, known = f"/api/v1/jobs/{scene.known['job_id']}", scene.known
    before = (await scene.get(path, "victim")).json()["spans"]
    told = (("worker.death", {}, True), ("job.run", {Key.INVOCATION_ID: known["job_id"]}, False))
    body = export_of(*told, worker=known["worker_id"], endpoint=known["endpoint_id"])
    sent = await scene.client.post("/v1/traces", json=body, headers=bearer("attacker", "ingest"))
    assert sent.status_code == 200
    assert (await scene.get(path, "victim")).json()["spans"] == before
