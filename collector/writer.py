"""Staged spans → stored. What waits does so in a backlog: in memory, where the sender waits too, or in the journal."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from . import staging
from .clickhouse import Database
from .errors import StallscopeError, StoreRefused, StoreUnavailable
from .metrics import Metrics
from .quarantine import Quarantined

log = logging.getLogger(__name__)

SPANS_PER_INSERT: Final = 10_000
"""A batch is closed here. An insert costs the store about 5 ms and one part whatever its size, so small requests share
one: they gather while the insert before them runs."""
BYTES_PER_INSERT: Final = 16 << 20
"""And here: the store needs about ten times as much to read it."""
LINGER_SHARE: Final = 0.5
"""How long an insert waits for those whom the one before answered, as a share of the time which that took: they send
again in the same moment, and an insert costs much before its first span. A lone sender never waits."""
LINGER_SECONDS: Final = 0.05
"""And never longer than this."""
RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between tries of a batch that its sender was already told to be safe; the last one repeats."""
CLOSE_SECONDS: Final = 10.0
"""How long the last batches may take when the server stops."""
INSERTS_TO_FIND: Final = 200
"""Most inserts to find what the store refuses in one batch; what is then still together is set aside together."""
QUARANTINE_ROWS: Final = 10_000
"""Most rows of `quarantine`: enough to see what is wrong."""
REFUSED_BYTES: Final = 64 << 10
"""Most bytes of a set-aside piece that are kept."""

