"""CONTRIBUTING's worked examples are real: each block runs, and what it defines works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.case import Case, Geometry
from fsmatrix.suite.launchers.base import Probe
from fsmatrix.suite.workloads.base import Engine

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()


def example(title: str) -> dict[str, Any]:
    """The names that the first Python block below a heading defines."""
    section = TEXT.split(f"## {title}\n")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.group(1), title, "exec", dont_inherit=True), names)
    return names


def test_backend() -> None:
    scratch = example("A backend")["Scratch"]
    assert scratch.check().ok
    assert "/scratch" in scratch(scratch.Options()).refusal()


def test_workload() -> None:
    kind = example("A workload")["Dd"]
    work = kind(kind.Options(bytes_per_node="1MiB"))
    case = Case("t", "dd", geometry=Geometry(3))
    (step,) = work.steps(case, PathAccess("directory", "t"), Engine("dd", ""))
    assert step.where == "node"
    assert f"bs={1 << 20}" in step.what.argv
    assert work.footprint(case).written == 3 << 20


def test_launcher() -> None:
    launcher = example("A launcher")["Jsrun"](Probe(True, "jsrun"))
    command = launcher.command(["x"], Geometry(2, 4), {"A": "b"})
    assert command == ["jsrun", "-n", "8", "-E", "A=b", "x"]


def test_analysis() -> None:
    assert callable(example("An analysis")["slowest"])


@pytest.mark.parametrize("line", re.findall(r'`("[a-z]+": "fsmatrix\.[^`]+)`', TEXT))
def test_registry_lines_have_the_registries_form(line: str) -> None:
    assert re.fullmatch(r'"\w+": "fsmatrix\.[\w.]+:\w+"', line)
