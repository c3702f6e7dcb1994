"""fio's arguments for a case on an access: pure functions of both."""

from __future__ import annotations

import math

from fsmatrix.backends.access import Access, DeviceAccess, DfsAccess, RadosAccess
from fsmatrix.results.formats.fio.options import FEWEST_OBJECTS, LARGEST_OBJECT, MIB
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import Argv
from fsmatrix.suite.workloads.fio.options import FioOptions

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
