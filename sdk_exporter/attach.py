"""`instrument()`: find the launcher's hand-over, or start a recorder of our own; then watch.

Without a launcher the recorder is a process beside the worker (`companion`). It promises neither the death nor the
output of native code and children; the streams 1 and 2 stay as they are, so nothing can get worse.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from sdk_exporter import beats, events, importing, spool, tee, watching
from sdk_exporter.contract import Key
from sdk_exporter.events import Boot
from sdk_exporter.guard import never_raise
from sdk_exporter.settings import ExporterSettings, warn_once

BOOT_ENVIRONMENT_KEY: Final = "STALLSCOPE_BOOT"
RECORDER_MODULE: Final = "sdk_exporter.recorder"
OUR_MODULES: Final = ("sdk_exporter", RECORDER_MODULE)

_state: dict[str, Any] = {}


@never_raise
def instrument() -> None:
    """Once per process. Patches the SDK now, or as soon as it is imported."""
    if not begin():
        return
    watching.watch_sdk()


@never_raise
def instrument_with_sdk() -> None:
    """The same, but not before the SDK is imported: for tools that instrument every Python process there is."""
    importing.when_imported(importing.SDK_MODULE, instrument)


def begin() -> bool:
    """Start telling, unless this process is not to be watched. True if it is watched now."""
    if _state.get("pid") == os.getpid():
        return bool(_state["on"])
    _state.update(pid=os.getpid(), on=False)
    settings = ExporterSettings.from_env(os.environ)
    if settings.disabled or _is_ours() or _is_child():
        return False
    handed_over = spool.from_environment(os.environ, cap_bytes=settings.spool_bytes)
    found = handed_over or _own_recorder(settings)
    if found is None:
        warn_once("no recorder could be started; this worker is not observed")
        return False
    writer, page = found
    _start(writer, page, settings, own_recorder=handed_over is None)
    _state["on"] = True
    return True


def _start(writer: spool.Writer, page: spool.Page, settings: ExporterSettings, *, own_recorder: bool) -> None:
    from_launcher = None if own_recorder else Boot.parse(os.environ.get(BOOT_ENVIRONMENT_KEY, ""))
    life = from_launcher or _state.get("boot") or Boot.new(_process_start_ns())
    events.start(writer, page, life)
    events.resource({Key.BOOT_ID: life.boot_id, Key.PROCESS_PID: os.getpid()})
    if from_launcher is None:
        events.begin_boot({Key.COLDSTART: True})
    if own_recorder:
        _tell_protocol(os.environ)
        page.set(spool.Page.WORKER_PID, os.getpid())
    # Below a launcher the output is read where it comes out, whoever wrote it; the tee adds whose job a line is.
    if settings.log_capture != "off" and (own_recorder or settings.handler_logs):
        tee.install(handler_logs=settings.handler_logs)
    events.before_failure[:] = [tee.flush]
    for action in (_watch_recorder, tee.tick):
        if action not in beats.every_tick:
            beats.every_tick.append(action)
    beats.start()
    _watch_boot()
    if "fork_hook" not in _state:
        _state["fork_hook"] = True
        os.register_at_fork(after_in_child=_in_child)
    _pages.append(page)


_pages: Final[list[spool.Page]] = []


def _in_child(_held: list[spool.Page] = _pages) -> None:
    """A forked child is not the worker.

    The interpreter keeps this function, and so the pages, until after the user's last file is closed: an `mmap` closes
    a descriptor of its own when it goes, and that number may be the user's by then.
    """
    events.stop()


def _tell_protocol(environ: Mapping[str, str]) -> None:
    """The recorder has no stderr of its own here; which address it takes instead is its affair (recorder.settings)."""
    for signal in ("_TRACES", ""):
        if environ.get(f"OTEL_EXPORTER_OTLP{signal}_PROTOCOL", "").strip().lower() == "grpc":
            warn_once("OTLP is sent over HTTP, not gRPC; an endpoint on port 4317 becomes port 4318")
            return


def stop() -> None:
    """Tell nothing more (uninstrument)."""
    tee.uninstall()
    events.stop()
    _state.clear()


def _is_ours() -> bool:
    """The recorder and the launcher may run with the worker's environment, auto-instrumentation included."""
    arguments = getattr(sys, "orig_argv", [])
    return any(arguments[at] == "-m" and arguments[at + 1] in OUR_MODULES for at in range(len(arguments) - 1))


def _is_child() -> bool:
    """A child that multiprocessing spawned runs the user's main module again; the worker is its parent."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    # While a spawned child imports the main module it does not know its parent yet.
    return process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)


# ------------------------------------------------------------------------------------------------ one-line form


def _own_recorder(settings: ExporterSettings) -> tuple[spool.Writer, spool.Page] | None:
    try:
        from sdk_exporter import companion  # only this form needs it

        life = _state["boot"] = Boot.new(_process_start_ns())
        own = _state["companion"] = companion.Companion(life)
        return spool.Writer(own.events_file, own.page, cap_bytes=settings.spool_bytes), own.page
    except Exception:  # noqa: BLE001 - no memfd, no process, no interpreter: the worker runs unobserved
        return None


@never_raise
def _watch_recorder() -> None:
    own = _state.get("companion")
    if own is not None and not own.look():
        _state["companion"] = None
        warn_once("no recorder can live beside this worker; it is not observed any more")
        events.stop()


def _process_start_ns() -> int:
    """When this process was started, as Unix ns; now, where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        if 0 <= ago < 86_400 * 366:
            return time.time_ns() - int(ago * 1e9)
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    return time.time_ns()


# ------------------------------------------------------------------------------------------------------ the boot


def _watch_boot() -> None:
    """An exception that ends the program before the SDK starts is the boot's failure. The hook before us still runs."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> Any:
        answer = previous(kind, error, trace)
        if isinstance(error, Exception):
            events.end_boot({Key.COLDSTART: True}, error=error)
        return answer

    sys.excepthook = hook
