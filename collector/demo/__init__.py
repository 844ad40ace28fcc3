"""A platform stand-in, workers and scenarios: shipped, since `stallscope demo` and the tests use the same."""
