"""The workload `fio`: the real program, once on every client node, started together.

Files are laid out in a step of their own: on a path by fio's `create_only`, which writes every
byte and syncs each file; elsewhere by a sequential write of the same names.  The timed step then
finds them.  Random and mixed writes go into laid-out files (`overwrite`).

Traps of fio that this file takes care of: `invalidate` would drop the cache that the suite has
made; `size=1KiB` means 1000 bytes to fio (sizes are passed in bytes); several jobs would share
a device from its start (offset_increment); the rados engine ignores errors of completion, so
that objects never written or too large read at phantom speeds (nrfiles, touch_objects).

The arguments for a case on an access are pure functions of both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from fsmatrix.backends.access import Access, DeviceAccess, DfsAccess, RadosAccess
from fsmatrix.results.formats.fio.fio_options import FEWEST_OBJECTS, LARGEST_OBJECT, MIB
from fsmatrix.results.formats.fio.phase import merge_nodes
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import Case
from fsmatrix.results.units import format_size
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.fio_options import FioOptions, run_of_node
from fsmatrix.suite.workloads.workload import (
    Argv,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
)

NEEDED_ACCESS = {"rados": "rados", "rbd": "rados", "dfs": "dfs"}
DEFAULT_ENGINE = {"rados": "rados", "dfs": "dfs"}  # elsewhere psync
NAME = "job"
FIXED = ("--output-format=json+", "--eta=never")
OWN = "node{node}.$jobname.$jobnum.$filenum"  # one set of files for each node and job
_PLAIN = frozenset(
    {
        "fsync",
        "fdatasync",
        "end_fsync",
        "norandommap",
        "random_generator",
        "randrepeat",
        "refill_buffers",
        "buffer_compress_percentage",
        "thread",
        "fallocate",
    }
)

DIRECT_UNIT = 512
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}  # fio's default: powers of 1024
_SPLIT = re.compile(r"(?:^|[:,])(\d+)([kKmMgG]?)")  # sizes in a bssplit


def engine_of(options: FioOptions, access: str) -> str:
    """fio's ioengine for a type of access."""
    return options.ioengine or DEFAULT_ENGINE.get(access, "psync")


def size_of_job(options: FioOptions, case: Case) -> int:
    """Bytes of the files of one job."""
    if options.size is not None:
        return options.size
    assert options.bytes_total is not None
    return options.bytes_total // case.geometry.processes


def files_of_job(options: FioOptions, case: Case, ioengine: str) -> int:
    """Files of one job; RADOS objects have a largest size, and few of them load few OSDs."""
    if options.nrfiles is not None:
        return options.nrfiles
    if ioengine != "rados":
        return 1
    objects = math.ceil(size_of_job(options, case) / LARGEST_OBJECT)
    return max(FEWEST_OBJECTS, 1 << (objects - 1).bit_length())


