"""Options of the workload `fio`, in fio's own words, and a user's own job: checked as text.

What is not in FREE is refused of a job: it could write elsewhere than the run's
directory, run other programs, or undo what the suite measures with; OWNED has the reasons.  fio
accepts shortened names of options on its command line, so that extra arguments are also refused
when they only begin like one of these.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.results.evidence.stored import number
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats import fio as fio_format
from fsmatrix.results.formats.fio.job import seconds_of, size_of
from fsmatrix.results.formats.fio.phase import shifted, with_logs
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.units import Duration, PositiveSize, Size
from fsmatrix.suite.workloads.workload import Output, WorkloadOptions

# Options of fio that a user may say: of a job file, and beside the workload's own.
#
# A list of what is allowed, made from `fio --cmdhelp` of 3.33 and the manual of 3.36: no option
# in it names a file, a program or a device (buffer_pattern may: a name in quotes).


_FREE = """
allrandrepeat ba blockalign blocksize_range blocksize_unaligned bs_is_seq_rand bs_unaligned
bsrange buffer_compress_chunk clocksource cmdprio cmdprio_bssplit cmdprio_class
cmdprio_percentage continue_on_error cpumask cpus_allowed cpus_allowed_policy create_fsync
create_on_open create_serialize dedupe_global dedupe_mode dedupe_percentage
dedupe_working_set_percentage description disk_util error_dump exit_what exitall
exitall_on_error fadvise_hint file_service_type fixedbufs flow flow_id flow_sleep force_async
fsync_on_close gtod_cpu hipri hipri_percentage ignore_error io_submit_mode iodepth_batch
iodepth_batch_complete iodepth_batch_complete_max iodepth_batch_complete_min
iodepth_batch_submit iodepth_low latency_percentile latency_run latency_target latency_window
lockfile lockmem max_latency nice nonvectored nowait numa_cpu_nodes numa_mem_policy offset
offset_align offset_increment openfiles percentage_random percentile_list pre_read prio
prioclass random_distribution randseed rate_cycle rate_ignore_thinktime rate_iops_min rate_min
rate_process registerfiles rw_sequencer rwmixcycle rwmixwrite scramble_buffers
serialize_overlap significant_figures slat_percentiles softrandommap sqthread_poll
sqthread_poll_cpu ss ss_dur ss_ramp steadystate steadystate_duration steadystate_ramp_time sync
sync_file_range thinktime thinktime_blocks thinktime_blocks_type thinktime_iotime
thinktime_spin uncached unique_filename unit_base userspace_reap write_barrier write_hint
zero_buffers
"""
_OF_JOBS = """
blocksize bs bssplit buffer_compress_percentage direct end_fsync fallocate fdatasync fsync
iodepth ioengine norandommap nr_files nrfiles numjobs ramp_time random_generator randrepeat
rate rate_iops readwrite refill_buffers runtime rw rwmixread size thread time_based timeout
"""
FREE = frozenset(_FREE.split())
OF_JOBS = FREE | frozenset(_OF_JOBS.split())
# One node's fio: from its output to a run whose windows stand on the common clock.


SLACK = 0.01  # seconds by which the common clock itself may be off

KINDS = {
    "read": "read",
    "randread": "read",
    "write": "write",
    "randwrite": "write",
    "rw": "mixed",
    "randrw": "mixed",
}
Count = Annotated[int, Field(ge=0, lt=1 << 31)]


def run_of_node(output: Output) -> Parsed:
    """One node's run, its windows checked against the time in which its fio ran."""
    runs = fio_format.parse(output.stdout, f"fio on {output.host}" if output.host else "fio")
    if len(runs) != 1:
        raise ParseError(f"fio on {output.host}", 0, f"{len(runs)} runs in the output of one")
    return _on_common_clock(with_logs(runs[0], output.files), output.began, output.ended)


