"""What people say about failures and alerts: who may, from which form, and what the pages tell of it afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from otlp_worker import completed, earlier, prestart_out_of_memory, span, stop_channel
from parts import eventually, served
from pydantic import SecretStr
from visitors import Visitor

from collector import asgi
from collector.clickhouse import Database
from collector.settings import Settings
from dashboard import urls
from sdk_exporter.contract import SpanName

OTHERS_PAGE = {"origin": "https://evil.example"}


async def group_of(visitor: Visitor) -> str:
    """The address of the page of the only group."""
    items = (await visitor.client.get("/api/v1/groups")).json()["items"]
    return urls.page("groups", items[0]["fingerprint"])


async def send_form(visitor: Visitor, path: str, status: int = 303, *, at: str = "", **fields: str) -> httpx.Response:
    """The form of a page, as a browser sends it after it has read the page."""
    page = await visitor.see(path)
    secret = page.all("input[name=form_secret]")[0].attrs["value"]
    data = {"form_secret": secret, **fields}
    return await visitor.get(at or path, status, method="POST", data=data)


async def test_a_failure_is_resolved_and_comes_back(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    path = await group_of(visitor)
    assert (await visitor.see(path)).text("#said ~ .meta .chip") == "■ open"
    assert (await send_form(visitor, path, action="resolve", note="new image <b>v3</b>")).headers[
        "location"
    ] == f"{path}#said"
    page = await visitor.see(path)
    assert page.text("#said ~ .meta .chip") == "✓ resolved"
    assert page.text(".said .history li").startswith("resolved: new image <b>v3</b>")
    assert "✓ resolved" in (await visitor.see("/groups")).text("main")

    later = earlier(prestart_out_of_memory("bad-2"), -30)
    await visitor.send(later, boot="c" * 32)
    await visitor.listed("bad-2")
    # A record that begins after it arrived is put where it arrived: after it was resolved.
    page = await visitor.see(path)
    assert page.text("#said ~ .meta .chip") == "✕ came back"
    await send_form(visitor, path, action="reopen")
    assert (await visitor.see(path)).text("#said ~ .meta .chip") == "■ open"
    twin = (await visitor.client.get(f"{path}.json")).json()
    assert [one["action"] for one in twin["told"]] == ["reopen", "resolve"]
    assert "form_secret" not in twin


async def test_a_note_is_kept_without_its_secrets(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    path = await group_of(visitor)
    secret = "hf_" + "A1b2C3d4" * 4
    await send_form(visitor, path, action="note", note=f"token {secret} was old\nrenewed it")
    assert secret not in (await visitor.get(path)).text
    assert "was old" in (await visitor.see(path)).text(".note-text")
    await send_form(visitor, path, 400, action="note", note="  ")
    await send_form(visitor, path, 400, action="else")


async def test_forms_of_others_change_nothing(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    path = await group_of(visitor)
    page = await visitor.see(path)
    right = page.one("input[name=form_secret]").attrs["value"]
    for data, headers in (
        ({"action": "resolve"}, {}),
        ({"action": "resolve", "form_secret": "x" * 32}, {}),
        ({"action": "resolve", "form_secret": right}, OTHERS_PAGE),
    ):
        await visitor.get(path, 403, method="POST", data=data, headers=headers)
    assert (await visitor.see(path)).text("#said ~ .meta .chip") == "■ open"
    await visitor.get("/groups/none", 404, method="POST", data={"action": "resolve", "form_secret": right})


@pytest.fixture
async def guarded(settings: Settings, db: Database) -> AsyncIterator[Visitor]:
    """A server with a token of each kind."""
    tokens = {f"{kind}_tokens": SecretStr(f"{kind}-token") for kind in ("ingest", "read", "operate", "admin")}
    async with served(asgi.server(settings.model_copy(update=tokens))) as client:
        yield Visitor(client, db)


@pytest.mark.parametrize(("role", "may"), [("read", False), ("operate", True), ("admin", True)])
async def test_only_who_may_operate_sees_forms_and_uses_them(guarded: Visitor, role: str, may: bool) -> None:
    client = guarded.client
    client.headers["authorization"] = "Bearer ingest-token"
    await guarded.send([*prestart_out_of_memory("bad-1"), *completed("good-1")])
    client.headers["authorization"] = f"Bearer {role}-token"
    await guarded.listed("bad-1")
    path = await group_of(guarded)
    assert bool((await guarded.see(path)).all("input[name=form_secret]")) is may
    assert bool((await guarded.see("/alerts")).all("input[name=form_secret]")) is False, "no alert yet, so no form"
    if may:
        await send_form(guarded, path, action="resolve")
        assert "by" in (await guarded.see(path)).text(".said .history li")
    else:
        client.cookies.set("stallscope_form", "x" * 32)
        data = {"action": "resolve", "form_secret": "x" * 32}
        await guarded.get(path, 403, method="POST", data=data)
    client.headers["authorization"] = "Bearer ingest-token"
    await guarded.get(path, 403, method="POST", data={})


async def test_a_finding_is_acknowledged_and_opened_again_from_its_page(visitor: Visitor) -> None:
    await visitor.send([span(SpanName.HEARTBEAT, -1, -1), *stop_channel("disabled")])

    async def found() -> bool:
        return bool((await visitor.client.get("/api/v1/findings")).json()["items"])

    await eventually(found)
    key = (await visitor.client.get("/api/v1/findings")).json()["items"][0]["key"]
    await send_form(visitor, "/alerts", action="acknowledge", key=key)
    findings = (await visitor.client.get("/api/v1/findings")).json()["items"]
    assert {one["state"] for one in findings if one["key"] == key} == {"acknowledged"}
    await send_form(visitor, "/alerts", action="reopen", key=key)
    await send_form(visitor, "/alerts", action="snooze", key=key)
    await send_form(visitor, "/alerts", 404, action="reopen", key="none")
    await send_form(visitor, "/alerts", 400, action="delete", key=key)
