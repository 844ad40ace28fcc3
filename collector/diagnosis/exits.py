"""What the end of the process tells by itself: exit code, signal, and whether the kernel counted a kill for memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collector.diagnosis.answer import Fault, Retry
from collector.diagnosis.clues import Clues

_SIGNAL_BASE = 128  # a shell reports a death by signal N as 128 + N
_ABORT = 6
_CRASHES = {
    4: "an illegal instruction (the CPU lacks one that the build uses)",
    5: "a trap",
    6: "an abort",
    7: "a bus error",
    8: "an arithmetic fault",
    11: "a segmentation fault",
    31: "a forbidden system call",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """A cause that the exit alone tells. `decisive`: it beats what the text says."""

    code: str
    confidence: Literal["certain", "likely", "possible"]
    says: str
    decisive: bool = False
    fault: Fault | None = None
    retry: Retry | None = None
    advice: tuple[str, ...] = ()


def signal_of(clues: Clues) -> int | None:
    """The signal that ended the process, also where it is hidden in the exit code."""
    if clues.signal is not None:
        return clues.signal
    code = clues.exit_code
    if code is None:
        return None
    if code < 0:
        return -code
    return code - _SIGNAL_BASE if _SIGNAL_BASE < code < _SIGNAL_BASE + 65 else None


def read_exit(clues: Clues) -> Exit | None:
    """What the exit tells, None where it tells nothing by itself."""
    signal = signal_of(clues)
    if clues.oom_kill and signal in (None, 9):
        return Exit(
            "host_oom", "certain", "the kernel killed the process for memory (its kill was counted)", decisive=True
        )
    if signal == 9:
        return _killed(clues)
    if signal in _CRASHES:
        # An abort is how a program ends itself, mostly after it has said why; the other signals are the crash itself.
        strength: Literal["likely", "possible"] = "possible" if signal == _ABORT else "likely"
        return Exit("native_crash", strength, f"native code died by {_CRASHES[signal]} (signal {signal})")
    if signal in (15, 1):
        return Exit("terminated_by_platform", "likely", f"the process was told to stop from outside (signal {signal})")
    if signal == 2:
        return Exit("request_cancelled", "likely", "the process was interrupted (signal 2)")
    return _status(clues)


def _killed(clues: Clues) -> Exit | None:
    if clues.phase in ("stop", "shutdown"):
        return Exit(
            "terminated_by_platform",
            "likely",
            "the process was told to stop and killed when it had not ended in time (signal 9)",
        )
    if clues.oom_kill is False:
        return Exit(
            "terminated_by_platform", "possible", "the process was killed from outside (signal 9), and not for memory"
        )
    return Exit(
        "host_oom",
        "possible",
        "the process was killed by signal 9, which mostly is the kernel's answer to memory running out",
    )


def _status(clues: Clues) -> Exit | None:
    if clues.exit_code in (126, 127) and clues.phase in (None, "boot"):
        return Exit(
            "image_start_failed",
            "possible",
            f"the program to start was not found or not executable (exit {clues.exit_code})",
        )
    if clues.exit_code == 124:
        return Exit("timeout", "possible", "a time limit ended the program (exit 124, what `timeout` reports)")
    return None
