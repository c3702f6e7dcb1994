"""Typed options that the DAOS backends share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fsmatrix.backends.base import BackendOptions
from fsmatrix.backends.daos.client import Client
from fsmatrix.backends.daos.tool import DEADLINE
from fsmatrix.results.units import PositiveDuration, PositiveSize

# daos_prop.h, daos_label_is_valid; a leading "-" would be an option of the tool
NAME = r"^[A-Za-z0-9_][A-Za-z0-9:._-]{0,126}$"
CLASS = r"^[A-Za-z0-9_]*$"
CHECKSUMS = ("off", "adler32", "crc16", "crc32", "crc64", "sha1", "sha256", "sha512")
# name of an option -> word of `daos container create`
_WORDS = {
    "oclass": "oclass",
    "dir_oclass": "dir-oclass",
    "file_oclass": "file-oclass",
    "chunk_size": "chunk-size",
}
# name of an option -> property of a container
_PROPERTIES = {"rd_fac": "rd_fac", "rd_lvl": "rd_lvl", "checksum": "cksum"}


class DaosOptions(BackendOptions):
    """Pool and container; properties that are not given are the pool's defaults."""

    pool: str = Field(pattern=NAME, description="label or UUID of the pool, which exists")
    container: str = Field(
        "",
        pattern=f"^$|{NAME}",
        description="label or UUID of a POSIX container that exists: the suite works in a "
        "directory of its own there, and never destroys it; default: a container of its own",
    )
    system: str = Field("", pattern=f"^$|{NAME}", description="DAOS system, if not the agent's")
    deadline: PositiveDuration = Field(DEADLINE, description="for each call of DAOS's tools")
    oclass: str = Field("", pattern=CLASS, description="object class of the container's objects")
    dir_oclass: str = Field("", pattern=CLASS, description="object class of its directories")
    file_oclass: str = Field("", pattern=CLASS, description="object class of its files")
    chunk_size: PositiveSize | None = Field(None, description="chunk size of its files")
    rd_fac: int | None = Field(
        None, ge=0, le=5, description="redundancy factor: failures that its data outlives"
    )
    rd_lvl: Literal["", "rank", "node"] = Field(
        "", description="redundancy level: what fails as a whole"
    )
    checksum: Literal[("", *CHECKSUMS)] = Field("", description="checksum of its data")  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _of_our_container(self) -> DaosOptions:
        beside = [name for name in (*_WORDS, *_PROPERTIES) if name in self.model_fields_set]
        if self.container and beside:
            raise ValueError(f"{', '.join(beside)}: the named container has its own")
        return self

    @property
    def client(self) -> Client:
        """Who is asked."""
        return Client(self.system, self.deadline)

    @property
    def creation(self) -> list[str]:
        """Arguments of `daos container create`."""
        given = {word: getattr(self, name) for name, word in _WORDS.items()}
        properties = [
            f"{word}:{value}"
            for name, word in _PROPERTIES.items()
            if (value := getattr(self, name)) not in (None, "")
        ]
        words = [f"--{word}={value}" for word, value in given.items() if value]
        return words + ([f"--properties={','.join(properties)}"] if properties else [])


class DaosDfsOptions(DaosOptions):
    """Options of a DAOS pool whose container is spoken to by libdfs."""
