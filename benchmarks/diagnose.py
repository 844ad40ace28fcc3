"""How long reading a tail takes: `python benchmarks/diagnose.py`. Goals: 16 KiB typical 5 ms, worst 50 ms, linear.

Typical: the public cases behind healthy lines of a busy worker, 16 KiB in all. Worst: texts made to be expensive.
Linear: the time of 16 KiB against 4 KiB of the same kind. Times are processor time, the best of several runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Clues
from collector.diagnosis.rules import SIGNALS

TAIL_BYTES = 16_384
RUNS = 7
CASES = Path(__file__).parent.parent / "tests" / "diagnosis" / "cases"


def milliseconds(text: str) -> float:
    clues, best = Clues(text=text), float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        find_cause(clues)
        best = min(best, time.process_time() - started)
    return best * 1000


def filled(text: str, size: int) -> str:
    """The text between healthy lines of a busy worker, cut to a size from the left as a tail is."""
    times = (f"10:{n // 60 % 60:02}:{n % 60:02}" for n in range(500))
    return ("".join(f"INFO 11-02 {time} [loggers.py:123] Engine 000: 41.5 tokens/s\n" for time in times) + text)[-size:]


def expensive(size: int) -> Iterator[tuple[str, str]]:
    """Texts that ask the most of patterns, prefixes and marks."""
    needles = " ".join(needle for signal in SIGNALS for needle in signal.needles)
    examples = "\n".join(example for signal in SIGNALS for example in signal.signal.examples)
    yield "every literal text, one line", (needles * 2)[:size]
    yield "every literal text, one a line", (needles.replace(" ", "\n") * 2)[:size]
    yield "every example", (examples * 2)[:size]
    yield "empty lines", "\n" * size
    yield "one-letter lines", "a\n" * (size // 2)
    yield "overwritten lines", "50%|x\r" * (size // 6)
    yield "opening brackets", "(" * size
    yield "opening brackets and pids", "(a " * (size // 3)
    yield "escapes", "\\n" * (size // 2)
    yield "colours", "\x1b[0;36m" * (size // 7)
    traceback = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n"
    yield "tracebacks", (traceback * 300)[:size]
    yield "dotted names", ("a." * size)[:size]
    yield "levels", ("ERROR: " * size)[:size]
    yield "digits", ("2024-01-01T00:00:00Z " * size)[:size]


def main() -> int:
    tails = [json.loads(path.read_text())["log_tail"] for path in sorted(CASES.glob("*.json"))]
    typical = sorted(milliseconds(filled(tail, TAIL_BYTES)) for tail in tails)
    median, most = typical[len(typical) // 2], typical[-1]
    print(f"typical 16 KiB: median {median:.1f} ms, most {most:.1f} ms")
    worst = 0.0
    for (name, text), (_, quarter) in zip(expensive(TAIL_BYTES), expensive(TAIL_BYTES // 4), strict=True):
        whole, part = milliseconds(text), milliseconds(quarter)
        worst = max(worst, whole)
        print(f"{name:32} {whole:6.1f} ms, a quarter of it {part:5.1f} ms, growth {whole / part:.1f} of 4")
    print(f"worst: {worst:.1f} ms")
    return 0 if median <= 5 and worst <= 50 else 1


if __name__ == "__main__":
    sys.exit(main())
