"""Options of the backend `devices`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.base import BackendOptions
from fsmatrix.backends.local.directory import DirectoryOptions
from fsmatrix.results.units import PositiveSize

MOST = 64  # devices


class Rates(BaseModel):
    """Operations per second."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    read: int = Field(ge=1, strict=True, description="reads per second")
    write: int = Field(ge=1, strict=True, description="writes per second")


class EmulatedOptions(BaseModel):
    """Loop devices that are parts of one more: what limits that one, they share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(8, ge=1, le=MOST, strict=True, description="how many devices")
    size: PositiveSize = Field(300 << 20, description="of each, bytes")
    filesystem: Literal["xfs", "ext4"] = Field("xfs", description="on each")
    device_iops: Rates = Field(description="what one device can do")
    adapter_iops: Rates = Field(description="what all can do together")


class DevicesOptions(BackendOptions):
    """Either directories, each on a device of its own, or emulated devices."""

    paths: tuple[str, ...] = Field(
        (), max_length=MOST, description="a directory on each device; all of one host adapter"
    )
    expect_fs: str = Field("", description="refuse another type of file system: xfs")
    emulated: EmulatedOptions | None = Field(
        None, description="instead: throttled loop devices of this machine (root)"
    )

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            DirectoryOptions(path=path)
        if len(set(value)) < len(value):
            raise ValueError("a path is given twice")
        return value

    @model_validator(mode="after")
    def _either(self) -> DevicesOptions:
        if bool(self.paths) == (self.emulated is not None):
            raise ValueError("give either paths or emulated")
        if self.emulated and self.expect_fs:
            raise ValueError("expect_fs needs paths")
        return self

    @property
    def count(self) -> int:
        """How many devices there are."""
        return self.emulated.count if self.emulated else len(self.paths)
