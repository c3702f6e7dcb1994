"""Files of other tools in, a trace out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsmatrix.traces.capture.system import NO_FOLDER
from fsmatrix.traces.importing.base import Importer, encoding_problem, head
from fsmatrix.traces.importing.registry import IMPORTERS
from fsmatrix.traces.model import Header, TraceError
from fsmatrix.traces.writer import writing

# In what is no trace, but comes from a tool that takes them -> what to do.
NEARLY = (
    (b"usecs/call     calls", "counts of strace -c; a trace has the calls: strace -f -ttt -T -y"),
    (b"# DXT, file_id", "the text of darshan-dxt-parser: import the log itself (.darshan)"),
    (b"# darshan log version", "the text of darshan-parser: import the log itself (.darshan)"),
    (b"\x07tae", "blktrace's own file: make a text of it by blkparse -i"),
)
FOLDER_ADVICE = "name the working directory of the program with --folder, or trace with -y"


@dataclass(frozen=True)
class Imported:
    """What an import has written."""

    format: str
    operations: int
    header: Header


def import_traces(
    inputs: Sequence[Path],
    out: Path,
    format: str = "",
    roots: Sequence[Path] = (),
    folder: Path | None = None,
) -> Imported:
    """One trace of all inputs, at `out`.  Without `format` they are recognised by content.

    `folder`: the working directory of the program, for relative names (absolute; strace).

    TraceError (or ResultError) names the file and line, UnknownName the formats that there are;
    OSError as the system gives it.  Nothing is written then.
    """
    for path in inputs:
        if out.exists() and path.samefile(out):
            raise TraceError(out, "is one of the inputs: give another name for the trace")
    for path in inputs:
        if problem := encoding_problem(head(path)):
            raise TraceError(path, problem)
    name = format or _recognised(inputs)
    importer = IMPORTERS.load(name)()
    importer.folder = folder
    with writing(out) as writer:
        header = importer.read(inputs, writer, roots)
        writer.finish(header)
        if not writer.operations:
            raise TraceError(inputs[0], _nothing(header))
        return Imported(name, writer.operations, header)


def format_of(begin: bytes) -> str:
    """The format of a file that begins so (base.head); empty: none that is known."""
    return next((name for name, each in _importers().items() if each.recognises(begin)), "")


@cache
def _importers() -> Mapping[str, type[Importer]]:
    """All of them; what is installed is looked through once, not for every file."""
    return {name: IMPORTERS.load(name) for name in IMPORTERS.names()}


def _recognised(inputs: Sequence[Path]) -> str:
    """The one format of all inputs."""
    common = ""
    for path in inputs:
        begin = head(path)
        if not begin:
            raise TraceError(path, "is empty")
        name = format_of(begin)
        if not name:
            formats = ", ".join(_importers())
            advice = next((text for sign, text in NEARLY if sign in begin), "")
            advice = advice or f"not a trace of a known format; name one with --format: {formats}"
            raise TraceError(path, advice)
        if common and name != common:
            raise TraceError(path, f"has the format {name}, but {inputs[0]} has {common}")
        common = name
    return common


def _nothing(header: Header) -> str:
    """Why a trace would be empty."""
    unseen = ", ".join(f"{count} {what}" for what, count in header.unseen.items())
    advice = f"; {FOLDER_ADVICE}" if NO_FOLDER in header.unseen else ""
    return "no operation of it can be in a trace" + (f" ({unseen})" if unseen else "") + advice
