"""A conductor killed with everything mounted: the next one takes down that and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.journal.journal import undo_pending
from fsmatrix.backends.system import devices as loopdev
from fsmatrix.backends.system import mounts

NAMES = ("xfs", "ext4", "tmpfs", "directory")
pytestmark = [pytest.mark.loop, pytest.mark.needs(*NAMES)]

CONDUCTOR = """
import os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.contract import load

base = Path(sys.argv[1])
journal = Journal(base / "journals/host.jsonl")
options = {
    "xfs": {"size": "300MiB"}, "ext4": {"size": "64MiB"}, "tmpfs": {"size": "8MiB"},
    "directory": {"path": str(base / "user")},
}
used = []
for name in options:
    kind = load(name)
    backend = kind(kind.Options(**options[name]))
    context = ProvisionContext(name, base / "state" / name, journal, "0123456789abcdef")
    access = backend.provision({}, context)
    used.append((backend, access, context))
    backend.mount(access, journal)
    (Path(access.path) / "deep").mkdir()
    (Path(access.path) / "deep/file").write_bytes(b"x" * 4096)
    (Path(access.path) / "deep/link").symlink_to(base / "user")
    print(name, access.path, access.details.get("device", ""), flush=True)
for backend, access, context in used if sys.argv[2] == "take-down" else []:
    backend.unmount(access, journal)
    backend.release(access, context)
    backend.finish(context)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_everything_mounted_and_killed(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    (base / "user/folder").mkdir(parents=True)
    (base / "state/xfs").mkdir(parents=True)
    sentinels = [
        base / "user/sentinel",
        base / "user/folder/sentinel",
        base / "state/xfs/sentinel.img",
    ]
    for sentinel in sentinels:
        sentinel.write_text("keep")
    their_image = base / "theirs.img"
    their_image.write_bytes(bytes(1 << 20))
    argv = ["losetup", "--find", "--show", str(their_image)]
    theirs = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        argv = [sys.executable, "-P", "-c", CONDUCTOR, str(base), "leave"]
        killed = subprocess.run(argv, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(mounts.mounted_below(base)) == 3
        devices = [line.split()[2] for line in killed.stdout.splitlines() if "/dev/" in line]
        assert len(devices) == 2
        images = {device: loopdev.loop_backing(device) for device in devices}

        said = undo_pending(base / "journals")

        assert not [text for text in said if text.startswith("left alone")], said
        assert mounts.mounted_below(base) == []
        for device, behind in images.items():
            assert behind is not None
            assert loopdev.loop_backing(device) != behind
            assert not Path(behind.file).exists()
        assert sorted(path.name for path in (base / "user").iterdir()) == ["folder", "sentinel"]
        assert [path.name for path in (base / "state/xfs").iterdir()] == ["sentinel.img"]
        assert all(sentinel.read_text() == "keep" for sentinel in sentinels)
        behind = loopdev.loop_backing(theirs)
        assert behind is not None
        assert behind.file == str(their_image)
        assert undo_pending(base / "journals") == []
    finally:
        subprocess.run(["losetup", "--detach", theirs], check=True)


@pytest.mark.parametrize("call", range(1, 18))
def test_killed_after_any_line_of_the_journal(tmp_path: Path, call: int) -> None:
    """Death right after the n-th line was written: intent known, action perhaps not done."""
    base = tmp_path.resolve()
    (base / "user").mkdir()
    (base / "user/sentinel").write_text("keep")
    script = f"""
from fsmatrix.backends.journal import journal as module
real, calls = module.Journal._append, []
def append(self, line):
    real(self, line)
    calls.append(line)
    if len(calls) == {call}:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
module.Journal._append = append
""" + CONDUCTOR.replace('"xfs": {"size": "300MiB"}, ', "")
    argv = [sys.executable, "-P", "-c", script, str(base), "take-down"]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    said = undo_pending(base / "journals")
    assert not [text for text in said if text.startswith("left alone")], said
    assert mounts.mounted_below(base) == []
    assert [path.name for path in (base / "user").iterdir()] == ["sentinel"]
    assert not list(base.glob("state/*/*"))
    assert undo_pending(base / "journals") == []


def test_mount_in_use_is_left_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)
    monkeypatch.setattr(loopdev, "DETACH_PATIENCE", 0.2)
    base = tmp_path.resolve()
    (base / "user").mkdir()
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(base), "leave"]
    out = subprocess.run(argv, capture_output=True, text=True).stdout
    path = next(line.split()[1] for line in out.splitlines() if line.startswith("ext4 "))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        said = undo_pending(base / "journals")
        assert any(text.startswith("left alone") and "still in use" in text for text in said)
    finally:
        os.close(descriptor)
    monkeypatch.undo()
    undo_pending(base / "journals")
    assert mounts.mounted_below(base) == []
    assert undo_pending(base / "journals") == []
