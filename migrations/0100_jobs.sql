-- What is known of each request after its last diagnosis: what lists filter by, and the verdict as a document. The
-- highest version of a row wins; read with FINAL. It outlives the spans tenfold, so that "past retention" can be told
-- from "never seen"; what could quote a log (search_text) goes when the spans go.
CREATE TABLE IF NOT EXISTS jobs (
    tenant String,
    job_id String CODEC(ZSTD(1)),
    version UInt64,
    endpoint_id String CODEC(ZSTD(1)),
    worker_ids Array(String) CODEC(ZSTD(1)),
    boot_ids Array(String) CODEC(ZSTD(1)),
    state LowCardinality(String),
    is_final Bool,
    code LowCardinality(String),
    cause LowCardinality(String),
    queue_reason LowCardinality(String),
    fault LowCardinality(String),
    retry LowCardinality(String),
    confidence LowCardinality(String),
    inferred Bool,
    fingerprint String CODEC(ZSTD(1)),
    title String CODEC(ZSTD(1)),
    sentence String CODEC(ZSTD(1)),
    root_line String CODEC(ZSTD(1)),
    revision UInt32,
    first_ns Int64 CODEC(ZSTD(1)),
    last_ns Int64 CODEC(ZSTD(1)),
    digested_ms Int64 CODEC(ZSTD(1)),
    updated_ms Int64 CODEC(ZSTD(1)),
    host String CODEC(ZSTD(1)),
    gpu String CODEC(ZSTD(1)),
    driver String CODEC(ZSTD(1)),
    image String CODEC(ZSTD(1)),
    release String CODEC(ZSTD(1)),
    search_text String CODEC(ZSTD(3)) TTL toDateTime(intDiv(updated_ms, 1000)) + INTERVAL 14 DAY,
    document String CODEC(ZSTD(3))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant, job_id)
TTL toDateTime(intDiv(updated_ms, 1000)) + INTERVAL 140 DAY
SETTINGS non_replicated_deduplication_window = 10000
