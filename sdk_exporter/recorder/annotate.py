"""What the recorder adds to the worker's records: log tails, the facts of a death, losses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from sdk_exporter import bounds, spool
from sdk_exporter.contract import ATTRIBUTES_PER_SPAN, JOB_ID_BYTES, Key, Loss, SpanName
from sdk_exporter.recorder import tail
from sdk_exporter.recorder.children import Children
from sdk_exporter.recorder.ledger import IDLE, Ledger
from sdk_exporter.recorder.settings import RecorderSettings, is_hex
from sdk_exporter.recorder.shared import Shared
from sdk_exporter.recorder.vitals import losses

_STARTING: Final = frozenset({"boot", "fitness_check", "prestart"})
_SILENT_SECONDS: Final = 15.0
_QUIET_SECONDS: Final = 60.0
_TAILED: Final = frozenset({SpanName.BOOT, SpanName.FITNESS_CHECK, SpanName.PRESTART, SpanName.JOB_RUN})


class Annotator:
    """Knows what has been printed and what is going on."""

    def __init__(
        self,
        settings: RecorderSettings,
        page: spool.Page,
        ledger: Ledger,
        cleaner: tail.Cleaner,
        shared: Shared | None,
    ) -> None:
        self._settings, self._page, self._ledger, self._cleaner = settings, page, ledger, cleaner
        self._keep = tail.keep_bytes(settings.tail_bytes)
        self._pipes = None if shared is None else tail.PipeOutput(shared)
        self._python = tail.PythonOutput()
        self._resource: dict[str, Any] = {}
        self._resource_news: dict[str, Any] = {}
        self._stall_told = -1
        self._closed = False
        self.boot: tuple[str, str] | None = None
        """Trace id and span id of `worker.boot`."""
        if settings.boot is not None:
            self.boot = settings.boot[1], settings.boot[2]
            self.learn({Key.BOOT_ID: settings.boot[0]})

    def note(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Takes note of a record when it comes; returns what to add to its span."""
        kind, name = record.get("k"), record.get("n")
        self._look_at_gate()
        if kind == "out":
            self._python.add(record, self._keep)
        elif kind == "resource" and isinstance(record.get("a"), dict):
            self.learn(record["a"])
        elif kind == "start" and name == SpanName.BOOT and self.boot is None:
            self._adopt_boot(record)
        elif kind == "start" and name == SpanName.JOB_RUN and not self._settings.handler_logs:
            self._close_output(record.get("t"))
        alone = self._ledger.is_alone(record)
        self._ledger.apply(record)
        extra = self._extra(record, alone=alone)
        if kind == "release" and isinstance(record.get("j"), str):
            self._python.forget(record["j"])
        return extra

    def added_to(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The same afterwards, for a record that was noted by a recorder before us."""
        return self._extra(record, alone=False)

    def shape(self, record: dict[str, Any], children: Children) -> dict[str, Any] | None:
        """The record to make a span of; None where there is nothing to send.

        Losses are told as they are now, when the record leaves: what was lost on its way to here counts.
        """
        kind = record.get("k")
        if kind == "point" and record.get("n") == SpanName.HEARTBEAT and isinstance(record.get("a"), dict):
            return {**record, "a": {**record["a"], **losses(self._page, self._ledger)}}
        if kind in ("start", "end", "point"):
            return record
        if kind == "death" and self.boot is not None:
            lost = losses(self._page, self._ledger)
            return {**self._point(record, SpanName.DEATH, failed=not _clean_exit(record)), "a": lost}
        if kind == "child" and self.boot is not None:
            command = record.get("command") or children.command(record.get("child"))
            return {**self._point(record, SpanName.BACKEND_DEATH, failed=True), "a": {Key.PROCESS_COMMAND: command}}
        return None

    def stall_tail(self, vitals: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a tail for the heartbeat when the worker seems to hang; once per state of its output.

        A hang has no failing span and maybe no death for hours: what it printed last is its only evidence.
        """
        if not self._seems_to_hang(vitals):
            return {}
        raw = self._worker_output(of_prestart=self._ledger.last_phase == "prestart")
        if raw.seen == self._stall_told:
            return {}
        self._stall_told = raw.seen
        return self._tail(raw)

    def _seems_to_hang(self, vitals: Mapping[str, Any]) -> bool:
        phase = self._ledger.last_phase
        if phase in (IDLE, "shutdown"):
            return False
        oldest = max(vitals.get(Key.HEARTBEAT_PROCESS, 0.0), vitals.get(Key.HEARTBEAT_LOOP, 0.0))
        if oldest > max(_SILENT_SECONDS, self._settings.heartbeat_seconds):
            return True
        # Before the handler there may be no loop to beat: there the silence of the output tells.
        quiet = 0.0 if self._pipes is None else self._pipes.quiet_seconds()
        return phase in _STARTING and quiet > max(_QUIET_SECONDS, 4 * self._settings.heartbeat_seconds)

    def take_resource(self) -> dict[str, Any]:
        """Facts about the worker that are new since the last call."""
        news, self._resource_news = self._resource_news, {}
        return news

    # ----------------------------------------------------------------------------------------------------- pieces

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Facts about the worker, for the resource of all spans that follow."""
        for key, value in list(facts.items())[:ATTRIBUTES_PER_SPAN]:
            told = bounds.clip(value, JOB_ID_BYTES) if isinstance(value, str) else value
            if self._resource.get(key) != told and (key in self._resource or len(self._resource) < ATTRIBUTES_PER_SPAN):
                self._resource[key] = self._resource_news[key] = told

    def _adopt_boot(self, record: Mapping[str, Any]) -> None:
        if is_hex(record.get("tr"), 32) and is_hex(record.get("id"), 16):
            self.boot = record["tr"], record["id"]

    def _look_at_gate(self) -> None:
        """The worker says it beside its records too, which it may have been unable to write."""
        if self._settings.handler_logs or self._closed:
            return
        began = self._page.get(spool.Page.RUN_BEGAN)
        if began:
            self._close_output(began)

    def _close_output(self, began: object) -> None:
        self._closed = True
        if not isinstance(began, int):
            began = 0  # a record without a time: rather too much kept back than too little
        self._python.close_at(began)
        if self._pipes is not None:
            self._pipes.close_at(began, self._keep)

    def _point(self, record: Mapping[str, Any], name: str, *, failed: bool) -> dict[str, Any]:
        trace_id, parent = self.boot or ("", "")
        # Made from what the record says: read twice, it stays one span.
        mark = f"{parent}{name}{record.get('t')}{record.get('child')}"
        return {
            "k": "point",
            "n": name,
            "tr": trace_id,
            "pa": parent,
            "t": record.get("t"),
            "a": {},
            "id": hashlib.blake2b(mark.encode(), digest_size=8).hexdigest(),
            "s": "error" if failed else "unset",
        }

    def _extra(self, record: Mapping[str, Any], *, alone: bool) -> dict[str, Any]:
        kind = record.get("k")
        if kind == "death":
            return self._death(record)
        if kind == "child":
            # An engine says why before it dies, and the worker may live on for long without a word.
            return {**_child(record), **self._tail(self._worker_output())}
        if kind == "end" and record.get("n") in _TAILED:
            failed = record.get("s") == "error"
            if failed or self._settings.log_capture == "all":
                return self._tail(self._raw(record, alone=alone))
        return {}

    def _raw(self, record: Mapping[str, Any], *, alone: bool) -> tail.Raw | None:
        """Whose output belongs to this span: the job's own where it is known, of the worker's only what nobody else
        can have printed."""
        if record.get("n") != SpanName.JOB_RUN:
            return self._worker_output(of_prestart=record.get("n") == SpanName.PRESTART)
        own = self._python.job(record.get("j"))
        if own is not None:
            return own
        began = record.get("t0")
        # What an earlier job printed may lie in a buffer until now: only the first job can have no other's lines.
        only = self._ledger.runs <= 1 or not self._settings.handler_logs
        if self._pipes is not None and alone and only and isinstance(began, int):
            return self._pipes.since(began, self._keep)
        return None

    def _worker_output(self, *, of_prestart: bool = False) -> tail.Raw:
        """`of_prestart`: a hook's output is wanted; the SDK claims beside it, and says so line by line."""
        self._look_at_gate()
        raw = self._python.worker() if self._pipes is None else self._pipes.worker(self._keep)
        return raw.without_progress() if of_prestart else raw

    def _tail(self, raw: tail.Raw | None) -> dict[str, Any]:
        if raw is None:
            return {}
        ship = self._settings.log_capture != "off"
        try:
            return tail.attributes_of(raw, self._cleaner, self._settings.tail_bytes, ship=ship)
        except tail.RedactionFailed:
            self._ledger.lose(Loss.REDACTION_FAILED)
            return tail.attributes_of(raw, self._cleaner, self._settings.tail_bytes, ship=False)

    def _death(self, record: Mapping[str, Any]) -> dict[str, Any]:
        jobs = self._ledger.jobs_in_hand
        facts: dict[str, Any] = {
            Key.PROCESS_PID: record.get("worker"),
            Key.EXIT_CODE: record.get("exit"),
            Key.DEATH_SIGNAL: record.get("signal"),
            Key.DEATH_OOM_KILL: record.get("oom"),
            Key.DEATH_JOBS_IN_HAND: jobs,
            Key.DEATH_LAST_PHASE: self._ledger.last_phase,
        }
        if jobs or not _clean_exit(record) or self._settings.log_capture == "all":
            facts.update(self._tail(self._worker_output(of_prestart=self._ledger.last_phase == "prestart")))
        return facts

    # ------------------------------------------------------------------------------------------ across a restart

    def to_json(self) -> dict[str, Any]:
        return {"resource": self._resource, "boot": self.boot, "output": self._pipes and self._pipes.to_json()}

    def restore(self, known: Mapping[str, Any]) -> None:
        """Goes on from what `to_json` gave to a recorder before us."""
        self.learn(known.get("resource") or {})
        boot = known.get("boot")
        self.boot = (boot[0], boot[1]) if boot else self.boot
        if self._pipes is not None and known.get("output"):
            self._pipes.restore(known["output"])


def _clean_exit(record: Mapping[str, Any]) -> bool:
    return record.get("exit") == 0 and not record.get("signal")


def _child(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        Key.PROCESS_PID: record.get("child"),
        Key.EXIT_CODE: record.get("exit"),
        Key.DEATH_SIGNAL: record.get("signal"),
        Key.DEATH_OOM_KILL: record.get("oom"),
    }
