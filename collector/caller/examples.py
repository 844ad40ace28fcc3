"""The input that a handler's source asks for, read from its syntax tree: nothing of it is imported or run.

Two kinds of function are understood. A worker's handler takes one job, and reads keys of `job["input"]`: those read
with `[...]` are required. Any other function takes its input's keys as arguments: those without a default are required.
Not seen, and said so: definitions inside `if`, `try` and the like, and arguments that can only be given by position.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from collector.caller.errors import WrongInput

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
JOB_NAMES: Final = frozenset({"job", "event"})
"""A function whose one argument has such a name is a worker's handler."""
METHOD_KEY: Final = "method"
"""Which method of a class with several is meant."""
_VALUES: Final[dict[str, Any]] = {
    "str": "example",
    "int": 1,
    "float": 1.0,
    "bool": True,
    "list": [],
    "tuple": [],
    "set": [],
    "Sequence": [],
    "List": [],
    "dict": {},
    "Dict": {},
    "Mapping": {},
    "bytes": "",
}


@dataclass(frozen=True, slots=True)
class Example:
    """An input that may do, and what could not be read."""

    input: dict[str, Any]
    name: str
    notes: list[str] = field(default_factory=list)


def example_of(source: str, target: str | None = None) -> Example:
    """The example for a function of the source: `name`, `Class`, `Class.method`, or the handler where None.

    Raises WrongInput where the source is no Python, or has no such function.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the source, which is not ours to judge
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise WrongInput(f"the file is no Python: {error}" if line is None else f"no Python, line {line}") from None
    defined = _defined(tree.body)
    registered = _registered(tree)
    name = target or _default_name(defined, registered)
    head, _, method = name.partition(".")
    found = defined.get(head)
    if isinstance(found, ast.ClassDef):
        return _of_class(found, method, name)
    if found is None or method:
        raise WrongInput(_no_such(name, defined, tree))
    return _of_function(found, name, drop_receiver=False, is_handler=head in registered)


def _defined(body: list[ast.stmt]) -> dict[str, Function | ast.ClassDef]:
    """Functions and classes by name; of those defined twice the last, as Python has it."""
    return {one.name: one for one in body if isinstance(one, (*_FUNCTIONS, ast.ClassDef))}


def _registered(tree: ast.Module) -> set[str]:
    """Names given as `{"handler": name}` to a call of `start`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _last_name(node.func) != "start":
            continue
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if isinstance(argument, ast.Dict):
                names |= {
                    value.id
                    for key, value in zip(argument.keys, argument.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "handler" and isinstance(value, ast.Name)
                }
    return names


def _default_name(defined: dict[str, Function | ast.ClassDef], registered: set[str]) -> str:
    choices = [name for name in defined if name in registered] or [name for name in defined if name == "handler"]
    choices = choices or [name for name in defined if not name.startswith("_")]
    if len(choices) != 1:
        known = ", ".join(choices) or "none"
        raise WrongInput(f"which function is meant is not clear; name it as FILE.py:NAME (there are: {known})")
    return choices[0]


def _no_such(name: str, defined: dict[str, Function | ast.ClassDef], tree: ast.Module) -> str:
    inner = any(isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == name for node in ast.walk(tree))
    where = " at the top of the file; one inside another block is not looked at" if inner else ""
    return f"there is no {name!r}{where} (there are: {', '.join(defined) or 'none'})"


def _of_class(found: ast.ClassDef, method: str, name: str) -> Example:
    methods = {key: one for key, one in _defined(found.body).items() if isinstance(one, _FUNCTIONS)}
    public = [key for key in methods if not key.startswith("_")]
    chosen = method or (public[0] if len(public) == 1 else "")
    if chosen not in methods:
        known = ", ".join(public) or "none"
        what = f"there is no method {chosen!r}" if chosen else "which method is meant is not clear; name it"
        raise WrongInput(f"class {found.name}: {what} as {found.name}.METHOD (there are: {known})")
    function = methods[chosen]
    example = _of_function(function, name, drop_receiver=not _is_static(function), is_handler=False)
    if len(public) < 2:
        return example
    given = {key: value for key, value in example.input.items() if key != "__empty"}
    return Example({METHOD_KEY: chosen, **given}, name, example.notes)


def _is_static(function: Function) -> bool:
    return any(_last_name(decorator) == "staticmethod" for decorator in function.decorator_list)


def _of_function(function: Function, name: str, *, drop_receiver: bool, is_handler: bool) -> Example:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    by_position_only = set(arguments.posonlyargs)
    if drop_receiver:
        required = required[1:] if positional and positional[0] in required else required
        by_position_only -= set(positional[:1])
    only = [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    if len(required) == 1 and not only and (is_handler or required[0].arg in JOB_NAMES):
        return _of_handler(function, required[0].arg, name)
    gaps = [one.arg for one in required if one in by_position_only]
    wanted = [one for one in (*required, *only) if one not in by_position_only]
    notes = [f"{gap} can only be given by position, and no key of the input does that: left out" for gap in gaps]
    return _example({one.arg: _value(one.annotation) for one in wanted}, name, notes)


def _of_handler(function: Function, job: str, name: str) -> Example:
    keys = dict.fromkeys(_keys_read(function, job))
    notes = [] if keys else [f"no key that {name} reads from {job}['input'] was found"]
    return _example(dict.fromkeys(keys, "example"), name, notes)


def _example(given: dict[str, Any], name: str, notes: list[str]) -> Example:
    # An empty input never reaches the handler: the platform drops it.
    return Example(given or {"__empty": True}, name, notes)


def _keys_read(function: Function, job: str) -> Iterator[str]:
    """Keys read as `job["input"]["key"]`, or from a name that holds `job["input"]`; in the order of the source."""
    holders = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_input(node.value, job)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    read = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        and (_is_input(node.value, job) or (isinstance(node.value, ast.Name) and node.value.id in holders))
    ]
    for node in sorted(read, key=lambda one: (one.lineno, one.col_offset)):
        assert isinstance(node.slice, ast.Constant)  # noqa: S101 - narrows the type; asked above
        yield str(node.slice.value)


def _is_input(node: ast.expr, job: str) -> bool:
    """Whether it is `job["input"]` or `job.get("input", …)`."""
    if isinstance(node, ast.Subscript):
        return _is_name(node.value, job) and isinstance(node.slice, ast.Constant) and node.slice.value == "input"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        first = node.args[0]
        return _is_name(node.func.value, job) and isinstance(first, ast.Constant) and first.value == "input"
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _value(annotation: ast.expr | None) -> Any:
    """A value that the annotation allows, as far as it is a plain one."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError):
            return "example"
    if isinstance(annotation, ast.BinOp):  # `str | None`
        return _value(annotation.left)
    if isinstance(annotation, ast.Subscript):
        outer, inner = _last_name(annotation.value), annotation.slice
        first = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
        if outer == "Literal" and isinstance(first, ast.Constant):
            return first.value
        return _value(first) if outer in ("Optional", "Union", "Annotated") else _VALUES.get(outer, "example")
    return _VALUES.get(_last_name(annotation), "example") if annotation is not None else "example"
