"""Groups, endpoints, workers and stop channels; findings and alerts."""

from __future__ import annotations

import pytest
from otlp_worker import OOM_LINE, completed, span, stop_channel
from parts import eventually
from visitors import Visitor

from dashboard import urls
from sdk_exporter.contract import Key, SpanName

WILD = "a/b <script>%2F\"'.json"


async def _two_failures(visitor: Visitor) -> str:
    await visitor.fail("bad-1")
    await visitor.fail("bad-2", worker="w-2", boot="b" * 32)
    items = (await visitor.client.get("/api/v1/jobs")).json()["items"]
    (fingerprint,) = {item["group"]["fingerprint"] for item in items}
    return str(fingerprint)


async def test_the_same_failure_is_counted_once(visitor: Visitor) -> None:
    fingerprint = await _two_failures(visitor)
    page = await visitor.see("/groups")
    assert len(page.all("li.job")) == 1
    assert "2 requests" in page.text(".job-top")
    assert OOM_LINE in page.text(".job-line")
    assert page.one("a.job-id").attrs["href"] == urls.page("groups", fingerprint)
    assert page.one("svg.trend").attrs["aria-label"] == "2 requests in the last day"
    assert (await visitor.client.get("/groups.json")).json()["items"][0]["count"] == 2


async def test_a_group_lists_its_requests(visitor: Visitor) -> None:
    fingerprint = await _two_failures(visitor)
    page = await visitor.see(urls.page("groups", fingerprint))
    assert sorted(page.texts(".job-id")) == ["bad-1", "bad-2"]
    assert "What stands out" in page.texts("h2")
    assert (await visitor.client.get(urls.page("groups", fingerprint, "json"))).json()["group"]["count"] == 2
    assert (await visitor.see("/groups/none", 404)).text("h1") == "There is no such page"


async def test_no_group_is_said_to_be_none(visitor: Visitor) -> None:
    assert "The store answered: no failure is stored." in (await visitor.see("/groups")).texts("p.note")


@pytest.mark.parametrize("name", ["llama-chat", WILD])
async def test_an_endpoint_tells_failures_and_workers(visitor: Visitor, name: str) -> None:
    await visitor.send(completed("good-1"), worker="w-2", endpoint=name)
    await visitor.fail("bad-1", endpoint=name)
    await visitor.listed("good-1", "bad-1")
    page = await visitor.see(urls.page("endpoints", name))
    assert page.text("h1") == name
    assert sorted(page.texts("[aria-labelledby=requests] .job-id")) == ["bad-1", "good-1"]
    assert sorted(page.texts("[aria-labelledby=workers] tbody td:first-child")) == ["w-1", "w-2"]
    assert "NVIDIA L4" in page.text("section[aria-labelledby=workers]")
    twin = (await visitor.client.get(urls.page("endpoints", name, "json"))).json()
    assert twin["summary"]["jobs"] == 2


@pytest.mark.parametrize("name", ["w-1", WILD])
async def test_a_worker_tells_life_hardware_and_requests(visitor: Visitor, name: str) -> None:
    await visitor.fail("bad-1", worker=name)
    page = await visitor.see(urls.page("workers", name))
    assert page.text("h1") == name
    assert "not known to be dead" in page.text("dl.facts")
    assert "NVIDIA L4" in page.text("[aria-labelledby=runs]")
    assert page.texts(".job-id") == ["bad-1"]
    assert "It sent no report" in page.text("[aria-labelledby=channel]")
    await visitor.send(stop_channel("failing", **{Key.CHANNEL_FAILURES: 9}), worker=name)
    assert "✕ failing" in (await visitor.see(urls.page("workers", name))).text("[aria-labelledby=channel]")


async def test_things_never_heard_of_are_not_found(visitor: Visitor) -> None:
    for path in ("/workers/nobody", "/endpoints/nowhere", "/workers/", "/endpoints/"):
        await visitor.see(path, 404)


async def test_stop_channels_tell_states_and_do_not_invent_numbers(visitor: Visitor) -> None:
    assert "no worker reported" in (await visitor.see("/stop-channels")).text("p.note")
    await visitor.send(
        stop_channel("ok", **{Key.CHANNEL_POLLS: 60, Key.CHANNEL_LAST_OK_AGE_SECONDS: 0.5}), worker="w-1"
    )
    await visitor.send(stop_channel("violating", **{Key.CHANNEL_VIOLATION: "not_list"}), worker="w-2")
    page = await visitor.see("/stop-channels")
    rows = {row.query("a")[0].to_text(): row.to_text() for row in page.all("tbody tr")}
    assert "✓ ok" in rows["w-1"]
    assert "500 ms before" in rows["w-1"]
    assert "✕ violating" in rows["w-2"]
    assert "not_list" in rows["w-2"]
    assert "not told" in rows["w-2"]
    assert (await visitor.client.get("/stop-channels.json")).json()["items"][0]["polls"] in (60, None)


async def test_alerts_tell_what_is_wrong_and_say_when_nothing_is(visitor: Visitor) -> None:
    page = await visitor.see("/alerts")
    assert page.texts("p.note") == [
        "The store answered: no alert is open, and none changed in the last day.",
        "The store answered: no finding is open, and none changed in the last day.",
    ]
    assert (await visitor.see("/")).all("nav a[href='/alerts']")
    beat = [span(SpanName.HEARTBEAT, -1, -1)]
    await visitor.send([*beat, *stop_channel("disabled")], worker=WILD, endpoint=WILD)

    async def found() -> bool:
        return bool((await visitor.client.get("/alerts.json")).json()["findings"])

    await eventually(found)
    page = await visitor.see("/alerts")
    assert f"1 worker of endpoint {WILD} do not poll" in page.text("[aria-labelledby=findings] .job-sentence")
    page = await visitor.see("/stop-channels")
    assert "do not poll for stop signals" in page.text("[aria-labelledby=wrong] .job-sentence")
    assert (await visitor.client.get("/stop-channels.json")).json()["findings"][0]["code"] == "stop_channel_disabled"


@pytest.mark.parametrize("path", ["/endpoints/llama-chat", "/workers/w-1", "/groups/x"])
async def test_only_a_request_has_a_markdown_form(visitor: Visitor, path: str) -> None:
    await visitor.fail("bad-1")
    response = await visitor.get(f"{path}.md", 404, headers={"accept": "*/*"})
    assert response.headers["content-type"] == "application/problem+json"
