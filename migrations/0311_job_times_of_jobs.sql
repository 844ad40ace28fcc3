-- Every row that is written to `jobs` is written to `job_times` with it.
CREATE MATERIALIZED VIEW IF NOT EXISTS job_times_of_jobs TO job_times AS
SELECT tenant, first_ns, job_id, version, last_ns, endpoint_id, worker_ids, state, is_final, code, cause, fault,
       fingerprint, title, sentence, root_line, host, gpu, driver, image, release, region, sdk, updated_ms
FROM jobs
