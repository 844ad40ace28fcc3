"""What templates are given is documented, and templates use nothing else."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
from jinja2 import meta, nodes

from dashboard import contexts
from dashboard.render import environment

CONTEXTS = [
    thing
    for thing in vars(contexts).values()
    if isinstance(thing, type) and is_dataclass(thing) and thing.__module__ == contexts.__name__
]


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_field_of_a_context_says_what_it_is(context: type) -> None:
    assert context.__doc__
    for field in fields(context):
        said = field.metadata.get("help", "")
        assert said.endswith("."), f"{context.__name__}.{field.name}"
        assert said[0].isupper()


@pytest.mark.parametrize("context", CONTEXTS)
def test_contexts_are_frozen_and_slotted(context: type) -> None:
    assert context.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(context, "__slots__")


def test_every_page_has_its_own_context() -> None:
    pages = {context.__name__ for context in CONTEXTS if context.__name__.endswith("Page")}
    templates = [name for name in environment().list_templates() if name not in ("base.html", "_parts.html")]
    assert len(pages) == len(templates)


@pytest.mark.parametrize("name", environment().list_templates())
def test_templates_know_only_the_page_and_its_frame(name: str) -> None:
    source, _, _ = environment().loader.get_source(environment(), name)  # type: ignore[union-attr]
    tree = environment().parse(source)
    own = {node.name for node in tree.find_all(nodes.Macro)} | {node.target for node in tree.find_all(nodes.Import)}
    own |= {node.target.name for node in tree.find_all(nodes.Assign) if isinstance(node.target, nodes.Name)}
    free = meta.find_undeclared_variables(tree) - environment().globals.keys() - own
    assert free <= {"page", "site"}


@pytest.mark.parametrize("name", environment().list_templates())
def test_templates_hold_no_style_script_or_address_of_elsewhere(name: str) -> None:
    source, _, _ = environment().loader.get_source(environment(), name)  # type: ignore[union-attr]
    for forbidden in (" style=", "<style", "javascript:", "http://", "https://", "|safe", "| safe", "autoescape"):
        assert forbidden not in source
