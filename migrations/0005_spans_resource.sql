-- Spans of one worker share their resource: kept once a part, it costs neither the processor nor the disk of its text again and again.
ALTER TABLE spans MODIFY COLUMN resource LowCardinality(String)