OnStored = Callable[[str, Collection[str], Collection[tuple[str, str]]], None]
"""Called after spans are stored with tenant, job ids and (worker id, boot id) pairs. Must return at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one request has to store, and whom it tells of."""

    tenant: str
    pieces: Sequence[bytes]
    spans: int
    job_ids: Collection[str] = ()
    worker_boots: Collection[tuple[str, str]] = ()

    @classmethod
    def of(cls, tenant: str, staged: staging.Staged) -> Request:
        """From what `staging` made."""
        pieces = [piece for part in staged.parts for piece in (part.head, part.body)]
        return cls(tenant, pieces, staged.spans, staged.job_ids, staged.worker_boots)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes in one insert. The same batch has the same token whenever it is tried: the store keeps it once."""

    requests: Sequence[Request]
    token: str


class Backlog(Protocol):
    """What waits to be stored."""

    async def add(self, request: Request) -> None:
        """Return when the sender may be told that it is safe. Raises StallscopeError when it may not."""

    async def next(self) -> Batch | None:
        """Wait for a batch and for as many requests as should go with it. None: closed, and nothing is left."""

    async def settle(self, batch: Batch, error: StallscopeError | None) -> None:
        """The batch is stored (None), or could not be stored now."""

    async def close(self) -> None:
        """Take nothing more. Returns at once; `next` gives what is left."""


class SpanWriter:
    """Writes what waits, one insert at a time."""

    def __init__(
        self, db: Database, metrics: Metrics, *, backlog: Backlog | None = None, on_stored: OnStored | None = None
    ) -> None:
        self._db, self._metrics, self._on_stored = db, metrics, on_stored
        self._backlog = backlog or InMemory(metrics)
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to store what waits. `write` does so too; a journal can hold something before."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._store_all(), name="write-spans")

    async def write(self, request: Request) -> None:
        """Return when it is safe. Raises StoreUnavailable when it is not known to be: it is to be sent again."""
        if request.spans:
            self.start()
            await self._backlog.add(request)

    async def close(self) -> None:
        """Finish what waits, or leave it in the journal. Nothing may be written afterwards."""
        await self._backlog.close()
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=CLOSE_SECONDS)
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _store_all(self) -> None:
        while (batch := await self._backlog.next()) is not None:
            error = await self._store(batch)
            await self._backlog.settle(batch, error)
            if error is None and self._on_stored is not None:
                for request in batch.requests:
                    self._on_stored(request.tenant, request.job_ids, request.worker_boots)

    async def _store(self, batch: Batch) -> StallscopeError | None:
        """One insert for all. What the store refuses is found, and set aside where it will be seen."""
        pieces = [piece for request in batch.requests for piece in request.pieces]
        error = await self._insert(b"".join(pieces), batch.token)
        if not isinstance(error, StoreRefused):
            return error
        log.error("the store refused %d requests; looking for the reason: %s", len(batch.requests), error)
        search = _Search()
        for number, request in enumerate(batch.requests):
            error = await self._store_or_set_aside(request, f"{batch.token}-{number}", search)
            if error is not None:
                return error
        return None

    async def _store_or_set_aside(self, request: Request, token: str, search: _Search) -> StallscopeError | None:
        waiting = [(b"".join(request.pieces), token)]
        while waiting:
            data, token = waiting.pop()
            error = await self._insert(data, token)
            search.inserts += 1
            if isinstance(error, StoreRefused):
                halves = staging.halves(data) if search.inserts < INSERTS_TO_FIND else None
                if halves is not None:
                    waiting += [(half, f"{token}{place}") for place, half in enumerate(halves)]
                    continue
                error = await self._set_aside(request.tenant, data, token, error)
            if error is not None:
                return error
        return None

    async def _set_aside(self, tenant: str, data: bytes, token: str, why: StoreRefused) -> StallscopeError | None:
        spans = staging.count(data)
        log.error("set aside %d spans that the store refuses: %s", spans, why, exc_info=why)
        row = Quarantined.of(tenant, str(why.__cause__ or why), spans, data[:REFUSED_BYTES])
        try:
            [aside] = await self._db.query("SELECT count() AS rows FROM quarantine")
            if aside["rows"] < QUARANTINE_ROWS:
                await self._db.insert("quarantine", [row], token=token)
            else:
                log.error("and `quarantine` is full with %d rows: they are lost", aside["rows"])
        except StoreUnavailable as error:
            return error
        except StoreRefused:
            log.exception("and they could not be set aside: they are lost")
        self._metrics.quarantined.inc(spans)
        return None

    async def _insert(self, data: bytes, token: str) -> StallscopeError | None:
        began = time.perf_counter()
        try:
            await self._db.insert_message("spans_in", data, staging.SCHEMA, staging.MESSAGE_NAME, token=token)
            return None
        except (StoreUnavailable, StoreRefused) as error:
            self._metrics.insert_failures.inc()
            return error
        except Exception as error:  # broad: whatever it was, somebody waits for an answer
            log.exception("an insert failed in an unknown way")
            self._metrics.insert_failures.inc()
            return StoreUnavailable(f"an insert failed ({type(error).__name__})", retry_after_seconds=60.0)
        finally:
            self._metrics.insert_seconds.observe(time.perf_counter() - began)


@dataclass(slots=True)
class _Search:
    inserts: int = 0


# -------------------------------------------------------------------------------------------------------- in memory


@dataclass(slots=True)
class _Waiting:
    request: Request
    stored: asyncio.Future[None]


@dataclass(slots=True)
class InMemory:
    """The sender waits for the store: acknowledged means stored there."""

    metrics: Metrics
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _inserting: list[_Waiting] = field(default_factory=list)
    _together: int = 0  # requests that the last batch answered, and that came meanwhile
    _began: float = 0.0
    _took: float = 0.0  # seconds that its insert took
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    async def add(self, request: Request) -> None:
        """Return when the store has it."""
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.metrics.waiting_rows.inc(request.spans)
        self._came.set()
        await waiting.stored

    async def next(self) -> Batch | None:
        """At once where somebody waits alone; after a moment where several waited for the batch before."""
        while not self._waiting:
            if self._closed:
                return None
            self._came.clear()
            await self._came.wait()
        await self._linger()
        spans = size = 0
        while self._waiting and spans < SPANS_PER_INSERT and size < BYTES_PER_INSERT:
            self._inserting.append(self._waiting.popleft())
            spans += self._inserting[-1].request.spans
            size += self._inserting[-1].request.size
        self._began = time.monotonic()
        return Batch([waiting.request for waiting in self._inserting], uuid.uuid4().hex)

    async def _linger(self) -> None:
        until = time.monotonic() + min(LINGER_SHARE * self._took, LINGER_SECONDS)
        while len(self._waiting) < self._together and not self._closed:
            if time.monotonic() >= until:
                return
            await asyncio.sleep(LINGER_SECONDS / 10)

    async def settle(self, batch: Batch, error: StallscopeError | None) -> None:
        """Answer those who wait."""
        self._took = time.monotonic() - self._began
        self._together = len(self._inserting) + len(self._waiting)
        for waiting in self._inserting:
            self.metrics.waiting_rows.dec(waiting.request.spans)
            if waiting.stored.done():  # its client went away meanwhile
                continue
            if error is None:
                waiting.stored.set_result(None)
            else:
                again = error.retry_after_seconds or RETRY_SECONDS[-1]
                waiting.stored.set_exception(StoreUnavailable(str(error), again))
        self._inserting.clear()

    async def close(self) -> None:
        """What waits is still stored."""
        self._closed = True
        self._came.set()
