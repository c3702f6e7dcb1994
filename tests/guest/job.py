"""What runs in the guest: a campaign by the command line, and lives of file systems.

    python job.py FOLDER      (prints JSON lines)

FOLDER holds `campaign.yaml`, `bare.yaml` and `lives.json` (backend -> its options).  It gets the
results, `NAME-out`, and the words, `NAME-words`, of the campaign NAME.  /dev/vda becomes the disk
that holds images.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.backends import contract
from fsmatrix.backends.ceph import trees
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.player.lanes import ENGINE_C, PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import engine_name, open_player
from fsmatrix.backends.system import devices, mounts
from fsmatrix.cli.main import main as command_line

PIECE = 128 << 10
PIECES = 32
SCRATCH = Path("/run/scratch")
OVERWRITES = 8  # of 4 MiB; 16 leave no room
SEED = 20


def campaign(folder: Path, name: str, device: str) -> None:
    """`fsmatrix run` of NAME.yaml, which uses `device`; results and words are copied into `folder`.

    In a forked process: importing it all once more would take half a minute here.
    """
    out = SCRATCH / f"{name}-out"
    child = os.fork()
    if child == 0:
        words = os.open(folder / f"{name}-words", os.O_CREAT | os.O_WRONLY)
        os.dup2(words, 1)
        os.dup2(words, 2)
        sys.argv = [
            "fsmatrix",
            "run",
            str(folder / f"{name}.yaml"),
            "-o",
            str(out),
            "--no-report",
            "--quiet",
        ]
        command_line()  # ends with SystemExit
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if (out / "runs").exists():
        shutil.copytree(out, folder / out.name)
    signatures = [entry.type for entry in devices.signatures(device)]
    left = sorted(str(path) for path in SCRATCH.rglob("*.img"))
    tell(name, status=status, signatures=signatures, images=left)


def life(name: str, options: dict[str, Any]) -> None:
    """Provision, mount, write, unmount, mount again, verify, take down."""
    Path("/dev/shm").mkdir(exist_ok=True)  # locks of nilfs_cleanerd: a tmpfs is under all /dev here
    kind = contract.load(name.partition("+")[0])
    usable = kind.check()
    place = SCRATCH / name
    context = ProvisionContext("target", place / "state", Journal(place / "journal.jsonl"), "tag")
    backend = kind(kind.Options.model_validate(options))
    access = backend.provision({}, context)
    kind.mount(access, context.journal)
    written = play(path_of(access), Kind.CREATE, Kind.WRITE)
    facts = backend.describe(access)
    cleaners = [p for p in Path("/proc").glob("[0-9]*/comm") if "cleanerd" in comm(p)]
    reclaimed = freed(Path(path_of(access)), kind, access) if options.get("cleaner") else None
    settled = kind.settle(access, 20.0)
    kind.unmount(access, context.journal)
    after = [p for p in Path("/proc").glob("[0-9]*/comm") if "cleanerd" in comm(p)]
    empty = os.listdir(access.details["point"])
    kind.mount(access, context.journal)
    before = incoming(kind.counters(access))
    read = play(path_of(access), Kind.OPEN, Kind.READ, Flag.VERIFY)
    moved = incoming(kind.counters(access)) - before
    health = kind.health(access)
    spoil(Path(path_of(access)) / "file")
    spoilt = play(path_of(access), Kind.OPEN, Kind.READ, Flag.VERIFY)
    kind.unmount(access, context.journal)
    backend.release(access, context)
    backend.finish(context)
    tell(
        name,
        usable=usable.ok,
        version=usable.version,
        filesystem=facts["filesystem"],
        direct_io=facts.get("direct_io"),
        mount_options=facts["mount_options"],
        engine=engine_name() == ENGINE_C,
        cleaners=len(cleaners),
        cleaners_left=len(after),
        gc=backend.foreseen().attributes.get("gc"),
        reclaimed=reclaimed,
        settled=settled.reached,
        unmounted=not empty,
        health=health,
        written=written,
        read=read,
        spoilt=spoilt,
        moved=moved,
        left=[str(path) for path in context.state.rglob("*")] + [m.point for m in below(place)],
        pending=len(context.journal.pending()),
    )


def play(root: str, opens: Kind, moves: Kind, flags: int = 0) -> dict[str, int]:
    """Write or read the file `file` in pieces; {bytes, errors}."""
    one = open_player(
        "posix", root, PlayerOptions(slots=1, seed=SEED, max_op_bytes=PIECE, stop_on_error=False)
    )
    ops = [(opens, 0, 0, 0, 0, 0, 0, 0)]
    ops += [(moves, flags, 0, 0, 0, number * PIECE, PIECE, 0) for number in range(PIECES)]
    ops += [(Kind.CLOSE, 0, 0, 0, 0, 0, 0, 0)]
    try:
        one.play(Chunk(np.array(ops, dtype=OP), (b"file",)))
        result = one.result()
    finally:
        one.close()
    return {"bytes": result.bytes, "errors": result.errors}


def freed(folder: Path, kind: Any, access: Any) -> bool:
    """Whether space comes back that an overwritten file has taken, and its cleaner is a worker.

    A slow machine's cleaner may begin late: what is overwritten fills half of the 160 MiB.
    """
    garbage, deadline = folder / "garbage", time.monotonic() + 60
    before, left = os.statvfs(folder).f_bfree, OVERWRITES
    while time.monotonic() < deadline:
        if left:
            garbage.write_bytes(os.urandom(4 << 20))
            left -= 1
        os.sync()
        now = os.statvfs(folder).f_bfree
        if now > before:
            garbage.unlink()
            return len(kind.workers(access)) == 1
        before = now
        time.sleep(0.5)
    return False


def spoil(file: Path) -> None:
    """Change one byte: a check that accepts this accepts everything."""
    with file.open("r+b") as stream:
        stream.seek(PIECE + 1)
        byte = stream.read(1)
        stream.seek(PIECE + 1)
        stream.write(bytes([byte[0] ^ 1]))


def comm(file: Path) -> str:
    """A process's name; empty if it has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


def incoming(counters: dict[str, float]) -> float:
    """Bytes that came from the device or, without one, over the network."""
    return counters.get("device_read_bytes", counters.get("network_received_bytes", 0.0))


def below(place: Path) -> list[mounts.Mount]:
    """What is still mounted there."""
    return mounts.mounted_below(place)


def tell(what: str, **facts: object) -> None:
    """One line of JSON."""
    print(json.dumps({"what": what, **facts}), flush=True)


def everything() -> None:
    """Make the scratch disk and do it all."""
    trees.QUIET = 300.0  # a guest that starts a Python in half a minute is no dead cluster
    folder = Path(sys.argv[1])
    subprocess.run(["mkfs.ext4", "-q", "/dev/vda"], check=True)
    SCRATCH.mkdir()
    subprocess.run(["mount", "/dev/vda", str(SCRATCH)], check=True)
    campaign(folder, "campaign", "/dev/vdb")
    campaign(folder, "bare", "/dev/vdc")
    for name, options in json.loads((folder / "lives.json").read_text()).items():
        life(name, options)


if __name__ == "__main__":
    everything()
