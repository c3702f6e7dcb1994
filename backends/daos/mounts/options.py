"""Typed options of the backend daos-dfuse: what is mounted, how it caches, who goes around it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends.allowed import Form, one_of, plain
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.options import OPTION_OF, DaosOptions
from fsmatrix.backends.errors import BackendError

# Attributes of a container that say how dfuse caches: set on an own one, read of any.


PREFIX = "dfuse-"  # of those that dfuse reads


def set_on(place: Place, given: Mapping[str, str]) -> None:
    """Set them, by their names without the prefix; BackendError on a container of others."""
    if not place.own:
        raise BackendError(f"container {place.container} is not the suite's: left as it is")
    pairs = ",".join(f"{PREFIX}{name}:{value}" for name, value in given.items())
    place.client.ask("container", "set-attr", place.pool, place.container, pairs)


def of(place: Place) -> dict[str, str]:
    """All that are set, by their names without the prefix."""
    answer = place.client.ask("container", "get-attr", place.pool, place.container)
    items = answer if isinstance(answer, list) else []
    return {
        str(item["name"]).removeprefix(PREFIX): _text(item.get("value"))
        for item in items
        if isinstance(item, dict) and str(item.get("name", "")).startswith(PREFIX)
    }


def _text(value: object) -> str:
    """The tool writes values, which are bytes, in base64."""
    try:
        return base64.b64decode(str(value or ""), validate=True).decode().rstrip("\0")
    except (binascii.Error, UnicodeDecodeError):
        return str(value)


Caching = Literal["site", "write_through", "disabled"]
Preload = Literal["none", "ioil", "pil4dfs"]
FOUND = "as_found"  # caching of a mount that somebody else made
# caching -> options of dfuse 2.0 to 2.6 (`dfuse --help`)
CACHING: Mapping[Caching, tuple[str, ...]] = {
    "site": (),  # dfuse's own: all caches on, unless the container's attributes say otherwise
    "write_through": ("--disable-wb-cache",),
    "disabled": ("--disable-caching",),  # the container's attributes do not count then
}
FACTORS = frozenset({"caching", "interception"})  # options that may be factors
_TIME = Form("a time: 0, 5, 5s, 10m, 1h", r"\d{1,6}[smhd]?")
_DATA = Form("on, off, otoc (open to close) or a time", r"on|off|true|false|otoc|\d{1,6}[smhd]?")
# container attributes that dfuse reads: its manual, "Caching"
_ATTRIBUTES: Mapping[str, Form | None] = {
    **plain(_TIME, "attr-time dentry-time dentry-dir-time ndentry-time"),
    "data-cache": _DATA,
    "direct-io-disable": one_of("on", "off"),
}
DIRECT_IO_OFF = "direct-io-disable"


class DaosDfuseOptions(DaosOptions):
    """A container mounted by the suite with dfuse, or a directory of a mount that is there."""

    option_of: ClassVar[Mapping[str, str]] = {**OPTION_OF, **{name: name for name in FACTORS}}

    path: str = Field("", description="a directory in an existing DFUSE mount, used as it is")
    caching: Caching = Field(
        "site", description="site: dfuse's own and the container's; write_through; disabled"
    )
    cache_attributes: dict[str, str] = Field(
        {}, description="of the suite's own container: data-cache, attr-time, dentry-time..."
    )
    multi_user: bool = Field(False, description="let other users use the mount")
    thread_count: int | None = Field(None, ge=2, le=1024, description="threads of each dfuse")
    eq_count: int | None = Field(None, ge=1, le=64, description="event queues of each dfuse")
    interception: Preload = Field(
        "none", description="library loaded into programs and the player: none, ioil, pil4dfs"
    )
    interception_library: str = Field(
        "", description="its absolute path, if it is not where the loader looks"
    )

    @field_validator("path", "interception_library")
    @classmethod
    def _path(cls, value: str) -> str:
        if value and (not value.startswith("/") or "\0" in value):
            raise ValueError(f"must be absolute, not {value!r}")
        return value

    @field_validator("cache_attributes")
    @classmethod
    def _cache_attributes(cls, value: dict[str, str]) -> dict[str, str]:
        for name, setting in value.items():
            form = _ATTRIBUTES.get(name)
            if form is None:
                raise ValueError(f"{name!r} is not one of {', '.join(sorted(_ATTRIBUTES))}")
            if reason := form.refusal(setting):
                raise ValueError(f"{name}: {reason}")
        return value

    @model_validator(mode="after")
    def _one_pool(self) -> DaosDfuseOptions:
        given = [bool(self.pool), self.levels is not None, bool(self.path)]
        if sum(given) != 1:
            raise ValueError("give exactly one of pool, levels, and path (of an existing mount)")
        if self.container and self.levels is not None:
            raise ValueError("container: not with levels, since each level has its own pool")
        return self

    @model_validator(mode="after")
    def _of_our_mount(self) -> DaosDfuseOptions:
        beside = self.model_fields_set - _OF_ANY_MOUNT
        if self.path and beside:
            names = ", ".join(sorted(beside))
            raise ValueError(f"{names}: cannot be set on an existing mount (path)")
        if self.container and self.cache_attributes:
            raise ValueError("cache_attributes: the named container keeps its own attributes")
        if self.caching == "disabled" and self.cache_attributes:
            raise ValueError("cache_attributes: they have no effect where caching is disabled")
        return self

    @property
    def caching_word(self) -> str:
        """How the mount caches, for a coordinate: everything that makes two mounts differ."""
        if self.path:
            return FOUND
        given = [f"{name}={value}" for name, value in sorted(self.cache_attributes.items())]
        return " ".join([self.caching, *given])

    @property
    def flags(self) -> list[str]:
        """Options of dfuse."""
        counts = {"thread-count": self.thread_count, "eq-count": self.eq_count}
        return [
            *CACHING[self.caching],
            *(["--multi-user"] if self.multi_user else []),
            *(f"--{name}={value}" for name, value in counts.items() if value is not None),
        ]


_OF_ANY_MOUNT = {"path", "system", "deadline", "interception", "interception_library"}
