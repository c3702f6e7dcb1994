"""Options of the workload `mdtest`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from fsmatrix.results.formats.mdtest.argv import Tree, parse_arguments
from fsmatrix.results.units import Size, format_size
from fsmatrix.suite.workloads.aiori import AioriOptions, unlike_api

PhaseName = Literal["create", "stat", "read", "rename", "remove"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)  # in mdtest's order
DEFAULT_PHASES: tuple[PhaseName, ...] = ("create", "stat", "read", "remove")
LETTERS: dict[str, str] = {"create": "C", "stat": "T", "read": "E", "rename": "U", "remove": "r"}
DIRECT_UNIT = 512  # smallest logical block of a device
MOST_DIRECTORIES = 1_000_000
# what may be added by extra_arguments, of mdtest's options that have no prefix of a module
EXTRA = frozenset(
    {
        "buffer_offset",
        "collective_creates",
        "dataPacketType",
        "global_dir_layout",
        "make_node",
        "pre_delay",
        "random-seed",
        "random_stat",
        "time_unique_dir_overhead",
        "verify_read",
        "verify_write",
        "call_sync",
        "allocateBufferOnGPU",
        "GPUid",
        "gpu_direct",
    }
)
# of the modules: how, never where (dfs., cephfs.) nor what is read beside (mpiio.hintsFileName)
MODULES = frozenset(
    {"posix.rangelocks", "mpiio.showHints", "mmap.madv_dont_need", "mmap.madv_pattern"}
)
Count = Annotated[int, Field(ge=1, le=10**12)]


class MdtestOptions(AioriOptions):
    """mdtest's options by names of their own.  Sizes in bytes, times in seconds."""

    api: Literal["auto", "POSIX", "MPIIO", "MMAP", "DFS", "CEPHFS"] = Field(
        "auto", description="-a; auto: what belongs to the access (paths: POSIX)"
    )
    items: Count = Field(
        1000, description="-n, files, and as many directories, of each process; all of a tree"
    )
    items_per_directory: Count | None = Field(
        None, description="-I, instead of items: in each directory of the tree"
    )
    depth: Annotated[int, Field(ge=0, le=64)] = Field(0, description="-z, levels of the tree")
    branching_factor: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="-b, directories in each directory of the tree"
    )
    leaf_only: bool = Field(False, description="-L, items only at the lowest level of the tree")
    unique_dir: bool = Field(False, description="-u, a tree for each process")
    files_only: bool = Field(False, description="-F")
    dirs_only: bool = Field(False, description="-D")
    write_bytes: Size = Field(0, description="-w, into each file after it is created")
    read_bytes: Size = Field(0, description="-e, from each file; 0: files are opened and closed")
    stride: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="-N, items of the process so far away (in nodes, where ranks fill nodes)"
    )
    iterations: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="invocations one after the other: parts of one run, not repetitions"
    )
    sync: bool = Field(False, description="-y, fsync of each file after it is written")
    phases: tuple[PhaseName, ...] = Field(
        DEFAULT_PHASES, description="-C -T -E -U -r; without create, files are made in a setup"
    )

    @field_validator("phases")
    @classmethod
    def _in_order(cls, value: tuple[PhaseName, ...]) -> tuple[PhaseName, ...]:
        """In mdtest's order, so that the same set is the same case."""
        if len(set(value)) != len(value) or not value:
            raise ValueError(f"phases must name some, each once: {', '.join(value) or 'none'}")
        return tuple(name for name in PHASES if name in value)

    @field_validator("extra_arguments")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in parse_arguments(value):
            if name not in EXTRA | MODULES:
                raise ValueError(
                    f"extra_arguments: {name} is set by the suite, has an option of its own, or "
                    "changes what is printed"
                )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> MdtestOptions:
        for problem in (self._items, self._bytes, self._walled, self._selected, self._api):
            if text := problem():
                raise ValueError(text)
        return self

    @property
    def counted(self) -> dict[str, int]:
        """What determines the number of items, by the names of the command line."""
        counted = {
            "depth": self.depth,
            "branching_factor": self.branching_factor,
            "leaf_only": self.leaf_only,
        }
        if self.items_per_directory is None:
            return counted | {"items": self.items}
        return counted | {"items_per_directory": self.items_per_directory}

    @property
    def tree(self) -> Tree:
        """Directories of one tree, and the items of one process."""
        return Tree.of(self.counted)

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        for name, size in (("write_bytes", self.write_bytes), ("read_bytes", self.read_bytes)):
            if size % DIRECT_UNIT:
                return (
                    f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe "
                    f"everywhere): {name} is {size}"
                )
        return ""

    def expected(self, phase: str) -> tuple[str, ...]:
        """Names of the phases that one of mdtest's selections gives."""
        names = {
            "create": ("mkdir-tree", "mkdir", "create"),
            "stat": ("", "stat-directories", "stat"),
            "read": ("", "", "read"),
            "rename": ("", "rename-directories", ""),
            "remove": ("", "rmdir", "remove"),
        }[phase]
        wanted = (True, not self.files_only, not self.dirs_only)
        phases = tuple(name for name, on in zip(names, wanted, strict=True) if name and on)
        return (*phases, "rmdir-tree") if phase == "remove" else phases

    def _items(self) -> str:
        if self.items_per_directory is not None and "items" in self.model_fields_set:
            return "give items (-n) or items_per_directory (-I), not both"
        if self.files_only and self.dirs_only:
            return "files_only and dirs_only exclude each other (mdtest takes them as both)"
        if self.tree.directories > MOST_DIRECTORIES:
            return (
                f"a tree of depth {self.depth} with {self.branching_factor} directories in each "
                f"has more than {MOST_DIRECTORIES} directories"
            )
        if not self.tree.items:
            return f"items {self.items} are fewer than the directories that they are spread over"
        return ""

    def _bytes(self) -> str:
        if self.read_bytes > self.write_bytes:
            return (
                f"read_bytes {format_size(self.read_bytes)} is more than the "
                f"{format_size(self.write_bytes)} that write_bytes puts into a file"
            )
        if self.dirs_only and (self.write_bytes or self.sync):
            return "write_bytes, read_bytes and sync need files (dirs_only is set)"
        if self.sync and not self.write_bytes:
            return "sync (-y) needs write_bytes: mdtest syncs only what it writes to"
        return self.misaligned() if self.direct else ""

    def _walled(self) -> str:
        if not self.stonewall:
            return ""
        if not self.files_only:
            return (
                "stonewall needs files_only: it also cuts off the making of directories, of "
                "which mdtest then counts all"
            )
        if self.depth:
            return "stonewall works in a flat directory only: depth must be 0"
        return "" if "create" in self.phases else "stonewall (-W) ends creating only: time create"

    def _selected(self) -> str:
        for phase in self.phases:
            if not self.expected(phase):
                kind = "files" if phase == "read" else "directories"
                return f"phase {phase} is of {kind}, and there are none (files_only, dirs_only)"
        if "rename" in self.phases and self.tree.items < 2:
            return "phase rename needs two or more directories for each process"
        return ""

    def _api(self) -> str:
        return unlike_api(self, self.api)
