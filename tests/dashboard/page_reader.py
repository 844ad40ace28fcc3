"""A page as a reader's browser would build it: an HTML5 parser, selectors, and what must never be in there."""

from __future__ import annotations

from datetime import datetime

from justhtml import JustHTML
from justhtml.dom import Element

from dashboard.contexts import Site

URL_ATTRIBUTES = frozenset({"href", "src", "action", "formaction", "xlink:href", "data", "poster", "srcset"})
SAFE_PREFIXES = ("/", "#", "?", "static/")
OWN_SCRIPT = "/static/stallscope.js?v="


def site(now: datetime) -> Site:
    """A frame for views that are rendered without a server."""
    return Site(
        title="Test",
        section="Requests",
        now=now,
        signed_in=False,
        search="",
        stylesheet="/static/stallscope.css?v=0",
        script=f"{OWN_SCRIPT}0",
        twins=(),
    )


class Seen:
    """A parsed page."""

    def __init__(self, html: str) -> None:
        self.document = JustHTML(html, sanitize=False)

    def all(self, selector: str) -> list[Element]:
        """Every element that fits."""
        return list(self.document.query(selector))

    def one(self, selector: str) -> Element:
        """The only element that fits."""
        found = self.all(selector)
        assert len(found) == 1, f"{selector}: {len(found)} elements"
        return found[0]

    def text(self, selector: str) -> str:
        """What a reader reads there, with runs of white space as one blank."""
        return words_of(self.one(selector))

    def texts(self, selector: str) -> list[str]:
        """What a reader reads in each."""
        return [words_of(element) for element in self.all(selector)]

    def dangers(self) -> list[str]:
        """Everything that could run, load from elsewhere or escape its place."""
        found = []
        for element in self.all("*"):
            attributes = {name.lower(): value or "" for name, value in (element.attrs or {}).items()}
            if element.name == "script" and not attributes.get("src", "").startswith(OWN_SCRIPT):
                found.append("script")
            if element.name in {
                "iframe",
                "object",
                "embed",
                "base",
                "style",
                "math",
                "foreignobject",
                "img",
                "marquee",
            }:
                found.append(element.name)
            if element.name == "meta" and "http-equiv" in attributes:
                found.append("meta http-equiv")
            found += [f"{element.name} {name}" for name in attributes if name.startswith("on") or name == "style"]
            found += [
                f"{element.name} {name}={attributes[name][:60]}"
                for name in URL_ATTRIBUTES & attributes.keys()
                if attributes[name] and not is_local(attributes[name])
            ]
        return found


def is_local(address: str) -> bool:
    """Whether an address stays on this server."""
    return address.startswith(SAFE_PREFIXES) and not address.startswith(("//", "/\\"))


def words_of(element: Element) -> str:
    """The text of an element, with runs of white space as one blank."""
    return " ".join(element.to_text(separator="", strip=False).split())
