"""CONTRIBUTING's table is that of the registries, and its examples are whole.

tests/suite/test_other_packages.py installs and uses them.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.analysis.catalogue import EVERY
from fsmatrix.results.registry import Registry
from fsmatrix.suite import workloads
from fsmatrix.suite.registry import WORKLOADS
from tests.suite import acme

TEXT = acme.PAGE.read_text()
ROW = re.compile(r"^\| [a-z ]+ \| `([\w/]+)` \| `([\w/.]+)` \| `(fsmatrix\.\w+)` \|", re.MULTILINE)


@cache
def registries() -> dict[str, tuple[str, Registry[Any]]]:
    """Group -> file and registry, of every module of ours that makes one."""
    found: dict[str, tuple[str, Registry[Any]]] = {}
    packages = sorted((acme.ROOT / "fsmatrix").iterdir())  # they are links
    for path in [path for package in packages for path in sorted(package.rglob("*.py"))]:
        if not makes_a_registry(path.read_text(encoding="utf-8")):
            continue
        place = path.relative_to(acme.ROOT)
        module = importlib.import_module(
            ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        )
        made = [value for value in vars(module).values() if isinstance(value, Registry)]
        found |= {one.group: (str(Path(*place.parts[1:])), one) for one in made}
    return found


def makes_a_registry(source: str) -> bool:
    """Whether a module calls Registry."""
    if "Registry" not in source:
        return False
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Name) and called.id == "Registry" for called in calls)


def places(registry: Registry[Any]) -> list[str]:
    """The modules behind the names of a registry."""
    if registry.builtin:
        return [where.partition(":")[0] for where in registry.builtin.values()]
    return [f"{one.package}.{one.place.partition(':')[0]}" for one in EVERY.values()]


def test_every_registry_has_a_row_and_an_example() -> None:
    package = tomllib.loads(acme.blocks()["pyproject.toml"])["project"]
    groups = set(registries())
    assert len(groups) == 12
    assert {row[2] for row in ROW.findall(TEXT)} == groups == set(package["entry-points"])
    examples = {
        place.partition(":")[0]
        for group in package["entry-points"].values()
        for place in group.values()
    }
    files = {name for name in acme.blocks() if name.endswith(".py")}
    assert {f"{module.replace('.', '/')}.py" for module in examples} == files
    assert TEXT.count("```python\n") == len(files)


def test_files_and_lines_are_where_the_table_says() -> None:
    for folder, line, group in ROW.findall(TEXT):
        file, registry = registries()[group]
        assert line == file
        inside = f"fsmatrix.{folder.strip('/').replace('/', '.')}."
        assert [place for place in places(registry) if not place.startswith(inside)] == []


def test_the_line_of_a_registry_adds_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's workload as a file here, and the page's line."""
    (line,) = re.findall(r'A line here is `("[^`]+)`', TEXT)
    name, where = ast.literal_eval(f"({line.replace(': ', ', ', 1)})")
    module = where.partition(":")[0]
    acme.write(tmp_path)
    (tmp_path / "here").mkdir()
    file = module.removeprefix("fsmatrix.suite.workloads.")
    (tmp_path / "here" / f"{file}.py").write_text(acme.blocks()["acme/dd.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workloads, "__path__", [*workloads.__path__, str(tmp_path / "here")])
    registry: Registry[Any] = Registry("no.group", {**WORKLOADS.builtin, name: where}, "workload")
    try:
        assert registry.load(name).name == name
        assert registry.names() == sorted([*WORKLOADS.builtin, name])
    finally:
        for imported in [module, *(known for known in sys.modules if known.startswith("acme"))]:
            sys.modules.pop(imported, None)
