"""Streams and functions of the workload `io500` in the ranks.

The writing phases stop at the stonewall; how much there is then is known only from what is
on the file system.  `survey` looks, once, and keeps it in the memory of the rank for the
later phases of the same run, which work on exactly that.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fsmatrix.backends.player.ops import OP, Chunk, Chunks, Flag, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject, Stored, read
from fsmatrix.suite.workloads.streams import metadata, pattern

STAMP = "timestampfile"  # find looks for what is newer
EARLIER = 2_000_000_000  # ns that the stamp lies back: no file system counts in longer ticks (FAT)
SHARED_LEVELS = 3  # levels of the tree, its root included, that every process lists
_NOTHING = np.zeros(0, dtype=OP)
_found: dict[int, Mapping[str, int]] = {}  # seed of the run -> what survey found for this rank


@dataclass(frozen=True)
class Directories(Stored):
    """The params of `make_directories`; in names of `own`, {rank} is the process's."""

    shared: tuple[str, ...]
    own: tuple[str, ...] = ()


@dataclass(frozen=True)
class Data(Stored):
    """The params of `read_data`."""

    task: pattern.Task
    what: str  # its name in what survey found


@dataclass(frozen=True)
class Files(Stored):
    """The params of `items`."""

    task: metadata.Task
    home: str  # directory
    what: str = ""  # their name in what survey found; empty: as many as the task says


@dataclass(frozen=True)
class Survey(Stored):
    """The params of `survey`: what it looks at, by name."""

    data: Mapping[str, pattern.Task]
    files: Mapping[str, Files]


@dataclass(frozen=True)
class Wanted(Stored):
    """The params of `find`."""

    name: str  # pattern
    size: int  # bytes


@dataclass(frozen=True)
class Walk(Stored):
    """What `find` answers."""

    entries: int
    found: int
    seconds: float


def _of_file(*kinds: Kind) -> Chunk:
    """Operations on the open file, in order."""
    ops = np.zeros(len(kinds), dtype=OP)
    ops["kind"] = kinds
    return Chunk(ops)


# -- data --------------------------------------------------------------------------------------
def write_data(params: JsonObject, place: Place) -> Chunks:
    """Write the data of a pattern.Task until it is done or the time is over; synced, closed.

    Sync and close are chunks of their own: wherever the time ends, what has not been done
    for sure is what is yielded then.
    """
    for chunk in pattern.generate(params, place):
        if chunk.ops["kind"][-1] == Kind.CLOSE:
            break
        if (yield chunk):
            yield _of_file(Kind.FSYNC, Kind.CLOSE)
            return
    if (yield _of_file(Kind.FSYNC)):
        yield _of_file(Kind.FSYNC, Kind.CLOSE)
    elif (yield _of_file(Kind.CLOSE)):
        yield Chunk(_NOTHING)


def read_data(params: JsonObject, place: Place) -> Chunks:
    """Read what survey found, by the params of `Data`; whole chunks."""
    data = read(Data, params, "params", exact=True)
    size = _found[place.seed][data.what]
    whole = size - size % data.task.chunk
    return pattern.chunks(replace(data.task, bytes=whole), place)


# -- files -------------------------------------------------------------------------------------
def items(params: JsonObject, place: Place) -> Chunks:
    """One phase over the files of a rank, by the params of `Files`."""
    files = read(Files, params, "params", exact=True)
    task = files.task
    if files.what:
        task = replace(task, items=_found[place.seed][files.what])
    home = os.fsencode(files.home) + b"/"
    for chunk in metadata.chunks(task, place):
        chunk.ops["flags"][chunk.ops["kind"] == Kind.READ] |= np.uint8(Flag.VERIFY)
        if (yield Chunk(chunk.ops, [home + name for name in chunk.names], chunk.first)):
            yield Chunk(_NOTHING)  # nothing to end: what is left of the chunk stays undone
            return


# -- functions ---------------------------------------------------------------------------------
def make_directories(params: JsonObject, place: Place, root: str) -> JsonObject:
    """Make `shared` directories and, for every rank, the directory of `own` tasks in them."""
    wanted = read(Directories, params, "params", exact=True)
    for name in wanted.shared:
        Path(root, name).mkdir(parents=True, exist_ok=True)
    for name in wanted.own:
        Path(root, name.format(rank=place.rank)).mkdir(parents=True, exist_ok=True)
    return {}


