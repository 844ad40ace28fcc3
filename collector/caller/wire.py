"""One HTTP call, bounded as a whole: name look-up, connection, answer and all."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import httpx

from sdk_exporter.contract import VERSION

ANSWER_BYTES: Final = 64 << 20
"""Most bytes of an answer. The platform's own bound for a result is 20 MB."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came; `body` is what the platform wrote, to the byte."""

    status: int
    body: bytes


class NoReply(Exception):
    """No answer. `sent`: whether the other side may have had the call. `timed_out`: it had its time."""

    def __init__(self, message: str, *, sent: bool, timed_out: bool) -> None:
        super().__init__(message)
        self.sent = sent
        self.timed_out = timed_out


class TooLarge(Exception):
    """An answer of more bytes than anything that is asked for can have."""


class Wire:
    """Connections to one invoke API. Redirects are not followed: the key goes nowhere else."""

    def __init__(self, base: str, key: str | None) -> None:
        headers = {
            # What is printed is what was sent, so it must not be packed on the way.
            "Accept-Encoding": "identity",
            "User-Agent": f"stallscope/{VERSION}",
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        self._base = base
        self._http = httpx.Client(headers=headers, follow_redirects=False)

    def close(self) -> None:
        self._http.close()

    def exchange(self, method: str, path: str, *, content: bytes | None, seconds: float) -> Reply:
        """The answer to one call. Raises TooLarge, or NoReply after `seconds` at the latest."""
        headers = {} if content is None else {"Content-Type": "application/json"}
        request = self._http.build_request(
            method, self._base + path, content=content, headers=headers, timeout=httpx.Timeout(seconds)
        )
        return within(seconds, lambda: self._exchange(request, seconds))

    def _exchange(self, request: httpx.Request, seconds: float) -> Reply:
        try:
            answer = self._http.send(request, stream=True)
            try:
                return Reply(answer.status_code, _read(answer))
            finally:
                answer.close()
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise NoReply(f"no connection in {seconds:g} s", sent=False, timed_out=True) from None
        except httpx.TimeoutException:
            raise NoReply(f"no answer in {seconds:g} s", sent=True, timed_out=True) from None
        except httpx.ConnectError as error:
            raise NoReply(f"no connection: {error}", sent=False, timed_out=False) from None
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise NoReply(f"the connection broke: {why}", sent=True, timed_out=False) from None


def _read(answer: httpx.Response) -> bytes:
    pieces, size = list[bytes](), 0
    for piece in answer.iter_bytes():
        size += len(piece)
        if size > ANSWER_BYTES:
            raise TooLarge(f"an answer of more than {ANSWER_BYTES:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work()` returns or raises, in at most `seconds`, else NoReply.

    HTTP clients bound each read alone, and name look-up not at all: an answer that comes a byte a second would hold a
    wait of 3 s for hours. So the work has a thread, and is left to itself when its time is over; the thread does not
    keep the process alive. Ctrl-C reaches the waiting thread at once.
    """
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            box.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - carried over to the waiting thread, and raised there
            box.put((None, error))

    threading.Thread(target=run, name="stallscope-call", daemon=True).start()
    try:
        result, error = box.get(timeout=seconds)
    except queue.Empty:
        raise NoReply(f"no answer in {seconds:g} s", sent=True, timed_out=True) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # set where there is no error
