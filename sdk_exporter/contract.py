"""The language that worker and server share: span names, attribute keys, words and limits.

Standard library only. A name is defined here once and nowhere else; `docs/contract.md` describes each, and a test
keeps both in step. Renaming anything here breaks a user.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

VERSION: Final = "0.1.0"

STARTED_SUFFIX: Final = ".started"
"""A thing that takes time is told twice: `<name>.started` at once, `<name>` at its end. A killed worker leaves the
first."""


class SpanName:
    """Names of the spans that a worker, its recorder, a caller or the platform poller sends."""

    BOOT: Final = "worker.boot"
    FITNESS_CHECK: Final = "worker.fitness_check"
    PRESTART: Final = "prestart"
    PRESTART_HOOK: Final = "prestart.hook"
    JOB_CLAIMED: Final = "job.claimed"
    JOB_GATED: Final = "job.gated"
    JOB_RUN: Final = "job.run"
    JOB_DELIVER: Final = "job.deliver"
    JOB_STOP: Final = "job.stop"
    STOP_CHANNEL: Final = "stop_channel"
    JOB_TAKE: Final = "job_take"
    HEARTBEAT: Final = "worker.heartbeat"
    SHUTDOWN: Final = "worker.shutdown"
    DEATH: Final = "worker.death"
    BACKEND_DEATH: Final = "backend.death"
    CALLER_REQUEST: Final = "caller.request"
    CALLER_POLL: Final = "caller.poll"
    PLATFORM_WORKER: Final = "platform.worker"
    PLATFORM_LOG: Final = "platform.log"
    PLATFORM_ENDPOINT: Final = "platform.endpoint"
    LOG_RECORD: Final = "log.record"
    """Sent by nobody: a log record (OTLP logs) that names its request, as the collector keeps it."""


class Key:
    """Attribute keys. Standard semantic conventions first, then our own group `stallscope.*`.

    Types: ids and words are strings, `jobs_in_hand` and `heartbeat.jobs` string arrays, ages and seconds doubles,
    counts and bytes ints, flags bools.
    """

    # Resource
    SERVICE_NAME: Final = "service.name"
    SERVICE_INSTANCE_ID: Final = "service.instance.id"
    SERVICE_VERSION: Final = "service.version"
    CLOUD_PROVIDER: Final = "cloud.provider"
    CLOUD_REGION: Final = "cloud.region"
    FAAS_NAME: Final = "faas.name"
    HOST_NAME: Final = "host.name"
    PROCESS_PID: Final = "process.pid"
    CONTAINER_IMAGE_NAME: Final = "container.image.name"
    CONTAINER_IMAGE_TAGS: Final = "container.image.tags"
    HW_ID: Final = "hw.id"
    HW_MODEL: Final = "hw.model"
    HW_DRIVER_VERSION: Final = "hw.driver_version"
    SDK_NAME: Final = "stallscope.sdk.name"
    SDK_VERSION: Final = "stallscope.sdk.version"
    BOOT_ID: Final = "stallscope.exporter.boot_id"

    # Every record about a request
    INVOCATION_ID: Final = "faas.invocation_id"
    SPAN_ID: Final = "stallscope.span_id"
    """On `<name>.started`: the id that the ending span will have."""

    # Standard ones used on spans
    COLDSTART: Final = "faas.coldstart"
    ERROR_TYPE: Final = "error.type"
    EXCEPTION_TYPE: Final = "exception.type"
    EXCEPTION_MESSAGE: Final = "exception.message"
    EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
    HTTP_STATUS: Final = "http.response.status_code"
    HTTP_CONTENT_TYPE: Final = "http.response.header.content-type"
    """An array, as OpenTelemetry has it for headers: of one media type."""
    EXIT_CODE: Final = "process.exit.code"
    PROCESS_COMMAND: Final = "process.command"

    BOOT_IMPORT_SECONDS: Final = "stallscope.boot.import_seconds"
    CHECK_NAME: Final = "stallscope.check.name"
    PRESTART_HOOK: Final = "stallscope.prestart.hook"
    PRESTART_TIMEOUT_SECONDS: Final = "stallscope.prestart.timeout_seconds"
    PRESTART_KIND: Final = "stallscope.prestart.kind"
    CLAIM_WAIT_SECONDS: Final = "stallscope.claim.wait_seconds"
    CLAIM_BATCH_SIZE: Final = "stallscope.claim.batch_size"
    CLAIM_UNREAD: Final = "stallscope.claim.unread"
    """On `job_take`: the worker ended with an answer to its poll unread, whose requests nobody can name."""
    HANDLER_KIND: Final = "stallscope.handler.kind"
    HANDLER_CHUNKS: Final = "stallscope.handler.chunks"
    HANDLER_CHUNKS_LOST: Final = "stallscope.handler.chunks_lost"
    """Chunks of a stream that the platform did not take; the worker SDK goes on with the next."""
    HANDLER_RETURNED_ERROR: Final = "stallscope.handler.returned_error"
    """True where the handler did not raise but returned a dict with `error`."""
    DELIVER_ATTEMPT: Final = "stallscope.deliver.attempt"
    DELIVER_BYTES: Final = "stallscope.deliver.bytes"
    DELIVER_LAST: Final = "stallscope.deliver.last"
    """True on the try after which the SDK makes no other."""
    STOP_OUTCOME: Final = "stallscope.stop.outcome"
    STOP_SECONDS: Final = "stallscope.stop.seconds"
    CHANNEL_STATE: Final = "stallscope.stop_channel.state"
    CHANNEL_POLLS: Final = "stallscope.stop_channel.polls"
    CHANNEL_EMPTY: Final = "stallscope.stop_channel.empty"
    CHANNEL_FAILURES: Final = "stallscope.stop_channel.failures"
    CHANNEL_CONSECUTIVE_FAILURES: Final = "stallscope.stop_channel.consecutive_failures"
    CHANNEL_LAST_OK_AGE_SECONDS: Final = "stallscope.stop_channel.last_ok_age_seconds"
    CHANNEL_VIOLATION: Final = "stallscope.stop_channel.violation"
    CHANNEL_HOLD_SECONDS_P50: Final = "stallscope.stop_channel.hold_seconds_p50"
    CHANNEL_RATE_PER_SECOND: Final = "stallscope.stop_channel.rate_per_second"
    CHANNEL_UNANSWERED_SECONDS: Final = "stallscope.stop_channel.unanswered_seconds"
    """Told only where polls could be made and none is answered, or none is made: for how long."""
    CHANNEL_POLLING: Final = "stallscope.stop_channel.polling"
    """With the one before: whether a poll was open."""
    HEARTBEAT_PROCESS: Final = "stallscope.heartbeat.process"
    HEARTBEAT_LOOP: Final = "stallscope.heartbeat.loop"
    HEARTBEAT_PROGRESS: Final = "stallscope.heartbeat.progress"
    HEARTBEAT_BACKEND: Final = "stallscope.heartbeat.backend"
    HEARTBEAT_JOBS: Final = "stallscope.heartbeat.jobs"
    HEARTBEAT_RSS_BYTES: Final = "stallscope.heartbeat.rss_bytes"
    HEARTBEAT_GPU_MEMORY_USED_BYTES: Final = "stallscope.heartbeat.gpu_memory_used_bytes"
    SHUTDOWN_SIGNAL: Final = "stallscope.shutdown.signal"
    SHUTDOWN_JOBS_IN_HAND: Final = "stallscope.shutdown.jobs_in_hand"
    DEATH_SIGNAL: Final = "stallscope.death.signal"
    DEATH_OOM_KILL: Final = "stallscope.death.oom_kill"
    DEATH_JOBS_IN_HAND: Final = "stallscope.death.jobs_in_hand"
    DEATH_LAST_PHASE: Final = "stallscope.death.last_phase"
    CALLER_STATUS: Final = "stallscope.caller.status"
    CALLER_QUEUE_SECONDS: Final = "stallscope.caller.queue_seconds"

    PLATFORM_STATUS: Final = "stallscope.platform.status"
    """On `platform.worker`: the platform's own word, verbatim."""
    PLATFORM_VERSION: Final = "stallscope.platform.version"
    """The endpoint's configuration version: of a worker the one that it runs, of an endpoint the newest."""
    PLATFORM_IS_STALE: Final = "stallscope.platform.is_stale"
    PLATFORM_STARTED_AT: Final = "stallscope.platform.started_at"
    PLATFORM_START_SECONDS: Final = "stallscope.platform.start_seconds"
    """On the `platform.worker` that tells a worker ready: how long it was initializing, as polled."""
    PLATFORM_STARTS: Final = "stallscope.platform.starts"
    PLATFORM_START_SECONDS_P95: Final = "stallscope.platform.start_seconds_p95"
    """On `platform.endpoint`: 95 in 100 of so many starts took no longer."""
    PLATFORM_JOBS_QUEUED: Final = "stallscope.platform.jobs_queued"
    PLATFORM_JOBS_RUNNING: Final = "stallscope.platform.jobs_running"
    PLATFORM_WORKERS: Final = "stallscope.platform.workers"
    PLATFORM_WORKERS_RUNNING: Final = "stallscope.platform.workers_running"
    PLATFORM_WORKERS_IDLE: Final = "stallscope.platform.workers_idle"
    PLATFORM_WORKERS_INITIALIZING: Final = "stallscope.platform.workers_initializing"
    PLATFORM_WORKERS_THROTTLED: Final = "stallscope.platform.workers_throttled"
    PLATFORM_WORKERS_UNHEALTHY: Final = "stallscope.platform.workers_unhealthy"
    PLATFORM_WORKERS_MIN: Final = "stallscope.platform.workers_min"
    PLATFORM_WORKERS_MAX: Final = "stallscope.platform.workers_max"
    PLATFORM_RELEASE: Final = "stallscope.platform.release"
    PLATFORM_RELEASE_AT: Final = "stallscope.platform.release_at"
    PLATFORM_RELEASE_FIELDS: Final = "stallscope.platform.release_fields"
    PLATFORM_PAUSED_BY: Final = "stallscope.platform.paused_by"
    """The release that set the maximum of workers to zero, where one did."""
    PLATFORM_ROUTE: Final = "stallscope.platform.route"
    """On a `platform.endpoint` with an error: what could not be asked."""
    PLATFORM_LINE: Final = "stallscope.platform.line"
    PLATFORM_LINES_DROPPED: Final = "stallscope.platform.lines_dropped"

    LOG_TAIL: Final = "stallscope.log.tail"
    LOG_STREAM: Final = "stallscope.log.stream"
    LOG_SCOPE: Final = "stallscope.log.scope"
    LOG_BYTES_SEEN: Final = "stallscope.log.bytes_seen"
    LOG_BYTES_DROPPED: Final = "stallscope.log.bytes_dropped"
    LOG_BYTES_WITHHELD: Final = "stallscope.log.bytes_withheld"
    LOG_REDACTIONS: Final = "stallscope.log.redactions"
    LOG_COMPLETE: Final = "stallscope.log.complete"

    EVENT_NAME: Final = "event.name"
    RECORD_BODY: Final = "stallscope.log_record.body"
    RECORD_SEVERITY: Final = "stallscope.log_record.severity"
    RECORD_SEVERITY_NUMBER: Final = "stallscope.log_record.severity_number"
    """OTLP's scale: 1 to 24, from 9 INFO, from 13 WARN, from 17 ERROR; 0: not told."""

    LOSS_PREFIX: Final = "stallscope.loss."
    """`stallscope.loss.<reason>`: how many records were lost on the way, by reason."""


