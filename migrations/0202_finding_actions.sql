-- What people did about a finding or an alert: the newest row of an occurrence counts. Apart from the finding itself,
-- so that a collector that writes a finding never undoes what a person said.
CREATE TABLE IF NOT EXISTS finding_actions (
    tenant String,
    rule LowCardinality(String),
    key String CODEC(ZSTD(1)),
    occurrence UInt32,
    at_ms Int64 CODEC(ZSTD(1)),
    action LowCardinality(String),
    until_ms Int64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (tenant, rule, key, occurrence, at_ms)
TTL toDateTime(intDiv(at_ms, 1000)) + INTERVAL 14 DAY
SETTINGS non_replicated_deduplication_window = 10000
