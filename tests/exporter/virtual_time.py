"""The SDK's loop against the simulator in one process, under a clock that jumps to the next timer when all is quiet.

    python virtual_time.py {with|without}

Prints, as JSON, when the stop channel was polled, in seconds of that clock, for a row of answers that make the SDK
pause. Nothing is waited for: 90 seconds take none.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import sys
from typing import Any

from collector.demo.platform import Fault, Platform, running_platform, worker_env

QUIET_LOOKS = 3
"""A loopback answer is there when the system call that sent it returns; looked for more than once all the same."""


class JumpingSelector(selectors.DefaultSelector):
    """Never waits: where nothing is to be read, time goes on to the next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        for _ in range(QUIET_LOOKS if timeout is None or timeout > 0 else 1):
            if events := super().select(0):
                return events
        if timeout is None:
            raise RuntimeError("nothing will ever happen")
        self.loop.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is what the selector makes of it."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


ANSWERS = (
    Fault(status=204),
    Fault(status=429),
    Fault(status=500),
    Fault(status=200, body="{", content_type="application/json"),
    Fault(status=204),
)


async def polls(is_watched: bool) -> list[float]:
    """When the stop channel was asked, until it was asked twice after a poll that nobody answered."""
    loop = asyncio.get_running_loop()
    async with running_platform(hold_seconds=3600.0, stop_hold_seconds=3600.0) as platform:
        os.environ.update(worker_env(platform.base, "e", "w"), RUNPOD_LOG_LEVEL="NOTSET")
        for answer in ANSWERS:
            platform.arm("job-stop", answer)
        if is_watched:
            import sdk_exporter

            sdk_exporter.instrument()
        from runpod.serverless.modules.rp_scale import JobScaler

        scaler = JobScaler({"handler": lambda job: job})
        running = asyncio.create_task(scaler.run())
        asked = await when_asked(platform, loop, len(ANSWERS) + 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return asked


async def when_asked(platform: Platform, loop: asyncio.AbstractEventLoop, count: int) -> list[float]:
    seen: list[float] = []
    while len(seen) < count:
        asked = len(platform.find_events("job-stop"))
        seen += [loop.time()] * (asked - len(seen))
        await asyncio.sleep(0.01)
    return seen


def main() -> None:
    loop = VirtualLoop()
    times = loop.run_until_complete(polls(sys.argv[1] == "with"))
    print(json.dumps({"asked": [round(at - times[0], 1) for at in times]}))
    sys.stdout.flush()
    os._exit(0)  # the SDK's tasks are of no more interest


if __name__ == "__main__":
    main()