EXCEPTION_EVENT: Final = "exception"


class _Word(str, Enum):
    """A word of the contract: compares, prints and serialises as its text."""

    def __str__(self) -> str:
        return str(self.value)


class StopOutcome(_Word):
    """What became of a stop signal for a job."""

    STOPPED = "stopped"
    SWALLOWED = "swallowed"
    IGNORED = "ignored"
    LATE = "late"
    UNKNOWN_JOB = "unknown_job"
    CLEANUP_FAILED = "cleanup_failed"


class ChannelState(_Word):
    """State of a poll channel (job stop, job take)."""

    OK = "ok"
    FAILING = "failing"
    DISABLED = "disabled"
    VIOLATING = "violating"
    SPINNING = "spinning"


class ChannelViolation(_Word):
    """How an answer of the stop channel broke its shape."""

    CONTENT_TYPE = "content_type"
    PARSE = "parse"
    NOT_OBJECT = "not_object"
    NOT_LIST = "not_list"
    NON_STRING_IDS = "non_string_ids"
    WRONG_KEY = "wrong_key"


class HandlerKind(_Word):
    """How the user's handler is called, or that the run is a block of the user's own (`sdk_exporter.job()`)."""

    SYNC = "sync"
    ASYNC = "async"
    GENERATOR = "generator"
    BLOCK = "block"


