"""The keeper: parent of the worker, and the only process in the way of its output.

Tiny and single-threaded: it never imports anything heavy and never speaks to the network. It moves every byte from the
worker to the original streams, forwards signals, reaps, ends orphans, and starts the recorder (its fork) again when
that one dies or hangs. Keeper and recorder may each be killed at any moment: kernel pipes and shared memory hold the
state, and the other goes on.

Whatever this machine refuses us, the user's worker runs: where the keeper cannot be set up, the worker takes its place
unobserved.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from typing import Final, NoReturn

from sdk_exporter import spool
from sdk_exporter.contract import SpanName
from sdk_exporter.recorder import forget_working_folder, kernel
from sdk_exporter.recorder.death import exit_facts, oom_kills, shell_code
from sdk_exporter.recorder.processes import descendants
from sdk_exporter.recorder.shared import END_ORPHANS, FLUSH_DEADLINE, FLUSH_WISH, KEEPER_BEAT, RUN_BEGAN, Shared
from sdk_exporter.recorder.streams import Stream, pump

BOOT_KEY: Final = "STALLSCOPE_BOOT"
"""boot id (32 hex), trace id, span id of `worker.boot`, its start in Unix nanoseconds."""

RECORDER_STALE_SECONDS: Final = 10.0
"""A recorder without a sign of life for so long is killed and started again."""
_DRAIN_SECONDS: Final = 10.0
_ORPHAN_TERM_SECONDS: Final = 0.3
_ORPHAN_KILL_SECONDS: Final = 0.2
_LEAST_FLUSH_SECONDS: Final = 0.5
"""What the recorder gets at least, where draining the output or ending orphans took the time of the flush."""
_LAST_STALE_SECONDS: Final = 1.5
"""The same after the worker's end, when time is short."""
_LAST_STARTS: Final = 5
"""Recorders that are started after the worker's end; one that dies at once dies again."""
_LONGEST_BACKOFF_SECONDS: Final = 60.0
_GATHER_SECONDS: Final = 0.05
"""Lines that come one by one are passed on together after so long: waking up is nearly all that they cost."""
_GATHER_BYTES: Final = 4096
"""A round that moved more is a flood: there waiting would slow the worker down."""

_NOT_FORWARDED: Final = {
    getattr(signal, name)
    for name in (
        *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS"),
        *("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGPIPE", "SIGPROF", "SIGVTALRM"),
    )
    if hasattr(signal, name)
}


_STARTUP: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
"""Holds the `sitecustomize` that watches the SDK in a worker whose own lines know nothing of us."""


def run(command: Sequence[str], *, flush_seconds: float, end_orphans: bool, instrument: bool) -> int:
    """Runs `command` under the recorder and returns its exit code (128 + signal number where a signal ended it).

    `instrument`: a Python in it that imports the worker SDK is watched inside too, its own lines unchanged.
    Does not return where observing is impossible here: then the worker takes this process's place.
    """
    if sys.platform != "linux":
        run_unobserved(command, f"needs Linux, this is {sys.platform}")
    try:
        keeper = Keeper(command, flush_seconds=flush_seconds, end_orphans=end_orphans, instrument=instrument)
    except Exception as error:  # noqa: BLE001 - whatever is missing here, the user's worker must run
        run_unobserved(command, str(error) or type(error).__name__)
    return keeper.run()


def run_unobserved(command: Sequence[str], reason: str | None) -> NoReturn:
    """The worker in our place, as if we had never been here."""
    if reason is not None:
        print(f"stallscope: the worker runs unobserved: {reason}", file=sys.stderr, flush=True)
    for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - running the user's command is what we are for
    except OSError as error:
        sys.exit(_cannot_run(command[0], error.errno or 0))


def _cannot_run(name: str, code: int) -> int:
    """Told and numbered as a shell does."""
    print(f"{name}: {os.strerror(code)}", file=sys.stderr, flush=True)
    return 127 if code == errno.ENOENT else 126


