"""The API reference is made from the docstrings, and has every analysis."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from fsmatrix import analysis
from fsmatrix.analysis.catalogue import EVERY
from tests.waiting import PATIENCE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the analysis, made as `make docs` makes all of them."""
    out = tmp_path_factory.mktemp("reference")
    program = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); import make_api, pathlib; "
        f"make_api.write(pathlib.Path({str(out)!r}), ('fsmatrix.analysis',))"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return out


def words(text: str) -> list[str]:
    """Letters and digits only: neither markup nor line breaks."""
    return re.findall(r"[a-z0-9]+", text.lower())


class Text(HTMLParser):
    """The text of each element that has an id, down to the next one."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.of: dict[str, str] = {"": ""}
        self.id = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.id = dict(attrs).get("id") or self.id
        self.of.setdefault(self.id, "")

    def handle_data(self, data: str) -> None:
        self.of[self.id] += data


def page_of(pages: Path, module: str) -> Text:
    return Text(pages.joinpath(*module.split(".")).with_suffix(".html").read_text("utf-8"))


def test_every_analysis_is_in_it_with_its_words(pages: Path) -> None:
    for one in EVERY.values():
        place, _, function = one.place.partition(":")
        module = f"fsmatrix.analysis.{place}"
        said = words(getattr(import_module(module), function).__doc__)
        shown = words(page_of(pages, module).of[function])
        assert len(said) >= 4, one.place
        assert " ".join(said) in " ".join(shown), one.place


def test_every_module_has_a_page_that_the_search_finds(pages: Path) -> None:
    made = {
        ".".join(path.relative_to(pages).with_suffix("").parts)
        for path in (pages / "fsmatrix").rglob("*.html")
    }
    folder = Path(next(iter(import_module("fsmatrix.analysis").__path__)))
    there = {
        ".".join(("fsmatrix", "analysis", *path.relative_to(folder).with_suffix("").parts))
        for path in folder.rglob("*.py")
    }
    assert {name.removesuffix(".__init__") for name in there} == made
    search = (pages / "search.js").read_text(encoding="utf-8")
    assert [name for name in made if f'"{name}"' not in search] == []


def test_the_first_page_has_the_example(pages: Path) -> None:
    shown = " ".join(words("".join(page_of(pages, "fsmatrix.analysis").of.values())))
    example = [line for line in (analysis.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(example) == 3
    for line in example:
        assert " ".join(words(line)) in shown, line