class PrestartKind(_Word):
    """What failed before the worker was ready: a hook (also when the key is absent) or the initializer."""

    HOOK = "hook"
    INITIALIZER = "initializer"


class LogScope(_Word):
    """Whose output a tail is: what cannot be tied to one job is the worker's."""

    JOB = "job"
    WORKER = "worker"


class LogStream(_Word):
    """Which stream a tail was read from."""

    COMBINED = "combined"
    STDOUT = "stdout"
    STDERR = "stderr"


class Loss(_Word):
    """Reasons for which a record does not reach the collector."""

    SPOOL_FULL = "spool_full"
    SPOOL_WRITE = "spool_write"
    SPOOL_TORN = "spool_torn"
    TOO_LARGE = "too_large"
    EXPORT_REFUSED = "export_refused"
    PARTIAL_REFUSED = "partial_refused"
    ENCODE = "encode"
    REDACTION_FAILED = "redaction_failed"
    INTERNAL_ERROR = "internal_error"


# --------------------------------------------------------------------------------------------------------- limits

LOG_TAIL_BYTES: Final = 16_384
"""Most bytes of a log tail: of UTF-8, and also as a JSON string with non-ASCII unescaped."""
LOG_OVERLAP_BYTES: Final = 8_192
"""Raw bytes kept before the tail, so that a secret is never cut before it is redacted (longest PEM: 3.3 KB)."""
ATTRIBUTE_BYTES: Final = 16_384
"""Most bytes of any string attribute; a longer one is clipped and marked."""
MESSAGE_BYTES: Final = 4_096
"""Most bytes of an exception message or a status text."""
STACKTRACE_BYTES: Final = 16_384
JOB_ID_BYTES: Final = 1_024
"""Most bytes of an id; ids are kept verbatim up to this."""
EVENTS_PER_SPAN: Final = 16
ATTRIBUTES_PER_SPAN: Final = 128
ARRAY_ITEMS: Final = 256
"""Most items of an array attribute."""

HEARTBEAT_SECONDS: Final = 15.0
CHANNEL_REPORT_SECONDS: Final = 60.0

REDACTED: Final = "[REDACTED]"
"""Stands for a secret. Constant: it shows neither length nor hash nor last characters."""
