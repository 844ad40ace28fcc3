"""Stallscope's server: takes OTLP in, stores it in ClickHouse, and works out why a request failed or stalled."""
