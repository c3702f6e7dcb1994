"""Each key of the evidence that an audit reads is written by somebody: else it never speaks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fsmatrix.results.audits as audits
import fsmatrix.suite as suite

PUTTERS = {"put", "spent", "setdefault"}


def trees(package: object) -> Iterator[ast.AST]:
    folder = Path(next(iter(package.__path__)))  # type: ignore[attr-defined]
    for path in folder.rglob("*.py"):
        yield ast.parse(path.read_text(encoding="utf-8"))


def text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_evidence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "evidence"


def read() -> set[str]:
    """Keys in `record.evidence.get(key, ...)` and `of_phase(record, key, phase)`."""
    found: set[str | None] = set()
    for tree in trees(audits):
        inside = {
            id(node)
            for helper in ast.walk(tree)
            if isinstance(helper, ast.FunctionDef) and helper.name == "of_phase"
            for node in ast.walk(helper)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or id(node) in inside:
                continue
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr == "get":
                if is_evidence(function.value):
                    found.add(text(node.args[0]))
            elif isinstance(function, ast.Name) and function.id == "of_phase":
                found.add(text(node.args[1]))
    assert None not in found, "a key that is no literal"
    return {key for key in found if key is not None}


def written() -> set[str]:
    """Keys in `gathered.put(key, ...)` and `evidence[key] = ...`."""
    found: set[str | None] = set()
    for tree in trees(suite):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in PUTTERS and node.args:
                    found.add(text(node.args[0]))
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Subscript) and is_evidence(target.value):
                        found.add(text(target.slice))
    return {key for key in found if key is not None}


def test_every_key_that_an_audit_reads_has_a_producer() -> None:
    assert {"cache", "counters", "limits", "world", "output"} <= read()
    assert read() - written() == set()


def test_a_key_that_nobody_writes_would_be_found() -> None:
    assert "no_such_key" not in written()
