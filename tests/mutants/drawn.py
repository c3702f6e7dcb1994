"""Which mutants a seed draws, and which modules are never changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from tests.mutants.places import Mutant, of_file

FOLDERS = ("analysis", "results", "suite", "backends", "slurm")


class LeftOut(NamedTuple):
    """Modules that are not changed."""

    prefixes: tuple[str, ...]  # of their paths
    why: str


LEFT_OUT = LeftOut(
    (
        "backends/allowed.py",
        "backends/ceph/bindings/",
        "backends/ceph/cephfs_",
        "backends/ceph/cephfs_mounted.py",
        "backends/ceph/ceph_backend.py",
        "backends/ceph/levels",
        "backends/ceph/libcephfs.py",
        "backends/ceph/mounts.py",
        "backends/ceph/trees.py",
        "backends/ceph/treetool.py",
        "backends/ceph/rados.py",
        "backends/ceph/rollback.py",
        "backends/clusters/",
        "backends/daos/bindings.py",
        "backends/daos/containers.py",
        "backends/daos/native.py",
        "backends/daos/dfuse.py",
        "backends/daos/levels.py",
        "backends/daos/dfuse_mount.py",
        "backends/daos/libraries.py",
        "backends/daos/daos_backend.py",
        "backends/daos/rollback.py",
        "backends/daos/tools.py",
        "backends/journal/",
        "backends/local/btrfs.py",
        "backends/local/cleaner.py",
        "backends/local/devices/",
        "backends/local/directory.py",
        "backends/local/ext",
        "backends/local/f2fs.py",
        "backends/local/images.py",
        "backends/local/local.py",
        "backends/local/nilfs2.py",
        "backends/local/own_mounts.py",
        "backends/local/tmpfs.py",
        "backends/local/underneath.py",
        "backends/local/xfs.py",
        "backends/contract.py",
        "backends/player/python_posix.py",
        "backends/system/cgroups.py",
        "backends/system/devices.py",
        "backends/system/files.py",
        "backends/system/libc.py",
        "backends/system/mounts.py",
        "backends/system/tools.py",
        "backends/system/workfolder.py",
        "backends/testbed/",
        "results/files/safefile.py",
        "results/files/hdf.py",
        "results/files/lock.py",
        "results/files/store.py",
        "results/process.py",
        "results/sharing/bundle.py",
        "slurm/submission.py",
        "slurm/testbed.py",
        "suite/campaign/site.py",
        "suite/nodes/ssh.py",
        "suite/oltp/__main__.py",
        "suite/oltp/tpcc_rows.py",
        "suite/oltp/server.py",
        "suite/oltp/sqlite_steps.py",
        "suite/run/conductor.py",
        "suite/run/environment.py",
        "suite/run/execute.py",
        "suite/run/runner.py",
        "suite/session/client.py",
        "suite/session/comm.py",
        "suite/session/orphaned_sessions.py",
        "suite/session/players.py",
        "suite/session/programs.py",
        "suite/workloads/streams/io500.py",
    ),
    "they decide what is removed, overwritten, formatted, unmounted or killed, which tests do as"
    " root: a mutant of theirs could harm the machine",
)


def draw(root: Path, count: int, seed: int) -> list[Mutant]:
    """So many mutants, in equal parts of FOLDERS; in each every place is as probable.

    More of the same seed begin with the same ones in each folder.
    """
    drawn = []
    for number, folder in enumerate(FOLDERS):
        rng = random.Random(f"{seed} {folder}")
        every = [place for path in modules(root, folder) for place in of_file(root, path)]
        rng.shuffle(every)
        part = every[: (count + len(FOLDERS) - 1 - number) // len(FOLDERS)]
        drawn += [Mutant(place, rng.choice(place.news)) for place in part]
    return drawn


def modules(root: Path, folder: str) -> list[str]:
    """Paths of the modules that may be changed."""
    every = (path.relative_to(root).as_posix() for path in (root / folder).rglob("*.py"))
    return sorted(path for path in every if not path.startswith(LEFT_OUT.prefixes))
