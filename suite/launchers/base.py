"""The launcher seam: how processes are started.  `command` is pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fsmatrix.results.case import Geometry


@dataclass(frozen=True)
class Probe:
    """What is known about a launcher's program on this machine."""

    ok: bool
    program: str = ""
    version: str = ""
    reason: str = ""


class Launcher(ABC):
    """Subclasses: ten lines each, one line in registry.LAUNCHERS."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def probe(cls) -> Probe:
        """Whether it can be used here, and its version."""

    @abstractmethod
    def command(
        self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]
    ) -> list[str]:
        """The argv that starts `argv` with this geometry.  Pure."""
