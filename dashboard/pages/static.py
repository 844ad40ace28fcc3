"""The files of `static/`, by name and nothing else. Their addresses change with their content."""

from __future__ import annotations

from fastapi import Request, Response

from collector.errors import NotFound
from dashboard.render import STATIC, static_file, static_url


async def static_page(request: Request, name: str) -> Response:
    """`/static/{name}`. Kept for good only under the address of this very content."""
    if name not in STATIC:
        raise NotFound("There is no such file.")
    own_address = f"{request.url.path}?{request.url.query}" == static_url(name)
    keep = "public, max-age=31536000, immutable" if own_address else "no-cache"
    return Response(static_file(name), media_type=STATIC[name], headers={"Cache-Control": keep})