def _on_common_clock(run: Parsed, began: float, ended: float) -> Parsed:
    """The run with a node's clock put right, if its windows lie outside [began, ended].

    fio prints after its jobs and before it ends: the clock is off by at most
    ended - printed, and by at least began - start; the width of that is the uncertainty.
    """
    placed = [phase for phase in run.phases if phase.began]
    printed = number(run.facts.get("printed", 0.0))
    if not placed or not printed or ended <= began:
        return run
    start = min(phase.began for phase in placed)
    if began - SLACK <= start and printed <= ended + SLACK:
        return run
    least, most = began - start, ended - printed
    text = f"this node's clock is {-most:.3f} s ahead of the common one: its windows were moved"
    if least > most + 2 * SLACK:
        text = "fio's own times do not fit into the time in which it ran"
        return replace(run, notes=(*run.notes, Note("contradiction", text)))
    moved = shifted(run, most, max(most - least, SLACK))
    return replace(moved, notes=(*moved.notes, Note("clock-shifted", text)))


ENGINES_FOR_PATHS = (
    "psync",
    "sync",
    "vsync",
    "pvsync",
    "pvsync2",
    "libaio",
    "io_uring",
    "posixaio",
    "mmap",
)
ENGINES = (*ENGINES_FOR_PATHS, "rados", "rbd", "dfs")
OWNED: dict[str, str] = {
    **dict.fromkeys(
        ("directory", "filename", "filename_format", "opendir", "fileservice"),
        "the suite chooses the files, in the run's own directory",
    ),
    **dict.fromkeys(
        ("pool", "clientname", "clustername", "conf", "rbdname", "cont", "svcl"),
        "it comes from the target",
    ),
    **dict.fromkeys(
        (
            "write_bw_log",
            "write_lat_log",
            "write_iops_log",
            "write_hist_log",
            "write_iolog",
            "log_avg_msec",
            "log_max_value",
            "log_window_value",
            "log_unix_epoch",
            "log_alternate_epoch",
            "log_alternate_epoch_clock_id",
            "job_start_clock_id",
            "per_job_logs",
            "bandwidth_log",
            "latency_log",
            "group_reporting",
            "gtod_reduce",
            "disable_clat",
            "disable_lat",
            "disable_slat",
            "disable_bw_measurement",
            "lat_percentiles",
            "clat_percentiles",
            "unified_rw_reporting",
            "touch_objects",
        ),
        "the suite measures with it",
    ),
    **dict.fromkeys(
        ("output", "output_format", "minimal", "append_terse", "status_interval", "eta"),
        "the suite reads fio's output",
    ),
    **dict.fromkeys(
        ("read_iolog", "replay_redirect", "merge_blktrace_file", "merge_blktrace_only"),
        "use the workload replay for traces",
    ),
    **dict.fromkeys(
        ("exec_prerun", "exec_postrun", "trigger", "trigger_file", "trigger_remote", "include"),
        "a campaign runs no other programs",
    ),
    **dict.fromkeys(
        ("client", "server", "daemonize", "remote_config", "parse_only", "showcmd", "section"),
        "the suite starts fio, once on every client node",
    ),
    **dict.fromkeys(
        (
            "verify",
            "do_verify",
            "verify_only",
            "verify_async",
            "verify_pattern",
            "experimental_verify",
        ),
        "fio reads back beside the measured work; the workload pattern verifies every byte",
    ),
    **dict.fromkeys(
        ("stonewall", "wait_for_previous", "wait_for", "new_group", "startdelay", "start_delay"),
        "all jobs of a case run at once; make separate cases of the others",
    ),
    **dict.fromkeys(
        ("ioscheduler", "cgroup", "cgroup_weight", "uid", "gid", "profile", "aux_path", "iomem"),
        "it changes more than the run",
    ),
    **dict.fromkeys(
        ("create_only", "overwrite", "invalidate", "fill_device", "fill_fs", "unlink", "name"),
        "the suite lays out the files and makes the cache state",
    ),
    **dict.fromkeys(
        ("loops", "io_size", "io_limit", "number_ios", "size_range", "file_append"),
        "say size and runtime, so that the bytes it moves are known",
    ),
    **dict.fromkeys(
        ("verify_state_save", "verify_state_load", "verify_dump", "dump_read_iolog", "zonemode"),
        "the suite has no use for it that is safe",
    ),
    "buffered": "say direct, or the cache state bypass",
    "filesize": "say size, so that the space it needs is known",
    **dict.fromkeys(
        ("unlink_each_loop", "mem", "hugepage_size", "kb_base"),
        "the suite has no use for it that is safe",
    ),
}
UNKNOWN = "not one of the options that are handed on to fio"
LONGEST_LINE = 1000  # bytes; fio reads lines piecewise, by 4096 or 8192 bytes
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORD = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
ALIASES = {"readwrite": "rw", "blocksize": "bs", "timeout": "runtime", "nr_files": "nrfiles"}
_KINDS = {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}


