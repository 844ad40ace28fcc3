-- Spans that the store refused for ever, a bug of ours: kept a while to be looked at, so that they are neither lost unseen nor tried again and again.
CREATE TABLE IF NOT EXISTS quarantine
(
    tenant LowCardinality(String),
    arrived_ms Int64 CODEC(Delta, ZSTD(1)),
    reason String CODEC(ZSTD(1)),
    spans UInt32,
    data String CODEC(ZSTD(3))
)
ENGINE = MergeTree
ORDER BY (tenant, arrived_ms)
TTL toDateTime(fromUnixTimestamp64Milli(arrived_ms, 'UTC')) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
