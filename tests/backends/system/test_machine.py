"""What a machine has: packages by name, rights to mount, mounts of a chroot, room for images."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.contract import BACKENDS
from fsmatrix.backends.local import images, own_mounts
from fsmatrix.backends.local.tmpfs import Tmpfs
from fsmatrix.backends.system import mounts, tools


def with_managers(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    there = tools.find
    monkeypatch.setattr(
        tools,
        "find",
        lambda name: f"/{name}" if name in names else None
        if name in tools.MANAGERS else there(name),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("managers", "told"),
    [
        (("apt-get",), "mkfs.none-such is missing"),
        (("apt-get",), "mkfs.btrfs is missing: apt-get install btrfs-progs"),
        (("dnf",), "mkfs.btrfs is missing: dnf install btrfs-progs"),
        (("zypper",), "mkfs.btrfs is missing: zypper install btrfsprogs"),
        ((), "mkfs.btrfs is missing: package btrfs-progs"),
    ],
)
def test_the_cure_is_a_command_of_this_distribution(
    monkeypatch: pytest.MonkeyPatch, managers: tuple[str, ...], told: str
) -> None:
    with_managers(monkeypatch, *managers)
    assert tools.lacking(told.split()[0]) == told


def test_several_programs_are_one_command_and_a_package_is_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_managers(monkeypatch, "apt-get")
    both = tools.install("mkfs.ext4", "mkfs.ext2", "mkfs.xfs")
    assert both == "apt-get install e2fsprogs xfsprogs"
    assert tools.install("no-such-thing") == ""
    assert tools.missing("sh") == ""


def test_every_program_of_a_local_file_system_is_in_the_table() -> None:
    for name in BACKENDS.names():
        program = getattr(BACKENDS.load(name), "program", None)
        if program is not None:
            assert tools.install(program), program


def test_the_list_of_packages_is_read_alike_by_the_script(tmp_path: Path) -> None:
    """A machine whose manager has nothing installed is told the same packages."""
    script = Path(__file__).parents[3] / "packaging/install"
    if not script.exists():
        pytest.skip("no checkout")
    shelf = tmp_path / "bin"
    shelf.mkdir()
    for name, body in (
        ("apt-get", "exit 1"),
        ("dpkg-query", "exit 1"),
        ("id", "echo 1000"),
        ("python3", "exit 1"),
    ):
        (shelf / name).write_text(f"#!/bin/sh\n{body}\n")
        (shelf / name).chmod(0o755)
    for name in ("sh", "dirname", "grep"):
        (shelf / name).symlink_to(tools.find(name) or "")
    ran = subprocess.run(
        [tools.find("sh") or "sh", str(script), "test"],
        env={"PATH": str(shelf)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stdout + ran.stderr
    listed = ran.stdout.partition("to install:")[2].split()
    for name in ("mkfs.xfs", "ceph-mon", "python3-venv", "Python.h", "cc", "libcephfs.so.2"):
        words = tools.install(name).split()
        assert set(words[2:] if words[1] == "install" else words[1:]) <= set(listed), name
    assert "sudo" not in ran.stderr
    assert "needs root" in ran.stderr


@pytest.mark.root
def test_a_root_that_may_not_mount_is_known_without_a_mount() -> None:
    code = "from fsmatrix.backends.local.own_mounts import root_refusal as r; print(r())"
    ask = [sys.executable, "-P", "-c", code]

    def told(*before: str) -> str:
        return subprocess.run([*before, *ask], capture_output=True, text=True, check=True).stdout

    assert told().strip() == ""
    without = told("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")
    assert "no CAP_SYS_ADMIN" in without
    inside = subprocess.run(
        ["unshare", "--user", "--map-root-user", *ask], capture_output=True, text=True, check=False
    )
    if inside.returncode == 0:  # user namespaces are allowed here
        assert "in a user namespace" in inside.stdout


@pytest.mark.root
def test_the_root_of_a_chroot_that_is_no_mount_point_has_a_mount(tmp_path: Path) -> None:
    """mountinfo leaves it out; its type and device are those of the file system it lies on."""
    code = (
        "import os, sys\n"
        "from fsmatrix.backends.system import mounts\n"
        "os.chroot(sys.argv[1]); os.chdir('/')\n"
        "if sys.argv[2] == 'alone': mounts.INIT_MOUNTINFO = mounts.Path('/nothing')\n"
        "m = mounts.mount_of('/'); print(m.fstype, m.point, m.device, m.read_only)\n"
    )
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    there = mounts.mount_of(tmp_path)
    facts = os.stat(tmp_path).st_dev  # noqa: PTH116
    for way, device in (("init", there.device), ("alone", f"{os.major(facts)}:{os.minor(facts)}")):
        script = 'mount --bind /proc "$1/proc" && shift && exec "$@"'
        ran = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", str(root),
             sys.executable, "-P", "-c", code, str(root), way],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        known = there.fstype if there.fstype in mounts.TYPES.values() else "unknown"
        assert ran.stdout.split() == [known, "/", device, "False"]


def test_room_for_images_is_asked_without_leaving_anything(tmp_path: Path) -> None:
    deep = tmp_path / "not" / "made" / "yet"
    assert images.folder_refusal(deep, 1 << 20, direct=False) == ""
    reason = images.folder_refusal(deep, 1 << 60, direct=False)
    assert reason.startswith("images need ")
    assert f"{tmp_path} has " in reason
    assert list(tmp_path.iterdir()) == []


def test_images_that_need_direct_io_are_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def without_direct(path: str, flags: int, *more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", without_direct)
    assert "does no direct I/O" in images.folder_refusal(tmp_path, 1, direct=True)
    assert images.folder_refusal(tmp_path, 1, direct=False) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_named_tmpfs_can_be_had_also_where_none_can_be_mounted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(own_mounts, "root_refusal", lambda: "needs root")
    named = Tmpfs(Tmpfs.Options(path=str(tmp_path)))
    assert named.unusable() == named.refusal()
