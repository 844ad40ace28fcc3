"""Database: the only module that talks to ClickHouse, embedded or a server, with one face.

The client is synchronous and runs in two bounded thread pools, one for reading and one for writing, so that slow pages
never hold up an insert. The asynchronous client is not used: the embedded engine has none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError, InterfaceError, OperationalError
from clickhouse_connect.driver.httputil import get_pool_manager
from urllib3 import Timeout

from .errors import StoreRefused, StoreUnavailable
from .rows import json_text
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from clickhouse_connect.datatypes.base import ClickHouseType
    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.httpclient import HttpClient

Result = TypeVar("Result")

DEFAULT_DATABASE: Final = "stallscope"
READERS_EMBEDDED: Final = 8
"""Handles of the embedded engine for reading. One serves one call at a time, and costs about 1 MB."""
READERS_SERVER: Final = 16
WRITERS: Final = 2
WAIT_MARGIN_SECONDS: Final = 2.0
"""Given to a call beyond its own bound, so that the engine's own word about a timeout arrives first."""
CONNECT_SECONDS: Final = 5
MAX_ROWS: Final = 10_000

UNKNOWN_TABLE, UNKNOWN_DATABASE = 60, 81
WAITING_MAY_HELP: Final = frozenset(
    {
        159,  # TIMEOUT_EXCEEDED
        160,  # TOO_SLOW
        194,  # REQUIRED_PASSWORD: the operator can mend it, the sender cannot; nothing may be dropped for it
        201,  # QUOTA_EXCEEDED
        202,  # TOO_MANY_SIMULTANEOUS_QUERIES
        209,  # SOCKET_TIMEOUT
        210,  # NETWORK_ERROR: a shard is down
        241,  # MEMORY_LIMIT_EXCEEDED
        242,  # TABLE_IS_READ_ONLY
        243,  # NOT_ENOUGH_SPACE
        252,  # TOO_MANY_PARTS
        279,  # ALL_CONNECTION_TRIES_FAILED
        394,  # QUERY_WAS_CANCELLED
        516,  # AUTHENTICATION_FAILED
    }
)

# Each refused connection would log a line "Unexpected Http Driver Exception", and each bad cell a traceback. Both come
# to the caller as an exception anyway.
logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # the same, with the whole address


@dataclass(frozen=True, slots=True)
class Target:
    """Where the store is. Exactly one of `path` (embedded) and `host` is set."""

    database: str
    path: Path | None = None
    host: str | None = None
    port: int = 8123
    user: str = "default"
    password: str = dataclasses.field(default="", repr=False)
    secure: bool = False

    def __str__(self) -> str:
        return f"chdb://{self.path}" if self.path else f"{self.host}:{self.port}/{self.database}"


