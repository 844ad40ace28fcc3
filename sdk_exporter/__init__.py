"""Stallscope's guest in the worker. Importing it loads the standard library only."""

from __future__ import annotations

from sdk_exporter.contract import VERSION as __version__

__all__ = ["__version__"]
