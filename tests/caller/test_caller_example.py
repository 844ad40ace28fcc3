"""`stallscope example`: the keys that a source asks for, as a line that a shell runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from invoke_side import ENDPOINT, InvokeSide, stallscope

from collector.caller.errors import WrongInput, excerpt
from collector.caller.examples import example_of

START = '\nimport runpod\nrunpod.serverless.start({"handler": handler})\n'


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # a worker's handler: keys read with [...]
        ('def handler(job):\n    return job["input"]["prompt"]', None, {"prompt": "example"}),
        ('def handler(event):\n    given = event["input"]\n    return given["b"], given["a"], given.get("c")', None,
         {"b": "example", "a": "example"}),
        ('async def work(job):\n    x = job.get("input", {})\n    return x["k"]\nimport runpod\n'
         'runpod.serverless.start({"handler": work})\ndef helper(a, b): ...', None, {"k": "example"}),
        ('def handler(job):\n    job["input"]["written"] = 1\n    return job["id"]', None, {"__empty": True}),
        # any other function: its required arguments
        ("def f(prompt: str, steps: int, scale: float, fast: bool, tags: list[str], more: dict, n=3, *a, **k): ...",
         "f",
         {"prompt": "example", "steps": 1, "scale": 1.0, "fast": True, "tags": [], "more": {}}),
        ("def f(*, a, b=1, c: 'int'): ...", "f", {"a": "example", "c": 1}),
        ("def f(a: int | None, b: Optional[float], c: Literal['x', 'y'], d: mod.Thing): ...", "f",
         {"a": 1, "b": 1.0, "c": "x", "d": "example"}),
        ("def f(): ...", "f", {"__empty": True}),
        ("def f(a=1): ...", "f", {"__empty": True}),
        # the last definition wins
        ("def f(a): ...\ndef f(b): ...", "f", {"b": "example"}),
        ("class f:\n    def m(self, a): ...\ndef f(b): ...", "f", {"b": "example"}),
        # the receiver goes with methods only
        ("def f(self, a): ...", "f", {"self": "example", "a": "example"}),
        ("class C:\n    def m(self, a): ...", "C", {"a": "example"}),
        ("class C:\n    def m(this, a): ...", "C.m", {"a": "example"}),
        ("class C:\n    @classmethod\n    def m(cls, a): ...", "C.m", {"a": "example"}),
        ("class C:\n    @staticmethod\n    def m(self, a): ...", "C.m", {"self": "example", "a": "example"}),
        ("import builtins\nclass C:\n    @builtins.staticmethod\n    def m(a): ...", "C", {"a": "example"}),
        ("class C:\n    async def m(self): ...", "C", {"__empty": True}),
        # the method's name only where there are several
        ("class C:\n    def __init__(self, z): ...\n    def _h(self): ...\n    def m(self, a): ...", "C",
         {"a": "example"}),
        ("class C:\n    def m(self, a): ...\n    def n(self): ...", "C.m", {"method": "m", "a": "example"}),
        ("class C:\n    def m(self, a): ...\n    def n(self): ...", "C.n", {"method": "n"}),
        ("class C:\n    def m(self, a): ...\n    def m(self, b): ...", "C", {"b": "example"}),
    ],
)  # fmt: skip
def test_an_example_holds_what_the_source_requires(  # A66
    source: str, target: str | None, expected: dict[str, object]
) -> None:
    assert example_of(source, target).input == expected
    assert list(example_of(source, target).input) == list(expected)


def test_what_is_not_seen_is_said() -> None:  # A66
    found = example_of("def f(a, b=1, /, c=2, *, d): ...", "f")
    assert found.input == {"d": "example"}
    assert found.notes == ["a can only be given by position, and no key of the input does that: left out"]
    with pytest.raises(WrongInput, match="one inside another block is not looked at"):
        example_of("if True:\n    def f(a): ...", "f")
    help_text = " ".join(stallscope("example", "--help").out.decode().split())
    assert "definitions inside `if` and other blocks, and arguments that can only be given by position" in help_text


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("def f(a): ...\ndef g(b): ...", None, "there are: f, g"),
        ("x = 1", None, "there are: none"),
        ("def f(a): ...", "g", "there is no 'g'"),
        ("class C:\n    def m(self): ...\n    def n(self): ...", "C", "C.METHOD"),
        ("class C:\n    def m(self): ...", "C.x", "no method 'x'"),
        ("def f(:", "f", "no Python, line 1"),
        ("def f(): ...", "f.g", "there is no 'f.g'"),
    ],
)
def test_an_unclear_target_is_wrong_usage(source: str, target: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=said.replace("(", r"\(")):
        example_of(source, target)
    file = tmp_path / "handler.py"
    file.write_text(source)
    done = stallscope("example", f"{file}:{target}" if target else str(file))
    assert (done.code, done.out) == (2, b"")


HOSTILE = 'it\'s $HOME `id` "x" \\ ! %s <&>|; ä\u202e'


@pytest.mark.parametrize("with_endpoint", [True, False])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_printed_line_runs(  # A65, A69
    shell: str, with_endpoint: bool, side: InvokeSide, tmp_path: Path
) -> None:
    if not shutil.which("curl") or not shutil.which(shell):
        pytest.skip(f"needs curl and {shell}")
    name = "e'n$d/1" if with_endpoint else ENDPOINT
    file = tmp_path / "my handler.py"
    file.write_text(f"def handler(job):\n    return job['input'][{HOSTILE!r}], job['input']['plain']\n{START}")
    done = stallscope("example", str(file), *(["--endpoint", name] if with_endpoint else []))
    assert (done.code, done.err) == (0, "")
    line = done.out.decode()
    assert line.count("\n") == 1
    environment = {**os.environ, "RUNPOD_ENDPOINT_ID": ENDPOINT, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.run([shell, "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(ran.stdout)["id"] == side.job.id
    assert side.job.input == {HOSTILE: "example", "plain": "example"}
    assert side.job.endpoint == name
    assert side.events("run")[-1].detail["authorized"]


def test_a_handler_that_needs_nothing_gets_an_input_that_is_not_dropped(
    side: InvokeSide, tmp_path: Path
) -> None:  # A65
    file = tmp_path / "h.py"
    file.write_text("def handler(job):\n    return 1\n")
    done = stallscope("example", f"{file}:handler")
    assert """--data-raw '{"input":{"__empty":true}}'""" in done.out.decode()
    assert "no key that handler reads" in done.err


def test_without_an_endpoint_the_line_says_what_is_missing(tmp_path: Path) -> None:  # A65
    file = tmp_path / "h.py"
    file.write_text("def handler(job): ...")
    environment = {name: value for name, value in os.environ.items() if name != "RUNPOD_ENDPOINT_ID"}
    line = stallscope("example", str(file)).out.decode()
    ran = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    assert "set it to the id of your endpoint" in ran.stderr


def test_a_source_is_read_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "h.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef handler(job): ...\nraise SystemExit(5)")
    assert stallscope("example", str(file)).code == 0
    assert not (tmp_path / "ran").exists()


def test_a_source_that_python_warns_of_is_read_quietly(tmp_path: Path) -> None:
    file = tmp_path / "h.py"
    file.write_text("def handler(job):\n    return '\\d' is job['input']['k']\n")
    assert stallscope("example", str(file)).err == ""


def test_foreign_text_is_shown_without_control_characters() -> None:  # A69
    assert excerpt("a\x1b[31mred\x07\r\nb\u202e\u009b") == "a\ufffd[31mred\ufffd  b\ufffd\ufffd"
    assert excerpt("ä" * 300) == "ä" * 200 + "…"
