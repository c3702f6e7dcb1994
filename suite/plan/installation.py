"""The place where a plan is made: what stands there beside the campaign."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import Tree
from fsmatrix.suite.registry import Registries


@dataclass(frozen=True)
class Installation:
    """What a plan takes from its place; None: as this process finds it."""

    site: SiteFile | Path | None = None
    user: Tree | None = None  # the user's settings
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    lookup: Registries | None = None
    root: bool | None = None  # whether the runs will have root's rights

    @property
    def is_root(self) -> bool:
        """Whether the runs will have root's rights; unless it is told, whether this process has."""
        return os.geteuid() == 0 if self.root is None else self.root
