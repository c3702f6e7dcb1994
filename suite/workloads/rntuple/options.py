"""Options of the workload `rntuple`, and the user's file that may stand for its generator."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from fsmatrix.results.units import PositiveSize
from fsmatrix.suite.workloads.base import WorkloadOptions
from fsmatrix.suite.workloads.content import ContentFile, stored_digest
from fsmatrix.suite.workloads.streams.lhcb.columns import TREE
from fsmatrix.suite.workloads.streams.lhcb.events import EVENTS

CLUSTER = 52_428_800  # bytes, as in the study
LEAST_PAGE, MOST_PAGE = 1 << 10, 1 << 30
WILD = re.compile(r"[*?\[\]{}#]")
MOST_EVENTS = 1 << 40


def _source(value: object) -> ContentFile | None:
    if value is None or isinstance(value, ContentFile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"source is the path of a file, not {value!r}")
    if digest := stored_digest(value, "file of ROOT"):
        return ContentFile(digest)
    if not Path(value).is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    if WILD.search(value):
        raise ValueError(
            f"{value!r}: ROOT would take {WILD.pattern} for wildcards; link or move it"
        )
    try:
        state = Path(value).stat()
        return ContentFile(_digest(value, state.st_mtime_ns, state.st_size), value)
    except OSError as error:
        raise ValueError(f"the source {value!r} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=16)
def _digest(path: str, modified: int, size: int) -> str:  # noqa: ARG001
    """`modified` and `size` make a changed file be read again."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Source = Annotated[
    ContentFile | None,
    BeforeValidator(_source),
    PlainSerializer(lambda value: value and str(value), return_type=str | None),
]


class RntupleOptions(WorkloadOptions):
    """How many events of which kind, and how they are stored.  Sizes in bytes."""

    events: Annotated[int, Field(strict=True, ge=1, le=MOST_EVENTS)] = Field(
        default=EVENTS, description="of all processes together; with source: at most this many"
    )
    event_seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = Field(
        default=18, description="of the generator: the same seed, the same events everywhere"
    )
    source: Source = Field(
        default=None,
        description="instead of the generator, a ROOT file with the 26 columns: absolute path, "
        "the same on all client nodes; identified by its SHA-256",
    )
    tree: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,128}$")] = Field(
        default=TREE, description="source: name of its TTree or RNTuple"
    )
    compression: Literal["none", "zstd", "lz4", "zlib"] = Field(
        default="zstd", description="at ROOT's own level: zstd 5, lz4 4, zlib 1"
    )
    page_size: PositiveSize = Field(
        default=1 << 20, description="largest page of one column, uncompressed"
    )
    cluster_size: PositiveSize = Field(
        default=CLUSTER, description="approximate, of a cluster, compressed; not used by uproot"
    )
    fsync: bool = Field(default=True, description="at the end of writing, inside the window")

    @model_validator(mode="after")
    def _sizes(self) -> RntupleOptions:
        if not LEAST_PAGE <= self.page_size <= MOST_PAGE:
            raise ValueError(f"page_size is from {LEAST_PAGE} to {MOST_PAGE}, not {self.page_size}")
        if self.page_size > self.cluster_size:
            raise ValueError(
                f"page_size {self.page_size} is larger than cluster_size {self.cluster_size}"
            )
        if self.source is not None and "event_seed" in self.model_fields_set:
            raise ValueError("event_seed belongs to the generator; source is read as it is")
        return self

    def labels(self) -> dict[str, str]:
        """The source by its name, and enough of its digest that two of one name differ."""
        if self.source is None:
            return {}
        return {"source": f"{Path(self.source.path).name} {self.source.sha256[:8]}".strip()}
