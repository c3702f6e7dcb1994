"""Analysis: a campaign file in (xarray), tables, figures and reports out.

    from fsmatrix import analysis

    ds = analysis.open("out/campaign.h5")
    speed = analysis.matrix(ds, "bandwidth", unit="MiB/s")

What is named here is loaded when it is first used: importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsmatrix.analysis.data.load import open_campaign as open
    from fsmatrix.analysis.data.matrices import matrix
    from fsmatrix.analysis.data.publications import published, published_table

_PLACES = {
    "open": "data.load:open_campaign",
    "matrix": "data.matrices:matrix",
    "published": "data.publications:published",
    "published_table": "data.publications:published_table",
}
__all__ = ["matrix", "open", "published", "published_table"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
