"""A matplotlib figure that is laid out once."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine


class LaidOut(Figure):
    """A figure that is laid out when it is saved, once.

    With a layout engine of its own matplotlib would draw it whole one more time for that.
    """

    def savefig(self, *args: Any, **options: Any) -> None:
        """As Figure's."""
        ConstrainedLayoutEngine().execute(self)
        super().savefig(*args, **options)
