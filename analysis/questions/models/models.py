"""Regression models over chunk size: table 5 and figure 5 of the SSD-cluster study, and faults.

`models` fits (fits.py) and chooses among forms (forms.py); the result predicts untested chunk
sizes and checks measurements against predictions.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from fsmatrix.analysis.questions.models import models_chart
from fsmatrix.analysis.questions.models.metric_model import fits
from fsmatrix.analysis.questions.models.models_result import Models
from fsmatrix.analysis.units import Level, Unit

MIB = 1 << 20


def models(
    ds: xr.Dataset,
    metric: str,
    hold_out: tuple[str, float] | None = ("chunk", MIB),
    *,
    form: str | None = None,
    where: Mapping[str, Level] | None = None,
    unit: Unit | None = None,
) -> Models:
    """Models of `metric` over chunk size for each group of cells that differ in it only.

    `hold_out`: (factor, level) that is left out of the fits and predicted.  `form`: one of
    forms.FORMS by name; without it cross-validation chooses.  ValueError where nothing can be
    done at all; groups that cannot have a model are in `fits.refused` with the reason.
    """
    return Models(fits(ds, metric, hold_out, form, where, unit), chart=models_chart)
