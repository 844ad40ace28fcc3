"""Workers of the demo: real scripts of the real worker SDK, each as its author would have written it.

Run one with `python -m sdk_exporter -- python -u WORKER.py`, or alone: then its own `instrument()` starts the recorder.
"""
