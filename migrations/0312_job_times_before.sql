-- The rows of `jobs` from before the view. Run twice it changes nothing: rows with the same key and version are one.
INSERT INTO job_times (tenant, first_ns, job_id, version, last_ns, endpoint_id, worker_ids, state, is_final, code, cause, fault, fingerprint, title, sentence, root_line, host, gpu, driver, image, release, region, sdk, updated_ms)
SELECT tenant, first_ns, job_id, version, last_ns, endpoint_id, worker_ids, state, is_final, code, cause, fault,
       fingerprint, title, sentence, root_line, host, gpu, driver, image, release, region, sdk, updated_ms
FROM jobs FINAL
