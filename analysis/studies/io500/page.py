"""The study `io500` as one HTML file that opens offline.  Nothing of a submission is trusted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import fsmatrix
from fsmatrix.analysis.draw import page, pictures
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.io500 import result, words
from fsmatrix.analysis.studies.io500.result import Io500Study
from fsmatrix.analysis.units import MISSING, number

TEMPLATE = "io500.html.j2"
SUFFIX = ".html"
DETAIL = "  "  # before lines that are lists of files: the page has those below


def write(study: Io500Study, out: Path) -> Path:
    """Write the page, aside and renamed.  OSError as the system gives it."""
    return page.write(render(study), out)


def render(study: Io500Study) -> str:
    """The page as text."""
    step("io500: the page")
    return page.rendered(
        TEMPLATE,
        study=study,
        caveat=words.CAVEAT,
        says=[line for line in study.facts if not line.startswith(DETAIL)],
        together=list(words.correlated(study.pairs)),
        systems=len({submission.system for submission in study.submissions}),
        images=[
            (figure.get_suptitle(), pictures.data_uri(figure)) for figure in pictures.figures(study)
        ],
        grids=[*result.grids(study), result.ratios(study)],
        number=_number,
        version=fsmatrix.__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else number(value)
