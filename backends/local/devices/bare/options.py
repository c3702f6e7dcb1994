"""Options of the backend `device`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.base import BackendOptions
from fsmatrix.backends.local.devices.options import Rates
from fsmatrix.results.units import PositiveSize


class EmulatedDevice(BaseModel):
    """A throttled loop device on an image of the suite's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: PositiveSize = Field(256 << 20, description="bytes")
    iops: Rates = Field(description="what it can do")


class DeviceOptions(BackendOptions):
    """Either a device and the word that it may be destroyed, or an emulated one."""

    device: str = Field("", description="the block device: /dev/disk/by-id/nvme-...")
    destroy: str = Field(
        "",
        description="serial number of the device whose content may be destroyed; `no-signature` "
        "where it has none",
    )
    buffered: bool = Field(
        False, description="through the page cache of the device, not by direct I/O"
    )
    emulated: EmulatedDevice | None = Field(
        None, description="instead: a throttled loop device of this machine"
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if value and (not value.startswith("/dev/") or "\0" in value or ".." in value.split("/")):
            raise ValueError(f"device must be a path below /dev, not {value!r}")
        return value

    @field_validator("destroy", mode="before")
    @classmethod
    def _destroy(cls, value: Any) -> Any:
        if isinstance(value, int | float):
            raise ValueError(f"name the serial number, as text in quotes, not {value!r}")
        return value

    @model_validator(mode="after")
    def _either(self) -> DeviceOptions:
        if bool(self.device) == (self.emulated is not None):
            raise ValueError("give either device or emulated")
        if self.device and not self.destroy:
            raise ValueError(
                "destroy must name the serial number of the device whose content may be destroyed "
                "(`no-signature` where it has none): lsblk --nodeps --output NAME,SERIAL"
            )
        if self.emulated and self.destroy:
            raise ValueError("destroy needs device: an emulated device belongs to the suite")
        return self
