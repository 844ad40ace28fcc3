"""Whether this server works, with the store away too."""

from __future__ import annotations

from visitors import Visitor


async def test_a_working_server_says_so(visitor: Visitor) -> None:
    page = await visitor.see("/status")
    assert page.text("h1") == "This server works"
    assert page.texts(".check-list .chip") == ["✓ yes"] * 3
    assert (await visitor.client.get("/status.json")).json()["ready"] is True


async def test_a_server_without_its_store_says_what_is_wrong(lost_visitor: Visitor) -> None:
    page = await lost_visitor.see("/status")
    assert page.text("h1") == "This server does not work as it should"
    assert "✕ no" in page.texts(".check-list .chip")


async def test_settings_are_shown_and_secrets_are_not(visitor: Visitor) -> None:
    settings = (await visitor.see("/status")).text("dl.settings")
    assert "STALLSCOPE_RETENTION_DAYS" in settings
    assert "STALLSCOPE_DATABASE_URL set, not shown" in settings.replace("URLset", "URL set")
    assert "chdb:///" not in settings.replace("chdb:///path", "")


async def test_static_files_are_kept_for_good_under_their_own_address_only(visitor: Visitor) -> None:
    page = await visitor.see("/status")
    address = page.one("link[rel=stylesheet]").attrs["href"]
    assert "immutable" in (await visitor.get(address)).headers["cache-control"]
    assert (await visitor.get("/static/stallscope.css?v=old")).headers["cache-control"] == "no-cache"
    for name in ("nope.css", "..%2Froutes.py", "%2e%2e/routes.py"):
        assert (await visitor.client.get(f"/static/{name}")).status_code == 404


async def test_nothing_is_loaded_from_elsewhere(visitor: Visitor) -> None:
    for name in ("stallscope.css", "stallscope.js", "icon.svg"):
        text = (await visitor.get(f"/static/{name}")).text.replace("http://www.w3.org/2000/svg", "")
        for elsewhere in ("http:", "https:", "@import", "url("):
            assert elsewhere not in text
