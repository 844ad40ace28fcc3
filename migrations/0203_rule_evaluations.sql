-- Each time that a rule was evaluated, failed ones too: silence of a rule that could not ask is not health.
CREATE TABLE IF NOT EXISTS rule_evaluations (
    tenant String,
    rule LowCardinality(String),
    at_ms Int64 CODEC(Delta, ZSTD(1)),
    collector String CODEC(ZSTD(1)),
    ok Bool,
    firing UInt32,
    pending UInt32,
    held UInt32,
    error String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY (tenant, rule, at_ms, collector)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
