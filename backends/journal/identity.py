"""Which store this is: a random id beside its journals, and the place where it was drawn.

`store` is a digest of both.  It stands in every line of a journal, in the markers of trees and
in the environment of what is started, so that a thing proves by itself which store made it.  A
copy of a store has another place, so it is another store: nothing that the original made is its.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.results.files import trust
from fsmatrix.results.process import environment

FILE = "identity.json"
VARIABLE = "FSMATRIX_STORE"  # in the environment of what a store starts
SESSION = "FSMATRIX_SESSION"  # and of what belongs to one session of it: its name
LIMIT = 4096
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Identity:
    """A folder of journals: where it is, and what proves that something is its own."""

    folder: Path  # absolute, without links
    store: str  # 32 hex digits

    @property
    def state(self) -> Path:
        """Where a store keeps its images and mount points."""
        return self.folder.parent / "state"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that may have to be ended by somebody else than who started them."""
        return proof(self.store)

    def new_uuid(self) -> str:
        """Of a file system on a device: half of it is random, half says whose it is."""
        return self._uuid(secrets.token_bytes(8))

    def made_uuid(self, text: str) -> bool:
        """Whether `new_uuid` of this very store gave it."""
        try:
            return text == self._uuid(uuid.UUID(text).bytes[:8])
        except ValueError:
            return False

    def _uuid(self, drawn: bytes) -> str:
        version = bytes([*drawn[:6], drawn[6] & 0x0F | 0x40, drawn[7]])
        ours = hashlib.sha256(self.store.encode() + version).digest()[:8]
        return str(uuid.UUID(bytes=version + ours, version=4))


def identity(folder: Path) -> Identity:
    """Of the journals in `folder`; made if there is none.  BackendError if it is not ours."""
    place = folder.resolve()
    drawn = _read(place) or _make(place)
    # the inode tells a copy from the original where both are called alike (containers)
    text = f"{drawn}\0{place}\0{place.stat().st_ino}"
    return Identity(place, hashlib.sha256(text.encode()).hexdigest()[:32])


def proof(store: str, session: str = "") -> dict[str, str]:
    """What the environment of a process of a store holds, and of one of its sessions."""
    return {VARIABLE: store} | ({SESSION: session} if session else {})


def carries(pid: int, store: str, session: str = "") -> bool:
    """Whether a process was started with that proof in its environment."""
    return _as_bytes(proof(store, session)) <= environment(pid)


def carriers(store: str, session: str = "") -> list[int]:
    """All processes of this kernel that carry the proof of a store, or of a session of it.

    Kernel threads and the dead have no environment.  One that is being started has none for a
    moment: its parent has.
    """
    wanted = _as_bytes(proof(store, session))
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours to look at
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                pids.append(int(folder.name))
    return pids


def _as_bytes(variables: Mapping[str, str]) -> set[bytes]:
    return {f"{name}={value}".encode() for name, value in variables.items()}


def _read(folder: Path) -> str:
    path = folder / FILE
    try:
        data = json.loads(trust.read(path, LIMIT))
        drawn = data["id"]
    except FileNotFoundError:
        return ""
    except trust.NotTrusted as error:
        raise BackendError(str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackendError(f"{path}: damaged: it holds no id of a store") from error
    if not isinstance(drawn, str) or not _ID.fullmatch(drawn):
        raise BackendError(f"{path}: damaged: {drawn!r} is no id of a store")
    return drawn


def _make(folder: Path) -> str:
    """Draw an id; the first of several shards that do so at the same time decides."""
    drawn = secrets.token_hex(16)
    aside = folder / f".{FILE}.{os.uname().nodename}.{os.getpid()}.{drawn[:8]}"
    trust.create(aside, json.dumps({"id": drawn, "made_by": "fsmatrix"}).encode())
    try:
        os.link(aside, folder / FILE)
    except FileExistsError:
        return _read(folder)
    except OSError:  # a file system without hard links
        if not (folder / FILE).exists():
            aside.replace(folder / FILE)
        return _read(folder)
    finally:
        aside.unlink(missing_ok=True)
    return drawn
