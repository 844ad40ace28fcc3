-- Each verdict that a request has had, and why it changed. A revision written twice (two collectors, a retry) is one.
CREATE TABLE IF NOT EXISTS verdict_history (
    tenant String,
    job_id String CODEC(ZSTD(1)),
    revision UInt32,
    version UInt64,
    at_ms Int64 CODEC(ZSTD(1)),
    code LowCardinality(String),
    cause LowCardinality(String),
    is_final Bool,
    why String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant, job_id, revision)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 140 DAY
SETTINGS non_replicated_deduplication_window = 10000
