"""CONTRIBUTING's examples are whole (tests/suite/test_other_packages.py runs them)."""

from __future__ import annotations

import ast
import re
import tomllib

from fsmatrix.analysis.catalogue import OUTSIDE
from fsmatrix.backends.journal.kinds import KINDS
from fsmatrix.backends.registry import BACKENDS
from fsmatrix.results.formats.registry import FORMATS
from fsmatrix.results.registry import Registry
from fsmatrix.slurm.scheduler import SCHEDULERS
from fsmatrix.suite.registry import ENGINES, LAUNCHERS, WORKLOADS
from tests.suite import acme

TEXT = acme.PAGE.read_text()
REGISTRIES = (BACKENDS, KINDS, WORKLOADS, ENGINES, FORMATS, LAUNCHERS, SCHEDULERS, OUTSIDE)
GROUPS = {registry.group for registry in REGISTRIES}


def registries() -> set[str]:
    """The groups of all registries, from the text of the packages."""
    found: set[str] = set()
    for package in ("analysis", "backends", "cli", "results", "slurm", "suite"):
        for path in (acme.ROOT / package).rglob("*.py"):
            found |= set(re.findall(r'"(fsmatrix\.[a-z]+)", (?:\{|BUILTIN)', path.read_text()))
            found |= set(re.findall(r'Registry\(\s+"(fsmatrix\.[a-z]+)"', path.read_text()))
    return found


def test_every_registry_has_a_row_and_an_example() -> None:
    assert registries() == GROUPS
    rows = set(re.findall(r"^\| [a-z ]+ \| .*\| `(fsmatrix\.[a-z]+)` \|", TEXT, re.MULTILINE))
    package = tomllib.loads(acme.blocks()["pyproject.toml"])
    assert rows == GROUPS == set(package["project"]["entry-points"])


def test_every_file_in_the_table_is_there() -> None:
    rows = re.findall(r"^\| [a-z ]+ \| `([\w/]+)` \| `([\w/.]+)`", TEXT, re.MULTILINE)
    assert len(rows) > len(GROUPS)
    for folder, line in rows:
        assert (acme.ROOT / folder).is_dir()
        assert line == "AUDITS" or (acme.ROOT / line).is_file()


def test_every_block_of_python_is_a_file_or_the_audit() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    kept = [text for name, text in acme.blocks().items() if name.endswith(".py") and text]
    assert len(blocks) == len(kept)  # of which one is in docs/slurm.md, and the audit is no file
    for text in blocks:
        ast.parse(text)


def test_a_registry_line_has_the_registries_form() -> None:
    (line,) = re.findall(r'`("[a-z]+": "fsmatrix\.[^`]+)`', TEXT)
    assert re.fullmatch(r'"\w+": "fsmatrix\.[\w.]+:\w+"', line)
    assert isinstance(WORKLOADS, Registry)
