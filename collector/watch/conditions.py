"""What the sightings mean: the findings of the contract. Pure; `now` is an argument.

Silence is judged by arrival, on the collector's own clock, so that a worker's wrong clock neither kills nor revives it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from collector.diagnosis.answer import EvidenceItem
from collector.queries.stored import ms_of, time_of_ms, time_of_ns
from collector.watch.channels import Health, health
from collector.watch.ledger import Condition, Severity
from collector.watch.sightings import Boot, Cancelled, Channel
from sdk_exporter.contract import HEARTBEAT_SECONDS, SpanName

SILENT_MS: Final = round(4 * HEARTBEAT_SECONDS * 1000)
"""Four heartbeats: a worker that was not heard of for so long is silent."""
ALIVE_MS: Final = 2 * SILENT_MS
"""A worker stays in a finding for so long after its last beat, so that one lost beat does not make a recovery."""
LOST_SHARE: Final = 0.3
LOST_WORKERS: Final = 2
TOGETHER_MS: Final = SILENT_MS
LIVE_SPREAD_MS: Final = 10_000
"""Beats that arrived over less than this may be one replayed spool: such a boot does not count as having been alive."""
NEVER_STARTED_MS: Final = 120_000
CRASHES: Final = 3
CRASH_WINDOW_MS: Final = 600_000
SKEW_MS: Final = 30_000
SKEW_STEADY_MS: Final = 20_000
"""A wrong clock is wrong by the same time at every beat; late delivery is not."""
SKEW_BEATS: Final = 4
ZOMBIE_NS: Final = 30_000_000_000
EXIT_MS: Final = 120_000
"""A worker that is leaving waits for its open polls, 90 s at most; with nothing in hand nothing else may hold it."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """Everything that one round has read."""

    boots: Sequence[Boot]
    channels: Sequence[Channel]
    cancelled: Sequence[Cancelled]
    now: datetime

    @property
    def now_ms(self) -> int:
        """Unix milliseconds."""
        return ms_of(self.now)


def conditions(seen: Sightings) -> list[Condition]:
    """Every finding that is so now, but for `telemetry_lost`."""
    rules: tuple[Callable[[Sightings], Iterable[Condition]], ...] = (
        dead_channels,
        other_channels,
        zombies,
        without_heartbeat,
        deferred_exits,
        crash_loops,
        skewed_clocks,
        without_time_bound,
    )
    return [condition for rule in rules for condition in rule(seen)]


# ------------------------------------------------------------------------------------------------------ poll channels


@dataclass(frozen=True, slots=True)
class _Judged:
    boot: Boot
    name: str
    health: Health


def _judged(seen: Sightings) -> list[_Judged]:
    """The channels of workers that beat; of a worker with several boots only those that beat."""
    boots = {(boot.tenant, boot.worker_id, boot.boot_id): boot for boot in seen.boots}
    found = []
    for channel in seen.channels:
        boot = boots.get((channel.tenant, channel.worker_id, channel.boot_id))
        if boot and boot.beating(seen.now_ms, ALIVE_MS):
            found.append(_Judged(boot, channel.name, health(channel.reports, boot.last_beat_ns)))
    return found


def _place_of(boot: Boot) -> tuple[str, str, str]:
    """Tenant, subject of a finding, and its name in a sentence: the endpoint, or the worker where none is known."""
    if boot.endpoint_id:
        return boot.tenant, boot.endpoint_id, f"endpoint {boot.endpoint_id}"
    return boot.tenant, f"worker {boot.worker_id}", f"worker {boot.worker_id}"


def dead_channels(seen: Sightings) -> Iterable[Condition]:
    """One finding an endpoint: on how many of its workers, since when, how it answers, and what that costs."""
    living: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for boot in seen.boots:
        if boot.beating(seen.now_ms, ALIVE_MS):
            living[_place_of(boot)].add(boot.worker_id)
    dead: dict[tuple[str, str, str], list[_Judged]] = defaultdict(list)
    for one in _judged(seen):
        if one.name == SpanName.STOP_CHANNEL and one.health.state == "dead":
            dead[_place_of(one.boot)].append(one)
    for (tenant, subject, words), judged in sorted(dead.items(), key=lambda item: item[0]):
        workers = {one.boot.worker_id for one in judged}
        running = [one for one in seen.cancelled if one.tenant == tenant and workers & set(one.worker_ids)]
        since = min(_since(one, seen.now) for one in judged)
        why = Counter(one.health.why for one in judged).most_common(1)[0][0]
        sentence = (
            f"Stop channel of {words} is dead on {len(workers)} of {len(living[tenant, subject, words])} workers"
            f" since {since:%H:%M} ({why}).{_still_running(len(running))}"
        )
        yield Condition(
            tenant=tenant,
            code="stop_channel_dead",
            subject=subject,
            severity="error",
            since=since,
            sentence=sentence,
            endpoint_id=judged[0].boot.endpoint_id,
            worker_ids=tuple(workers),
            job_ids=tuple(one.job_id for one in running),
            evidence=(*_reports(judged[:3]), *_billed(running, seen.now_ms)),
            size=len(workers),
        )


def _still_running(count: int) -> str:
    if not count:
        return ""
    return f" {count} cancelled request{' is' if count == 1 else 's are'} still running and billing."


def _billed(running: Sequence[Cancelled], now_ms: int) -> list[EvidenceItem]:
    if not running:
        return []
    seconds = sum(one.seconds_since_cancel + max(now_ms - one.updated_ms, 0) / 1000 for one in running)
    text = f"{seconds:.0f} s since the cancel, summed over {len(running)} requests that still run"
    return [EvidenceItem(source="collector", what="absence", text=text, at=time_of_ms(now_ms), span_id=None)]


def _reports(judged: Sequence[_Judged]) -> list[EvidenceItem]:
    return [
        EvidenceItem(
            source="worker",
            what="event",
            text=f"{one.name} of worker {one.boot.worker_id}: {one.health.report.state}",
            at=time_of_ns(one.health.report.at_ns),
            span_id=one.health.report.span_id,
        )
        for one in judged
        if one.health.report
    ]


def _since(one: _Judged, now: datetime) -> datetime:
    """The worker's time of it on the collector's clock: its lag at the newest beats is its clock's difference."""
    skew_ms = one.boot.least_lag_ms if abs(one.boot.least_lag_ms) > SKEW_MS else 0
    return min(time_of_ms(one.health.since_ns // 1_000_000 + skew_ms), now)


_OTHERS: Final[Mapping[tuple[str, str], tuple[str, Severity, str]]] = {
    (SpanName.STOP_CHANNEL, "disabled"): (
        "stop_channel_disabled",
        "error",
        "{count} of {place} do not poll for stop signals: a cancel never reaches them.",
    ),
    (SpanName.STOP_CHANNEL, "violating"): (
        "stop_channel_violating",
        "warning",
        "The stop channel of {count} of {place} answers in a shape that no stop can be read from ({why}).",
    ),
    (SpanName.STOP_CHANNEL, "spinning"): (
        "stop_channel_spinning",
        "warning",
        "{count} of {place} poll the stop channel without a pause: it answers at once and empty.",
    ),
    (SpanName.JOB_TAKE, "spinning"): (
        "intake_spinning",
        "warning",
        "{count} of {place} poll for requests without a pause: the platform answers at once and empty.",
    ),
}


def other_channels(seen: Sightings) -> Iterable[Condition]:
    """Channels that are disabled, violating or spinning: one finding an endpoint and kind."""
    found: dict[tuple[tuple[str, str, str], tuple[str, str]], list[_Judged]] = defaultdict(list)
    for one in _judged(seen):
        if (one.name, one.health.state) in _OTHERS:
            found[_place_of(one.boot), (one.name, one.health.state)].append(one)
    for ((tenant, subject, words), kind), judged in sorted(found.items()):
        code, severity, sentence = _OTHERS[kind]
        workers = {one.boot.worker_id for one in judged}
        yield Condition(
            tenant=tenant,
            code=code,
            subject=subject,
            severity=severity,
            since=min(_since(one, seen.now) for one in judged),
            sentence=sentence.format(count=_workers(len(workers)), place=words, why=judged[0].health.why),
            endpoint_id=judged[0].boot.endpoint_id,
            worker_ids=tuple(workers),
            evidence=tuple(_reports(judged[:3])),
            size=len(workers),
        )


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


# ------------------------------------------------------------------------------------------------------------ workers


def _per_endpoint(boots: Iterable[Boot]) -> list[tuple[tuple[str, str, str], list[Boot]]]:
    found: dict[tuple[str, str, str], list[Boot]] = defaultdict(list)
    for boot in boots:
        found[_place_of(boot)].append(boot)
    return sorted(found.items(), key=lambda item: item[0])


def _absence(text: str, at: datetime) -> tuple[EvidenceItem, ...]:
    return (EvidenceItem(source="collector", what="absence", text=text, at=at, span_id=None),)


def zombies(seen: Sightings) -> Iterable[Condition]:
    """Heartbeats that go on after the death of their own worker was told."""
    undead = [boot for boot in seen.boots if boot.death_ns and boot.last_beat_ns > boot.death_ns + ZOMBIE_NS]
    fresh = [boot for boot in undead if seen.now_ms - boot.last_beat_ms <= ALIVE_MS]
    for (tenant, subject, words), boots in _per_endpoint(fresh):
        since = min(time_of_ms(boot.death_ms) for boot in boots)
        yield Condition(
            tenant=tenant,
            code="zombie_heartbeat",
            subject=subject,
            severity="warning",
            since=since,
            sentence=f"Heartbeats of {_workers(len(boots))} of {words} go on although the worker is dead.",
            endpoint_id=boots[0].endpoint_id,
            worker_ids=tuple(boot.worker_id for boot in boots),
            job_ids=tuple(job for boot in boots for job in boot.jobs),
            evidence=_absence(f"death was told at {since:%H:%M:%S}, heartbeats came after it", since),
            size=len(boots),
        )


def without_heartbeat(seen: Sightings) -> Iterable[Condition]:
    """Workers that work and have never sent a heartbeat."""
    mute = [
        boot
        for boot in seen.boots
        if boot.boot_id
        and not boot.beats
        and not boot.gone
        and (boot.job_records or boot.started)
        and seen.now_ms - boot.first_ms >= NEVER_STARTED_MS
        and seen.now_ms - boot.last_ms <= CRASH_WINDOW_MS
    ]
    for (tenant, subject, words), boots in _per_endpoint(mute):
        since = time_of_ms(min(boot.first_ms for boot in boots))
        yield Condition(
            tenant=tenant,
            code="heartbeat_never_started",
            subject=subject,
            severity="warning",
            since=since,
            sentence=f"{_workers(len(boots))} of {words} sent records but never a heartbeat:"
            " their death could only be guessed.",
            endpoint_id=boots[0].endpoint_id,
            worker_ids=tuple(boot.worker_id for boot in boots),
            evidence=_absence("no worker.heartbeat since the first record", since),
            size=len(boots),
        )


def deferred_exits(seen: Sightings) -> Iterable[Condition]:
    """Workers that began to shut down, have nothing in hand, and are still there: a claim of theirs is stranded."""
    staying = [
        boot
        for boot in seen.boots
        if boot.shutdown_began_ms
        and not boot.death_ms
        and not boot.jobs
        and boot.last_beat_ms - boot.shutdown_began_ms >= EXIT_MS
        and seen.now_ms - boot.last_beat_ms <= ALIVE_MS
    ]
    for (tenant, subject, words), boots in _per_endpoint(staying):
        since = time_of_ms(min(boot.shutdown_began_ms for boot in boots))
        yield Condition(
            tenant=tenant,
            code="exit_deferred",
            subject=subject,
            severity="warning",
            since=since,
            sentence=f"{_workers(len(boots))} of {words} began to shut down at {since:%H:%M} and"
            f" {'has' if len(boots) == 1 else 'have'} not ended, with no request in hand.",
            endpoint_id=boots[0].endpoint_id,
            worker_ids=tuple(boot.worker_id for boot in boots),
            evidence=_absence(f"heartbeats, and no {SpanName.DEATH}, since the shutdown began", since),
            size=len(boots),
        )


def crash_loops(seen: Sightings) -> Iterable[Condition]:
    """Three boots of an endpoint that died before start() within ten minutes."""
    crashed = [
        boot
        for boot in seen.boots
        if boot.death_ms and boot.boot_told and not boot.started and seen.now_ms - boot.death_ms <= CRASH_WINDOW_MS
    ]
    for (tenant, subject, words), boots in _per_endpoint(crashed):
        if len(boots) < CRASHES:
            continue
        newest = max(boots, key=lambda boot: boot.death_ms)
        ended = f" (the last one with {newest.exit_words})" if newest.exit_words else ""
        yield Condition(
            tenant=tenant,
            code="crash_loop",
            subject=subject,
            severity="error",
            since=time_of_ms(min(boot.death_ms for boot in boots)),
            sentence=f"{len(boots)} boots of {words} died before start() within 10 minutes{ended}.",
            endpoint_id=newest.endpoint_id,
            worker_ids=tuple(boot.worker_id for boot in boots),
            evidence=(
                EvidenceItem(
                    source="worker",
                    what="exit",
                    text=f"{SpanName.DEATH} of worker {newest.worker_id}: {newest.exit_words or 'end not told'}",
                    at=time_of_ms(newest.death_ms),
                    span_id=None,
                ),
            ),
            size=len(boots),
        )


def skewed_clocks(seen: Sightings) -> Iterable[Condition]:
    """Clocks of workers that differ from the collector's by more than 30 s: measured and shown, never corrected."""
    for boot in seen.boots:
        spread_ms = boot.last_beat_ms - boot.first_beat_ms
        steady = boot.most_lag_ms - boot.least_lag_ms <= SKEW_STEADY_MS
        live = boot.beats >= SKEW_BEATS and spread_ms >= SKEW_MS and boot.beating(seen.now_ms, ALIVE_MS)
        if not (steady and live and abs(boot.least_lag_ms) > SKEW_MS):
            continue
        direction = "behind" if boot.least_lag_ms > 0 else "ahead of"
        tens = round(abs(boot.least_lag_ms) / 10_000) * 10  # tens of seconds: jitter must not make it news
        yield Condition(
            tenant=boot.tenant,
            code="clock_skewed",
            subject=f"{boot.worker_id}/{boot.boot_id}",
            severity="warning",
            since=time_of_ms(boot.first_beat_ms),
            sentence=f"The clock of worker {boot.worker_id} is about {tens} s {direction} the collector's.",
            endpoint_id=boot.endpoint_id,
            worker_ids=(boot.worker_id,),
            evidence=_absence(
                f"{boot.beats} heartbeats arrived {boot.least_lag_ms / 1000:.0f} to {boot.most_lag_ms / 1000:.0f} s"
                " after the time that they bear",
                time_of_ms(boot.last_beat_ms),
            ),
        )


def without_time_bound(seen: Sightings) -> Iterable[Condition]:
    """Workers whose prestart may take for ever."""
    unbounded = [boot for boot in seen.boots if boot.unbounded and boot.beating(seen.now_ms, ALIVE_MS)]
    for (tenant, subject, words), boots in _per_endpoint(unbounded):
        yield Condition(
            tenant=tenant,
            code="no_time_bound",
            subject=subject,
            severity="info",
            since=time_of_ms(min(boot.first_ms for boot in boots)),
            sentence=f"The prestart of {words} has no time bound: a hook that hangs holds its requests for ever.",
            endpoint_id=boots[0].endpoint_id,
            worker_ids=tuple(boot.worker_id for boot in boots),
        )


# ---------------------------------------------------------------------------------------------------------- telemetry


def lost_telemetry(seen: Sightings) -> list[Condition]:
    """Tenants of which more than 30 % of the workers fell silent together, without a word about their end."""
    by_tenant: dict[str, list[Boot]] = defaultdict(list)
    for boot in seen.boots:
        alive_once = boot.beats >= 2 and boot.last_beat_ms - boot.first_beat_ms >= LIVE_SPREAD_MS
        if alive_once and not boot.gone:
            by_tenant[boot.tenant].append(boot)
    return [
        condition
        for tenant, boots in sorted(by_tenant.items())
        if (condition := _lost(tenant, _newest_boots(boots), seen.now_ms))
    ]


def _newest_boots(boots: Iterable[Boot]) -> list[Boot]:
    newest: dict[str, Boot] = {}
    for boot in sorted(boots, key=lambda boot: boot.last_beat_ms):
        newest[boot.worker_id] = boot
    return list(newest.values())


def _lost(tenant: str, boots: Sequence[Boot], now_ms: int) -> Condition | None:
    silent = sorted(
        (boot for boot in boots if now_ms - boot.last_beat_ms > SILENT_MS), key=lambda boot: boot.last_beat_ms
    )
    together = _most_together(silent)
    # Of those that were there when they stopped: workers long silent for another reason do not thin the share out.
    there = [boot for boot in boots if together and boot.last_beat_ms >= together[0].last_beat_ms]
    if len(together) < LOST_WORKERS or len(together) <= LOST_SHARE * len(there):
        return None
    since = time_of_ms(together[-1].last_beat_ms)
    return Condition(
        tenant=tenant,
        code="telemetry_lost",
        subject="workers",
        severity="error",
        since=since,
        sentence=f"Heartbeats of {len(together)} of {len(there)} workers stopped together at {since:%H:%M}:"
        " telemetry may be lost, so no death is concluded from their silence.",
        worker_ids=tuple(boot.worker_id for boot in together),
        evidence=_absence(f"no heartbeat of these workers since {since:%H:%M:%S}", since),
        size=len(together),
    )


def _most_together(silent: Sequence[Boot]) -> list[Boot]:
    """The largest run of boots whose last beats lie within a minute of each other."""
    best: list[Boot] = []
    start = 0
    for end, boot in enumerate(silent):
        while boot.last_beat_ms - silent[start].last_beat_ms > TOGETHER_MS:
            start += 1
        if end + 1 - start > len(best):
            best = list(silent[start : end + 1])
    return best


def hears_anyone(seen: Sightings, tenant: str) -> bool:
    """Whether any worker of this tenant beats now, which is what ends lost telemetry."""
    return any(boot.tenant == tenant and boot.beating(seen.now_ms, SILENT_MS) for boot in seen.boots)


def blind(tenant: str, since: datetime, why: str) -> Condition:
    """The watcher itself could not ask the store."""
    since = since.astimezone(timezone.utc)
    return Condition(
        tenant=tenant,
        code="telemetry_lost",
        subject="store",
        severity="error",
        since=since,
        sentence=f"The watcher could not ask the store since {since:%H:%M}: nothing is known of the time after it.",
        evidence=_absence(why[:500], since),
    )
