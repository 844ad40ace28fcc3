-- Where a worker ran and on which version of the worker SDK: failures are compared by these too.
ALTER TABLE jobs
    ADD COLUMN IF NOT EXISTS region String CODEC(ZSTD(1)) AFTER release,
    ADD COLUMN IF NOT EXISTS sdk String CODEC(ZSTD(1)) AFTER region
