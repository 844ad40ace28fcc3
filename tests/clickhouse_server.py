"""Run a real ClickHouse server (HTTP + native TCP) from the npm package
`@chdb/lib-linux-x64-gnu` (it holds libchdb.so, ClickHouse 26.7), for tests and demos.

No root, no docker, no system service: the shared library is loaded with ctypes in a child
process, told to be `clickhouse-local` on a persistent path, asked to `SYSTEM START LISTEN`,
and kept alive by a query that reads this child's standard input.  The parent holds the other
end of that pipe, so the server

* stops cleanly when the parent closes the pipe (`stop()`) or sends SIGTERM,
* stops by itself when the parent dies, even by kill -9 (no orphan servers after a test run),
* can be killed with SIGKILL (`kill()`) to test crash recovery.

    from clickhouse_server import ClickHouseServer
    with ClickHouseServer(tmp_path / "ch", users={"app": {"password": "s3cret"}}) as ch:
        client = clickhouse_connect.get_client(host="127.0.0.1", port=ch.http_port,
                                               username="app", password="s3cret")

Command line: python clickhouse_server.py --dir DIR [--http-port N] [--tcp-port N]
runs one server in the foreground until SIGTERM or SIGINT.

Library lookup: $CLICKHOUSE_LIBCHDB, else node_modules/@chdb/lib-linux-x64-gnu/libchdb.so under
the working directory or any parent.  Install: npm install --no-save @chdb/lib-linux-x64-gnu@26.7.3-stable.1
Node itself is not needed.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from typing import Any
from xml.sax.saxutils import escape

NPM_PACKAGE = "@chdb/lib-linux-x64-gnu"


def find_library() -> str:
    env = os.environ.get("CLICKHOUSE_LIBCHDB")
    if env:
        return env
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        lib = folder / "node_modules" / NPM_PACKAGE / "libchdb.so"
        if lib.exists():
            return str(lib)
    raise FileNotFoundError(f"libchdb.so not found: npm install --no-save {NPM_PACKAGE}, or set CLICKHOUSE_LIBCHDB")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# --------------------------------------------------------------------------- child process


class _Result(ctypes.Structure):
    # struct local_result_v2 of chdb.h
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("_vec", ctypes.c_void_p),
        ("elapsed", ctypes.c_double),
        ("rows_read", ctypes.c_uint64),
        ("bytes_read", ctypes.c_uint64),
        ("error_message", ctypes.c_char_p),
    ]


def serve(config: str, *, library: str | None = None, lifeline_fd: int = 0) -> int:
    """Become the server. Returns when the lifeline reaches end of file or on SIGTERM/SIGINT."""
    # Every thread the library starts inherits this mask, so the signals reach only sigwait below
    # and ClickHouse's own handlers never see them.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    lib = ctypes.CDLL(library or find_library())
    lib.query_stable_v2.restype = ctypes.POINTER(_Result)

    # The library's standard input is a pipe of ours; its end of file ends the blocking query.
    lifeline = os.dup(lifeline_fd)
    read_end, write_end = os.pipe()
    os.dup2(read_end, 0)
    os.close(read_end)

    queries = [
        "SYSTEM START LISTEN HTTP",
        "SYSTEM START LISTEN TCP",
        # `table` is standard input: this blocks until the pipe's end of file.
        "SELECT count() FROM table FORMAT Null SETTINGS max_execution_time = 0",
    ]
    args = [
        "clickhouse",
        f"--config-file={config}",
        "--structure=line String",
        "--input-format=LineAsString",
        "--query=" + "; ".join(queries),
    ]
    argv = (ctypes.c_char_p * len(args))(*[a.encode() for a in args])
    outcome: dict[str, Any] = {}

    def run() -> None:
        result = lib.query_stable_v2(len(args), argv)
        outcome["error"] = "no result" if not result else (result.contents.error_message or b"").decode()
        os.kill(os.getpid(), signal.SIGTERM)  # wake the main thread

    def watch() -> None:
        while os.read(lifeline, 65536):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    server = threading.Thread(target=run, name="clickhouse", daemon=True)
    server.start()
    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    signal.sigwait(stop_signals)
    os.close(write_end)
    server.join(timeout=60)
    error = outcome.get("error", "did not stop in 60 s")
    if error:
        print(error, file=sys.stderr, flush=True)
    sys.stdout.flush()
    # Skip interpreter and static destructors: ClickHouse has already shut its context down.
    os._exit(1 if error else 0)


# --------------------------------------------------------------------------- parent process


def _xml(tag: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"<{tag}>" + "".join(_xml(k, v) for k, v in value.items()) + f"</{tag}>"
    if isinstance(value, (list, tuple)):
        return "".join(_xml(tag, v) for v in value)
    if value is None:
        return f"<{tag}/>"
    if isinstance(value, bool):
        value = int(value)
    return f"<{tag}>{escape(str(value))}</{tag}>"


class ClickHouseServer:
    """One ClickHouse server process on `folder` (created if missing; kept afterwards).

    users:    {name: {"password": str, "profile": str, "quota": str, "grants": [sql, ...]}}
              `default` always exists with no password but only inside the process: see
              default_networks.
    profiles: {name: {setting: value}}; merged over {"default": {}}
    config:   extra server settings as nested dicts, e.g.
              {"remote_servers": {...}, "macros": {...}, "zookeeper": {...}, "query_log": {...}}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        http_port: int | None = None,
        tcp_port: int | None = None,
        users: dict[str, dict[str, Any]] | None = None,
        profiles: dict[str, dict[str, Any]] | None = None,
        quotas: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        max_server_memory: int = 4_000_000_000,
        default_user_networks: tuple[str, ...] = ("::1", "127.0.0.1"),
        log_level: str = "information",
        library: str | None = None,
    ) -> None:
        self.folder = pathlib.Path(folder).resolve()
        self.http_port = http_port or free_port()
        self.tcp_port = tcp_port or free_port()
        self.users, self.profiles, self.quotas = users or {}, profiles or {}, quotas or {}
        self.extra = config or {}
        self.max_server_memory = max_server_memory
        self.default_user_networks = default_user_networks
        self.log_level = log_level
        self.library = library
        self.process: subprocess.Popen[bytes] | None = None
        self.launch_id = uuid.uuid4().hex

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def write_config(self) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        server: dict[str, Any] = {
            "logger": {
                "level": self.log_level,
                "log": self.folder / "server.log",
                "errorlog": self.folder / "server.err.log",
                "size": "50M",
                "count": 1,
            },
            "path": f"{self.folder}/data/",
            "listen_host": "127.0.0.1",
            "http_port": self.http_port,
            "tcp_port": self.tcp_port,
            "max_server_memory_usage": self.max_server_memory,
            "mark_cache_size": 268435456,
            # A clean stop waits for idle keep-alive connections: 5 s with the default of 10.
            "keep_alive_timeout": 1,
            "users_config": self.folder / "users.xml",
        }
        server.update(self.extra)
        # Lets start() tell this process from another server that already holds the port.
        server["macros"] = {**self.extra.get("macros", {}), "launch_id": self.launch_id}
        users: dict[str, Any] = {
            "default": {
                "password": "",
                "networks": {"ip": list(self.default_user_networks)},
                "profile": "default",
                "quota": "default",
                "access_management": 1,
                "named_collection_control": 1,
            }
        }
        for name, user in self.users.items():
            users[name] = {
                "password_sha256_hex": hashlib.sha256(user["password"].encode()).hexdigest(),
                "networks": {"ip": "::/0"},
                "profile": user.get("profile", "default"),
                "quota": user.get("quota", "default"),
                **({"grants": {"query": user["grants"]}} if user.get("grants") else {}),
            }
        accounts = {
            "profiles": {"default": {}, **self.profiles},
            "users": users,
            "quotas": {"default": None, **self.quotas},
        }
        (self.folder / "users.xml").write_text(_xml("clickhouse", accounts))
        path = self.folder / "config.xml"
        path.write_text(_xml("clickhouse", server))
        return str(path)

    def start(self, timeout: float = 180.0) -> ClickHouseServer:
        config = self.write_config()
        env = {**os.environ, "CLICKHOUSE_LIBCHDB": os.path.abspath(self.library or find_library())}
        with open(self.folder / "process.log", "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--serve", config],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=env,
                cwd=self.folder,  # it caches schemas of formats there
            )
        deadline = time.monotonic() + timeout
        probe = self.url + "/?query=" + urllib.parse.quote("SELECT getMacro('launch_id')")
        while True:
            try:
                with urllib.request.urlopen(probe, timeout=10) as r:
                    if r.read().decode().strip() == self.launch_id:
                        return self
            except OSError:  # not listening yet, or another server answers with an error
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "process.log").read_text(errors="replace")[-2000:]
                self.kill()
                raise RuntimeError(f"ClickHouse did not start: {tail}")
            time.sleep(0.02)

    def stop(self, timeout: float = 30.0) -> int:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def __enter__(self) -> ClickHouseServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run ClickHouse in the foreground from libchdb.so")
    parser.add_argument("--serve", metavar="CONFIG", help="become the server with this config file")
    parser.add_argument("--dir", help="folder for config, data and logs")
    parser.add_argument("--http-port", type=int, default=8123)
    parser.add_argument("--tcp-port", type=int, default=9000)
    opts = parser.parse_args()
    if opts.serve:
        return serve(opts.serve)
    if not opts.dir:
        parser.error("--dir or --serve is needed")
    server = ClickHouseServer(opts.dir, http_port=opts.http_port, tcp_port=opts.tcp_port)
    config = server.write_config()
    read_end, _keep = os.pipe()  # nobody closes the other end: only a signal stops it
    return serve(config, lifeline_fd=read_end)


if __name__ == "__main__":
    sys.exit(main())