def layout(options: FioOptions, case: Case, access: Access, engine: Engine) -> Argv:
    """Write every byte of the files once, and sync them.

    On a path by create_only, which writes (overwrite=1: also for jobs that write) and calls
    fsync on each file (seen with strace, fio 3.33); elsewhere by a sequential write.
    """
    more: dict[str, str] = {}
    if not options.job:
        files = files_of_job(options, case, engine_of(options, access.type))
        whole = (size_of_job(options, case) // files) % MIB == 0
        more = {"bs": str(max(MIB if whole else 0, options.bs)), "bssplit": ""}
    if access.type == "path":
        return _argv(options, case, access, engine, more | {"create_only": "1"}, {})
    # what RADOS acknowledges is durable, and fio's rados engine crashes at an fsync (3.33)
    sync = "" if access.type == "rados" else "1"
    more |= {"rw": "write", "overwrite": "", "end_fsync": sync, "iodepth": "16"}
    return _argv(options, case, access, engine, more | {"touch_objects": ""}, {})


def timed(options: FioOptions, case: Case, access: Access, engine: Engine) -> Argv:
    """Arguments of fio in the step that is measured."""
    more = {}
    if options.direct or case.cache == "bypass":
        more["direct"] = "1"
    if options.runtime:
        more |= {"runtime": _milliseconds(options.runtime), "time_based": "1"}
    if options.ramp_time:
        more["ramp_time"] = _milliseconds(options.ramp_time)
    for name in ("rate", "rate_iops"):
        if value := getattr(options, name):
            more[name] = str(value)
    return _argv(options, case, access, engine, more, _logs(options, engine))


def _logs(options: FioOptions, engine: Engine) -> dict[str, str]:
    """Logs for the series and, before job_start, for the windows (results/formats/fio/phase.py)."""
    runtime = options.runtime
    width = min(max(round(runtime * 1000 / 500, -1), 50), 1000) if runtime else 100
    logs = {
        "write_bw_log": "{scratch}/series",
        "log_avg_msec": f"{width:.0f}",
        "log_unix_epoch": "1",
        "per_job_logs": "1",
    }
    if "job_start" not in engine.features:
        logs |= {"write_lat_log": "{scratch}/window", "disable_slat": "1", "disable_lat": "1"}
    return logs


def _argv(
    options: FioOptions,
    case: Case,
    access: Access,
    engine: Engine,
    more: dict[str, str],
    logs: dict[str, str],
) -> Argv:
    """`more` overrides the work's options; an empty value takes one away."""
    # fio knows an engine's own options only behind the engine's name
    engines = {} if access.type == "path" else {"ioengine": engine_of(options, access.type)}
    given = {**engines, "group_reporting": "0", "invalidate": "0", **_place(options, access)}
    if options.into_files and options.kinds != ("read",):
        given["overwrite"] = "1"
    if not options.job:
        given |= _work(options, case, access)
    if access.preloaded:  # fio's processes end without the library's last word
        given["thread"] = "1"
    given = {key: value for key, value in (given | more | logs).items() if value != ""}
    extra = options.extra_arguments
    collect = ("*.log",) if logs else ()
    if options.job:
        lines = "\n".join(f"{key}={value}" for key, value in given.items())
        # fio applies what stands before a job file on its command line to all jobs of the file
        words = (engine.program, *FIXED, *extra, "{scratch}/job.fio")
        text = f"[global]\n{lines}\n{options.job.rstrip()}\n"
        return Argv(words, files={"job.fio": text}, collect=collect)
    words = tuple(f"--{key}={value}" for key, value in given.items())
    return Argv((engine.program, *FIXED, f"--name={NAME}", *words, *extra), collect=collect)


def _place(options: FioOptions, access: Access) -> dict[str, str]:
    """Options of fio that say where its files, objects or devices are."""
    if isinstance(access, DeviceAccess):
        # no regular file is ever made where the node should be
        place = {"filename": f"{access.path}/{{run}}/{access.NODE}".replace(":", "\\:")}
        return place | {"allow_file_create": "0", "direct": "1" if access.direct else ""}
    if isinstance(access, RadosAccess):
        place = {"pool": access.pool, "clientname": access.user, "conf": access.conf}
        if engine_of(options, access.type) == "rbd":
            return place | {"rbdname": options.rbdname}
        reads = "0" if options.kinds != ("write",) else ""
        return place | {"filename_format": f"{access.prefix}.{{run}}.{OWN}", "touch_objects": reads}
    if isinstance(access, DfsAccess):
        # fio's dfs engine opens names in the container's root only
        prefix = access.prefix.strip("/").replace("/", ".")
        own = f"{{run}}.{OWN}"
        name = f"{prefix}.{own}" if prefix else own
        return {"pool": access.pool, "cont": access.container, "filename_format": name}
    return {"directory": "{path}", "filename_format": OWN}


def _work(options: FioOptions, case: Case, access: Access) -> dict[str, str]:
    ioengine = engine_of(options, access.type)
    size = size_of_job(options, case)
    work = {
        "ioengine": ioengine,
        "rw": options.rw,
        "bs": "" if options.bssplit else str(options.bs),
        "bssplit": options.bssplit,
        "size": str(size),
        "nrfiles": str(files_of_job(options, case, ioengine)),
        "numjobs": str(case.geometry.processes_per_node),
        "iodepth": str(options.iodepth),
    }
    if access.type == "device":
        work |= {"offset_increment": str(size), "nrfiles": ""}
    if options.kinds == ("mixed",):
        work["rwmixread"] = str(options.rwmixread)
    for name, value in options.model_dump(exclude_defaults=True).items():
        if name in _PLAIN:
            work[name] = str(int(value)) if isinstance(value, bool) else str(value)
    if ioengine == "dfs":
        work["thread"] = "1"
    return work


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


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
            what = layout(options, case, access, engine)
            steps.append(Step("layout", "node", "setup", what))
        what = timed(options, case, access, engine)
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
