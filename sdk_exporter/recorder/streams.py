"""One output stream of the worker on its way to where it would have gone without us.

Used by the keeper and, after the keeper's death, by the recorder.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterable, Sequence

from sdk_exporter.recorder import kernel
from sdk_exporter.recorder.shared import RING_BYTES, Shared, StreamField

CHUNK_BYTES = 256 * 1024
_NO_ZERO_COPY = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EBADF)


class Stream:
    """Moves bytes from `source` to `target` and leaves a copy in the shared ring.

    Two ways. Zero copy, pipe to pipe: tee(2) copies into the ring, splice(2) moves the originals; what is passed on
    leaves the source in the same system call, so a SIGKILL at any point neither loses nor doubles a byte. The ring,
    for everything else (a terminal, a file; splice refuses them, and some sandboxes refuse splice): read into the
    ring, write from it; a SIGKILL under full load can lose or double one chunk there.
    """

    def __init__(self, shared: Shared, number: int, source: int, target: int) -> None:
        self.shared, self.number, self.source, self.target = shared, number, source, target
        self._ring = shared.rings[number]
        self._is_file = stat.S_ISREG(os.fstat(target).st_mode)
        self._no_wait = _is_pipe(target) and hasattr(os, "RWF_NOWAIT")
        self.zero_copy = _is_pipe(source) and _is_pipe(target) and hasattr(os, "splice")
        self._copy = (-1, -1)
        self.adopt()

    def adopt(self) -> None:
        """At the start, and when the recorder takes over: nothing may count as copied and not yet moved."""
        if self.zero_copy:
            self._copy = kernel.big_pipe()
            self._set(StreamField.PASSED, self._get(StreamField.HEAD))

    def _get(self, field: int) -> int:
        return self.shared.field(self.number, field)

    def _set(self, field: int, value: int) -> None:
        self.shared.set_field(self.number, field, value)

    @property
    def waiting(self) -> int:
        """Bytes read and not yet passed on."""
        return self._get(StreamField.HEAD) - self._get(StreamField.PASSED)

    @property
    def ended(self) -> bool:
        return bool(self._get(StreamField.ENDED))

    @property
    def moved(self) -> int:
        """Grows whenever something moves."""
        return self._get(StreamField.HEAD) + self._get(StreamField.PASSED)

    def drop_broken(self) -> bool:
        """Where the reader of the original has left: let the worker feel it, as without us. True when closed."""
        if self._get(StreamField.BROKEN) and self.source >= 0:
            os.close(self.source)
            self.source = -1
        return self.source < 0

    def can_write(self) -> bool:
        return self._is_file or bool(select.select([], [self.target], [], 0)[1])

    def register(self, poll: select.poll) -> None:
        if self.waiting and not self._is_file:
            poll.register(self.target, select.POLLOUT)
        if not self.ended and self.waiting < (1 if self.zero_copy else RING_BYTES - CHUNK_BYTES):
            poll.register(self.source, select.POLLIN)

    # --------------------------------------------------------------------------------------------------- reading

    def read(self) -> bool:
        """True if something came."""
        if self.ended:
            return False
        return self._tee() if self.zero_copy else self._read_into_ring()

    def _tee(self) -> bool:
        if self.waiting:
            return False
        try:
            count = kernel.tee(self.source, self._copy[1], CHUNK_BYTES)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            if error.errno in _NO_ZERO_COPY:
                return self._without_zero_copy()
            count = 0
        if count == 0:
            self._set(StreamField.ENDED, 1)
            return False
        while count:
            count -= self._take(self._copy[0], count)
        return True

    def _without_zero_copy(self) -> bool:
        """This kernel or sandbox refuses tee or splice; nothing is in flight, so the other way can go on from here."""
        self.zero_copy = False
        return self._read_into_ring()

    def _take(self, source: int, limit: int) -> int:
        """Reads into the ring directly and lists the chunk."""
        head = self._get(StreamField.HEAD)
        position = head % RING_BYTES
        count = os.readv(source, [self._ring[position : position + min(limit, RING_BYTES - position)]])
        if count:
            self.shared.push(self.number, count, head)
            self._set(StreamField.HEAD, head + count)
        return count

    def _read_into_ring(self) -> bool:
        room = min(RING_BYTES - CHUNK_BYTES - self.waiting, CHUNK_BYTES)
        if room <= 0:
            return False
        try:
            count = self._take(self.source, room)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            count = 0  # a terminal answers EIO when its last writer has gone
        if count == 0:
            self._set(StreamField.ENDED, 1)
        return count > 0

    # --------------------------------------------------------------------------------------------------- writing

    def write(self) -> bool:
        """Passes on what goes without blocking. False: the reader is slow, wait for POLLOUT."""
        while self.waiting:
            try:
                count = self._move()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                count = self._after_refusal(error)
            if count == 0:
                return True
            self._set(StreamField.PASSED, self._get(StreamField.PASSED) + count)
        return True

    def _move(self) -> int:
        if self.zero_copy:
            return kernel.splice(self.source, self.target, self.waiting)
        position = self._get(StreamField.PASSED) % RING_BYTES
        part = self._ring[position : position + min(self.waiting, RING_BYTES - position)]
        if self._no_wait:
            return os.pwritev(self.target, [part], -1, kernel.RWF_NOWAIT)
        if self._is_file:
            return os.write(self.target, part)
        # O_NONBLOCK on the target is no option: that flag belongs to the open file, which others share. POLLOUT
        # promises a pipe one page and a terminal some.
        if not self.can_write():
            raise BlockingIOError
        return os.write(self.target, part[:4096])

    def _after_refusal(self, error: OSError) -> int:
        """Bytes to count as done with, 0 to try again another way or to stop."""
        if self.zero_copy and error.errno in _NO_ZERO_COPY:
            # What tee copied is in the ring as well as in the source: take it out of the source, write the ring's.
            self._discard(self.waiting)
            self.zero_copy = False
            self._no_wait = False
            self.write()
            return 0
        if self._no_wait and error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.ENOSYS):
            self._no_wait = False  # kernels before 6.4
            self.write()
            return 0
        if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
            self._set(StreamField.BROKEN, 1)
            self._set(StreamField.PASSED, self._get(StreamField.HEAD))
            self._set(StreamField.ENDED, 1)
            return 0
        # Disk full and the like: dropped and counted, never blocked.
        lost = self.waiting
        if self.zero_copy:
            self._discard(lost)
        self._set(StreamField.LOST, self._get(StreamField.LOST) + lost)
        return lost

    def _discard(self, count: int) -> None:
        while count > 0:
            gone = len(os.read(self.source, min(count, CHUNK_BYTES)))
            if not gone:
                return
            count -= gone


def pump(streams: Sequence[Stream], others: Iterable[int], seconds: float) -> list[int]:
    """One round over the streams, waiting at most `seconds`. Returns which of the other descriptors are readable."""
    poll = select.poll()
    for stream in streams:
        stream.register(poll)
    waited_for = list(others)
    for descriptor in waited_for:
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
    for stream in streams:
        if stream.source in ready:
            stream.read()
        stream.write()
    return [descriptor for descriptor in waited_for if descriptor in ready]


def _is_pipe(descriptor: int) -> bool:
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
