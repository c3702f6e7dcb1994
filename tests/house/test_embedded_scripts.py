"""Scripts that tests hand to other processes as text import only what is there."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for top in ("tests", "bench") for path in (ROOT / top).rglob("*.py"))
LINE = re.compile(r"(?:^|[;\n])\s*(from fsmatrix[\w.]* import [\w, ]+|import fsmatrix[\w.]*)")


def embedded(path: Path) -> list[str]:
    """Import statements in the string constants of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [line for text in texts if isinstance(text, str) for line in LINE.findall(text)]


def resolve(line: str) -> None:
    """ImportError or AttributeError if a name of an import statement is not there, or empty."""
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.Import | ast.ImportFrom)
    for alias in node.names:
        name = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        thing = pkgutil.resolve_name(name)
        if isinstance(node, ast.ImportFrom) and hasattr(thing, "__path__"):
            raise ImportError(f"{name} is a package, which holds nothing itself")


def test_imports_in_scripts_of_tests_can_be_resolved() -> None:
    lines = {line.strip(): path for path in FILES for line in embedded(path)}
    assert len(lines) > 10
    for line, path in lines.items():
        try:
            resolve(line)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{path.relative_to(ROOT)}: {line!r}: {error}")
