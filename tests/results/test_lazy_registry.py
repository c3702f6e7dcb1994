"""The lazy registry: nothing imported before it is asked for, near names proposed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from fsmatrix.results import registry
from fsmatrix.results.registry import BrokenEntry, Registry, UnknownName

BUILTIN = {"tree": "collections:OrderedDict", "gone": "no_such_module:X", "less": "json:NoSuch"}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Registry[dict[str, int]]:
    outside = [
        EntryPoint("beyond", "collections:Counter", "g"),
        EntryPoint("tree", "collections:ChainMap", "g"),
        EntryPoint("torn", "no_such_module:X", "g"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: outside if group == "g" else [])
    return Registry("g", BUILTIN, "plant")


def test_names_of_both_sources(names: Registry[dict[str, int]]) -> None:
    assert names.names() == ["beyond", "gone", "less", "torn", "tree"]
    assert "beyond" in names
    assert "oak" not in names


def test_builtin_wins(names: Registry[dict[str, int]]) -> None:
    assert names.load("tree").__name__ == "OrderedDict"
    assert names.load("beyond").__name__ == "Counter"


def test_unknown_name_proposes(names: Registry[dict[str, int]]) -> None:
    with pytest.raises(UnknownName, match=r"unknown plant 'tre' \(did you mean 'tree'") as caught:
        names.load("tre")
    assert "beyond" in str(caught.value)
    with pytest.raises(UnknownName) as caught:
        names.load("zzzzzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["gone", "less", "torn"])
def test_broken_entries_say_so(names: Registry[dict[str, int]], name: str) -> None:
    with pytest.raises(BrokenEntry, match=name):
        names.load(name)


def test_importing_the_backends_registry_imports_no_backend() -> None:
    code = (
        "import sys, fsmatrix.backends.contract as r; r.names();"
        "print([m for m in sys.modules if m in "
        "{b.partition(':')[0] for b in r.BUILTIN.values()}])"
    )
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr
