"""Typed options that the DAOS backends share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from fsmatrix.backends.contract import BackendOptions
from fsmatrix.backends.daos.levels import (
    DaosLevelOptions,
    Shape,
    class_refusal,
    factor_refusal,
    parse_class,
)
from fsmatrix.backends.daos.tools import DEADLINE, NAME, Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Level, Scalar
from fsmatrix.results.units import PositiveDuration, PositiveSize

CHECKSUMS = ("off", "adler32", "crc16", "crc32", "crc64", "sha1", "sha256", "sha512")
# cluster factor -> the option that it sets
OPTION_OF = {"object_class": "oclass", "redundancy_level": "rd_lvl"}
LEAST_CHUNK = 4096  # bytes; libdaos aborts at reads and writes of 65,535 chunks and more
DOMAINS = {"node": "host", "rank": "rank"}  # redundancy level -> the coordinate failure_domain
_CLASSES = ("oclass", "dir_oclass", "file_oclass")
# name of an option -> word of `daos container create`
_WORDS = {
    "oclass": "oclass",
    "dir_oclass": "dir-oclass",
    "file_oclass": "file-oclass",
    "chunk_size": "chunk-size",
}
# name of an option -> property of a container
_OF_FILES = ("container", "dir_oclass", "file_oclass", "chunk_size", "library")
_PROPERTIES = {"rd_fac": "rd_fac", "rd_lvl": "rd_lvl", "checksum": "cksum"}


class DaosOptions(BackendOptions):
    """Pool and container; properties that are not given are the pool's defaults."""

    option_of: ClassVar[Mapping[str, str]] = OPTION_OF

    pool: str = Field(
        "",
        pattern=f"^$|{NAME}",
        description="label or UUID of the pool, which must exist; not with levels",
    )
    container: str = Field(
        "",
        pattern=f"^$|{NAME}",
        description="label or UUID of an existing POSIX container: the suite works in its own "
        "directory there, and never destroys the container; default: a new container",
    )
    system: str = Field("", pattern=f"^$|{NAME}", description="DAOS system, if not the agent's")
    deadline: PositiveDuration = Field(DEADLINE, description="for each call of DAOS's tools")
    oclass: str = Field(
        "",
        description="object class of the container's objects: S1, SX, RP_2G1, EC_2P1GX...; where "
        "object_class is no factor",
    )
    dir_oclass: str = Field("", description="object class of its directories")
    file_oclass: str = Field("", description="object class of its files")
    chunk_size: PositiveSize | None = Field(
        None, ge=LEAST_CHUNK, description="chunk size of its files, 4KiB or more"
    )
    rd_fac: int | None = Field(
        None, ge=0, le=5, description="redundancy factor: how many failures its data survives"
    )
    rd_lvl: Literal["", "rank", "node"] = Field(
        "",
        description="redundancy level: what fails as a whole, where redundancy_level is no factor; "
        "default: the pool's (DAOS: node)",
    )
    checksum: Literal[("", *CHECKSUMS)] = Field("", description="checksum of its data")  # type: ignore[valid-type]

    library: str = Field(
        "",
        pattern=r"^$|^/[^\n]*$",
        description="folder of libdaos.so.2 and libdfs.so, owned by root or you, which nobody else "
        "can change; default: where the loader finds them, else beside the tool daos",
    )
    levels: DaosLevelOptions | None = Field(
        None, description="how levels of storage_nodes are made"
    )

    @field_validator(*_CLASSES)
    @classmethod
    def _known_class(cls, value: str) -> str:
        if value:
            parse_class(value)
        return value

    @model_validator(mode="after")
    def _one_pool(self) -> DaosOptions:
        if bool(self.pool) == (self.levels is not None):
            raise ValueError("give either pool or levels")
        if self.container and self.levels is not None:
            raise ValueError("container: not with levels, since each level has its own pool")
        return self

    @model_validator(mode="after")
    def _enough_redundancy(self) -> DaosOptions:
        for name in self._classes:
            kind = parse_class(name)
            if self.rd_fac is not None and kind.outlives < self.rd_fac and not kind.everywhere:
                raise ValueError(
                    f"object class {name} outlives {kind.outlives}, not rd_fac {self.rd_fac}"
                )
        return self

    @model_validator(mode="after")
    def _of_our_container(self) -> DaosOptions:
        beside = [name for name in (*_WORDS, *_PROPERTIES) if name in self.model_fields_set]
        if self.container and beside:
            raise ValueError(f"{', '.join(beside)}: the named container keeps its own")
        return self

    @property
    def _classes(self) -> list[str]:
        return [name for option in _CLASSES if (name := getattr(self, option))]

    def at(self, level: Level) -> Self:
        """With the options that the cluster factors set; BackendError if they cannot be so."""
        options = self.option_of
        named = {options[factor]: value for factor, value in level.items() if factor in options}
        twice = [option for option in named if option in self.model_fields_set]
        if twice:
            raise BackendError(
                f"options.{twice[0]}: it is also a cluster factor: leave the option out"
            )
        try:
            return self.model_validate({**self.model_dump(exclude_unset=True), **named})
        except ValidationError as error:
            reasons = "; ".join(str(problem["msg"]) for problem in error.errors())
            raise BackendError(f"{', '.join(map(str, named.values()))}: {reasons}") from error

    def misfit(self, shape: Shape) -> str:
        """Why a container with these properties cannot be in such a pool (empty: it can)."""
        level = self.rd_lvl or "node"
        if self.rd_fac and (reason := factor_refusal(self.rd_fac, shape, level)):
            return reason
        refusals = (class_refusal(name, shape, level) for name in self._classes)
        return next((reason for reason in refusals if reason), "")

    @property
    def coordinates(self) -> dict[str, Scalar]:
        """Redundancy and failure domain as far as these options tell them."""
        given: dict[str, Scalar] = {}
        if self.oclass:
            given["redundancy"] = parse_class(self.file_oclass or self.oclass).redundancy
        if self.rd_lvl:
            given["failure_domain"] = DOMAINS[self.rd_lvl]
        return given

    @property
    def client(self) -> Client:
        """Who is asked."""
        return Client(self.system, self.deadline)

    @property
    def creation(self) -> list[str]:
        """Arguments of `daos container create`."""
        given = {word: getattr(self, name) for name, word in _WORDS.items()}
        return [f"--{word}={value}" for word, value in given.items() if value] + self.properties

    @property
    def properties(self) -> list[str]:
        """Those of them that a container of any layout takes."""
        properties = [
            f"{word}:{value}"
            for name, word in _PROPERTIES.items()
            if (value := getattr(self, name)) not in (None, "")
        ]
        return [f"--properties={','.join(properties)}"] if properties else []


class DaosDfsOptions(DaosOptions):
    """Options of a DAOS pool whose container is spoken to by libdfs."""


class DaosObjectsOptions(DaosOptions):
    """Options of a DAOS pool in which programs get containers without a file system."""

    @model_validator(mode="after")
    def _without_files(self) -> DaosObjectsOptions:
        beside = [name for name in _OF_FILES if name in self.model_fields_set]
        if beside:
            raise ValueError(f"{', '.join(beside)}: only for containers with files (daos-dfs)")
        return self

    @property
    def creation(self) -> list[str]:
        """Such a container has no object class: programs choose those of their objects."""
        return self.properties