def stamp(params: JsonObject, place: Place, root: str) -> JsonObject:
    """Make the file that find compares times with.

    What is made in the same tick of the clock has the same time and is not newer: a tick of a
    kernel's time stamps is some milliseconds, of some file systems seconds.  So the stamp lies
    back, by the file system's own clock.  Only files of mdtest-hard have the size that find looks
    for, and all of them are made afterwards: what it must find stays the same.
    """
    del params
    if place.rank == 0:
        path = Path(root, STAMP)
        path.touch()
        now = path.stat().st_mtime_ns
        os.utime(path, ns=(now - EARLIER, now - EARLIER))
    return {}


def survey(params: JsonObject, place: Place, root: str) -> JsonObject:
    """See what the writing phases made that this rank will meet; bytes and items by name.

    ValueError if the processes did not all write the same number of blocks of a shared file,
    OSError if there is nothing.  A file that the stonewall cut short is removed.
    """
    wanted = read(Survey, params, "params", exact=True)
    sizes = {what: _bytes_of(task, place, root) for what, task in wanted.data.items()}
    for what, files in wanted.files.items():
        sizes[what] = _items_of(files.task, Path(root, files.home), place)
    _found.clear()
    _found[place.seed] = sizes
    return sizes


def _bytes_of(task: pattern.Task, place: Place, root: str) -> int:
    """Bytes of the process whose data this rank reads."""
    owner = pattern.owner_of(task.shift, place)
    path = Path(root, pattern.name_of(task.layout, owner))
    sharers = 1 if task.layout == "file-per-process" else place.ranks
    blocks, rest = divmod(path.stat().st_size, task.chunk * sharers)
    if rest or not blocks:
        raise ValueError(
            f"{path.name} has {path.stat().st_size} bytes: not the same number of blocks of "
            f"{task.chunk} bytes from each of {sharers} processes"
        )
    return blocks * task.chunk


def _items_of(task: metadata.Task, home: Path, place: Place) -> int:
    """Whole files of the rank whose items this one meets: they were made one after another."""
    owner = pattern.owner_of(task.shift, place)

    def path(index: int) -> Path:
        (name,) = metadata.item_names(task, "file", owner, index, index + 1)
        return home / os.fsdecode(name)

    count = _first_false(lambda index: path(index).exists(), task.items)
    if count and path(count - 1).stat().st_size < task.bytes:
        count -= 1
        path(count).unlink()
    if not count:
        raise ValueError(f"process {owner} made no file in {home.name} before the stonewall")
    return count


def _first_false(holds: Callable[[int], bool], stop: int) -> int:
    """The first index below `stop` for which it does not hold; it holds for all before it."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low


# -- find --------------------------------------------------------------------------------------
def find(params: JsonObject, place: Place, root: str) -> JsonObject:
    """Walk a tree as the find phase does; a `Walk`: its share of the processes' work.

    Every entry is looked at; one whose name matches is looked up, and found if it has the
    size (bytes) and is newer than the stamp.  The first SHARED_LEVELS levels are listed by
    every process and what lies in them is dealt out; a directory below is walked by one.
    Times are seconds on this process's own clock, from the call on.
    """
    begin = time.perf_counter()
    wanted = read(Wanted, params, "params", exact=True)
    newer = Path(root, STAMP).stat().st_mtime_ns
    entries = matched = 0
    for entry in _share(root, place):
        entries += 1
        if fnmatch.fnmatchcase(entry.name, wanted.name):
            seen = entry.stat(follow_symlinks=False)
            regular = stat.S_ISREG(seen.st_mode)
            matched += regular and seen.st_size == wanted.size and seen.st_mtime_ns > newer
    return Walk(entries, matched, time.perf_counter() - begin).document()


def _share(root: str, place: Place) -> Iterator[os.DirEntry[str]]:
    """Entries of the tree that this rank looks at; all ranks together see each once."""
    level = [root]
    for depth in range(SHARED_LEVELS):
        below = []
        for folder in level:
            for position, entry in enumerate(_sorted(folder)):
                if position % place.ranks == place.rank:
                    yield entry
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
        level = below
        if depth == SHARED_LEVELS - 1:
            level = below[place.rank :: place.ranks]
    while level:
        with os.scandir(level.pop()) as folder_entries:
            for entry in folder_entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    level.append(entry.path)


def _sorted(folder: str) -> list[os.DirEntry[str]]:
    """Entries by name: in the same order in every process."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
