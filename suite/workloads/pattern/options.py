"""Options of the workload `pattern`: what is read or written, in which order and pieces."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fsmatrix.backends.player.ops import MAX_OP_BYTES
from fsmatrix.results.units import Duration, PositiveSize, format_size
from fsmatrix.suite.workloads.base import WorkloadOptions

MIB = 1 << 20
DIRECT_UNIT = 512  # smallest logical block of a device; 4096 is what most want
Depth = Annotated[int, Field(strict=True, ge=1, le=1024)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class PatternOptions(WorkloadOptions):
    """Sizes in bytes, times in seconds."""

    pattern: Literal[
        "seq-read", "rand-read", "seq-write", "rand-write", "seq-mixed", "rand-mixed"
    ] = "seq-read"
    chunk: PositiveSize = MIB  # of one operation
    bytes_per_process: PositiveSize = 64 * MIB
    bytes_total: PositiveSize | None = None  # instead of bytes_per_process: of all together
    read_fraction: Share = 0.5  # mixed: reads of all operations
    layout: Literal["file-per-process", "shared-segmented", "shared-strided"] = "file-per-process"
    shift_reads: Literal["none", "rank", "node"] = "none"  # whose data read patterns read
    direct: bool = False  # O_DIRECT; cache state bypass means it too
    fsync: Literal["none", "end", "per-write"] = "end"  # inside the timed window
    fixed: Literal["work", "time"] = "work"
    seconds: Duration = 0.0  # fixed time: when no new operation begins
    wear_out: Duration = 0.0  # fixed time: the others catch up with the busiest rank, at most
    verify: bool = False  # every byte read is compared; writes are read back in a step of its own
    compressible: Share = 0.0  # share of the data written that compresses
    random: Literal["permutation", "with-replacement"] = "permutation"
    iodepth: Depth = 1  # operations in flight of each thread, where the driver can
    overwrite: bool | None = None  # writes go into laid-out files; default: random ones do

    @field_validator("overwrite")
    @classmethod
    def _derived(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        """The derived value, written out, is the same case: None stands for it."""
        derived = str(info.data.get("pattern", "")).startswith("rand")
        return None if value is derived else value

    @model_validator(mode="after")
    def _consistent(self) -> PatternOptions:
        if self.bytes_total is not None and "bytes_per_process" in self.model_fields_set:
            raise ValueError("give bytes_per_process or bytes_total, not both")
        if self.chunk > MAX_OP_BYTES:
            raise ValueError(f"chunk {self.chunk} is above the largest operation, 1GiB")
        if self.chunk > self.bytes:
            whole = "bytes_per_process" if self.bytes_total is None else "bytes_total"
            raise ValueError(
                f"chunk {format_size(self.chunk)} is larger than the file: {whole} is "
                f"{format_size(self.bytes)}"
            )
        if (self.fixed == "time") != (self.seconds > 0):
            raise ValueError("seconds (more than 0) and fixed: time belong together")
        if self.wear_out and self.fixed != "time":
            raise ValueError("wear_out needs fixed: time")
        if self.direct and (problem := self.misaligned()):
            raise ValueError(problem)
        return self

    @property
    def bytes(self) -> int:
        """bytes_total if given, otherwise bytes_per_process."""
        return self.bytes_per_process if self.bytes_total is None else self.bytes_total

    @property
    def operation(self) -> str:
        """read, write or mixed: the name of the timed phase."""
        return self.pattern.partition("-")[2]

    @property
    def is_random(self) -> bool:
        """Whether the order is random."""
        return self.pattern.startswith("rand")

    @property
    def into_files(self) -> bool:
        """Whether a setup step writes the files first."""
        into = self.is_random if self.overwrite is None else self.overwrite
        return into or self.operation != "write"

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        for name, size in (("chunk", self.chunk), ("the file's size", self.bytes)):
            if size % DIRECT_UNIT:
                return (
                    f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe "
                    f"everywhere): {name} is {size}"
                )
        return ""
