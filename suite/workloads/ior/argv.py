"""Command lines of IOR: which option a version and a build has for what is wanted."""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.backends.access import Access
from fsmatrix.results.case import Case
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.aiori import place, status_file, target_arguments
from fsmatrix.suite.workloads.base import Argv
from fsmatrix.suite.workloads.ior.options import IorOptions

# type of access -> APIs that work on it, the usual one first
APIS: dict[str, tuple[str, ...]] = {
    "path": ("POSIX", "MPIIO"),
    "dfs": ("DFS",),
    "rados": ("RADOS",),
    "cephfs": ("CEPHFS",),
}
SIGNATURE = "573"  # -G: separate invocations write and expect the same content
FILE = "testfile"
RANKS = "ranks.csv"


@dataclass(frozen=True)
class Invocation:
    """Makes the command lines of one run."""

    options: IorOptions
    case: Case
    access: Access
    engine: Engine
    api: str  # one of APIS

    def argv(self, what: str, iterations: int, keep: bool = False, setup: bool = False) -> Argv:
        """One invocation: `what` is "w", "r" or "wr"; `keep` leaves the files.

        A setup writes all data whatever the stonewall, and syncs it.
        """
        options = self.options
        words = [self.engine.program, "-a", self.api, *self._geometry(), *self._order(what)]
        words += [f"-{letter}" for letter in what]
        words += ["-i", str(iterations)]
        if keep:
            words.append("-k")
        words += self._durability(what, setup)
        if not setup:
            words += self._stonewall(what, keep)
            words += self._checks(what)
        elif options.check_read:
            words += ["-G", SIGNATURE]
        words += self._content()
        words += self._backend(setup)
        words += ["-o", place(self.access, FILE)]
        collect: tuple[str, ...] = ()
        if not setup and "option:ranks-csv" in self.engine.features:
            words += ["-O", f"saveRankPerformanceDetailsCSV={{scratch}}/{RANKS}"]
            collect = (RANKS,)
        return Argv((*words, *options.extra_arguments), collect=collect, binding=options.bind_to)

    def _geometry(self) -> list[str]:
        options = self.options
        sizes = ["-t", str(options.transfer_size), "-b", str(options.block_size)]
        return [*sizes, "-s", str(options.segments)]

    def _order(self, what: str) -> list[str]:
        options = self.options
        flags = {
            "-F": options.file_per_process,
            "-C": options.reorder_tasks and "r" in what,
            "-Z": options.reorder_random and "r" in what,
            "-z": options.random_offset,
            "-c": options.collective,
        }
        return [flag for flag, on in flags.items() if on]

    def _durability(self, what: str, setup: bool) -> list[str]:
        options = self.options
        words = ["-e"] if (options.fsync or setup) and "w" in what else []
        if options.fsync_per_write and "w" in what and not setup:
            words.append("-Y")
        return words

    def _stonewall(self, what: str, keep: bool) -> list[str]:
        options = self.options
        if not options.stonewall:
            return []
        words = ["-D", str(int(options.stonewall))]
        if options.stonewall_wear_out:
            words += ["-O", "stoneWallingWearOut=1"]
            # reading apart from writing must know how far writing got
            if keep and options.operations == "both" and what in ("w", "r"):
                words += ["-O", f"stoneWallingStatusFile={status_file(self.access)}"]
        return words

    def _checks(self, what: str) -> list[str]:
        options = self.options
        words = ["-W"] if options.check_write and "w" in what else []
        if options.check_read and "r" in what:
            words.append("-R")
        if options.check_write or options.check_read:
            words += ["-G", SIGNATURE]
        return words

    def _content(self) -> list[str]:
        return ["-l", self.options.data_packet] if self.options.data_packet else []

    def _backend(self, setup: bool) -> list[str]:
        """Options of the API: where the data is, and O_DIRECT."""
        direct = self.options.direct or self.case.cache == "bypass"
        if self.api == "POSIX" and direct and not setup:
            return ["-B"] if "option:B" in self.engine.features else ["--posix.odirect"]
        return target_arguments(self.access, self.options, self.engine)
