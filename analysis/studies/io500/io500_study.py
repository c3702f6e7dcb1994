"""The study `io500`: what a collection of submissions says, and where one's own run stands in it.

Submissions choose their hardware, their size and their tuning, and only some are submitted: all
of it describes the collection, and nothing of it compares file systems.
"""

from __future__ import annotations

import xarray as xr

from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.io500 import io500_chart, ranges
from fsmatrix.analysis.studies.io500.io500_result import Io500Study
from fsmatrix.analysis.studies.io500.ranges import SCORES
from fsmatrix.analysis.studies.io500.standing import standings
from fsmatrix.analysis.studies.io500.submissions import Submission, checks, distinct, submissions
from fsmatrix.results.formats.io500_text import Collection


def io500(collection: Collection, directory: str, ds: xr.Dataset | None = None) -> Io500Study:
    """The study of a collection; `mine`: a campaign whose runs of IO500 are placed in it.

    ValueError if nothing in it counts, or if `mine` cannot be placed.
    """
    step("io500: scores and submissions")
    counted, left = submissions(collection.runs)
    if not counted:
        why = f": {left[0].file}: {left[0].why}" if left else ""
        raise ValueError(f"no result counts{why}")
    step("io500: families and phases")
    return Io500Study(
        chart=io500_chart,
        directory=directory,
        places=len(collection.runs),
        checks=checks(distinct(collection.runs)),
        submissions=counted,
        left_out=left,
        without=collection.without,
        unread=collection.unread,
        families=ranges.rows(counted, lambda submission: (submission.family,), SCORES),
        years=ranges.rows(
            counted, lambda submission: (submission.family, _year(submission)), SCORES
        ),
        sizes=ranges.rows(counted, lambda submission: (submission.family, submission.size), SCORES),
        ratios=ranges.rows(counted, lambda submission: (submission.family,), ranges.of_ratios()),
        pairs=ranges.pairs(counted),
        standings=standings(ds, counted) if ds is not None else (),
    )


def _year(submission: Submission) -> str:
    return str(submission.year) if submission.year else "not told"
