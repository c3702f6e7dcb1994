"""Traces as options: known by the SHA-256 of their bytes, never by their path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from fsmatrix.results.files.safefile import ResultError
from fsmatrix.suite.workloads.content import ContentFile, stored_digest
from fsmatrix.traces.model import Header
from fsmatrix.traces.reader import opened

EXAMPLE = "example:"  # traces that come with fsmatrix, beside its ready campaigns
EXAMPLES = Path("traces")
SUFFIX = ".h5"


@dataclass(frozen=True)
class TraceFile(ContentFile):
    """A trace by its content; the rest is known where it can be read."""

    header: Header | None = field(default=None, compare=False)
    slots: int = field(default=0, compare=False)
    files: int = field(default=0, compare=False)

    @property
    def label(self) -> str:
        """What stands in results: `git 1595d119`."""
        return f"{Path(self.path).stem} {self.sha256[:8]}".strip()


def trace_file(value: object) -> TraceFile:
    """The trace at an absolute path, an example, or of a text "sha256:..."; ValueError."""
    if isinstance(value, TraceFile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a trace is the path of a file, or {EXAMPLE}NAME, not {value!r}")
    if digest := stored_digest(value, "trace"):
        return TraceFile(digest)
    path = _example(value.removeprefix(EXAMPLE)) if value.startswith(EXAMPLE) else Path(value)
    if not path.is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    try:
        state = path.stat()
        return _read(str(path), state.st_mtime_ns, state.st_size)
    except ResultError as error:  # its text begins with the path
        raise ValueError(f"the trace {error}") from error
    except OSError as error:
        raise ValueError(f"the trace {value!r} cannot be read: {error.strerror}") from error


def examples() -> list[str]:
    """Names of the traces that come with fsmatrix."""
    folder = Path(str(files("fsmatrix.jobs"))) / EXAMPLES
    return sorted(path.stem for path in folder.glob(f"*{SUFFIX}"))


def _example(name: str) -> Path:
    names = examples()
    if name not in names:
        raise ValueError(
            f"there is no example trace {name!r}; there are: {', '.join(names) or 'none'}"
        )
    return Path(str(files("fsmatrix.jobs"))) / EXAMPLES / f"{name}{SUFFIX}"


@lru_cache(maxsize=64)
def _read(path: str, modified: int, size: int) -> TraceFile:  # noqa: ARG001
    """Digest and tables; `modified` and `size` make a changed file be read again."""
    with opened(path) as trace:
        header, slots, count = trace.header, len(trace.slots), len(trace.files)
        if not trace.operations:
            raise ValueError(
                f"the trace {path!r} has no operations, so there is nothing to play: capture or "
                "import it again with the --root below which the program works"
            )
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TraceFile(digest, path, header, slots, count)
