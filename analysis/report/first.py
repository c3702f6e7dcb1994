"""The first screen of the report: the matrix, three sentences, a line for each target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.data.load import campaign_json
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.lessons.result import Lessons
from fsmatrix.analysis.report import evidence, matrix
from fsmatrix.analysis.standings.places import Places, places
from fsmatrix.analysis.standings.sentences import Extremes, Sentences, extremes, sentences
from fsmatrix.analysis.standings.standings import standings


@dataclass(frozen=True)
class First:
    """What the template shows first; `picture` and `places` are not both there."""

    answer: str  # the lessons' own, where there is no matrix
    picture: matrix.Picture | None = None
    evidence: tuple[evidence.Evidence, ...] = ()
    sentences: Sentences | None = None
    targets: tuple[Extremes, ...] = ()
    values: str = matrix.VALUES
    legend: tuple[tuple[str, str, str], ...] = ()  # state, mark, meaning
    places: Places | None = None


def first_screen(
    ds: xr.Dataset, summary: Summary, lessons: Lessons | str, colours: Mapping[str, str], place: str
) -> First:
    """From lessons, or the sentence why there are none; `place`: the results directory."""
    if summary.cluster.one_machine:
        return First(f"{ONE_MACHINE}.")
    if isinstance(lessons, str):
        return First(lessons)
    if summary.many_targets:
        return First(lessons.answer, places=places(lessons.study))
    if not lessons.compared:
        return First(lessons.answer)
    where = standings(ds, summary, lessons.compared)
    drawn = matrix.picture(where, colours)
    return First(
        lessons.answer,
        picture=drawn,
        evidence=tuple(evidence.evidence(box, cell, colours) for box, cell in drawn.cells),
        sentences=sentences(where, campaign_json(ds), place),
        targets=tuple(extremes(where)),
        legend=tuple((state, state.mark, state.meaning) for state in drawn.states),
    )
