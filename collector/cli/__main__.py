"""`python -m collector.cli`: the same as `stallscope`."""

from collector.cli import main

if __name__ == "__main__":
    main(prog_name="stallscope")
