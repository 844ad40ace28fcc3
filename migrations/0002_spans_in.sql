-- Where spans are inserted, as the message of collector/staged.proto, which the store reads itself. Keeps nothing: 0003 makes rows of `spans` of it.
CREATE TABLE IF NOT EXISTS spans_in
(
    resource_spans Array(Tuple(
        tenant String,
        arrived_ms Int64,
        resource String,
        endpoint_id String,
        worker_id String,
        boot_id String,
        ready Bool,
        scope_spans Array(Tuple(
            scope Tuple(name String),
            spans Array(Tuple(
                trace_id String,
                span_id String,
                parent_span_id String,
                name String,
                kind Int32,
                start_time_unix_nano UInt64,
                end_time_unix_nano UInt64,
                attributes Array(Tuple(
                    key String,
                    value Tuple(
                        string_value Nullable(String),
                        bool_value Nullable(Bool),
                        int_value Nullable(Int64),
                        double_value Nullable(Float64)
                    )
                )),
                status Tuple(code Int32),
                ready_job_id String,
                ready_attributes String,
                ready_events String,
                ready_links String,
                ready_status_message String
            ))
        ))
    ))
)
ENGINE = Null
