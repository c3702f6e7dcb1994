"""What lies below the targets, where that changes their numbers: said before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.mounts import caution
from fsmatrix.suite.cases.resolve import TargetMember


def cautions(members: Iterable[TargetMember], out: Path) -> Iterator[str]:
    """Sentences with their remedies; `out`: the results directory, where images lie."""
    named: dict[str, tuple[Path, ...]] = {}
    targets_of: dict[str, list[str]] = {}
    for member in members:
        if member.testbed is not None:
            continue
        backend = member.backend(member.options)
        with suppress(BackendError, OSError):  # a place that is refused for it
            named[member.name] = backend.named_places()
            for place in named[member.name]:
                for text in caution.of_place(place):
                    targets_of.setdefault(text, []).append(member.name)
            for text in caution.of_image(out.absolute()) if backend.keeps() else ():
                targets_of.setdefault(text, []).append(member.name)
    for text, names in targets_of.items():
        yield f"{', '.join(dict.fromkeys(names))}: {text}"
    yield from _shared(named)


def _shared(named: dict[str, tuple[Path, ...]]) -> Iterator[str]:
    """Targets on the same path, or on one disk by different ones."""
    same: dict[Path, list[str]] = {}
    for name, places in named.items():
        for place in dict.fromkeys(places):
            same.setdefault(place, []).append(name)
    for place, names in same.items():
        if len(names) > 1:
            yield f"targets {' and '.join(names)} are on the same path {place}: is that meant?"
    on: dict[str, dict[str, Path]] = {}  # disk -> target -> its path there
    for name, places in named.items():
        for place in places:
            with suppress(BackendError, OSError):
                for disk in caution.disks_of(place):
                    on.setdefault(disk, {})[name] = place
    said = set()
    for disk, paths in on.items():
        used = [*map(str, dict.fromkeys(paths.values()))]
        who = " and ".join(paths)
        if len(used) < 2 or (who, *used) in said:
            continue
        said.add((who, *used))
        kind = "file system" if disk.startswith("0:") else "disk"
        where = f"on one {kind} by different paths ({', '.join(used)})"
        yield f"targets {who} are {where}: is that meant?"
