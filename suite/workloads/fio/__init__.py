"""The workload `fio`: the real program, once on every client node, started together.

Files are laid out in a step of their own: on a path by fio's `create_only`, which writes every
byte and syncs each file; elsewhere by a sequential write of the same names.  The timed step then
finds them.  Random and mixed writes go into laid-out files (`overwrite`).

Traps of fio that this file takes care of: `invalidate` would drop the cache that the suite has
made; `size=1KiB` means 1000 bytes to fio (sizes are passed in bytes); several jobs would share
a device from its start (offset_increment); the rados engine ignores errors of completion, so
that objects never written or too large read at phantom speeds (nrfiles, touch_objects).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from fsmatrix.backends.access import Access
from fsmatrix.results.formats.base import Parsed, ParseError
from fsmatrix.results.formats.fio.options import FEWEST_OBJECTS, LARGEST_OBJECT
from fsmatrix.results.formats.fio.phase import merge_nodes
from fsmatrix.results.record import Case
from fsmatrix.results.units import format_size
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import Footprint, Output, Step, Workload, WorkloadOptions
from fsmatrix.suite.workloads.fio import argv as fio_argv
from fsmatrix.suite.workloads.fio.argv import (
    NEEDED_ACCESS,
    engine_of,
    files_of_job,
    size_of_job,
)
from fsmatrix.suite.workloads.fio.job import run_of_node
from fsmatrix.suite.workloads.fio.options import FioOptions

DIRECT_UNIT = 512


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}  # fio's default: powers of 1024
_SPLIT = re.compile(r"(?:^|[:,])(\d+)([kKmMgG]?)")  # sizes in a bssplit


class Fio(Workload):
    """Real fio on every client node."""

    name: ClassVar[str] = "fio"
    Options: ClassVar[type[WorkloadOptions]] = FioOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "device", "rados", "dfs"})
    engines: ClassVar[tuple[str, ...]] = ("fio",)
    options: FioOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Layout where something must be there, then the timed step."""
        options = self.options
        kinds = options.kinds
        steps = []
        if options.into_files:
            what = fio_argv.layout(options, case, access, engine)
            steps.append(Step("layout", "node", "setup", what))
        what = fio_argv.timed(options, case, access, engine)
        into = options.into_files
        steps.append(Step(kinds[0], "node", "timed", what, reads=into, phases=kinds))
        return steps

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """One run from the timed outputs of all nodes."""
        timed = [output for output in outputs if output.step == self.options.kinds[0]]
        if not timed:
            raise ParseError("fio", 0, "no node gave an output")
        geometry = case.geometry
        run = merge_nodes([(output.host, run_of_node(output)) for output in timed])
        failures = [run.failure] if run.failure else []
        if len(timed) != geometry.nodes:
            failures.append(f"fio answered on {len(timed)} of {geometry.nodes} nodes")
        elif run.processes is not None and run.processes != geometry.processes:
            failures.append(f"fio ran {run.processes} jobs, not {geometry.processes}")
        got = {phase.name for phase in run.phases}
        if not run.failure and got != set(self.options.kinds):
            asked = ", ".join(self.options.kinds)
            failures.append(f"fio gave {', '.join(sorted(got)) or 'nothing'}, asked was {asked}")
        if not failures and (text := self._amount(case, run)):
            failures.append(text)
        # what is meant to come from the cache may
        notes = [n for n in run.notes if n.key != "reread" or case.cache == "cold"]
        return replace(run, failure="; ".join(failures), notes=tuple(notes))

    def footprint(self, case: Case) -> Footprint:
        """Exact for fixed work (a mixture: its expected share); else one pass over the data."""
        options, processes = self.options, case.geometry.processes
        if options.job:
            space = sum(s.size * s.numjobs for s in options.jobs) * case.geometry.nodes
            files = sum(s.nrfiles * s.numjobs for s in options.jobs) * case.geometry.nodes
            writes = sum(s.size * s.numjobs for s in options.jobs if s.kind != "read")
            written = writes * case.geometry.nodes
        else:
            space = size_of_job(options, case) * processes
            files = files_of_job(options, case, options.ioengine or "") * processes
            share = {"read": 0, "write": 100, "mixed": 100 - options.rwmixread}
            written = space * share[options.kinds[0]] // 100
        seconds = options.runtime + options.ramp_time if options.runtime else None
        return Footprint(
            space=space,
            written=written + (space if options.into_files else 0),
            files=files,
            seconds=seconds,
            read=space if options.kinds == ("read",) else 0,
            depth=options.iodepth,
        )

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        for text in (
            self._counts(case),
            self._sizes(case, self.options.ioengine or ""),
            self._alignment(case),
        ):
            if text:
                return text
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this fio cannot do the case on that type of access (empty: it can)."""
        del case
        options = self.options
        asked = {s.options.get("ioengine", "") for s in options.jobs} - {""}
        asked = asked or {engine_of(self.options, access)}
        for ioengine in sorted(asked):
            needed = NEEDED_ACCESS.get(ioengine)
            if needed is None and access not in {"path", "device"}:
                return (
                    f"fio's ioengine {ioengine} needs a path or a device; the target gives {access}"
                )
            if needed is not None and access != needed:
                return f"fio's ioengine {ioengine} needs {needed} access; the target gives {access}"
            if engine.features and f"ioengine:{ioengine}" not in engine.features:
                return (
                    f"fio {engine.version} here has no ioengine {ioengine}: install a build "
                    "that has it (fio --enghelp lists them)"
                )
        if engine_of(self.options, access) == "rbd" and not self.options.rbdname:
            return "fio's ioengine rbd needs rbdname: the name of an existing image"
        if self.options.job and access != "path":
            return "a fio job file runs on paths only: give its options in the campaign instead"
        reads = asked == {"rados"} and self.options.kinds != ("write",)
        if reads and engine.features and "rados:touch_objects" not in engine.features:
            return f"fio {engine.version} cannot read rados objects without making them first"
        if asked == {"rados"} and (options.fsync or options.fdatasync or options.end_fsync):
            return "fio's rados engine crashes at an fsync; what RADOS acknowledges is durable"
        return ""

    def misfit(self, case: Case, access: str) -> str:
        """What the audit `rados-phantom` always finds, and sizes that RADOS does not take.

        On a bare device: jobs that would not keep to a range of their own, and unaligned ones.
        """
        if access == "device":
            return self._ranges(case) or self._alignment(case, always=True)
        if self.options.job or engine_of(self.options, access) != "rados":
            return ""
        return self._objects(case) or self._sizes(case, "rados")

    def sizes(self, case: Case) -> Mapping[str, int]:
        """Of operations, and of a job's range; of a job file they are not known here."""
        options = self.options
        if options.job:
            return {}
        whole = {"size" if options.size is not None else "bytes_total": size_of_job(options, case)}
        if not options.bssplit:
            return {"bs": options.bs} | whole
        mixed = _SPLIT.findall(options.bssplit)
        return {f"bssplit {n}{unit}": int(n) * _UNITS[unit.lower()] for n, unit in mixed} | whole

    # -- what cannot be --------------------------------------------------------------------
    def _counts(self, case: Case) -> str:
        options, geometry = self.options, case.geometry
        jobs = geometry.processes_per_node
        if geometry.threads != 1:
            return "fio has jobs, no threads of a process: leave threads at 1"
        if options.numjobs is not None and options.numjobs != jobs:
            return f"numjobs is {options.numjobs}, but processes_per_node is {jobs}"
        if options.job and (own := sum(section.numjobs for section in options.jobs)) != jobs:
            return f"the job file makes {own} jobs, but processes_per_node is {jobs}"
        return ""

    def _sizes(self, case: Case, ioengine: str) -> str:
        options, processes = self.options, case.geometry.processes
        if options.job:
            return ""
        if options.bytes_total is not None and options.bytes_total % processes:
            return f"bytes_total {options.bytes_total} does not divide into {processes} jobs"
        size = size_of_job(options, case)
        files = files_of_job(options, case, ioengine)
        unit = 1 if options.bssplit else options.bs
        if size % files or size // files % unit or size < unit * files:
            of = f" in {files} files" if files > 1 else ""
            return (
                f"a job's size {format_size(size)}{of} is no multiple of bs "
                f"{format_size(unit)}: fio leaves out the rest"
            )
        if ioengine == "rados" and size // files > LARGEST_OBJECT:
            return (
                f"objects of {format_size(size // files)}: RADOS refuses those above 128MiB, "
                "and fio does not notice; use more nrfiles"
            )
        return ""

    def _objects(self, case: Case) -> str:
        files = files_of_job(self.options, case, "rados")
        if files >= FEWEST_OBJECTS:
            return ""
        return (
            f"nrfiles: {files} objects of a job load few OSDs, so that no such run is valid "
            f"(rados-phantom); on RADOS give {FEWEST_OBJECTS} or more, or leave nrfiles out"
        )

    def _ranges(self, case: Case) -> str:
        """Jobs divide a device by their number on one node, and begin where their range does."""
        if case.geometry.nodes > 1:
            return "fio's jobs of several nodes would work in the same ranges of the device"
        words = [word for word in self.options.extra_arguments if word.startswith("--offset")]
        return f"extra argument {words[0]!r}: on a device each job has its range" if words else ""

    def _alignment(self, case: Case, *, always: bool = False) -> str:
        options = self.options
        direct = options.direct or case.cache == "bypass" or always
        given = {section.options.get("direct", "1") for section in options.jobs}
        if case.cache == "bypass" and given - {"1"}:
            return (
                f"the cache state bypass means O_DIRECT, and the job file says direct={min(given)}"
            )
        if not direct or options.job or options.bssplit or options.bs % DIRECT_UNIT == 0:
            return ""
        return f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes: bs is {options.bs}"

    def _amount(self, case: Case, run: Parsed) -> str:
        """Whether fixed work was done whole (empty: it was, or its amount is not known)."""
        options = self.options
        if options.runtime or options.job or options.bssplit or options.extra_arguments:
            return ""
        asked = size_of_job(options, case) * case.geometry.processes
        moved = sum(int(phase.bytes.sum()) for phase in run.phases)
        return "" if moved == asked else f"fio moved {moved} of {asked} bytes"
