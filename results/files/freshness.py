"""Whether a campaign file was made of the run files that are there now: of that very set.

Times alone tell too little: a run that is copied keeps its time, and one that is removed leaves
none.  A campaign file keeps two digests.  The first is over name, size, times and inode of each
file, one look at each (10,000 take 0.1 s).  Where it differs, as in a copied store, the second
tells: over names and the checksums that end the files, 24 bytes of each.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fsmatrix.results.files import safefile
from fsmatrix.results.files.campaign import campaignread
from fsmatrix.results.files.hdf5 import check as hdfcheck
from fsmatrix.results.files.hdf5 import hdf
from fsmatrix.results.files.safefile import ResultError

LOOKS = "made_of"  # attribute: digest over what a look at each file tells
CONTENTS = "made_of_contents"  # attribute: digest over what they hold
TICK = 100_000_000  # ns: a file may change so soon after a change without other times


def stamps(files: Sequence[Path], root: Path, campaign: str) -> dict[str, str]:
    """Attributes of a campaign file of `files`; `campaign` is the text of its campaign.json.

    To be asked before the files are read: what changes then is noticed later.
    """
    current = {CONTENTS: contents(files, root, campaign)}
    digest, newest = looks(files, root, campaign)
    return current | ({LOOKS: digest} if newest < time.time_ns() - TICK else {})


def is_fresh(merged: Path, files: Sequence[Path], root: Path, campaign: str) -> bool:
    """Whether `merged` was made of these files; without files it is left as it is."""
    if not files:
        return True
    try:
        noted = campaignread.attributes(merged)
    except (ResultError, OSError):
        return False
    if noted.get(LOOKS) == looks(files, root, campaign)[0]:
        return True
    return CONTENTS in noted and noted[CONTENTS] == contents(files, root, campaign)


def looks(files: Iterable[Path], root: Path, campaign: str) -> tuple[str, int]:
    """Digest over names, sizes, times and inodes; and the newest change (ns, Unix time)."""
    digest, newest = _begun(campaign), 0
    first = len(os.fspath(root)) + 1
    for path in files:
        name = os.fspath(path)
        try:
            seen = os.lstat(name)
        except OSError:  # it went while we looked
            digest.update(b"gone\0")
            continue
        look = f"{name[first:]}\0{seen.st_mode} {seen.st_size} {seen.st_mtime_ns} "
        look += f"{seen.st_ctime_ns} {seen.st_ino}\0"
        digest.update(look.encode(errors="surrogateescape"))
        newest = max(newest, seen.st_ctime_ns)
    return digest.hexdigest(), newest


def contents(files: Iterable[Path], root: Path, campaign: str) -> str:
    """Digest over names and checksums: the same wherever the files are copied to."""
    digest = _begun(campaign)
    for path in files:
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + _held(path) + b"\0")
    return digest.hexdigest()


def _begun(campaign: str) -> hashlib.blake2b:
    return hashlib.blake2b(campaign.encode(errors="surrogateescape") + b"\0", digest_size=16)


def _held(path: Path) -> bytes:
    """The checksum at the end of a run file; of one without, a digest of all of it."""
    try:
        handle = safefile.descriptor(path)
    except ResultError as error:
        return error.reason.encode()
    except OSError as error:
        return str(error.errno).encode()
    try:
        size = os.fstat(handle).st_size
        end = os.pread(handle, hdf.SEAL_SIZE, max(0, size - hdf.SEAL_SIZE))
        if end.startswith(hdf.SEAL):
            return f"{size} ".encode() + end
        return hashlib.sha256(safefile.contents(handle, path, hdfcheck.RUN_FILE)).digest()
    except ResultError as error:  # too long: it is not read either
        return error.reason.encode()
    except OSError as error:
        return str(error.errno).encode()
    finally:
        os.close(handle)
