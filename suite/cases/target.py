"""A target of a campaign with its backend, its options and its test bed: what they tell of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fsmatrix.backends.base import Backend, BackendOptions
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.speed_estimate import SpeedEstimate
from fsmatrix.results.evidence.values import Level, LevelValue, Scalar
from fsmatrix.suite.campaign.campaign import Target
from fsmatrix.suite.cases.testbeds import PlannedTestbed


@dataclass(frozen=True)
class TargetMember:
    """A target, its backend's class and the checked options."""

    name: str
    target: Target
    backend: type[Backend]
    options: BackendOptions
    testbed: PlannedTestbed | None = None

    @property
    def level_factors(self) -> frozenset[str]:
        """Cluster factors that it can realise."""
        own = self.backend(self.options).level_factors
        return own | (self.testbed.system.factors.keys() if self.testbed else frozenset())

    def cluster_facts(self, level: Level) -> dict[str, Scalar]:
        """Coordinates of the cluster that the backend's options and the bed tell.

        BackendError if no bed can be at that level.
        """
        own = dict(self.backend(self.options).attributes())
        return own | (self.testbed.attributes(level) if self.testbed else {})

    def attributes(self, level: Level) -> dict[str, Scalar]:
        """Coordinates of the cluster: what was declared, and `cluster_facts`.

        BackendError as there.
        """
        return {**self.target.attributes, **self.cluster_facts(level)}

    def realised(self, level: Level) -> dict[str, str]:
        """Coordinate -> hardware or emulated, as declared, or as the bed or the backend makes it.

        BackendError as `cluster_facts`.
        """
        declared = (
            self.testbed.realised(level)
            if self.testbed
            else self.backend(self.options).realised(level)
        )
        return {**self.target.realised, **declared}

    @property
    def reference(self) -> bool:
        """Shown for orientation only: declared so, or a reference by nature (memory)."""
        return self.target.reference or self.backend.reference

    def refusal(self) -> str:
        """Why it cannot be had on this machine, now, with these rights (empty: it can).

        In the words of `fsmatrix check`, with the cure.
        """
        if self.testbed is None:
            backend = self.backend(self.options)
            return backend.unusable() or self._in_memory(backend)
        return self.testbed.system.missing() or self.backend.uninstalled()

    def pace(self, level: Level) -> SpeedEstimate:
        """What planning guesses of its speed at a level of the cluster factors."""
        pace = self.backend.pace
        if self.testbed is None:
            return pace
        with suppress(BackendError):  # no such bed: the matrix says so
            return self.testbed.pace(level, pace)
        return pace

    def _in_memory(self, backend: Backend) -> str:
        """Of storage that is none every run is invalid: the audit `memory-reference`."""
        if self.reference or not (fstype := backend.memory()):
            return ""
        return (
            f"its files would lie in memory ({fstype}), so that no run is valid "
            "(memory-reference): say reference: true, or choose a place on storage"
        )

    def cluster_fact_names(self, factors: Mapping[str, Sequence[LevelValue]]) -> set[str]:
        """Coordinates of the cluster that bed or backend tell at any level."""
        names: set[str] = set()
        for level in levels_of(self, factors):
            with suppress(BackendError):  # no such bed: the matrix says so
                names |= self.cluster_facts(level).keys()
        return names

    def level_refusal(self, level: Level) -> str:
        """Why a level cannot be made (empty: it can)."""
        if self.testbed is None:
            return self.backend(self.options).level_refusal(level)
        try:
            attributes = self.testbed.attributes(level)
        except BackendError as error:
            return str(error)
        rest = self.testbed.rest(level)
        return self.backend(self.options).testbed_refusal(rest, attributes)

    def required_consent(self) -> str:
        """What the user must still agree to before it is used (empty: nothing)."""
        return "" if self.testbed else self.backend(self.options).required_consent()

    def overwrites(self, space: int) -> str:
        """What is lost when its runs need `space` bytes (empty: nothing that is not ours)."""
        return "" if self.testbed else self.backend(self.options).overwrites(space)


def levels_of(
    member: TargetMember, factors: Mapping[str, Sequence[LevelValue]]
) -> Iterator[dict[str, LevelValue]]:
    """Combinations of the cluster factors' levels that this target gets."""
    axes = {name: factors[name] for name in sorted(member.level_factors & factors.keys())}
    for picks in itertools.product(*axes.values()):
        yield dict(zip(axes, picks, strict=True))
