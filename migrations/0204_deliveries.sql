-- Each step of telling a channel about an alert: claimed by one collector, sent, failed. `stored_ns` is the store's own
-- clock: where two collectors claim at once, the earlier claim has it.
CREATE TABLE IF NOT EXISTS deliveries (
    tenant String,
    rule LowCardinality(String),
    key String CODEC(ZSTD(1)),
    occurrence UInt32,
    kind LowCardinality(String),
    channel LowCardinality(String),
    state LowCardinality(String),
    at_ms Int64 CODEC(ZSTD(1)),
    stored_ns Int64 DEFAULT toUnixTimestamp64Nano(now64(9)) CODEC(ZSTD(1)),
    collector String CODEC(ZSTD(1)),
    size UInt32,
    detail String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY (tenant, rule, key, occurrence, kind, channel, at_ms)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
