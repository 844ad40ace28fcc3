-- Every span as it arrived: tenant first in the key, partitions and age by arrival (late spools and wrong clocks would scatter event-time partitions).
CREATE TABLE IF NOT EXISTS spans
(
    tenant LowCardinality(String),
    arrived_ms Int64 CODEC(Delta, ZSTD(1)),
    start_ns Int64 CODEC(Delta, ZSTD(1)),
    end_ns Int64 CODEC(Delta, ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    parent_id String CODEC(ZSTD(1)),
    job_id String CODEC(ZSTD(1)),
    endpoint_id LowCardinality(String),
    worker_id String CODEC(ZSTD(1)),
    boot_id String CODEC(ZSTD(1)),
    name LowCardinality(String),
    kind UInt8,
    status LowCardinality(String),
    status_message String CODEC(ZSTD(1)),
    attributes String CODEC(ZSTD(3)),
    resource String CODEC(ZSTD(3)),
    events String CODEC(ZSTD(3)),
    links String CODEC(ZSTD(1)),
    scope LowCardinality(String),
    INDEX by_job job_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_worker worker_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_boot boot_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(arrived_ms)
PARTITION BY toDate(fromUnixTimestamp64Milli(arrived_ms, 'UTC'))
ORDER BY (tenant, endpoint_id, start_ns, span_id, trace_id)
TTL toDateTime(fromUnixTimestamp64Milli(arrived_ms, 'UTC')) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