def target_of(url: str) -> Target:
    """Read `chdb:///path[?database=name]`, `clickhouse://user:password@host:8123/database` or `clickhouses://…`.

    Raises SettingsError without repeating the URL, which may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme == "chdb":
        if parts.netloc or not parts.path.strip("/"):
            raise SettingsError("STALLSCOPE_DATABASE_URL: the embedded store needs an absolute path: chdb:///path")
        name = parse_qs(parts.query).get("database", [DEFAULT_DATABASE])[0]
        return Target(database=name, path=Path(unquote(parts.path)))
    if parts.scheme not in ("clickhouse", "clickhouses"):
        raise SettingsError("STALLSCOPE_DATABASE_URL begins with chdb://, clickhouse:// or clickhouses://")
    secure = parts.scheme == "clickhouses"
    try:
        port = parts.port or (8443 if secure else 8123)
    except ValueError as error:
        raise SettingsError(f"STALLSCOPE_DATABASE_URL: {error}") from None
    if not parts.hostname:
        raise SettingsError("STALLSCOPE_DATABASE_URL names no host")
    return Target(
        database=unquote(parts.path.strip("/")) or DEFAULT_DATABASE,
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        secure=secure,
    )


class Database:
    """Connections to the store. Made cheaply; nothing is opened before `connect`, and the store may come and go.

    Every method raises StoreUnavailable where waiting may help (nothing was acknowledged), StoreRefused where the
    statement itself is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self.target = target_of(settings.database_url.get_secret_value())
        self._query_seconds, self._insert_seconds = settings.query_seconds, settings.insert_seconds
        readers = READERS_EMBEDDED if self.embedded else READERS_SERVER
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="store-read")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="store-write")
        self._own = threading.local()  # embedded: the handle of this thread
        self._shared: Client | None = None  # server: one for all threads, with a connection for each
        self._clients: list[Client] = []
        self._lock = threading.Lock()
        self._closed = False
        self._columns: dict[str, dict[str, ClickHouseType]] = {}

    @property
    def embedded(self) -> bool:
        """Whether the engine runs in this process."""
        return self.target.path is not None

    @classmethod
    async def open(cls, settings: Settings) -> Database:
        """A database that has answered."""
        db = cls(settings)
        try:
            await db.connect()
        except BaseException:
            await db.close()
            raise
        return db

    async def connect(self) -> None:
        """Make sure that the store answers and that the database exists."""
        await self._run(self._writers, 30.0, lambda: self._client().command("SELECT 1"))

    async def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        max_rows: int = MAX_ROWS,
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of a SELECT as dicts. Values are bound: `{name:Type}` in the text, never pasted into it.

        `seconds` defaults to STALLSCOPE_QUERY_SECONDS. More than `max_rows` is an error and never a silent cut.
        Engine settings go into `settings`: the client appends to the text, so a SETTINGS clause there can break.
        """
        seconds = self._query_seconds if seconds is None else seconds
        bounds = {"max_execution_time": seconds, "max_result_rows": max_rows, **(settings or {})}

        def ask() -> list[dict[str, Any]]:
            result = self._client().query(sql, parameters=dict(parameters or {}), settings=bounds)
            return list(result.named_results())

        return await self._run(self._readers, seconds, ask)

    async def command(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> None:
        """Run a statement that gives no rows, such as DDL."""
        seconds = self._insert_seconds if seconds is None else seconds
        bounds = {"max_execution_time": seconds}
        await self._run(
            self._writers,
            seconds,
            lambda: self._client().command(sql, parameters=dict(parameters or {}), settings=bounds),
        )

    async def insert(self, table: str, rows: Sequence[DataclassInstance], *, token: str) -> None:
        """Store `rows`; columns are the dataclass's fields. Returns when stored.

        A second insert with the same `token` changes nothing, so a retry of the same rows with the same token is safe
        (and other rows under a used token would be dropped).
        """
        if not rows:
            return
        bounds = {"max_execution_time": self._insert_seconds, "insert_deduplication_token": token}
        names = [field.name for field in dataclasses.fields(rows[0])]

        def store() -> None:
            types = self._column_types(table)
            missing = [name for name in names if name not in types]
            if missing:
                raise StoreRefused(f"{table} has no column {', '.join(missing)}")
            self._client().insert(
                table,
                [_cells([getattr(row, name) for row in rows], types[name]) for name in names],
                column_names=names,
                column_types=[types[name] for name in names],
                column_oriented=True,
                settings=bounds,
            )

        await self._run(self._writers, self._insert_seconds, store)

    async def insert_message(self, table: str, data: bytes, schema: Path, message: str, *, token: str) -> None:
        """Store a serialized protobuf message, whose fields are the table's columns. `schema` is a `.proto` file that
        has `message`. Otherwise as `insert`."""
        settings = {
            "max_execution_time": self._insert_seconds,
            "insert_deduplication_token": token,
            "deduplicate_blocks_in_dependent_materialized_views": 1,
            **self._format_schema(schema, message),
            "output_format_json_escape_forward_slashes": 0,  # as our own JSON: texts of it are searched
        }
        await self._run(
            self._writers,
            self._insert_seconds,
            lambda: self._client().raw_insert(table, insert_block=data, fmt="ProtobufSingle", settings=settings),
        )

    def _format_schema(self, schema: Path, message: str) -> dict[str, str]:
        """A server cannot see our files. The embedded engine can, and would keep a text in a folder `__cache__` of the
        working directory, which it may not be allowed to write."""
        if self.embedded:
            return {"format_schema": f"{schema}:{message}"}
        return {
            "format_schema_source": "string",
            "format_schema": schema.read_text(encoding="utf-8"),
            "format_schema_message_name": message,
        }

    async def close(self) -> None:
        """Let go of the store. The embedded engine first finishes what runs; a server may finish it alone."""
        self._closed = True
        await asyncio.to_thread(self._shut)

    # ------------------------------------------------------------------------------------------------ in the threads

    async def _run(self, pool: ThreadPoolExecutor, seconds: float, call: Callable[[], Result]) -> Result:
        if self._closed:
            raise StoreUnavailable("the store is closed: this process is stopping")

        def guarded() -> Result:
            with _told_apart():
                return call()

        running = asyncio.get_running_loop().run_in_executor(pool, guarded)
        try:
            # Not `wait_for`: before Python 3.12 it can swallow a cancellation that comes together with the result.
            done, _ = await asyncio.wait({running}, timeout=seconds + WAIT_MARGIN_SECONDS)
        finally:
            if not running.done():
                running.cancel()  # a call that waits for its thread is dropped, a running one ends by its own bound
            elif not running.cancelled():
                running.exception()  # seen, also where nobody asks any more
        if not done:
            raise StoreUnavailable(f"the store did not answer in {seconds:g} s")
        return running.result()

    def _client(self) -> Client:
        if self._closed:
            raise StoreUnavailable("the store is closed: this process is stopping")
        if self.embedded:
            client: Client | None = getattr(self._own, "client", None)
            if client is None:
                with self._lock:  # the first handle starts the engine; two at once is not promised to work
                    client = self._own.client = self._connected()
            return client
        with self._lock:
            if self._shared is None:
                self._shared = self._connected()
            return self._shared

    def _connected(self) -> Client:
        client = _embedded_client(self.target.path) if self.target.path else self._server_client()
        try:
            _use_database(client, self.target.database)
        except BaseException:
            client.close()
            raise
        self._clients.append(client)
        return client

    def _server_client(self) -> Client:
        client = clickhouse_connect.get_client(
            host=self.target.host,
            port=self.target.port,
            username=self.target.user,
            password=self.target.password,
            secure=self.target.secure,
            connect_timeout=CONNECT_SECONDS,
            send_receive_timeout=CONNECT_SECONDS,  # of the greeting, which a dead server must not hold up for long
            query_retries=0,  # who asked decides whether to ask again; an answer must come within its bound
            autogenerate_session_id=False,  # one session would refuse all but one call at a time
            pool_mgr=get_pool_manager(maxsize=READERS_SERVER + WRITERS),
        )
        longest = max(self._query_seconds, self._insert_seconds) + WAIT_MARGIN_SECONDS
        cast("HttpClient", client).timeout = Timeout(connect=CONNECT_SECONDS, read=longest)
        return client

    def _column_types(self, table: str) -> dict[str, ClickHouseType]:
        known = self._columns.get(table)
        if known is None:
            context = self._client().create_insert_context(table)
            known = dict(zip(context.column_names, context.column_types, strict=True))
            self._columns[table] = known
        return known

    def _shut(self) -> None:
        for pool in (self._readers, self._writers):
            pool.shutdown(wait=self.embedded, cancel_futures=True)
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._shared = None


def _embedded_client(path: Path) -> Client:
    path.parent.mkdir(parents=True, exist_ok=True)
    if _another_process_has(path):
        raise _cannot_open(path)
    try:
        # No user or password: the engine has none and would warn. Never send the `readonly` setting here: it sticks
        # to the handle for ever.
        return clickhouse_connect.get_client(interface="chdb", path=str(path))
    except ImportError as error:
        raise StoreUnavailable(
            "the embedded store needs the package chdb-core: pip install 'stallscope[embedded]'"
        ) from error
    except ClickHouseError as error:
        if "already initialized" in str(error):  # no code comes with this one
            raise StoreRefused("this process has another embedded store open: it can open one path alone") from error
        raise _cannot_open(path) from error


def _cannot_open(path: Path) -> StoreUnavailable:
    """The engine does not say why; these two are the reasons there are."""
    return StoreUnavailable(
        f"cannot open the embedded store {path}: another process has it open, or the folder cannot be written. "
        "One process alone can use it; for more use a ClickHouse server (STALLSCOPE_DATABASE_URL=clickhouse://…)"
    )


def _another_process_has(path: Path) -> bool:
    """Where the system tells. Only so that the engine is not asked: it would print a line of its own on stderr."""
    try:
        status = (path / "status").stat()
        locks = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    fields = [line.split() for line in locks]
    return any(one[1] == "FLOCK" and one[5] == file and one[4] != str(os.getpid()) for one in fields if len(one) > 5)


def _use_database(client: Client, name: str) -> None:
    """Create the database where it is missing, and make it the client's own."""
    found = client.query("SELECT count() AS n FROM system.databases WHERE name = {name:String}", {"name": name})
    if not found.result_rows[0][0]:
        client.command("CREATE DATABASE IF NOT EXISTS {name:Identifier}", parameters={"name": name})
    client.database = name