@dataclass(frozen=True)
class Section:
    """One job of the text, with the global options in it."""

    name: str
    options: Mapping[str, str]

    @property
    def numjobs(self) -> int:
        """How many clones of the job fio starts."""
        return int(self.options.get("numjobs", "1"))

    @property
    def size(self) -> int:
        """Bytes of one clone's files."""
        return size_of(self.options["size"]) or 0

    @property
    def rw(self) -> str:
        """fio's rw, without a modifier."""
        rw = self.options.get("rw") or self.options.get("readwrite") or "read"
        return rw.partition(":")[0]

    @property
    def kind(self) -> str:
        """Which way data goes: read, write or mixed."""
        return _KINDS.get(self.rw, "mixed")

    @property
    def random(self) -> bool:
        """Whether its order is random."""
        return self.rw.startswith("rand")

    @property
    def nrfiles(self) -> int:
        """How many files one clone works on."""
        return int(self.options.get("nrfiles") or self.options.get("nr_files") or "1")


def sections(text: str) -> tuple[Section, ...]:
    """The jobs of a job file; ValueError with the reason for one that cannot be run."""
    parser = configparser.ConfigParser(
        allow_no_value=True,
        delimiters=("=",),
        comment_prefixes=("#", ";"),
        interpolation=None,
        default_section="\n",  # no section can have this name
    )
    # to fio an indented line is an option like any other, to configparser a value going on
    lines = [line.strip() for line in text.split("\n")]
    if any(len(line.encode()) > LONGEST_LINE for line in lines):
        raise ValueError(f"a line is longer than {LONGEST_LINE} bytes: fio would cut it in two")
    try:
        parser.read_string("\n".join(lines), "job")
    except configparser.Error as error:
        raise ValueError(f"not a job file of fio: {' '.join(str(error).split())}") from error
    if any(line.startswith("include") for line in lines):
        raise ValueError("include: a job must stand in one text, so that it is known what it was")
    common = _options(parser, "global") if parser.has_section("global") else {}
    sections_of = tuple(
        Section(name, common | _options(parser, name))
        for name in parser.sections()
        if name != "global"
    )
    if not sections_of:
        raise ValueError("the job file has no job, only [global] or nothing")
    for section in sections_of:
        _check(section)
    return sections_of


def _options(parser: configparser.ConfigParser, name: str) -> dict[str, str]:
    return {
        key: (value if value is not None else "1").strip() for key, value in parser[name].items()
    }


