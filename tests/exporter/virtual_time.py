"""The SDK's stop loop against the simulator in one process. Its clock jumps to the next timer when all is quiet.

    python virtual_time.py {with|without}

Prints, as JSON, when the stop channel was polled, in seconds of that clock, for a row of answers that make the SDK
pause. Nothing is waited for: its 90 seconds take none.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import sys
from typing import Any

from collector.demo import platform as simulator
from collector.demo.platform import Fault, Platform, running_platform, worker_env

QUIET_SECONDS = 0.1
"""Real ones, in which nothing came: an answer over loopback is there sooner, however busy the machine."""


class JumpingSelector(selectors.DefaultSelector):
    """Where nothing is to be read, time goes on to the next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if events := super().select(timeout if timeout is None else min(timeout, QUIET_SECONDS)):
            return events
        self.loop.now += max(timeout or 0.0, 0.0)
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
    """When the stop channel was asked, until it was asked again after a poll that nobody answered."""
    async with running_platform(hold_seconds=3600.0, stop_hold_seconds=3600.0) as platform:
        os.environ.update(worker_env(platform.base, "e", "w"), RUNPOD_LOG_LEVEL="NOTSET")
        for answer in ANSWERS:
            platform.arm("job-stop", answer)
        if is_watched:
            import sdk_exporter

            sdk_exporter.instrument()
        from runpod.serverless.modules import rp_scale

        async with rp_scale.AsyncClientSession() as session:
            scaler = rp_scale.JobScaler({"handler": lambda job: job})
            running = asyncio.create_task(scaler.monitor_stop_signals(session))
            asked = [await when_asked(platform, count) for count in range(1, len(ANSWERS) + 3)]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return asked


async def when_asked(platform: Platform, count: int) -> float:
    await platform.wait_event("job-stop", count=count, seconds=1e6)
    return asyncio.get_running_loop().time()


def main() -> None:
    simulator.SWEEP_SECONDS = 3600.0  # type: ignore[misc]  # each of its timers would be a stop on the way
    times = VirtualLoop().run_until_complete(polls(sys.argv[1] == "with"))
    print(json.dumps({"asked": [round(at - times[0], 1) for at in times]}))
    sys.stdout.flush()
    os._exit(0)  # what is left of the SDK is of no more interest


if __name__ == "__main__":
    main()
