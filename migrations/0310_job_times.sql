-- Requests in the order of time, without what only a page about one of them needs: what lists, counts and charts read. In `jobs`, whose key is the id, each of them would read every row there is. A request whose time becomes another leaves its old place behind with `gone`. The highest version of a row wins; read with FINAL, which costs next to nothing here, since parts are written in the order of the key.
CREATE TABLE IF NOT EXISTS job_times (
    tenant LowCardinality(String),
    first_ns Int64 CODEC(Delta, ZSTD(1)),
    job_id String CODEC(ZSTD(1)),
    version UInt64 CODEC(ZSTD(1)),
    last_ns Int64 CODEC(ZSTD(1)),
    endpoint_id LowCardinality(String),
    worker_ids Array(String) CODEC(ZSTD(1)),
    state LowCardinality(String),
    is_final Bool,
    code LowCardinality(String),
    cause LowCardinality(String),
    fault LowCardinality(String),
    fingerprint LowCardinality(String),
    title LowCardinality(String),
    sentence String CODEC(ZSTD(1)),
    root_line String CODEC(ZSTD(1)),
    host LowCardinality(String),
    gpu LowCardinality(String),
    driver LowCardinality(String),
    image LowCardinality(String),
    release LowCardinality(String),
    region LowCardinality(String),
    sdk LowCardinality(String),
    updated_ms Int64 CODEC(ZSTD(1)),
    gone UInt8 DEFAULT 0
)
ENGINE = ReplacingMergeTree(version, gone)
ORDER BY (tenant, first_ns, job_id)
TTL toDateTime(intDiv(updated_ms, 1000)) + INTERVAL 140 DAY
SETTINGS non_replicated_deduplication_window = 10000