def _check(section: Section) -> None:
    where = f"job [{section.name}]"
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", section.name):
        raise ValueError(f"{where}: name it with letters, digits, '_', '.' and '-'")
    if section.name.startswith("global"):
        raise ValueError(f"{where}: fio takes it for [global]: give it another name")
    for key, value in section.options.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{where}: {key[:60]!r} is no name of an option")
        if "${" in value:
            raise ValueError(f"{where}: {key}={value[:60]}: write it out, so that it is known")
        if (name := key.replace("-", "_")) in OWNED:
            raise ValueError(f"{where}: {key} is not for a job file: {OWNED[name]}")
        if name not in OF_JOBS:
            raise ValueError(f"{where}: {key} is {UNKNOWN}: {', '.join(sorted(OF_JOBS))}")
    engine = section.options.get("ioengine", "psync")
    if engine not in ENGINES:
        raise ValueError(f"{where}: ioengine {engine!r} is not one of {', '.join(ENGINES)}")
    for key in ("numjobs", "nrfiles", "nr_files"):
        value = section.options.get(key, "1")
        if not (value.isascii() and value.isdigit() and int(value[:10]) > 0 and len(value) < 10):
            raise ValueError(f"{where}: {key} must be a positive number, not {value!r}")
    if not size_of(section.options.get("size", "")):
        raise ValueError(f"{where}: give size= in bytes, so that the space it needs is known")
    runtime = seconds_of(section.options.get("runtime") or section.options.get("timeout") or "")
    ramp = seconds_of(section.options.get("ramp_time", ""))
    if runtime and ramp and ramp >= runtime:
        raise ValueError(
            f"{where}: ramp_time is {ramp:g} s, runtime {runtime:g} s: runtime must be longer, or "
            "no such run is valid (window-in-ramp)"
        )
    if section.rw not in {*_KINDS, "rw", "readwrite", "randrw"}:
        raise ValueError(f"{where}: rw={section.rw} is not one of read, write, rw, rand...")


def check_extra(words: Iterable[str], typed: Iterable[str]) -> str:
    """Why extra arguments cannot be passed on (empty: they can)."""
    options = set(typed)
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            return f"extra argument {word!r}: write --name=value"
        name = match[1].replace("-", "_")
        asked = next((option for option in sorted(options) if option.startswith(name)), "")
        asked = ALIASES.get(name, asked)
        if asked:
            return f"extra argument {word!r}: give it as the option {asked}"
        owned = next((option for option in OWNED if option.startswith(name)), "")
        if owned:
            return f"extra argument {word!r}: {OWNED[owned]}"
        if name not in FREE:
            return f"extra argument {word!r}: {match[1]} is {UNKNOWN}: {', '.join(sorted(FREE))}"
    return ""


def _about(text: str, default: Any = None, **more: Any) -> Any:
    return Field(default, description=text, **more)


JOB_FILE = 1 << 20  # bytes of a job file


