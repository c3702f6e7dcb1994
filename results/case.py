"""Cases and their ids: one combination of levels, hashed from its canonical JSON.

The canonical JSON holds only what differs from a released default, so adding an option
with a default changes no id.  It never holds paths, hosts, devices, credentials or engine
versions.  `work_id` leaves the target out: it pairs runs of the same work across targets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsmatrix.results.evidence.values import Json, Level

ID_LENGTH = 16
DEFAULT_CACHE = "cold"
DEFAULT_DEVICE_STATE = "as_found"


@dataclass(frozen=True)
class Geometry:
    """Client nodes x processes per node x threads per process."""

    nodes: int = 1
    processes_per_node: int = 1
    threads: int = 1

    @property
    def processes(self) -> int:
        """Ranks of the run: nodes x processes per node."""
        return self.nodes * self.processes_per_node


@dataclass(frozen=True)
class Case:
    """One combination of levels.  `options` and `level` hold non-default values only."""

    target: str
    workload: str
    options: Mapping[str, Json] = field(default_factory=dict)
    geometry: Geometry = Geometry()
    cache: str = DEFAULT_CACHE
    device_state: str = DEFAULT_DEVICE_STATE
    level: Level = field(default_factory=dict)

    def work(self) -> dict[str, Json]:
        """What is done, without where: the content of `work_id`."""
        geometry = {
            name: value
            for name, value in vars(self.geometry).items()
            if value != getattr(Geometry, name)
        }
        work: dict[str, Json] = {"workload": self.workload}
        if self.options:
            work["options"] = dict(self.options)
        if geometry:
            work["geometry"] = geometry
        if self.cache != DEFAULT_CACHE:
            work["cache"] = self.cache
        return work

    def whole(self) -> dict[str, Json]:
        """Work and target: the content of `case_id` and of the canonical JSON."""
        whole = self.work() | {"target": self.target}
        if self.level:
            whole["level"] = dict(self.level)
        if self.device_state != DEFAULT_DEVICE_STATE:
            whole["device_state"] = self.device_state
        return whole

    @property
    def canonical(self) -> str:
        """Canonical JSON of the case."""
        return canonical_json(self.whole())

    @property
    def case_id(self) -> str:
        """16 hexadecimal digits of SHA-256 of the canonical JSON."""
        return digest(self.whole())

    @property
    def work_id(self) -> str:
        """As `case_id`, of the work alone."""
        return digest(self.work())

    @classmethod
    def from_canonical(cls, text: str) -> Case:
        """The case whose canonical JSON is `text`; ValueError if it is none."""
        data = json.loads(text)
        if not isinstance(data, dict) or "workload" not in data or "target" not in data:
            raise ValueError(f"not the canonical JSON of a case: {text[:80]!r}")
        return cls(
            target=data["target"],
            workload=data["workload"],
            options=data.get("options", {}),
            geometry=Geometry(**data.get("geometry", {})),
            cache=data.get("cache", DEFAULT_CACHE),
            device_state=data.get("device_state", DEFAULT_DEVICE_STATE),
            level=data.get("level", {}),
        )


def canonical_json(value: Any) -> str:
    """Sorted keys, no blanks, ASCII, whole floats as integers: equal values, equal text."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """The id of a JSON-able value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
