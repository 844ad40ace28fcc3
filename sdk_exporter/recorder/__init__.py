"""The other process: outlives the worker, keeps the tail, and alone speaks OTLP."""
