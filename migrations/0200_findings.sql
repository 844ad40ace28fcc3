-- What is wrong with a worker, host or endpoint (rule is empty), and the alerts that rules make (rule names it). One row
-- an occurrence: what comes back after it was resolved is the next one. The highest version of a row wins.
CREATE TABLE IF NOT EXISTS findings (
    tenant String,
    rule LowCardinality(String),
    key String CODEC(ZSTD(1)),
    occurrence UInt32,
    version UInt64,
    revision UInt32,
    code LowCardinality(String),
    subject String CODEC(ZSTD(1)),
    severity LowCardinality(String),
    state LowCardinality(String),
    endpoint_id String CODEC(ZSTD(1)),
    worker_ids Array(String) CODEC(ZSTD(1)),
    job_ids Array(String) CODEC(ZSTD(1)),
    size UInt32,
    opened_ms Int64 CODEC(ZSTD(1)),
    updated_ms Int64 CODEC(ZSTD(1)),
    resolved_ms Int64 CODEC(ZSTD(1)),
    sentence String CODEC(ZSTD(1)),
    evidence String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant, rule, key, occurrence)
TTL toDateTime(intDiv(updated_ms, 1000)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
