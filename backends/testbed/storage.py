"""Beds of storage systems, which targets of a campaign can be put on."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.pace import Pace
from fsmatrix.backends.testbed.base import BaseTestbed
from fsmatrix.results.evidence.values import Scalar

_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> int:
    """Bits per second of "1Gbit" or "250Mbit"; 0 for "none"; ValueError otherwise."""
    if text == "none":
        return 0
    match = re.fullmatch(r"([1-9][0-9]*(?:\.[0-9]+)?) ?(kbit|mbit|gbit)", text.strip().lower())
    if match is None:
        raise ValueError(f"network {text!r}: write none, 1Gbit, 250Mbit...")
    return int(float(match[1]) * _BITS[match[2]])


class StorageOptions(BaseModel):
    """What every storage system's bed may look like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(default=3, ge=1, le=32, description="storage nodes")
    network: str = Field(
        default="none", description="speed of each node's link, such as 1Gbit, or none"
    )

    @field_validator("network")
    @classmethod
    def _known_network(cls, value: str) -> str:
        parse_rate(value)
        return value

    @property
    def bits_per_second(self) -> int:
        """Speed of a node's link; 0: not limited."""
        return parse_rate(self.network)

    def refusal(self) -> str:
        """Why this bed cannot be, on any machine (empty: it can)."""
        return ""


StorageOptionsT = TypeVar("StorageOptionsT", bound=StorageOptions)


@dataclass(frozen=True, kw_only=True)
class StorageTestbed(BaseTestbed[StorageOptionsT]):
    """A bed of a storage system that is up."""

    Options: ClassVar[type[StorageOptions]]  # StorageOptionsT
    # cluster factor -> option of the bed that makes its levels
    factors: ClassVar[Mapping[str, str]] = {"storage_nodes": "nodes"}
    paths: ClassVar[frozenset[str]] = frozenset({"conf"})  # of what `offer` tells: paths of files

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why no such bed can be brought up here, now, with these rights (empty: it can)."""

    @classmethod
    @abstractmethod
    def attributes(cls, options: StorageOptionsT) -> dict[str, Scalar]:
        """Coordinates of the cluster that the options tell; "none" stands for what is not made."""

    @classmethod
    @abstractmethod
    def pace(cls, options: StorageOptionsT, pace: Pace) -> Pace:
        """What planning guesses of a backend on such a bed, of what it guesses elsewhere."""

    @classmethod
    def device_limit(cls, options: StorageOptionsT) -> tuple[float, str]:
        """Bytes/s that all its emulated drives cannot exceed, and what says so; 0: no limit."""
        del options
        return 0.0, ""

    def environment(self) -> dict[str, str]:
        """What clients need in their environment to reach it."""
        return {}

    def offer(self, what: str) -> str:
        """What a backend asks for by its `testbed_options`."""
        return str(getattr(self, what))
