-- Rows of what is inserted into `spans_in`: texts that were made ready are taken as they are; of other spans the attributes become JSON text here, typed, a double always with a point or an exponent. What spans share becomes a dictionary before it is repeated for each.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_of_otlp TO spans AS
SELECT
    tenant,
    arrived_ms,
    toInt64(span.start_time_unix_nano) AS start_ns,
    toInt64(greatest(span.start_time_unix_nano, span.end_time_unix_nano)) AS end_ns,
    lower(hex(span.trace_id)) AS trace_id,
    lower(hex(span.span_id)) AS span_id,
    lower(hex(span.parent_span_id)) AS parent_id,
    if(ready, span.ready_job_id, ifNull(span.attributes.value.string_value[indexOf(span.attributes.key, 'faas.invocation_id')], '')) AS job_id,
    if(of_resource.endpoint_id = '', ifNull(span.attributes.value.string_value[indexOf(span.attributes.key, 'faas.name')], ''), of_resource.endpoint_id) AS endpoint_id,
    if(of_resource.worker_id = '', ifNull(span.attributes.value.string_value[indexOf(span.attributes.key, 'service.instance.id')], ''), of_resource.worker_id) AS worker_id,
    if(of_resource.boot_id = '', ifNull(span.attributes.value.string_value[indexOf(span.attributes.key, 'stallscope.exporter.boot_id')], ''), of_resource.boot_id) AS boot_id,
    span.name AS name,
    toUInt8(if(span.kind BETWEEN 0 AND 255, span.kind, 0)) AS kind,
    ['unset', 'ok', 'error'][span.status.code + 1] AS status,
    if(ready, span.ready_status_message, '') AS status_message,
    if(ready, span.ready_attributes, concat('{', arrayStringConcat(arrayMap(
        (key, text, whole, flag, double) -> concat(toJSONString(key), ':', if(
            isNotNull(text),
            toJSONString(assumeNotNull(text)),
            coalesce(
                toString(whole),
                toString(flag),
                if(match(toString(double), '[.e]'), toString(double), concat(toString(double), '.0')),
                'null'
            )
        )),
        span.attributes.key,
        span.attributes.value.string_value,
        span.attributes.value.int_value,
        span.attributes.value.bool_value,
        span.attributes.value.double_value
    ), ','), '}')) AS attributes,
    resource,
    if(ready, span.ready_events, '[]') AS events,
    if(ready, span.ready_links, '[]') AS links,
    scope
FROM
(
    SELECT tenant, arrived_ms, resource, ready, of_resource, toLowCardinality(of_scope.scope.name) AS scope, arrayJoin(of_scope.spans) AS span
    FROM
    (
        SELECT toLowCardinality(part.tenant) AS tenant, part.arrived_ms AS arrived_ms,
               toLowCardinality(part.resource) AS resource, part.ready AS ready,
               tuple(part.endpoint_id, part.worker_id, part.boot_id)::Tuple(endpoint_id String, worker_id String, boot_id String) AS of_resource,
               arrayJoin(part.scope_spans) AS of_scope
        FROM (SELECT arrayJoin(resource_spans) AS part FROM spans_in)
    )
)
