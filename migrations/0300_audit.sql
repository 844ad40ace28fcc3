-- Who asked to change what, by which token (the start of its SHA-256): written before the change is made.
CREATE TABLE IF NOT EXISTS audit (
    tenant String,
    at_ms Int64 CODEC(ZSTD(1)),
    id String CODEC(ZSTD(1)),
    token LowCardinality(String),
    address String CODEC(ZSTD(1)),
    request String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY (tenant, at_ms, id)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 140 DAY
SETTINGS non_replicated_deduplication_window = 10000
