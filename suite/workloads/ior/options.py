"""Options of the workload `ior`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends.allowed import NUMBER, SIGNED, SIZE, Form, Words, plain
from fsmatrix.results.units import PositiveSize, format_size
from fsmatrix.suite.workloads.aiori import AioriOptions, unlike_api

MIB = 1 << 20
DIRECT_UNIT = 512  # smallest logical block of a device
INTEGER = 8  # bytes: IOR's sizes are multiples of it
OWN = frozenset("abBcCDeFGfiklNoORrstWwYzZ")  # short options that have a field, or are the suite's
# long names that have a field, or make numbers that are none
REFUSED = frozenset({"--collective", "--dataPacketType", "--dryRun", "--posix.odirect"})
# What is left: how it is done, never where, nor which other files (-f, -U, -O, --dfs.pool)
WORDS = Words(
    "ior",
    {
        **plain(None, "-E -g -H -K -m -p -P -q -S -u -v -vv -vvv -V -x -y"),
        **plain(NUMBER, "-A -d -j -Q -T --random-offset-seed"),
        **plain(SIZE, "-J --randomPrefill"),
        "-M": Form("memory: 1g, 10%", r"\d{1,12}[kmgKMG]?|\d{1,2}%"),
        "-X": SIGNED,
        **plain(None, "--warningAsErrors --posix.rangelocks --posix.lustre.ignorelocks"),
        **plain(NUMBER, "--posix.lustre.stripecount --posix.lustre.startost"),
        **plain(SIZE, "--posix.lustre.stripesize --posix.beegfs.ChunkSize"),
        **plain(NUMBER, "--posix.beegfs.NumTargets"),
        **plain(None, "--posix.gpfs.hintaccess --posix.gpfs.releasetoken"),
        **plain(None, "--posix.gpfs.finegrainwritesharing --posix.gpfs.finegrainreadsharing"),
        **plain(None, "--posix.gpfs.createsharing --mpiio.showHints --mpiio.preallocate"),
        **plain(None, "--mpiio.useStridedDatatype --mpiio.useFileView"),
    },
)
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class IorOptions(AioriOptions):
    """IOR's options by their own names.  Sizes in bytes, times in seconds."""

    api: Literal["auto", "POSIX", "MPIIO", "DFS", "RADOS", "CEPHFS"] = Field(
        default="auto", description="-a; auto: what belongs to the access (paths: POSIX)"
    )
    transfer_size: PositiveSize = Field(default=MIB, description="-t, bytes of one I/O")
    block_size: PositiveSize = Field(
        default=64 * MIB, description="-b, contiguous bytes of one process"
    )
    segments: Count = Field(default=1, description="-s, how often each process has a block")
    operations: Literal["write", "read", "both"] = Field(
        default="both", description="-w and -r; read: the data is written in a setup step"
    )
    file_per_process: bool = Field(default=False, description="-F; otherwise one shared file")
    reorder_tasks: bool = Field(default=False, description="-C, reads what the next node wrote")
    reorder_random: bool = Field(default=False, description="-Z, reads what a random process wrote")
    random_offset: bool = Field(default=False, description="-z, transfers in random order")
    fsync: bool = Field(
        default=False, description="-e, fsync at the end of writing, inside the window"
    )
    fsync_per_write: bool = Field(default=False, description="-Y, fsync after each write")
    stonewall_wear_out: bool = Field(
        default=False, description="-O stoneWallingWearOut=1, all then do as much as the fastest"
    )
    iterations: Count = Field(default=1, description="-i, parts of one run, not repetitions")
    collective: bool = Field(default=False, description="-c, collective I/O of MPIIO")
    check_write: bool = Field(
        default=False, description="-W, writes are read back, outside the window"
    )
    check_read: bool = Field(default=False, description="-R, reads are verified, inside the window")
    data_packet: Literal["", "offset", "incompressible", "timestamp", "random"] = Field(
        default="", description="-l, content of what is written; empty: IOR's default"
    )

    @field_validator("extra_arguments")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            name = word.partition("=")[0]
            short = name.startswith("-") and not name.startswith("--")
            # IOR reads -vo as -v -o
            if name in REFUSED or (short and set(name[1:]) & OWN):
                raise ValueError(
                    f"extra_arguments: {word} is set by the suite or has an option of its own"
                )
        if reason := WORDS.refusal(value):
            raise ValueError(f"extra_arguments: {reason}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> IorOptions:
        for problem in (self._sizes, self._order, self._stonewall, self._checks, self._api):
            if text := problem():
                raise ValueError(text)
        return self

    @property
    def reads(self) -> bool:
        """Whether reading is timed."""
        return self.operations != "write"

    @property
    def writes(self) -> bool:
        """Whether writing is timed."""
        return self.operations != "read"

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        if self.transfer_size % DIRECT_UNIT:
            return (
                f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe everywhere): "
                f"transfer_size is {self.transfer_size}"
            )
        return ""

    def _sizes(self) -> str:
        if self.transfer_size % INTEGER or self.block_size % INTEGER:
            return f"transfer_size and block_size must be multiples of {INTEGER} bytes"
        if self.block_size % self.transfer_size:
            return (
                f"block_size {format_size(self.block_size)} is no multiple of transfer_size "
                f"{format_size(self.transfer_size)}"
            )
        return self.misaligned() if self.direct else ""

    def _order(self) -> str:
        if self.reorder_tasks and self.reorder_random:
            return "reorder_tasks (-C) and reorder_random (-Z) exclude each other"
        if not self.random_offset:
            return ""
        if self.block_size == self.transfer_size:
            return "random_offset (-z) works within a block: block_size must exceed transfer_size"
        if not self.file_per_process and (self.reorder_tasks or self.reorder_random):
            return "random_offset in a shared file cannot go with reorder_tasks or reorder_random"
        return ""

    def _stonewall(self) -> str:
        if self.stonewall_wear_out and not self.stonewall:
            return "stonewall_wear_out needs stonewall"
        if self.stonewall and self.random_offset and self.operations == "both":
            return (
                "random_offset with stonewall leaves holes, and reading draws another order: "
                "use operations: write or read"
            )
        return ""

    def _checks(self) -> str:
        if self.check_write and not self.writes:
            return "check_write (-W) needs writing"
        if self.check_read and not self.reads:
            return "check_read (-R) needs reading"
        if (self.check_read or self.check_write) and self.random_offset:
            return "random_offset cannot be checked (check_read, check_write)"
        return ""

    def _api(self) -> str:
        if self.collective and self.api != "MPIIO":
            return "collective (-c) needs api: MPIIO"
        return unlike_api(self, self.api)