class FioOptions(WorkloadOptions):
    """fio's options in fio's words.  Sizes in bytes, times in seconds."""

    rw: Literal["read", "write", "randread", "randwrite", "rw", "randrw"] = _about(
        "what is done, in which order", "read"
    )
    bs: PositiveSize = _about("bytes of one operation", 4096)
    bssplit: str = _about("sizes of operations and their shares, instead of bs: 4k/60:64k/40", "")
    size: PositiveSize | None = _about("bytes of the files of one job")
    bytes_total: PositiveSize | None = _about("instead of size: bytes of all jobs on all nodes")
    nrfiles: Annotated[int, Field(ge=1, lt=1 << 20)] | None = _about(
        "files (objects) of one job; default 1, on rados as many as it needs, 64 or more"
    )
    numjobs: Annotated[int, Field(ge=1)] | None = _about(
        "jobs per node; it is the geometry's processes per node and can only repeat it"
    )
    iodepth: Annotated[int, Field(ge=1, lt=1 << 16)] = _about("operations in flight per job", 1)
    ioengine: Literal[(*ENGINES_FOR_PATHS, "rados", "rbd", "dfs")] | None = _about(  # type: ignore[valid-type]
        "default: psync on paths and devices, otherwise what the target speaks"
    )
    direct: bool = _about("O_DIRECT; the cache state bypass means it too", False)
    runtime: Duration = _about("fixed time (time_based); 0 = fixed work", 0.0)
    ramp_time: Duration = _about("time before the measured window", 0.0)
    rwmixread: Annotated[int, Field(ge=0, le=100)] = _about("mixed: reads in percent", 50)
    fsync: Count = _about("fsync after so many writes; 0 = never", 0)
    fdatasync: Count = _about("fdatasync after so many writes; 0 = never", 0)
    end_fsync: bool = _about("fsync at the end, inside the window", False)
    overwrite: bool | None = _about("writes go into laid-out files; default: random ones do")
    norandommap: bool = _about("random offsets may repeat", False)
    random_generator: Literal["tausworthe", "lfsr", "tausworthe64"] = _about(
        "of random offsets", "tausworthe"
    )
    randrepeat: bool = _about("the same random offsets in every run", True)
    refill_buffers: bool = _about("new random data in every write", False)
    buffer_compress_percentage: Annotated[int, Field(ge=0, le=100)] = _about(
        "share of the data written that compresses", 0
    )
    thread: bool = _about("threads instead of processes", False)
    fallocate: Literal["native", "none", "posix", "keep", "truncate"] | None = _about(
        "how files are allocated before they are written"
    )
    rate: Size = _about("bytes per second and job; 0 = as fast as possible", 0)
    rate_iops: Count = _about("operations per second and job; 0 = as fast as possible", 0)
    rbdname: str = _about("image for ioengine rbd", "")
    job: str = _about("a job file's text instead of these options", "")
    job_file: str | None = _about("a job file, read when the campaign is read", exclude=True)
    extra_arguments: tuple[str, ...] = _about(
        "further arguments, --name=value: those in SECURITY.md", ()
    )

    @field_validator("rw", mode="before")
    @classmethod
    def _alias(cls, value: object) -> object:
        return "rw" if value == "readwrite" else value

    @model_validator(mode="before")
    @classmethod
    def _read_job(cls, data: Any) -> Any:
        """The text of a job file, not its path, makes the case."""
        if not isinstance(data, dict) or not data.get("job_file"):
            return data
        if data.get("job"):
            raise ValueError("give job (the text) or job_file (its path), not both")
        path = Path(str(data["job_file"]))
        try:
            text = safefile.read_text(path, JOB_FILE, follow=True)
        except (OSError, UnicodeDecodeError, ResultError) as error:
            raise ValueError(f"job_file: {path} cannot be read: {error}") from error
        return {key: value for key, value in data.items() if key != "job_file"} | {"job": text}

    @model_validator(mode="after")
    def _consistent(self) -> FioOptions:
        typed = set(type(self).model_fields)
        if problem := check_extra(self.extra_arguments, typed):
            raise ValueError(problem)
        if self.job:
            given = self.model_fields_set - {"job", "numjobs", "extra_arguments"}
            if given:
                raise ValueError(f"{', '.join(sorted(given))}: set it in the job file itself")
            sections(self.job)
            return self
        if (self.size is None) == (self.bytes_total is None):
            raise ValueError("give size (of one job) or bytes_total (of all), exactly one of them")
        if self.fsync and self.fdatasync:
            raise ValueError("give fsync or fdatasync, not both")
        if self.ramp_time and not self.runtime:
            raise ValueError("ramp_time needs a runtime: fixed work could end inside the ramp")
        if self.ramp_time and self.ramp_time >= self.runtime:
            raise ValueError(
                f"ramp_time is {self.ramp_time:g} s, runtime {self.runtime:g} s: runtime must be "
                "longer, or no such run is valid (window-in-ramp)"
            )
        return self

    @property
    def jobs(self) -> tuple[Section, ...]:
        """The jobs of the user's job file, if one was given."""
        return sections(self.job) if self.job else ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the phases that the options give."""
        if self.job:
            return tuple(dict.fromkeys(section.kind for section in self.jobs))
        return (KINDS[self.rw],)

    @property
    def into_files(self) -> bool:
        """Whether the files are laid out first."""
        if self.job:
            return self.kinds != ("write",) or any(section.random for section in self.jobs)
        random = self.rw.startswith("rand") if self.overwrite is None else self.overwrite
        return random or self.kinds != ("write",)
