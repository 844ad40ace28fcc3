"""The recorder's life: look, note, hand on, acknowledge.

Two cursors walk the event file. The first looks at every record at once: it keeps the ledger and takes the log tail of
a failure while the output is still there. The second, never ahead of it, makes spans and hands them to the collector;
only what was taken there is acknowledged, so the file is the queue and a killed recorder repeats and never loses.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sdk_exporter import spool
from sdk_exporter.contract import Key, Loss, SpanName
from sdk_exporter.recorder import kernel, tail
from sdk_exporter.recorder.annotate import Annotator
from sdk_exporter.recorder.around import Launched, Surroundings
from sdk_exporter.recorder.children import Children
from sdk_exporter.recorder.delivery import Body, Delivery, Outcome
from sdk_exporter.recorder.gpu import Gpu
from sdk_exporter.recorder.ledger import Ledger
from sdk_exporter.recorder.leftovers import Kept, Leftovers
from sdk_exporter.recorder.settings import RecorderSettings, endpoint_of
from sdk_exporter.recorder.shared import Shared
from sdk_exporter.recorder.streams import Stream
from sdk_exporter.recorder.vitals import heartbeat

if TYPE_CHECKING:
    from sdk_exporter.recorder.export import Encoder

_LOOK_SECONDS: Final = 0.1
"""Nobody wakes us for a record: a round for each of a burst would cost three times as much."""
_BETWEEN_BATCHES_SECONDS: Final = 0.5
"""The first record after a pause leaves at once; under load a request for each round would cost more than its spans."""
_READ_BYTES: Final = 4 << 20
_BATCH_RECORDS: Final = 512
_DECODED_BYTES: Final = 512 * 1024
_PUNCH_BYTES: Final = 256 * 1024
_EXTRAS: Final = 128
"""Failures whose tails are held while the collector is away; about 2 MiB."""
_SPILL_BYTES: Final = 512 * 1024
"""Waiting records beyond which a collector that is away gets them from disk later, if there is one."""
_LARGE_BACKLOG_BYTES: Final = 4 << 20
"""The same for one that does not keep up."""
_SAVING_SECONDS: Final = 1.0
"""Before the end of the flush, what is unsent is put on disk."""
_LAST_WORDS_SECONDS: Final = 0.35
"""Left for the end itself, so that the exit as a whole keeps within the flush."""
_GIVE_UP_SECONDS: Final = 0.25
_TRIES_BEFORE_GIVING_UP: Final = 2
_SILENT_SECONDS: Final = 1.0
"""A collector that owes an answer for so long is a black hole as far as the exit is concerned."""


def run_recorder(
    shared: Shared, page: spool.Page, events: int, wake: int, streams: Sequence[Stream], keeper: int
) -> None:
    """The launcher's form; returns when everything is handed on or the time for it is over."""
    settings = RecorderSettings.from_env(os.environ)
    _, remark = endpoint_of(os.environ)
    if remark and not page.get(spool.Page.ACKNOWLEDGED) and shared.load() is None:  # a successor need not say it again
        kernel.say(f"stallscope: {remark}")
    Recorder(page, events, wake, Launched(shared, page, streams, keeper), settings, shared).run()


