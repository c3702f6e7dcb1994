"""Merge run files into one campaign file, one run in memory at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import h5py

from fsmatrix.results.files import atomic_write
from fsmatrix.results.files.campaign.campaignfile import CampaignWriter, entry_of
from fsmatrix.results.files.hdf5 import hdf
from fsmatrix.results.files.hdf5.hdf import FaultTolerantFile
from fsmatrix.results.files.run import recordcheck
from fsmatrix.results.files.safefile import ResultError

CACHE = 1 << 17  # bytes of chunks that HDF5 keeps for each variable
Progress = Callable[[int], None]


def merge_files(
    files: Iterable[Path],
    target: Path,
    campaign: str = "",
    root: Path | None = None,
    progress: Progress | None = None,
    made_of: Mapping[str, str] | None = None,
    wrong: Sequence[ResultError] = (),
) -> list[ResultError]:
    """Stream `files`, ordered by run id, into a campaign file at `target`.

    Files that cannot be used are left out, named in the file (relative to `root`) and
    returned, after what is `wrong` already.  `made_of` are attributes that tell the files
    (freshness.py).  `campaign` is the text of campaign.json; `progress` is told the number of
    files seen.  The file appears whole or not at all; OSError as the system gives it.
    """
    left_out: list[ResultError] = list(wrong)
    with writing(Path(target)) as writer:
        for seen, path in enumerate(files, 1):
            error = _add(writer, path)
            if error is not None:
                left_out.append(error)
            if progress is not None:
                progress(seen)
        writer.finish(campaign, [_named(error, root) for error in left_out])
        writer.file.attrs.update(made_of or {})
    return left_out


@contextlib.contextmanager
def writing(target: Path) -> Iterator[CampaignWriter]:
    """A campaign file that appears at `target` when the block ends, whole and durable.

    If the block raises, nothing appears.  OSError as the system gives it.
    """
    with atomic_write.replacing(target) as aside, closing(FaultTolerantFile(aside)) as stream:
        with h5py.File(stream, "w", libver=hdf.LIBVER, rdcc_nbytes=CACHE) as file:
            yield CampaignWriter(file, stream.check)
        stream.sync()
    atomic_write.sync_directory(target.parent)


def _add(writer: CampaignWriter, path: Path) -> ResultError | None:
    try:
        record = recordcheck.read(path)
        entry = entry_of(record)  # before anything of it is in the file
        recordcheck.numbers(path, [row.numbers for row in entry.rows])
    except ResultError as error:
        return error
    except recordcheck.NONSENSE as error:  # evidence that is none
        return ResultError(path, f"holds a run that cannot be merged: {error}")
    writer.put(entry)
    return None


def _named(error: ResultError, root: Path | None) -> dict[str, str]:
    path = error.path
    inside = root is not None and path.is_relative_to(root)
    return {
        "file": str(path.relative_to(root)) if inside and root else path.name,
        "reason": error.reason,
    }