def _cells(values: list[Any], column_type: ClickHouseType) -> list[Any]:
    """A column as the client wants it: what is no text goes into a String column as JSON."""
    if column_type.base_type != "String":
        return values
    texts: dict[int, str] = {}  # rows of one batch share their resource: written out once
    return [
        value if isinstance(value, str) else texts.get(id(value)) or texts.setdefault(id(value), json_text(value))
        for value in values
    ]


@contextmanager
def _told_apart() -> Iterator[None]:
    """Turn the client's errors into the two of ours, by code and never by text."""
    try:
        yield
    except (StoreUnavailable, StoreRefused):
        raise
    except ClickHouseError as error:
        code = getattr(error, "code", None)
        if code in (UNKNOWN_TABLE, UNKNOWN_DATABASE):
            raise StoreUnavailable("the store lacks a table: migrations are pending (`stallscope migrate`)") from error
        if code in WAITING_MAY_HELP or (code is None and isinstance(error, (OperationalError, InterfaceError))):
            raise StoreUnavailable(f"the store does not answer ({_short(error)})") from error
        raise StoreRefused(f"the store refused a statement ({_short(error)})") from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # a value that fits no column
        raise StoreRefused(f"a value cannot be stored ({type(error).__name__})") from error
    except OSError as error:
        raise StoreUnavailable(f"the store does not answer ({_short(error)})") from error


def _short(error: BaseException) -> str:
    """What a client may read of a store's error: its code and name. Text, address and SQL stay in the cause."""
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    return f"code {code}{f' {name}' if isinstance(name, str) else ''}" if code else type(error).__name__
