"""What the server is made of, as installed here: the list for its image, and whether the licences fit.

python docker/dependencies.py requirements > docker/requirements.txt      (`make requirements`)
python docker/dependencies.py licences
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS: Final = ("stallscope", "stallscope-exporter")

FITTING: Final = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|MPL-2\.0|Mozilla Public License 2\.0|0BSD|Zlib|HPND",
    re.IGNORECASE,
)
"""May be shipped beside Apache-2.0: what asks for more than a notice asks it of its own files alone (MPL)."""
COPYLEFT: Final = re.compile(r"\b[AL]?GPL|General Public License|SSPL|BUSL|Commons Clause", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """One distribution that the server needs."""

    name: str
    version: str
    licence: str

    @property
    def fits(self) -> bool:
        """Its licence is one that fits, and names none that does not."""
        return bool(FITTING.search(self.licence)) and not COPYLEFT.search(self.licence)


def parts() -> list[Part]:
    """Everything that the server needs, and what that needs. Raises PackageNotFoundError where one is missing."""
    found: dict[str, Part] = {}
    waiting = [(name, frozenset[str]()) for name in OURS]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        one = distribution(name)
        found[name] = Part(name, one.version, licence_of(one))
        more = [need for need in _needs(one, extras) if need not in seen]
        seen.update(more)
        waiting += more
    return sorted((part for name, part in found.items() if name not in OURS), key=lambda part: part.name)


def _needs(one: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in one.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield canonicalize_name(need.name), frozenset(need.extras)


def licence_of(one: Distribution) -> str:
    """As its metadata tell it: the expression, else the classifiers, else the first line of the text."""
    told = one.metadata
    classified = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if "License ::" in line]
    written = (told.get("License") or "").strip().partition("\n")[0]
    return told.get("License-Expression") or "; ".join(classified) or written or "unknown"


def main(words: list[str]) -> int:
    """Print what was asked for. 1 where a licence does not fit, or a part has a known weakness."""
    if words[0] == "weaknesses":
        return _weaknesses(Path(words[1]))
    found = parts()
    if words[0] == "requirements":
        print(
            "# Made by `make requirements` from what the tests run with. The server's image installs this and no more."
        )
        print("\n".join(f"{part.name}=={part.version}" for part in found))
        return 0
    for part in found:
        print(f"{'ok   ' if part.fits else 'WRONG'}  {part.name} {part.version}  {part.licence}")
    return 0 if all(part.fits for part in found) else 1


def _weaknesses(report: Path) -> int:
    """A part that the advisory service did not know is one that nobody looked up: pip-audit calls that fine."""
    told = json.loads(report.read_text(encoding="utf-8"))["dependencies"] if report.exists() else []
    asked = [part for part in told if "skip_reason" not in part]
    found = [(part["name"], part["version"], one["id"]) for part in asked for one in part["vulns"]]
    for name, version, weakness in found:
        print(f"WRONG  {name} {version}  {weakness}")
    if asked:
        print(f"audit: {len(asked)} parts looked up, {len(told) - len(asked)} unknown there", file=sys.stderr)
    else:
        print("audit: no advisory service was reached: known weaknesses were NOT looked up", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