class Keeper:
    """One worker's life."""

    def __init__(
        self, command: Sequence[str], *, flush_seconds: float, end_orphans: bool, instrument: bool = True
    ) -> None:
        self._command, self._flush_seconds, self._end_orphans = command, flush_seconds, end_orphans
        self._instrument = instrument
        self._held = _hold_free_numbers()
        self._terminal = any(_is_terminal(descriptor) for descriptor in (0, 1, 2))
        self.shared = Shared()
        self.page_file = kernel.move_high(kernel.memory_file(spool.PAGE_BYTES))
        self.page = spool.Page(self.page_file)
        self.events = kernel.move_high(kernel.event_file())
        self.wake = kernel.move_high(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        # Not the worker's bound: after a long outage its death must still find room.
        self._writer = spool.Writer(self.events, self.page, cap_bytes=sys.maxsize)
        self._worker = 0
        self._status: int | None = None
        self._recorder: int | None = None
        self._restarts, self._next_start = 0, 0.0
        self._moved = 0
        self._worker_ends: dict[int, int] = {}
        self.streams: list[Stream] = []
        self.shared.set(FLUSH_WISH, int(flush_seconds * 1e9))
        self.shared.set(END_ORPHANS, int(end_orphans))
        self.page.set(spool.Page.KEEPER_PID, os.getpid())
        self._watch_signals()
        try:
            self._wire()
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)  # for the worker that takes our place
            raise

    # ---------------------------------------------------------------------------------------------------- set-up

    def _watch_signals(self) -> None:
        # Also what our parent ignores (`nohup`): a worker that has a handler of its own would get it without us, and
        # one that has none has inherited the ignoring.
        wanted = {number for number in signal.valid_signals() if number not in _NOT_FORWARDED}
        wanted.add(signal.SIGCHLD)
        self._signals = kernel.signal_descriptor(wanted)
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

    def _wire(self) -> None:
        """Gives the worker what it would have had: a terminal for a terminal and a pipe for anything else, and one
        pipe where stdout and stderr are one file (then the order between both stays exact)."""
        made: dict[tuple[int, int, int], int] = {}
        for descriptor in (1, 2):
            if descriptor in self._held:
                continue  # started with >&-: it stays closed
            status = os.fstat(descriptor)
            key = (status.st_dev, status.st_ino, status.st_rdev)
            if key not in made:
                reader, writer = _terminal_pair(descriptor) if os.isatty(descriptor) else kernel.big_pipe()
                made[key] = writer
                # Descriptor 2 alone counts as the second stream, also where 1 is closed.
                number = len(self.streams)
                self.streams.append(Stream(self.shared, number, reader, os.dup(descriptor)))
            self._worker_ends[descriptor] = made[key]

    def _begin(self) -> dict[str, str]:
        """The boot's own record, and what the worker needs to know."""
        boot_id, trace_id, span_id = os.urandom(16).hex(), os.urandom(16).hex(), os.urandom(8).hex()
        started = time.time_ns()
        os.environ[BOOT_KEY] = f"{boot_id},{trace_id},{span_id},{started}"  # the recorder reads it as well
        self._record(
            {"k": "start", "n": SpanName.BOOT, "id": span_id, "tr": trace_id, "t": started, "a": {}},
        )
        status = os.fstat(self.events)
        handover = (self.events, -1, self.page_file, status.st_dev, status.st_ino, os.getpid())
        environment = {**os.environ, spool.ENVIRONMENT_KEY: ",".join(map(str, handover))}
        if self._instrument:
            paths = [_STARTUP, *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)  # the worker's `site` takes it out again
        return environment

    def _record(self, record: dict[str, object]) -> None:
        self._writer.write({"pid": os.getpid(), **record})

    # ------------------------------------------------------------------------------------------------- processes

    def _start_worker(self, environment: dict[str, str]) -> int | None:
        """Its pid, or None where it cannot be run: `self._status` then holds the code."""
        told_reader, told_writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(told_reader)
            os.close(told_writer)
            raise
        if not pid:
            self._become_worker(environment, told_writer)
        os.close(told_writer)
        failure = os.read(told_reader, 16)
        os.close(told_reader)
        for writer in set(self._worker_ends.values()):
            os.close(writer)
        if not failure:
            return pid
        os.waitpid(pid, 0)
        self._status = _cannot_run(self._command[0], int(failure)) << 8
        return None

    def _become_worker(self, environment: dict[str, str], tell: int) -> NoReturn:
        try:
            if not self._terminal:
                os.setpgid(0, 0)  # or `kill -pgid` from outside would reach it twice, with our forwarding
            for descriptor, writer in self._worker_ends.items():
                os.dup2(writer, descriptor)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python had set them to "ignore", and ignored is inherited
            signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)
            for descriptor in (self.events, self.page_file):
                os.set_inheritable(descriptor, True)
            os.execvpe(self._command[0], list(self._command), environment)  # noqa: S606
        except OSError as error:
            os.write(tell, str(error.errno).encode())
        finally:
            os._exit(127)

    def _start_recorder(self) -> None:
        self.page.set(spool.Page.RECORDER_BEAT, time.monotonic_ns())
        keeper = os.getpid()
        pid = os.fork()
        if pid:
            self._recorder = pid
            return
        code = 1
        try:
            kernel.set_process_name("stallscope-rec")
            os.setsid()  # no signal of a terminal or of a process group reaches it
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            if self._worker == 0:
                for writer in set(self._worker_ends.values()):
                    os.close(writer)  # or the end of the stream never comes
            forget_working_folder()
            # Deliberate: only this fork pays for the recorder's modules, the keeper stays small.
            from sdk_exporter.recorder.loop import run_recorder

            run_recorder(self.shared, self.page, self.events, self.wake, self.streams, keeper)
            code = 0
        except BaseException as error:  # noqa: BLE001 - a fork must never fall back into the keeper's code
            if os.environ.get("STALLSCOPE_DEBUG"):
                kernel.say(f"stallscope recorder: {type(error).__name__}: {error}")
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._worker:
                self._status = status
            elif pid == self._recorder:
                self._recorder = None
                self._restarts += 1
                pause = min(_LONGEST_BACKOFF_SECONDS, 0.1 * 2 ** min(self._restarts, 10))
                self._next_start = time.monotonic() + pause
            else:
                self._orphan_ended(pid, status)

    def _orphan_ended(self, pid: int, status: int) -> None:
        """A child of the worker whose parent had gone: we are told how it ended, so we tell."""
        code, signal_word = exit_facts(status)
        asked = signal_word in ("SIGTERM", "SIGINT", "SIGHUP")  # whoever ends it in order leaves nothing to explain
        if self._status is None and (code or signal_word) and not asked:
            self._record({"k": "child", "t": time.time_ns(), "child": pid, "exit": code, "signal": signal_word})

    def _watch_recorder(self) -> None:
        now = time.monotonic()
        if self._recorder is None:
            if now >= self._next_start:
                self._start_recorder()
        elif self._recorder_age() > RECORDER_STALE_SECONDS:
            os.kill(self._recorder, signal.SIGKILL)

    def _recorder_age(self) -> float:
        """Seconds since its last sign of life."""
        return time.monotonic() - self.page.get(spool.Page.RECORDER_BEAT) / 1e9

    def _on_signals(self) -> None:
        try:
            data = os.read(self._signals, kernel.SIGNAL_RECORD_BYTES * 64)
        except BlockingIOError:
            return
        for at in range(0, len(data), kernel.SIGNAL_RECORD_BYTES):
            number, _, origin = struct.unpack_from("<Iii", data, at)
            if number == signal.SIGCHLD:
                self._reap()
                continue
            if number == signal.SIGWINCH:
                for stream in self.streams:
                    _copy_size(stream.target, stream.source)
            if self._terminal and origin == kernel.SI_KERNEL:
                continue  # ^C of the terminal: the worker, in the same group, has got it already
            self._forward(number)

    def _forward(self, number: int) -> None:
        if self._status is None and self._worker:
            try:
                os.kill(self._worker, number)
            except ProcessLookupError:
                pass

    # ------------------------------------------------------------------------------------------------------ life

    def run(self) -> int:
        """From the worker's start to its exit code."""
        kernel.set_process_name("stallscope")
        ooms, started = oom_kills(), time.monotonic()
        try:
            kernel.become_subreaper()
            environment = self._begin()
            self._start_recorder()
            self._worker = self._start_worker(environment) or -1
        except OSError as error:  # no process or descriptor left for us
            self._step_aside(error)
        self.page.set(spool.Page.WORKER_PID, max(0, self._worker))
        status = self._watch()
        ended_at = time.monotonic()
        self._drain()
        ended = self._end_descendants() if self._end_orphans else 0
        self._drain()
        code, signal_word = exit_facts(status)
        after = oom_kills()
        oom = None if ooms is None or after is None else signal_word == "SIGKILL" and after > ooms
        self._record(
            {
                "k": "death",
                "t": time.time_ns(),
                "worker": max(0, self._worker),
                "exit": code,
                "signal": signal_word,
                "oom": oom,
                "core": os.WCOREDUMP(status),
                "orphans_ended": ended,
                "seconds": round(time.monotonic() - started, 3),
                "recorder_restarts": self._restarts,
            }
        )
        self._finish_recorder(ended_at + self._flush_seconds)
        return shell_code(status)

    def _step_aside(self, error: OSError) -> NoReturn:
        if self._recorder is not None:
            os.kill(self._recorder, signal.SIGKILL)
            os.waitpid(self._recorder, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)
        run_unobserved(self._command, str(error))

    def _watch(self) -> int:
        """Until the worker has ended; its raw wait status."""
        while self._status is None:
            self.shared.set(KEEPER_BEAT, time.monotonic_ns())
            try:
                if self._signals in pump(self.streams, [self._signals], 1.0 if self._recorder else 0.05):
                    self._on_signals()
                self.streams = [stream for stream in self.streams if not stream.drop_broken()]
                self._watch_recorder()
                self._gather()
            except OSError as error:  # EAGAIN of fork, ENOMEM: the worker's output goes on moving
                self._reap()
                time.sleep(0.01)
                if error.errno == errno.EBADF:
                    self.streams = [stream for stream in self.streams if stream.source >= 0]
        return self._status

    def _gather(self) -> None:
        """Not before output is of handlers only: until then it is the time of arrival that tells what came before."""
        moved = sum(stream.moved for stream in self.streams)
        few = 0 < moved - self._moved <= 2 * _GATHER_BYTES  # each byte counts as read and as passed on
        self._moved = moved
        if few and not self._terminal and self.shared.get(RUN_BEGAN) and not any(s.waiting for s in self.streams):
            select.select([self._signals], [], [], _GATHER_SECONDS)

    def _drain(self) -> None:
        """Until the pipes are empty and everything is passed on. The end is not awaited: a child may hold on."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < deadline:
            for stream in self.streams:
                while stream.read():
                    stream.write()
                stream.write()
            self.streams = [stream for stream in self.streams if not stream.drop_broken()]
            if not any(s.waiting or (not s.ended and kernel.pending_bytes(s.source)) for s in self.streams):
                return
            pump(self.streams, [], 0.02)

    def _end_descendants(self) -> int:
        """SIGTERM, then SIGKILL to whatever the worker left behind: a pinger that goes on would report a dead worker
        as alive. Returns how many."""
        ended: set[int] = set()
        for number, wait in ((signal.SIGTERM, _ORPHAN_TERM_SECONDS), (signal.SIGKILL, _ORPHAN_KILL_SECONDS)):
            for pid in self._left_behind():
                try:
                    os.kill(pid, number)
                    ended.add(pid)
                except ProcessLookupError:
                    continue
            deadline = time.monotonic() + wait
            while self._left_behind() and time.monotonic() < deadline:
                pump(self.streams, [self._signals], 0.02)
                self._reap()
        return len(ended)

    def _left_behind(self) -> list[int]:
        ours = {self._recorder, *(process.pid for process in descendants(self._recorder or -1))}
        return [p.pid for p in descendants(os.getpid()) if p.pid not in ours and p.state not in "ZX"]

    def _finish_recorder(self, deadline: float) -> None:
        """Gives it the time of the flush to hand in what it has, then ends it whatever it does: it holds the original
        output, and whoever reads that waits for its end."""
        deadline = max(deadline, time.monotonic() + _LEAST_FLUSH_SECONDS)
        self.shared.set(FLUSH_DEADLINE, int(deadline * 1e9))
        self.page.set(spool.Page.FINISHED, 1)
        size = os.fstat(self.events).st_size
        starts = 0
        while time.monotonic() < deadline:
            if self._recorder is None:
                if self.page.get(spool.Page.ACKNOWLEDGED) >= size or self.page.get(spool.Page.FINISHED) == 2:
                    break  # all is handed on, or it said good-bye itself
                if starts >= _LAST_STARTS:
                    break  # it cannot live here
                self._start_recorder()  # killed just now: no back-off at the end
                starts += 1
            elif self._recorder_age() > _LAST_STALE_SECONDS:
                os.kill(self._recorder, signal.SIGKILL)  # stopped or hung; another one finds all it knew
            os.eventfd_write(self.wake, 1)
            select.select([self._signals], [], [], 0.05)
            self._on_signals()
            self._reap()
        if self._recorder is not None:
            os.kill(self._recorder, signal.SIGKILL)
            os.waitpid(self._recorder, 0)


def _hold_free_numbers() -> set[int]:
    """Of 0 to 2, those that are closed: taken by /dev/null until the next exec, so that nothing of ours gets them."""
    held = set()
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        held.add(descriptor)
    os.close(descriptor)
    return held


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _terminal_pair(like: int) -> tuple[int, int]:
    reader, writer = os.openpty()
    attributes = termios.tcgetattr(writer)
    attributes[1] &= ~termios.OPOST  # the real terminal turns \n into \r\n once, not twice
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    _copy_size(like, reader)
    os.set_blocking(reader, False)
    for descriptor in (reader, writer):
        os.set_inheritable(descriptor, False)
    return reader, writer


def _copy_size(source: int, target: int) -> None:
    """Rows and columns of one terminal to another."""
    try:
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError:
        pass
