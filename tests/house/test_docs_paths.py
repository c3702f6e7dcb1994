"""Files, folders and modules that the documents name exist, under the name that they have today."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = (
    "analysis", "backends", "bench", "cli", "docs", "jobs", "packaging", "results", "slurm",
    "suite", "tests",
)  # fmt: skip
PAGES = tuple(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")) + tuple(
    sorted((ROOT / "docs").glob("*.md"))
)
FILES = {
    f"/{path.relative_to(ROOT)}" for top in OURS for path in (ROOT / top).rglob("*")
    if path.is_file()
}  # fmt: skip
# source files; other suffixes are mostly names of results and examples
SOURCE = re.compile(r"(?<![\w/.~$<{*-])[\w*][\w*/-]*\.(?:py|c|h|tsv|j2)\b(?!/)")
BELOW = re.compile(rf"(?<![\w/.~$<{{-])(?:{'|'.join(OURS)})/[\w/.*-]*\w/?")
MODULE = re.compile(r"\bfsmatrix(?:\.[a-z_]\w*)+")
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
# a header of Python's, a file of a results directory, the package that CONTRIBUTING.md writes
NOT_OURS = frozenset({"Python.h", "slurm/submission.json"})
EXAMPLES = "acme/"


def missing(text: str) -> Iterator[str]:
    """What a page names as a part of this project, and is none."""
    text = GENERATED.sub("", text)
    for name in [*SOURCE.findall(text), *BELOW.findall(text)]:
        if name not in NOT_OURS and not name.startswith(EXAMPLES) and not _exists(name):
            yield name
    for name in MODULE.findall(text):
        if not _importable(name):
            yield name


def _exists(name: str) -> bool:
    """A path from the root, or of a source file the end of one."""
    if "*" in name:
        return any(ROOT.glob(name))
    return (ROOT / name).exists() or (
        SOURCE.fullmatch(name) is not None and any(file.endswith(f"/{name}") for file in FILES)
    )


def _importable(name: str) -> bool:
    """A module, a thing in one, or a group of entry points."""
    module = name
    while module != "fsmatrix":
        try:
            if importlib.util.find_spec(module):
                return True
        except ModuleNotFoundError:
            pass
        module = module.rpartition(".")[0]
        if name.count(".") - module.count(".") > 1:
            return False
    return name.count(".") == 1  # fsmatrix.backends: a folder, a group of entry points


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert sorted(set(missing(page.read_text(encoding="utf-8")))) == []


def test_functions_of_the_analyses_are_there() -> None:
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    table = text.partition("| command | question | function |\n")[2].partition("\n\n")[0]
    places = [place for row in table.splitlines()[1:]
              for place in re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])]  # fmt: skip
    assert len(places) > 15
    for place in places:
        module, _, function = f"fsmatrix.analysis.{place}".rpartition(".")
        spec = importlib.util.find_spec(module)
        assert spec is not None, place
        assert spec.origin is not None, place
        source = Path(spec.origin).read_text(encoding="utf-8")
        assert re.search(rf"^def {function}\(", source, re.MULTILINE), place


def test_what_is_not_there_is_found() -> None:
    text = (
        "`results/record.py` `results/files/` `run.py` `files/store.py` `fsmatrix.results.record`\n"
        "`results/no.py` `results/no/` `no.py` `no/store.py` `fsmatrix.results.no.case`\n"
        "`slurm/templates/*.sh` `slurm/no-*.py` out/runs state/<target>/ /etc/results/no\n"
        "<!-- generated: x -->\nresults/never.py\n<!-- end -->\n"
    )
    assert set(missing(text)) == {
        "results/no.py", "results/no/", "no.py", "no/store.py", "fsmatrix.results.no.case",
        "slurm/no-*.py",
    }  # fmt: skip
