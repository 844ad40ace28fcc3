"""Signing in: a read token becomes a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from page_reader import Seen
from parts import Clock
from pydantic import SecretStr
from visitors import Visitor

from collector import asgi
from collector.auth import COOKIE
from collector.errors import RateLimited
from collector.settings import Settings
from dashboard.forms import FORM_COOKIE
from dashboard.pages.login import local_path
from dashboard.sign_ins import SECONDS_A_TRY, TRIES, SignIns

TOKEN = "only-for-tests-read"
OTHER = "only-for-tests-ingest"


@pytest.fixture
async def guarded(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with tokens."""
    closed = settings.model_copy(update={"read_tokens": SecretStr(f"acme:{TOKEN}"), "ingest_tokens": SecretStr(OTHER)})
    app = asgi.server(closed)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers={"accept": "text/html"}) as client,
    ):
        yield client


async def form_secret(client: httpx.AsyncClient) -> str:
    response = await client.get("/login")
    return str(Seen(response.text).all("input[name=form_secret]")[0].attrs["value"])


async def sign_in(client: httpx.AsyncClient, token: str = TOKEN, **fields: str) -> httpx.Response:
    return await client.post("/login", data={"form_secret": await form_secret(client), "token": token, **fields})


async def test_a_page_without_a_token_leads_to_the_sign_in_and_back(guarded: httpx.AsyncClient) -> None:
    response = await guarded.get("/jobs?state=failed")
    assert response.status_code == 303
    assert response.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Dfailed"
    form = Seen((await guarded.get(response.headers["location"])).text)
    response = await sign_in(guarded, next=str(form.one("input[name=next]").attrs["value"]))
    assert (response.status_code, response.headers["location"]) == (303, "/jobs?state=failed")
    assert (await guarded.get("/jobs?state=failed")).status_code == 200


async def test_an_id_with_a_slash_survives_the_sign_in(guarded: httpx.AsyncClient) -> None:
    response = await guarded.get("/jobs/a%2Fb%3Fc")
    form = Seen((await guarded.get(response.headers["location"])).text)
    assert form.one("input[name=next]").attrs["value"] == "/jobs/a%2Fb%3Fc"


async def test_data_without_a_token_is_refused_not_redirected(guarded: httpx.AsyncClient) -> None:
    response = await guarded.get("/jobs.json", headers={"accept": "application/json"})
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded: httpx.AsyncClient) -> None:
    cookies = [value for name, value in (await sign_in(guarded)).headers.multi_items() if name == "set-cookie"]
    (cookie,) = [value for value in cookies if value.startswith(f"{COOKIE}=")]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie  # loopback, where there is no TLS


async def test_the_cookie_is_for_tls_only_off_loopback(guarded: httpx.AsyncClient) -> None:
    response = await guarded.get("/login", headers={"host": "stallscope.example"})
    assert "Secure" in response.headers["set-cookie"]


@pytest.mark.parametrize("token", ["wrong", "", OTHER, "ü", "x" * 10_000])
async def test_other_tokens_do_not_open(guarded: httpx.AsyncClient, token: str) -> None:
    response = await sign_in(guarded, token)
    assert response.status_code == 401
    assert Seen(response.text).text(".problem") == "No token like this may read here."
    assert COOKIE not in guarded.cookies


async def test_a_form_of_another_site_is_refused(guarded: httpx.AsyncClient) -> None:
    secret = await form_secret(guarded)
    fields = {"form_secret": secret, "token": TOKEN}
    evil = await guarded.post("/login", data=fields, headers={"origin": "https://evil.example"})
    null = await guarded.post("/login", data=fields, headers={"origin": "null"})
    torn = await guarded.post("/login", data=fields, headers={"origin": "http://["})
    blind = await guarded.post("/login", data={**fields, "form_secret": "guessed"})
    assert [answer.status_code for answer in (evil, null, torn, blind)] == [403, 403, 403, 403]
    guarded.cookies.delete(FORM_COOKIE)
    assert (await guarded.post("/login", data=fields)).status_code == 403
    assert COOKIE not in guarded.cookies


async def test_the_own_origin_is_accepted(guarded: httpx.AsyncClient) -> None:
    fields = {"form_secret": await form_secret(guarded), "token": TOKEN}
    assert (await guarded.post("/login", data=fields, headers={"origin": "http://127.0.0.1"})).status_code == 303


async def test_signing_out_forgets_the_cookie(guarded: httpx.AsyncClient) -> None:
    await sign_in(guarded)
    await guarded.post("/login", data={"form_secret": await form_secret(guarded), "action": "sign-out"})
    assert (await guarded.get("/jobs")).status_code == 303


@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:x",
        "",
        "evil",
        "/\n/evil",
        "/login",
        "/\t/x",
    ],
)
def test_the_way_back_stays_on_this_server(elsewhere: str) -> None:
    assert local_path(elsewhere) == "/"


async def test_without_tokens_nobody_needs_to_sign_in(visitor: Visitor) -> None:
    await visitor.see("/jobs")
    page = await visitor.see("/login")
    assert "nobody needs to sign in" in page.text("main")
    assert not page.all("input[name=token]")


async def test_the_token_is_never_on_a_page(guarded: httpx.AsyncClient) -> None:
    await sign_in(guarded)
    for path in ("/", "/status", "/login", "/status.json"):
        assert TOKEN not in (await guarded.get(path)).text


async def test_tokens_cannot_be_guessed_at_will(guarded: httpx.AsyncClient) -> None:
    """Ten wrong ones, then even the right one waits; other addresses do not."""
    for _ in range(TRIES):
        assert (await sign_in(guarded, "guess")).status_code == 401
    refused = await sign_in(guarded)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= SECONDS_A_TRY


def test_a_try_comes_back_after_a_while() -> None:
    clock = Clock()
    sign_ins = SignIns(lambda: clock.now.timestamp())
    for _ in range(TRIES):
        sign_ins.admit("a")
        sign_ins.failed("a")
    with pytest.raises(RateLimited):
        sign_ins.admit("a")
    sign_ins.admit("b")
    clock.advance(SECONDS_A_TRY)
    sign_ins.admit("a")
    sign_ins.failed("a")
    with pytest.raises(RateLimited):
        sign_ins.admit("a")


def test_few_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.sign_ins.ADDRESSES_MAX", 3)
    sign_ins = SignIns()
    for number in range(9):
        sign_ins.failed(str(number))
    assert len(sign_ins._spent) == 3
