"""The few Linux calls that Python 3.10 has no function for, each told to be missing rather than failing."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
import sys
import termios
from collections.abc import Iterable
from typing import Final

from sdk_exporter import spool

SPLICE_NONBLOCK: Final = 2
RWF_NOWAIT: Final = 8
SI_KERNEL: Final = 0x80
SIGNAL_RECORD_BYTES: Final = 128  # struct signalfd_siginfo
_SET_PIPE_SIZE: Final = 1031
_PIPE_BYTES: Final = 1 << 20
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36
_PIDFD_INFO_BYTES: Final = 64  # struct pidfd_info of its first version; the exit code is its last word
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = 3 << 30 | _PIDFD_INFO_BYTES << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, struct pidfd_info)
_PUNCH_HOLE_KEEP_SIZE: Final = 3
_FD_CLOEXEC_NONBLOCK: Final = 0o2000000 | 0o4000

_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _call(name: str, *arguments: object) -> int:
    """Result of a libc call; raises OSError with its errno, ENOSYS where this libc has no such function."""
    function = getattr(_libc, name, None)
    if function is None:
        raise OSError(errno.ENOSYS, name)
    result: int = function(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def set_process_name(name: str) -> None:
    """What `ps` shows; at most 15 bytes count."""
    try:
        _call("prctl", _SET_NAME, name.encode(), 0, 0, 0)
    except OSError:
        pass


def become_subreaper() -> None:
    """Orphaned descendants become our children, as they would PID 1's."""
    try:
        _call("prctl", _SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except OSError:
        pass  # then only a container's PID 1 gets them, which is us where it matters


def tee(source: int, target: int, limit_bytes: int) -> int:
    """Copies what waits in pipe `source` to pipe `target` without taking it out. 0: all writers are gone."""
    return _call("tee", source, target, ctypes.c_size_t(limit_bytes), SPLICE_NONBLOCK)


def splice(source: int, target: int, limit_bytes: int) -> int:
    """Moves bytes from pipe to pipe inside the kernel: what has left one has reached the other."""
    return _call("splice", source, None, target, None, ctypes.c_size_t(limit_bytes), SPLICE_NONBLOCK)


def signal_descriptor(signals: Iterable[int]) -> int:
    """A readable descriptor for blocked signals; unlike a handler it tells who sent them (`si_code`)."""
    mask = bytearray(SIGNAL_RECORD_BYTES)
    for number in signals:
        mask[(number - 1) // 8] |= 1 << (number - 1) % 8
    return _call("signalfd", -1, (ctypes.c_char * len(mask)).from_buffer(mask), _FD_CLOEXEC_NONBLOCK)


def punch_hole(descriptor: int, start: int, end: int) -> None:
    """Gives the bytes [start, end) of a file back to the kernel; offsets stay valid."""
    try:
        _call("fallocate", descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(end - start))
    except OSError:
        pass  # a file system without holes keeps the room until the worker ends


def exit_status(pidfd: int) -> int | None:
    """Raw wait status of the process behind a pidfd once it is gone; None where the kernel does not tell."""
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("<Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("<Q", info, 0)[0] & _PIDFD_INFO_EXIT:
        return None
    status: int = struct.unpack_from("<i", info, _PIDFD_INFO_BYTES - 4)[0]
    return status


def big_pipe() -> tuple[int, int]:
    """A pipe of 1 MiB where the user's quota allows it, with a read end that never blocks."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, _SET_PIPE_SIZE, _PIPE_BYTES)
    except OSError:
        pass  # EPERM over the quota: 64 KiB do as well
    os.set_blocking(reader, False)  # our own open file: nobody else sees the flag
    return reader, writer


def pending_bytes(descriptor: int) -> int:
    """Bytes that wait to be read."""
    try:
        waiting: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]
        return waiting
    except OSError:
        return 0


def move_high(descriptor: int) -> int:
    """The same open file under a number >= 200 where the limit allows it: programs believe that 3 to 9 are free."""
    for floor in (200, 32):
        try:
            moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)
        except OSError:
            continue  # a low `ulimit -n`
        os.close(descriptor)
        return moved
    return descriptor


def event_file() -> int:
    """An append-only file without a name: lives as long as somebody holds it, whoever dies."""
    if hasattr(os, "memfd_create"):
        try:
            descriptor = os.memfd_create("stallscope-events", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            spool.seal(descriptor)
        except OSError:
            descriptor = _unnamed_file()
    else:
        descriptor = _unnamed_file()
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def memory_file(size_bytes: int) -> int:
    """A shareable piece of memory, filled with zeros."""
    try:
        descriptor = os.memfd_create("stallscope-page", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        descriptor = _unnamed_file()
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def _unnamed_file() -> int:
    import tempfile  # deliberate: 4 ms that only a kernel without memfd pays

    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - removed before anybody could open it
    descriptor, path = tempfile.mkstemp(prefix="stallscope-", dir=folder)
    os.unlink(path)
    return descriptor


def say(text: str) -> None:
    """A complaint of our own, only where it cannot block."""
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"{text}\n"[:512].encode())
    except OSError:
        pass
