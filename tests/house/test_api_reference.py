"""The API reference is made from the docstrings, and has every analysis."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fsmatrix.analysis.catalogue import EVERY

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
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return out


def test_every_analysis_is_in_it_with_its_words(pages: Path) -> None:
    for one in EVERY.values():
        module, _, function = one.place.partition(":")
        place = pages.joinpath("fsmatrix", "analysis", *module.split(".")).with_suffix(".html")
        page = place.read_text(encoding="utf-8")
        assert f'id="{function}"' in page
        words = getattr(import_module(f"fsmatrix.analysis.{module}"), function).__doc__
        assert words.split()[0] in page


def test_the_first_page_has_the_example(pages: Path) -> None:
    page = (pages / "fsmatrix" / "analysis.html").read_text(encoding="utf-8")
    assert "campaign.h5" in page
