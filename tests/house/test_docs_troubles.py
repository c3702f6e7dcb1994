"""docs/troubles.md quotes messages as the code prints them: a changed message fails here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubles.md"
PACKAGES = ("analysis", "backends", "cli", "results", "slurm", "suite")
HOLE = "\0"  # stands for a value in a message
FEWEST = 20
LONG_ENOUGH = 8  # letters of the longest piece between two placeholders


def quotes(text: str) -> list[str]:
    """The messages that a page has as headings of entries."""
    found = re.findall(r"^### (`+)(.+?)\1$", text, re.MULTILINE)
    return [quote.strip() for _, quote in found]


def words(node: ast.AST) -> str | None:
    """A text as the source has it, with HOLE for each value; None if it is no text.

    Implicit concatenation is one constant (or f-string) for the parser already.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part) or HOLE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = words(node.left), words(node.right)
        if left is not None or right is not None:
            return (left or HOLE) + (right or HOLE)
    return None


def messages(source: str) -> Iterator[str]:
    """Every text in a module, without its docstrings."""
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = words(node) if id(node) not in bare else None
        if text:
            yield text


@cache
def printed() -> tuple[str, ...]:
    """Every text in the sources of the packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = {text for path in paths for text in messages(path.read_text(encoding="utf-8"))}
    return tuple(sorted(found))


def letters(piece: str) -> int:
    return sum(character.isalpha() for character in piece)


def occurs(quote: str, texts: tuple[str, ...]) -> bool:
    """Whether one of the texts has the quote: `...` inside it stands for one or more values."""
    pieces = [piece for piece in quote.split("...") if letters(piece)]
    if max(map(letters, pieces), default=0) < LONG_ENOUGH:
        return False
    pattern = re.compile(rf"[^{HOLE}]*?{HOLE}[\s\S]*?".join(map(re.escape, pieces)))
    return any(pattern.search(text) for text in texts)


@pytest.mark.parametrize("quote", quotes(PAGE.read_text(encoding="utf-8")))
def test_the_message_is_in_the_code(quote: str) -> None:
    assert occurs(quote, printed()), f"no message of the code is: {quote}"


def test_there_are_enough_and_each_has_a_cure() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = quotes(text)
    assert len(found) >= FEWEST
    assert len(set(found)) == len(found) == text.count("\n### ")
    for entry in text.split("\n### ")[1:]:
        cure = entry.split("\n## ")[0].partition("\n")[2]
        assert len(cure.split()) >= 10, entry


TEXTS = tuple(
    messages(
        '"""Not this docstring, whatever it says."""\n'
        "raise E(f'no launcher {name} can be used here: '\n"
        "        f'{reasons}; ' + cure + ', or none')\n"
    )
)


@pytest.mark.parametrize(
    ("quote", "there"),
    [
        ("no launcher ... can be used here: ...", True),
        ("... can be used here: ...; ..., or none", True),
        ("no launcher ... can be used there: ...", False),
        ("can be used here: no launcher", False),
        ("no launcher ... used here: ...", True),
        ("can be ... here", False),  # no value stands there
        ("no launcher", True),
        ("here: ...", False),  # too short to tell anything
        ("Not this docstring", False),
    ],
)
def test_what_counts_as_the_same_message(quote: str, there: bool) -> None:
    assert occurs(quote, TEXTS) is there


def test_headings_are_quotes() -> None:
    assert quotes("## `a`\n### `b ...`\n### ``see `when` ``\n### c\n") == ["b ...", "see `when`"]
