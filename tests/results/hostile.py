"""Run files and campaign files that somebody made to harm who reads them, by h5py's low level."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from fsmatrix.results import histogram, iterations
from fsmatrix.results.files import hdf
from fsmatrix.results.record import Case, Finding, Geometry, Latency, Monitor, Phase, RunRecord
from tests import peak
from tests.ranks import rank

SECRET = "external secret"
ITERATIONS = iterations.columns(
    [{"seconds": 0.5, "bytes": 512, "operations": 1, "open": 0.1, "bandwidth": 1024.0}] * 2
)
GIB = 1 << 30
Craft = Callable[[h5py.File, Path], None]


def record(target: str = "xfs", repetition: int = 0, **changes: object) -> RunRecord:
    """A run with all that a run file can hold."""
    case = Case(target, "pattern", {"chunk_size": 4096}, Geometry(1, 2))
    two, count = np.ones(2), np.full(2, 512, dtype=np.int64)
    counts = np.bincount([700] * 1000, minlength=histogram.BINS)
    phase = Phase(
        "read",
        0 * two,
        two,
        count,
        count,
        0 * count,
        0 * two,
        two,
        0 * two,
        {"read": Latency(counts, 1.0, 0.001, 0.001)},
        0.5,
        count,
        count,
        1000.0,
        interval_latency_max=0.5 * two,
        iterations=ITERATIONS,
        summary={"iterations": 2, "bandwidth_max": 1024.0},
    )
    values = {
        "case": case.canonical,
        "case_id": case.case_id,
        "work_id": case.work_id,
        "repetition": repetition,
        "attempt": 1,
        "block": 0,
        "attachment": "a",
        "session": "s",
        "status": "ok",
        "engine": "player-c",
        "engine_version": "1",
        "started": "2026-01-01T00:00:00Z",
        "phases": (phase,),
        "findings": (Finding("a", 1, "info", "m"),),
        "ranks": (rank("node1"),) * 2,
        "coordinates": {"target": target, "chunk_size": 4096},
        "monitor": Monitor(("node1",), two, {"cpu": np.ones((1, 2))}, {"cpu": "1"}),
        "texts": {"stdout": "an output\n"},
    }
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def reseal(path: Path) -> None:
    """The checksum that a careful attacker adds."""
    data = path.read_bytes()
    path.write_bytes(data + hdf.SEAL + hdf._digest(data))


def craft(path: Path, how: Craft) -> None:
    """Change a good file, and give it a good checksum."""
    with h5py.File(path, "r+") as file:
        how(file, path)
    if how in (shared_strings,):
        _share(path)
    reseal(path)


def external_link(file: h5py.File, path: Path) -> None:
    file["extra"] = h5py.ExternalLink(str(path.with_name("secret.h5")), "/x")


def soft_link(file: h5py.File, path: Path) -> None:
    file["extra"] = h5py.SoftLink("/run_id")


def external_storage(file: h5py.File, path: Path) -> None:
    path.with_name("secret").write_text(SECRET)
    group = file.require_group("texts")
    if "text_bytes" in group:
        del group["text_bytes"]
    files = [(str(path.with_name("secret")), 0, len(SECRET))]
    group.create_dataset("text_bytes", (len(SECRET),), "u1", external=files)


def virtual(file: h5py.File, path: Path) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource(str(path.with_name("secret.h5")), "x", (4,))
    file.create_virtual_dataset("extra", layout)


def _chunked(file: h5py.File, shape: int, chunk: int, stored: bytes) -> None:
    one = file.create_dataset("extra", (shape,), "u1", chunks=(chunk,), compression=9)
    for first in range(0, shape, chunk):
        one.id.write_direct_chunk((first,), stored)


def huge_deflated(file: h5py.File, path: Path) -> None:
    """1 GiB of zeros in a few kB: many pieces that are stored once each."""
    _chunked(file, GIB, GIB // 2, zlib.compress(bytes(GIB // 2), 9))


def bomb(file: h5py.File, path: Path) -> None:
    """64 bytes, as it says; 1 GiB, as zlib says."""
    _chunked(file, 64, 64, zlib.compress(bytes(GIB), 9))


def never_written(file: h5py.File, path: Path) -> None:
    file.create_dataset("extra", (1 << 45,), "f8")


def large_piece(file: h5py.File, path: Path) -> None:
    file.create_dataset("extra", (1,), "u1", maxshape=(None,), chunks=((4 * GIB) - 8,))


def unknown_filter(file: h5py.File, path: Path) -> None:
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_chunk((64,))
    made.set_filter(32015, 1, ())  # zstd, optional: it may be made without having it
    h5d.create(file.id, b"extra", h5t.NATIVE_INT8, h5s.create_simple((64,)), made)


def deep(file: h5py.File, path: Path) -> None:
    group = file
    for _ in range(3000):
        group = group.create_group("g")


def loop(file: h5py.File, path: Path) -> None:
    group = file.create_group("extra")
    for name in "abcdefgh":
        group[name] = file["/"]


def many_objects(file: h5py.File, path: Path) -> None:
    for index in range(9000):
        file.create_group(f"g{index}")


def many_attributes(file: h5py.File, path: Path) -> None:
    for index in range(3000):
        file.attrs[f"a{index}"] = index


def large_attribute(file: h5py.File, path: Path) -> None:
    file.attrs.create("attachment", np.bytes_(b"x" * 60000), dtype="S60000")
    del file.attrs["session"]
    file.attrs.create("session", np.zeros(40_000_000, "u1"), (5_000_000,), "f8")


def named_type(file: h5py.File, path: Path) -> None:
    file["extra"] = np.dtype("f8")


def compound(file: h5py.File, path: Path) -> None:
    file["extra"] = np.zeros(3, [("a", "f8"), ("b", "i4")])


def shared_strings(file: h5py.File, path: Path) -> None:
    """10,000 elements that are one string of 1 MiB (see `_share`)."""
    file.create_dataset("extra", (10_000,), h5py.string_dtype())
    file["extra"][0] = "x" * (1 << 20)


def _share(path: Path) -> None:
    with h5py.File(path) as file:
        place = file["extra"].id.get_offset()
    with path.open("r+b") as raw:
        raw.seek(place)
        pointer = raw.read(16)
        raw.seek(place)
        raw.write(pointer * 10_000)


def nested_json(file: h5py.File, path: Path) -> None:
    name = "environment" if "environment" in file.attrs else "factors"
    file.attrs[name] = "[" * 50_000


def read_with_little(folder: Path, read: str, memory: int, seconds: int = 60) -> str:
    """What a process says that reads every crafted file, copies of `folder`/whole.h5.

    `read`: "module:function" of a path; it must refuse each.  The process may have `memory` bytes
    of address space and `seconds`, and must not have grown by 128 MiB in the end.
    """
    whole = (folder / "whole.h5").read_bytes()
    for number, (how, _) in enumerate(HDF5.values()):
        path = folder / f"{number}.h5"
        path.write_bytes(whole)
        craft(path, how)
    module, _, function = read.partition(":")
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        f"from {module} import {function} as read\n"
        "from fsmatrix.results.files.schema import ResultError\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory})); signal.alarm({seconds})\n"
        f"before = {peak.KILOBYTES}\n"
        "for path in Path(sys.argv[1]).glob('[0-9]*.h5'):\n"
        "    try: read(path); print(path, 'was read')\n"
        "    except ResultError as error: print(error.reason)\n"
        f"print(({peak.KILOBYTES} - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "was read" not in done.stdout
    *reasons, grown = done.stdout.splitlines()
    assert len(reasons) == len(HDF5)
    assert int(grown) < 128  # MiB
    return done.stdout


HDF5: dict[str, tuple[Craft, str]] = {
    "external link": (external_link, "link to another file"),
    "soft link": (soft_link, "soft link"),
    "external storage": (external_storage, "external storage"),
    "virtual data set": (virtual, "virtual data set"),
    "huge deflated data set": (huge_deflated, "bytes of memory|becomes more than"),
    "bomb": (bomb, "becomes more than the 64 bytes"),
    "never written": (never_written, "bytes of memory"),
    "large piece": (large_piece, "bytes of memory"),
    "unknown filter": (unknown_filter, "filter 32015"),
    "deep nesting": (deep, "groups in each other"),
    "loop of hard links": (loop, "is one of more than"),
    "many objects": (many_objects, "is one of more than"),
    "many attributes": (many_attributes, "attributes"),
    "named type": (named_type, "neither a group nor a data set"),
    "compound": (compound, "neither numbers nor text"),
    "shared strings": (shared_strings, "longer than the file"),
    "nested JSON": (nested_json, "nested too deeply|factors are no columns"),
}
