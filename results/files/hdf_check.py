"""HDF5 files that others made: refused before anything is read if no fsmatrix writes such.

HDF5 can name other files (external links, external storage, virtual data sets), load code
(unknown filters), and say of a few bytes that they are many gigabytes.  Only what our own
files are made of is let through: hard links, contiguous or chunked data of numbers and text,
three filters, and sizes that memory holds.  The limits are far above what real files reach;
each says why.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5l, h5o, h5pl, h5s, h5t, h5z

from fsmatrix.results.files.safefile import ResultError

# Deflate: shuffle and level 1 or 4 are what we write; fletcher32 is harmless.
FILTERS = {h5z.FILTER_DEFLATE: "deflate", h5z.FILTER_SHUFFLE: "shuffle", h5z.FILTER_FLETCHER32: ""}
KINDS = (h5t.INTEGER, h5t.FLOAT, h5t.STRING)
MOST_INFLATED = 1032  # deflate cannot make more of a byte
FREE = 64 << 20  # bytes: what cannot become more than this is not looked at
ATTRIBUTES = 64  # of one object: the root of a run file has 21, a variable 8
ATTRIBUTE_SIZE = 1 << 20  # bytes: REFERENCE_LIST of a dimension has 16 for each variable
ATTRIBUTE_TEXT = 64 << 20  # bytes of all strings of one group: `ranks` has 150 for each rank
DIMENSIONS = 4  # of a data set; a run file's largest have 3
POINTER = np.dtype([("length", "<u4"), ("place", "<u8"), ("index", "<u4")])  # to a string

ReadAt = Callable[[int, int], bytes]  # (first byte, how many) of the file


class RefusedFileError(ResultError):
    """An HDF5 file that would do what no file of ours does."""


@dataclass(frozen=True)
class Limits:
    """What a kind of file may be."""

    objects: int  # groups and data sets
    depth: int  # groups inside each other
    unpacked: int  # bytes of all data sets in memory, strings not counted
    text: int = 1 << 62  # bytes of all strings; never more than the file is long
    unpacked_each: int = 0  # more such bytes for each byte of the file
    inflate_from: int = 0  # bytes: stored pieces up to this need not be tried


# A run file: some 60 objects, groups one deep.  Largest data: series of the monitor and of the
# storage nodes; 1000 kernels x 20 metrics x 3000 samples are 480 MB.
RUN_FILE = 256 << 20  # bytes on the disk; those of campaigns of years were below 10 MB
# Strings of data sets are JSON of phases and findings: kB.
RUN = Limits(objects=1000, depth=4, unpacked=512 << 20, text=64 << 20)
# A campaign file: some 110 variables, one more per factor.  Its unpacked size is 2 to 20 times
# that of the file; columns of strings that are often the same and long come to 100.
CAMPAIGN = Limits(objects=4000, depth=4, unpacked=256 << 20, unpacked_each=200)
# One that is too large to try all of it: no piece of it can become more than 64 MiB.
LARGE_CAMPAIGN = replace(CAMPAIGN, inflate_from=FREE // MOST_INFLATED)


def forbid_plugins() -> None:
    """No filter is loaded from a directory (HDF5_PLUGIN_PATH), whatever a file asks for."""
    for _ in range(h5pl.size()):
        h5pl.remove(0)


forbid_plugins()


def check(
    path: Path,
    file: h5py.File,
    size: int,
    read_at: ReadAt,
    limits: Limits,
    keep: list[Any] | None = None,
) -> int:
    """Bytes that the data sets have in memory; RefusedFileError for what is not let through.

    `size`: of the file; `read_at` reads from it.  `keep` takes the open data sets: as long as
    they are open, HDF5 opens them again at once.
    """
    walk = _Walk(path, size, read_at, limits)
    walk.keep = keep
    walk.group(file.id, 0)
    return walk.unpacked


class _Walk:
    """Looks at every object once for each name it has."""

    def __init__(self, path: Path, size: int, read_at: ReadAt, limits: Limits) -> None:
        self.path = path
        self.size = size
        self.read_at = read_at
        self.limits = limits
        self.most = limits.unpacked + limits.unpacked_each * size
        self.objects = 0
        self.unpacked = 0
        self.text = 0
        self.keep: list[Any] | None = None

    def refuse(self, name: bytes, reason: str) -> RefusedFileError:
        shown = name.decode("utf-8", "replace")[:80]
        return RefusedFileError(self.path, f"refused: {shown!r} {reason}")

    def group(self, group: Any, depth: int) -> None:
        names: list[bytes] = []
        strange: list[tuple[bytes, int]] = []  # h5py does not survive an error in its callback
        most = self.limits.objects - self.objects

        def see(name: bytes, info: Any) -> int | None:
            if info.type != h5l.TYPE_HARD:
                strange.append((name, info.type))
            names.append(name)
            return 1 if strange or len(names) > most else None

        group.links.iterate(see, info=True)
        for name, link in strange:
            raise self.refuse(name, _LINKS.get(link, "is a link of an unknown kind"))
        if len(names) > most or depth > self.limits.depth:
            what = f"{self.limits.objects} objects, or {self.limits.depth} groups in each other"
            raise self.refuse(names[-1] if names else b"/", f"is one of more than {what}")
        self.objects += len(names)
        self.attributes(group, b"/")
        for name in names:
            item = h5o.open(group, name)
            if isinstance(item, h5d.DatasetID):
                self.dataset(item, name)
                if self.keep is not None:
                    self.keep.append(item)
            elif hasattr(item, "links"):
                self.group(item, depth + 1)
            else:
                raise self.refuse(name, "is neither a group nor a data set")

    def attributes(self, owner: Any, name: bytes) -> None:
        if h5a.get_num_attrs(owner) > ATTRIBUTES:
            raise self.refuse(name, f"has more than {ATTRIBUTES} attributes")

    def dataset(self, dataset: Any, name: bytes) -> None:
        self.attributes(dataset, name)
        creation = dataset.get_create_plist()
        if creation.get_external_count():
            raise self.refuse(name, "has its data in another file (external storage)")
        layout = creation.get_layout()
        if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED, h5d.COMPACT):
            raise self.refuse(name, "is a virtual data set: its data are in other files")
        kind, space = dataset.get_type(), dataset.get_space()
        if kind.get_class() not in KINDS or space.get_simple_extent_type() == h5s.NULL:
            raise self.refuse(name, "holds neither numbers nor text")
        shape = space.get_simple_extent_dims()
        if len(shape) > DIMENSIONS:
            raise self.refuse(name, f"has more than {DIMENSIONS} dimensions")
        piece = creation.get_chunk() if layout == h5d.CHUNKED else ()
        textual = isinstance(kind, h5t.TypeStringID) and kind.is_variable_str()
        width = POINTER.itemsize if textual else kind.get_size()
        self.unpacked += max(prod(shape), prod(piece)) * width
        if self.unpacked > self.most:
            raise self.refuse(name, f"and others would take more than {self.most} bytes of memory")
        packed = self.filters(creation, name) if layout == h5d.CHUNKED else False
        if textual:
            self.strings(dataset, name, prod(shape), layout, packed)
        elif packed and dataset.get_storage_size() * MOST_INFLATED > FREE:
            self.pieces(dataset, name, prod(piece) * width)

    def filters(self, creation: Any, name: bytes) -> bool:
        """Whether a dataset is compressed; filters that are not ours are refused."""
        codes = [creation.get_filter(index)[0] for index in range(creation.get_nfilters())]
        if unknown := [code for code in codes if code not in FILTERS]:
            raise self.refuse(name, f"needs the filter {unknown[0]}, which is none of ours")
        if len(set(codes)) < len(codes):
            raise self.refuse(name, "has a filter twice")
        return h5z.FILTER_DEFLATE in codes

    def strings(self, dataset: Any, name: bytes, number: int, layout: int, packed: bool) -> None:
        """Strings stand in the file each for itself: together they are no longer than it."""
        if packed or layout == h5d.COMPACT:
            raise self.refuse(name, "holds text that is stored as we never do")
        if layout == h5d.CONTIGUOUS:
            place = dataset.get_offset()
            parts = [] if place is None else [(place, number * POINTER.itemsize)]
        else:
            parts = [(info.byte_offset, info.size) for info in _stored(dataset)]
        for place, length in parts:
            data = self.read_at(place, length)
            if len(data) != length or length % POINTER.itemsize:
                raise self.refuse(name, "lies outside of the file")
            self.text += int(np.frombuffer(data, POINTER)["length"].sum(dtype=np.int64))
            if self.text > min(self.size, self.limits.text):
                raise self.refuse(
                    name, "and others hold text that is longer than the file, or than any of ours"
                )

    def pieces(self, dataset: Any, name: bytes, size: int) -> None:
        """Packed pieces become as long as the data set says; HDF5 does not look at that."""
        for info in _stored(dataset):
            if info.filter_mask or info.size <= self.limits.inflate_from:
                continue
            packed = dataset.read_direct_chunk(info.chunk_offset)[1]
            if _inflated(packed, size + 4) > size + 4:  # fletcher32 adds 4
                raise self.refuse(name, f"becomes more than the {size} bytes that it says")


_LINKS = {
    h5l.TYPE_SOFT: "is a soft link; only hard links are followed",
    h5l.TYPE_EXTERNAL: "is a link to another file; only hard links are followed",
}


def _stored(dataset: Any) -> list[Any]:
    stored: list[Any] = []
    dataset.chunk_iter(stored.append)
    return stored


def _inflated(packed: bytes, most: int) -> int:
    """Length of what is packed, at most `most` + 1; data that are damaged end where they do."""
    machine = zlib.decompressobj()
    try:
        return len(machine.decompress(packed, most + 1))
    except zlib.error:
        return 0  # HDF5 says what is wrong with it
