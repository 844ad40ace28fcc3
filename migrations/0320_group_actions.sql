-- What people said about a failure: that it is resolved, that it is open again, or a note. By whom: the start of the SHA-256 of the token, or the name that a sign-in gave.
CREATE TABLE IF NOT EXISTS group_actions (
    tenant String,
    fingerprint String CODEC(ZSTD(1)),
    at_ms Int64 CODEC(ZSTD(1)),
    id String CODEC(ZSTD(1)),
    action LowCardinality(String),
    who LowCardinality(String),
    note String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (tenant, fingerprint, at_ms, id)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 140 DAY
SETTINGS non_replicated_deduplication_window = 10000
