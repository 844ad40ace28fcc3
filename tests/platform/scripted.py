"""Names that the tests of the platform share."""

from __future__ import annotations

ENDPOINT = "ep1"
KEY = "the-key-of-the-platform"
