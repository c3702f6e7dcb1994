"""What elbencho's command line says beyond the columns of its CSV (elbencho --help-all)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from string import digits

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.formats.elbencho.line import WHOLE

_SECRETS = ("--s3key", "--s3secret", "--s3sessiontoken", "--svcpwfile")
_MIXED = re.compile(r"(RWMIX|MIX-T)(\d{1,5})", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})([kmgtpe]?)", re.ASCII | re.IGNORECASE)
# options whose values are files that no work is done on
_FILES = frozenset({
    "--configfile", "-c", "--csvfile", "--hostsfile", "--jsonfile", "--livecsv", "--livejson",
    "--opslog", "--resfile", "--s3objprefix", "--svcpwfile", "--treefile",
})  # fmt: skip
_FLAGS = (
    "backward", "dirsharing", "infloop", "mmap", "nofdsharing", "norandalign", "readinline",
    "statinline", "strided", "verifydirect",
)  # fmt: skip
_VALUES = {  # name -> what it is where it is not given
    "blockvarpct": 100, "fadv": "", "flock": "", "madv": "", "randalgo": "", "randamount": 0,
    "timelimit": 0, "verify": 0,
}  # fmt: skip
# operation without its number -> what limits hold for it
_LIMITED = {
    "READ": ("read",), "WRITE": ("write",), "RWMIX": ("write",), "MIX-T": ("read", "write"),
}  # fmt: skip
# words -> the phase, or what it is called as a mixture; the last two on directories only
_ASKED = {
    ("-w", "--write"): ("write", "mixed"),
    ("-r", "--read"): ("read",),
    ("-F", "--delfiles"): ("remove",),
    ("--stat",): ("stat",),
}


def argv_of(command: str) -> tuple[str, ...]:
    """elbencho quotes each argument, and has made a blank of each comma; spreadsheets quote all."""
    if command.startswith('"""'):
        command = command.strip()[1:-1].replace('""', '"')
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())


def without_secrets(argv: Sequence[str]) -> Iterator[str]:
    """elbencho itself leaves out the S3 secret only, and only in one of its spellings."""
    hidden = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith(_SECRETS)
        yield "***" if hidden else f"{name}=***" if secret and equals else word
        hidden = secret and not equals


def value_of(argv: Sequence[str], *names: str) -> str | None:
    """What stands behind an option, also behind a flag; None where it is not given."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else following
    return None


def place_of(argv: Sequence[str], on_directories: bool) -> str:
    """Directories and devices of its paths, or the endpoints of S3; "" if none is a whole path.

    Several are joined by ":", as fio has them.
    """
    words = pairwise(argv)
    paths = [path for name, path in words if path.startswith("/") and name not in _FILES]
    as_written = [on_directories or path.startswith("/dev/") for path in paths]
    places = [
        path if whole else str(PurePosixPath(path).parent)
        for path, whole in zip(paths, as_written, strict=True)
    ]
    return value_of(argv, "--s3endpoints") or ":".join(dict.fromkeys(places))


def iterations(argv: Sequence[str]) -> int:
    """Of `-i N`, `--iterations N` or `--iterations=N`; 1 without."""
    value = value_of(argv, "-i", "--iterations") or ""
    return max(1, int(value)) if WHOLE.fullmatch(value) else 1


def is_mixture(operation: str) -> bool:
    """Whether a phase reads and writes: RWMIX30 (percent of reads), MIX-T2 (threads that read)."""
    return _MIXED.fullmatch(operation) is not None


def work_options(argv: Sequence[str], operations: Collection[str]) -> dict[str, Json]:
    """What makes runs of equal columns different work; `operations` as the CSV names them.

    `rwmixread`: percent; `rate_limit`: bytes per second of each thread.
    """
    found: dict[str, Json] = {n: True for n in _FLAGS if value_of(argv, f"--{n}") is not None}
    given = {name: _size(value_of(argv, f"--{name}") or "") for name in _VALUES}
    found |= {name: value for name, value in given.items() if value not in ("", _VALUES[name])}
    for mixed in filter(None, map(_MIXED.fullmatch, operations)):
        found["rwmixread" if mixed[1] == "RWMIX" else "rwmixthr"] = int(mixed[2])
    if share := value_of(argv, "--rwmixthrpct"):
        found["rwmixread"] = _size(share)
    if limit := _rate_limit(argv, operations):
        found["rate_limit"] = limit
    return found


def _rate_limit(argv: Sequence[str], operations: Collection[str]) -> int | str:
    """One number where all data has the same limit, otherwise with the names; 0: no limit.

    That of writing holds for reads too in a mixture by percent, not in one by threads.
    """
    kinds = {kind for each in operations for kind in _LIMITED.get(each.rstrip(digits), ())}
    limits = {kind: _size(value_of(argv, f"--limit{kind}") or "0") for kind in kinds}
    if len(set(limits.values())) == 1:
        return next(iter(limits.values()))
    return ",".join(f"{kind}={limits[kind]}" for kind in sorted(limits) if limits[kind])


def _size(value: str) -> int | str:
    """A number with elbencho's units, which are powers of 1024; otherwise as it is written."""
    match = _SIZE.fullmatch(value)
    if match is None:
        return value[:100]
    return int(match[1]) << 10 * " kmgtpe".index(match[2].lower() or " ")


def missing(argv: Sequence[str], names: Sequence[str], on_directories: bool) -> Iterator[str]:
    """Phases that were asked for and are not there, or not as often: a sentence on each."""
    often = iterations(argv)
    for words, phases in _ASKED.items():
        asked = any(word in argv for word in words) and "--netbench" not in argv
        if asked and (on_directories or phases[0] in ("write", "read")):
            there = sum(name in phases for name in names)
            if there < often:
                times = (
                    f" {often} times, and is there for {there} of them"
                    if there
                    else ", and is not there"
                )
                yield f"{phases[0]} was asked for{times}"