class Recorder:
    """One worker boot, from its first record to its last."""

    def __init__(
        self,
        page: spool.Page,
        events: int,
        wake: int,
        around: Surroundings,
        settings: RecorderSettings,
        shared: Shared | None,
    ) -> None:
        self._page, self._events, self._wake, self._around = page, events, wake, around
        self._settings, self._shared = settings, shared
        self._writer = spool.Writer(events, page, cap_bytes=sys.maxsize)  # few, small, and about the end
        self._ledger = Ledger()
        self._cleaner = tail.Cleaner(os.environ)
        self._annotator = Annotator(settings, page, self._ledger, self._cleaner, shared)
        self._extras: dict[int, dict[str, Any]] = {}
        self._seen = self._decoded_end = page.get(spool.Page.ACKNOWLEDGED)
        self._decoded: deque[tuple[int, dict[str, Any]]] = deque()
        """Records that both cursors need, up to `_decoded_end`, by offset; what they lack is read again."""
        self._batch_end: int | None = None
        self._hurried_since: float | None = None
        self._kept = Kept(settings)
        self._on_disk: bool | None = None
        """Whether what is unsent at the end is on disk; None: not tried."""
        self._spilled = False
        self._spilling_to: int | None = None
        """Where the records end that are on their way to the disk."""
        self._next_batch = 0.0
        self._next_beat = 0.0
        self._last_beat_at = 0
        self._children = Children(around.keeper)
        self._gpu = Gpu()
        self._leftovers: Leftovers | None = None
        self._encoder: Encoder | None = None
        self._delivery: Delivery | None = None
        self._restore()

    def run(self) -> None:
        """Returns when all is handed on after the worker's end, or the time for it is over."""
        while True:
            self._give_sign()
            woken = self._around.wait(self._wake, _LOOK_SECONDS)
            deadline = self._around.deadline()
            if woken:
                self._clear_wake()
            has_orphans = self._around.orphans_are_ours and self._children.end()
            if deadline is not None:
                self._tell_last()
            elif not has_orphans:
                self._look_at_children()
            self._observe(at_end=deadline is not None)
            if deadline is None:
                self._beat()
            self._hand_on(hurry=deadline is not None)
            is_over = deadline is not None and self._is_over(deadline)
            if is_over and (not has_orphans or time.monotonic() >= (deadline or 0)):
                break
        self._last_words()

    def _give_sign(self) -> None:
        """Of life, for the keeper: between any two records, since large ones take their time."""
        self._page.set(spool.Page.RECORDER_BEAT, time.monotonic_ns())

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except (BlockingIOError, OSError):
            pass

    def _tell_last(self) -> None:
        record = self._around.last_record()
        if record is not None:
            self._writer.write({"pid": os.getpid(), **record})

    # ------------------------------------------------------------------------------------------------- observing

    def _observe(self, *, at_end: bool) -> None:
        """Every record that came, once."""
        while True:
            data = os.pread(self._events, _READ_BYTES, self._seen)
            records, used, damaged = spool.decode_placed(data, at_end=at_end and len(data) < _READ_BYTES)
            if not used:
                return
            for position, record in records:
                self._note(self._seen + position, record)
            self._remember(records, self._seen, used)
            self._ledger.lose(Loss.SPOOL_TORN, damaged)
            self._seen += used
            self._save()

    def _remember(self, records: list[tuple[int, dict[str, Any]]], begin: int, used: int) -> None:
        """For the second cursor, which is close behind unless the collector is away: decoding twice was a quarter of
        what a record costs."""
        acknowledged = self._page.get(spool.Page.ACKNOWLEDGED)
        if acknowledged == begin:
            self._decoded.clear()
            self._decoded_end = begin
        if self._decoded_end == begin and begin + used - acknowledged <= _DECODED_BYTES:
            self._decoded.extend((begin + position, record) for position, record in records)
            self._decoded_end = begin + used

    def _note(self, offset: int, record: dict[str, Any]) -> None:
        self._give_sign()
        try:
            extra = self._annotator.note(record)
        except Exception:  # noqa: BLE001 - one senseless record must not end recorder after recorder
            self._ledger.lose(Loss.INTERNAL_ERROR)
            return
        if extra:
            self._extras[offset] = extra
            while len(self._extras) > _EXTRAS:
                del self._extras[next(iter(self._extras))]  # made again from what is left when its turn comes

    def _look_at_children(self) -> None:
        """What ends while the worker goes down is no loss."""
        for record in self._children.look(self._page.get(spool.Page.WORKER_PID)):
            if not self._ledger.is_shutting_down:
                self._writer.write({"pid": os.getpid(), **record})

    def _beat(self) -> None:
        """A heartbeat is a record like any other. None while the one before has not left: the newest says it all."""
        now = time.monotonic()
        boot = self._annotator.boot
        if now < self._next_beat or boot is None or not self._seen:
            return
        self._next_beat = now + self._settings.heartbeat_seconds
        if self._last_beat_at > self._page.get(spool.Page.ACKNOWLEDGED):
            return
        self._gpu.look()
        self._annotator.learn(self._gpu.facts)
        trace_id, span_id = boot
        self._writer.write(
            {
                "k": "point",
                "n": SpanName.HEARTBEAT,
                "id": os.urandom(8).hex(),
                "tr": trace_id,
                "pa": span_id,
                "t": time.time_ns(),
                "pid": os.getpid(),
                "a": self._vitals(),
            }
        )
        self._last_beat_at = os.lseek(self._events, 0, os.SEEK_END)
        self._observe(at_end=False)

    def _vitals(self) -> dict[str, Any]:
        facts = heartbeat(self._page, self._ledger)
        backend_age = self._children.backend_age()
        if backend_age is not None:
            facts[Key.HEARTBEAT_BACKEND] = round(backend_age, 3)
        if self._gpu.memory_used_bytes is not None:
            facts[Key.HEARTBEAT_GPU_MEMORY_USED_BYTES] = self._gpu.memory_used_bytes
        return {**facts, **self._annotator.stall_tail(facts)}

    # ------------------------------------------------------------------------------------------------ handing on

    def _hand_on(self, *, hurry: bool) -> None:
        """One batch at a time: what the collector took is acknowledged, then the next one goes."""
        delivery = self._delivery
        if delivery is not None:
            if hurry:
                delivery.hurry()
            outcome = delivery.outcome()
            if outcome is not None and self._batch_end is not None:
                self._count(outcome)
                self._acknowledge(max(self._batch_end, self._page.get(spool.Page.ACKNOWLEDGED)))
                self._batch_end = None
                if outcome.sent:
                    self._ship_leftovers()
            if delivery.busy:
                if not hurry:
                    self._spill(delivery)
                return
        now = time.monotonic()
        while self._batch_end is None and self._page.get(spool.Page.ACKNOWLEDGED) < self._seen:
            if now < self._next_batch and not hurry:
                return
            self._next_batch = now + _BETWEEN_BATCHES_SECONDS
            self._submit()

    def _ship_leftovers(self) -> None:
        """Those of earlier workers with the first sign of a collector, our own when it is back."""
        if self._leftovers is None or (self._spilled and not self._leftovers.under_way):
            self._spilled = False
            self._leftovers = Leftovers(self._settings, self._ledger.lose)

    def _spill(self, delivery: Delivery) -> None:
        """What waits for a collector that is away goes to disk piece by piece, the batch under way included (its
        repeat is harmless). The file in memory stays small, and the end has little left to do."""
        acknowledged = self._page.get(spool.Page.ACKNOWLEDGED)
        if self._spilling_to is not None:
            is_kept = self._kept.finished()
            if is_kept is None:
                return
            if is_kept:
                self._spilled = True
                self._acknowledge(max(self._spilling_to, acknowledged))
            self._spilling_to = None
            return
        backlog = self._seen - acknowledged
        is_away = delivery.failures >= _TRIES_BEFORE_GIVING_UP or delivery.waiting_seconds >= _SILENT_SECONDS
        if backlog < (_SPILL_BYTES if is_away else _LARGE_BACKLOG_BYTES) or not self._kept.possible:
            return
        bodies, end = self._bodies(acknowledged)
        if bodies:
            self._spilling_to = end
            self._kept.begin(bodies)
        else:
            self._acknowledge(end)

    def _submit(self) -> None:
        """Makes the next batch; one without spans is done with at once."""
        bodies, end = self._bodies(self._page.get(spool.Page.ACKNOWLEDGED))
        if bodies:
            self._batch_end = end
            self._made_delivery().submit(bodies)
        else:
            self._acknowledge(end)

    def _bodies(self, begin: int) -> tuple[list[Body], int]:
        """Requests made of the records from `begin` on, and where these end."""
        records, end = self._next_records(begin)
        spans = []
        for offset, record in records:
            self._give_sign()
            spans += self._spans_of(offset, record)
        outcome = Outcome()
        bodies = self._made_encoder().bodies(spans, outcome)
        self._count(outcome)
        return bodies, end

    def _next_records(self, begin: int) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        if begin < self._decoded_end:
            known = [entry for entry in self._decoded if entry[0] >= begin][: _BATCH_RECORDS + 1]
            return known[:_BATCH_RECORDS], known[-1][0] if len(known) > _BATCH_RECORDS else self._decoded_end
        data = os.pread(self._events, min(_READ_BYTES, self._seen - begin), begin)
        at_end = begin + len(data) >= self._seen
        placed, used, _ = spool.decode_placed(data, at_end=at_end, most=_BATCH_RECORDS)
        # Nothing to be made out: what the first cursor has passed is never waited for.
        end = begin + used if used else self._seen
        return [(begin + position, record) for position, record in placed], end

    def _spans_of(self, offset: int, record: dict[str, Any]) -> list[Any]:
        encoder = self._made_encoder()
        try:
            shaped = self._annotator.shape(record, self._children)
            if shaped is None:
                return []
            extra = self._extras.get(offset)
            return list(encoder.spans(shaped, self._annotator.added_to(record) if extra is None else extra))
        except tail.RedactionFailed:
            self._ledger.lose(Loss.REDACTION_FAILED)
        except Exception:  # noqa: BLE001 - records come from any descendant: one that we cannot read stops no other
            self._ledger.lose(Loss.ENCODE)
        return []

    def _made_encoder(self) -> Encoder:
        if self._encoder is None:
            from sdk_exporter.recorder.export import Encoder  # deliberate: OpenTelemetry comes with the first event

            self._encoder = Encoder(self._cleaner, dict(self._settings.resource))
        self._encoder.learn(self._annotator.take_resource())
        return self._encoder

    def _made_delivery(self) -> Delivery:
        if self._delivery is None:
            self._delivery = Delivery(self._settings, self._wake_up)
        return self._delivery

    def _wake_up(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _count(self, outcome: Outcome) -> None:
        for reason, count in outcome.losses.items():
            self._ledger.lose(reason, count)

    def _acknowledge(self, end: int) -> None:
        begin = self._page.get(spool.Page.ACKNOWLEDGED)
        self._page.set(spool.Page.ACKNOWLEDGED, end)
        for offset in [offset for offset in self._extras if offset < end]:
            del self._extras[offset]
        while self._decoded and self._decoded[0][0] < end:
            self._decoded.popleft()
        low, high = begin & -_PUNCH_BYTES, end & -_PUNCH_BYTES
        if high > low:
            kernel.punch_hole(self._events, low, high)

    # -------------------------------------------------------------------------------------------------- the end

    def _is_over(self, deadline: float) -> bool:
        """All handed on, or no time left, or nobody there to take it."""
        now = time.monotonic()
        if self._page.get(spool.Page.ACKNOWLEDGED) >= os.lseek(self._events, 0, os.SEEK_END):
            leftovers = self._leftovers
            return leftovers is None or not leftovers.worth_waiting_for or now >= deadline - _LAST_WORDS_SECONDS
        if self._hurried_since is None:
            self._hurried_since = now
        # Evidence that stays on disk need not hold up the exit while nobody listens; without a disk it is worth it.
        delivery = self._delivery
        nobody_there = delivery is not None and (
            delivery.failures >= _TRIES_BEFORE_GIVING_UP or delivery.waiting_seconds >= _SILENT_SECONDS
        )
        if nobody_there and now - self._hurried_since >= _GIVE_UP_SECONDS and self._is_on_disk():
            return True
        if now >= deadline - _SAVING_SECONDS:
            self._is_on_disk()
        return time.monotonic() >= deadline - _LAST_WORDS_SECONDS

    def _last_words(self) -> None:
        if self._delivery is not None:
            self._delivery.stop()
        self._page.set(spool.Page.FINISHED, 2)

        if os.environ.get("STALLSCOPE_DEBUG") and self._delivery is not None and self._delivery.trouble:
            where = self._cleaner.text(f"{self._settings.endpoint}: {self._delivery.trouble}")
            kernel.say(f"stallscope: {self._delivery.delivered} spans delivered; last trouble with {where}")

    def _is_on_disk(self) -> bool:
        """Puts what is unsent there for the next start, redacted as it would have been sent; tried once. False: there
        is no disk, or it is full, and what is not sent in time is lost."""
        if self._on_disk is None:
            self._on_disk = self._kept.add(self._unsent())
        return self._on_disk

    def _unsent(self) -> Iterator[Body]:
        begin = self._page.get(spool.Page.ACKNOWLEDGED)
        while begin < self._seen:
            bodies, begin = self._bodies(begin)
            yield from bodies

    # ------------------------------------------------------------------------------------------ across a restart

    def _save(self) -> None:
        if self._shared is None:
            return
        known = {"seen": self._seen, "ledger": self._ledger.to_json(), **self._annotator.to_json()}
        if not self._shared.save(json.dumps(known).encode()):
            known.pop("output", None)  # an id-heavy ledger matters more than the end of the boot's output
            self._shared.save(json.dumps(known).encode())

    def _restore(self) -> None:
        saved = self._shared.load() if self._shared is not None else None
        if saved is None:
            return
        known = json.loads(saved)
        self._seen = max(self._seen, int(known["seen"]))
        self._ledger.restore(known["ledger"])
        self._annotator.restore(known)
