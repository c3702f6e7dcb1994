"""Command lines of mdtest: which option a version and a build has for what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.backends.access import Access
from fsmatrix.results.case import Case
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.engines.mdtest import RANKS_CSV
from fsmatrix.suite.workloads.aiori import place, status_file, target_arguments
from fsmatrix.suite.workloads.base import Argv
from fsmatrix.suite.workloads.mdtest.options import LETTERS, MdtestOptions

# type of access -> APIs that work on it, the usual one first; mdtest knows none for RADOS
APIS: dict[str, tuple[str, ...]] = {
    "path": ("POSIX", "MPIIO", "MMAP"),
    "dfs": ("DFS",),
    "cephfs": ("CEPHFS",),
}
DIRECTORY = "mdtest"
RANKS = "ranks.csv"


@dataclass(frozen=True)
class Invocation:
    """Makes the command lines of one run."""

    options: MdtestOptions
    case: Case
    access: Access
    engine: Engine
    api: str  # one of APIS

    def argv(self, phases: Sequence[str], setup: bool = False) -> Argv:
        """One invocation of these of mdtest's phases, over one tree."""
        options = self.options
        words = [self.engine.program, "-a", self.api, *(f"-{LETTERS[name]}" for name in phases)]
        words += self._items()
        words += ["-w", str(options.write_bytes)] if options.write_bytes else []
        words += ["-e", str(options.read_bytes)] if options.read_bytes else []
        words += ["-N", str(options.stride)] if options.stride else []
        words += ["-y"] if options.sync else []
        words += self._stonewall(phases)
        words += self._backend(setup)
        words += ["-i", "1", "-d", place(self.access, DIRECTORY)]
        collect: tuple[str, ...] = ()
        if not setup and RANKS_CSV in self.engine.features:
            words.append(f"--saveRankPerformanceDetails={{scratch}}/{RANKS}")
            collect = (RANKS,)
        return Argv((*words, *options.extra_arguments), collect=collect, binding=options.bind_to)

    def _items(self) -> list[str]:
        options = self.options
        each = options.items_per_directory
        words = ["-n", str(options.items)] if each is None else ["-I", str(each)]
        if options.depth:
            words += ["-z", str(options.depth), "-b", str(options.branching_factor)]
        flags = {
            "-L": options.leaf_only,
            "-u": options.unique_dir,
            "-F": options.files_only,
            "-D": options.dirs_only,
        }
        return words + [flag for flag, on in flags.items() if on]

    def _stonewall(self, phases: Sequence[str]) -> list[str]:
        """Invocations apart from creating must know how far it came."""
        options = self.options
        if not options.stonewall:
            return []
        words = ["-W", str(int(options.stonewall))] if "create" in phases else []
        again = options.iterations > 1 and "remove" not in options.phases
        if tuple(phases) != options.phases or again:
            words += ["-x", status_file(self.access)]
        return words

    def _backend(self, setup: bool) -> list[str]:
        direct = self.options.direct or self.case.cache == "bypass"
        if self.api == "POSIX" and direct and not setup:
            return ["--posix.odirect"]
        return target_arguments(self.access, self.options, self.engine)
