"""Outputs of a made-up program, for tests of imports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsmatrix.results.formats.parsed import (
    DirectoryFormat,
    Format,
    KnownFormat,
    Parsed,
    ParseError,
    totals,
)
from fsmatrix.suite.importing.importing import Import, Outcome, labeller
from fsmatrix.suite.importing.recognise import Formats, find


def tree(root: Path, texts: Mapping[str, str | bytes]) -> Path:
    """Write files of these names below `root`."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def parse(text: str, source: str) -> list[Parsed]:
    """The made-up program `toy`: one run per line `run BYTES SECONDS [nodes N] [failed WHY]`."""
    runs = []
    for line in text.splitlines():
        match = re.match(r"run (\d+) (\S+)(?: nodes (\d+))?(?: failed (.*))?", line)
        if match:
            runs.append(
                Parsed(
                    engine="toy",
                    version="1.0",
                    options={"block": 4096},
                    phases=(totals("write", float(match[2]), int(match[1]), 1000),),
                    nodes=int(match[3]) if match[3] else None,
                    failure=match[4] or "",
                )
            )
    if not runs:
        raise ParseError(source, 1, "no run in it")
    return runs


def parse_directory(texts: Mapping[str, str], source: str) -> Parsed:
    (parsed,) = parse(texts["summary"], source)
    return parsed


TOY = Format("toy text", lambda text: text.startswith("TOY"), parse)
SUITE = Format("suite text", lambda text: text.startswith("SUITE"), parse)
OTHER = Format("other text", lambda text: "OTHER" in text, parse)
FORMATS = Formats(
    (KnownFormat("suite", SUITE), KnownFormat("toy", TOY), KnownFormat("other", OTHER)),
    (DirectoryFormat("suite directory", ("summary",), SUITE, parse_directory),),
)


def do(
    out: Path, *paths: Path, sets: Sequence[str] = (), pattern: str | None = None, dry: bool = False
) -> Outcome:
    """Import what is in these paths, of the formats of this module."""
    found = find(list(paths), FORMATS.summaries, out)
    return Import(out, labeller(sets, pattern), FORMATS).run(found, dry)


def results_in(root: Path) -> Path:
    """Runs of two targets, one of them failed, and a file that is no output."""
    return tree(
        root,
        {
            "ceph-a/3/1.txt": "TOY\nrun 4000000 2.0 nodes 3\n",
            "ceph-a/3/2.txt": "TOY\nrun 4400000 2.0 nodes 3\n",
            "ceph-a/3/3.txt": "TOY\nrun 4800000 2.0 nodes 3\n",
            "daos-b/2/1.txt": "TOY\nrun 8000000 1.0\nrun 9000000 1.0 failed disk full\n",
            "README.md": "what this is",
        },
    )
