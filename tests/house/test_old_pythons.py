"""What README says of Python is so: nothing newer than its oldest patch release is called."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("analysis", "backends", "cli", "results", "slurm", "suite", "tests", "bench", "docs")


def test_archives_are_unpacked_in_one_place() -> None:
    """Debian 12's Python 3.11.2 knows no filters of tarfile, which 3.14 asks for."""
    places = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in ("extractall", "data_filter"):
                    places.add(str(path.relative_to(ROOT)))
    assert places == {"tests/archives.py"}
