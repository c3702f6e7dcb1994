"""What the type checker cannot prove of the evidence: that somebody writes what may be absent.

That an audit reads only what there is, and that who makes a part gives all of it, mypy proves.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import fsmatrix.suite as suite
from fsmatrix.backends import contract
from fsmatrix.results.evidence import evidence
from fsmatrix.results.evidence.stored import OWN, Stored

ANSWERS = {evidence.KernelCache: contract.Evidence, evidence.Settling: contract.Settled}
PARTS = [
    kind
    for kind in vars(evidence).values()
    if isinstance(kind, type) and issubclass(kind, Stored) and kind is not Stored
]


def names(kind: type[Stored]) -> set[str]:
    return {known.name for known in fields(kind)} - OWN


def given() -> dict[str, set[str]]:
    """Keyword arguments in the suite's calls, by what is called."""
    keywords: dict[str, set[str]] = {}
    folder = Path(next(iter(suite.__path__)))
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                words = {word.arg for word in node.keywords if word.arg is not None}
                keywords.setdefault(node.func.id, set()).update(words)
    return keywords


def test_every_group_of_the_evidence_has_a_producer() -> None:
    written = given()
    assert names(evidence.Evidence) - written["replace"] - written["Evidence"] == set()


@pytest.mark.parametrize(
    "kind", [part for part in PARTS if part not in {*ANSWERS, evidence.Evidence, evidence.Note}]
)
def test_every_field_of_a_part_has_a_producer(kind: type[Stored]) -> None:
    written = given()
    assert names(kind) - written[kind.__name__] - written["replace"] == set()


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_part_that_a_backend_answers_is_read_as_the_backend_gives_it(kind: type[Stored]) -> None:
    """Its node leader sends it as JSON, which no type checker follows."""
    assert names(kind) == {known.name for known in fields(ANSWERS[kind])}
