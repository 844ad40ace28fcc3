"""Somebody who reads pages, and a worker beside them that sends spans."""

from __future__ import annotations

from typing import Any

import httpx
from otlp_worker import body_of, prestart_out_of_memory
from page_reader import Seen
from parts import eventually

from collector.clickhouse import Database


class Visitor:
    """Reads pages as a browser asks for them, and sends spans as a worker does."""

    def __init__(self, client: httpx.AsyncClient, database: Database | None = None) -> None:
        self.client, self._database = client, database

    @property
    def database(self) -> Database:
        """The store behind the pages."""
        assert self._database is not None
        return self._database

    async def get(self, path: str, status: int = 200, **options: Any) -> httpx.Response:
        """The answer to a browser. Its status is checked."""
        headers = {"accept": "text/html", **options.pop("headers", {})}
        response = await self.client.request(options.pop("method", "GET"), path, headers=headers, **options)
        assert response.status_code == status, (response.status_code, response.text[:2000])
        return response

    async def see(self, path: str, status: int = 200, **options: Any) -> Seen:
        """The page, parsed. Nothing in it may be able to run."""
        response = await self.get(path, status, **options)
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        page = Seen(response.text)
        assert page.dangers() == []
        return page

    async def send(self, spans: list[dict[str, Any]], **resource: str) -> None:
        """Spans over OTLP/HTTP, as JSON."""
        response = await self.client.post("/v1/traces", json=body_of(spans, **resource))
        assert response.status_code == 200, response.text
        assert not response.json().get("partialSuccess", {}).get("rejectedSpans")

    async def fail(self, job_id: str, **resource: str) -> None:
        """A request that fails in its prestart, diagnosed and in the lists."""
        await self.send(prestart_out_of_memory(job_id), **resource)
        await self.listed(job_id)

    async def listed(self, *job_ids: str) -> None:
        """Wait until the lists know these requests."""
        wanted = set(job_ids)

        async def known() -> bool:
            items = (await self.client.get("/api/v1/jobs", params={"limit": 200})).json()["items"]
            return wanted <= {item["job_id"] for item in items}

        await eventually(known)

    async def forget_spans(self) -> None:
        """What retention does in the end."""
        await self.database.command("TRUNCATE TABLE spans", {})
