-- Each thing that a finding or an alert has said, and when. A revision written twice (two collectors, a retry) is one.
CREATE TABLE IF NOT EXISTS finding_history (
    tenant String,
    rule LowCardinality(String),
    key String CODEC(ZSTD(1)),
    occurrence UInt32,
    revision UInt32,
    version UInt64,
    at_ms Int64 CODEC(ZSTD(1)),
    state LowCardinality(String),
    severity LowCardinality(String),
    size UInt32,
    sentence String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant, rule, key, occurrence, revision)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
