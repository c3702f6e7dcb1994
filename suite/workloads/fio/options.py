"""Options of the workload `fio`, in fio's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.units import Duration, PositiveSize, Size
from fsmatrix.suite.workloads.base import WorkloadOptions
from fsmatrix.suite.workloads.fio.job import ENGINES_FOR_PATHS, Section, check_extra, sections

KINDS = {
    "read": "read",
    "randread": "read",
    "write": "write",
    "randwrite": "write",
    "rw": "mixed",
    "randrw": "mixed",
}
Count = Annotated[int, Field(ge=0, lt=1 << 31)]


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
