"""Root in a folder that others may rename: refused, or nothing that could be led elsewhere."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.access import Access
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import images
from fsmatrix.backends.local.devices.emulated import DevicesOptions
from fsmatrix.backends.local.devices.several import Devices
from fsmatrix.backends.local.directory import Directory, DirectoryOptions
from fsmatrix.backends.local.tmpfs import Tmpfs, TmpfsOptions
from fsmatrix.backends.system import devices, tools
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.suite.session.orphaned_sessions import Scratch
from tests.suite.running import fsmatrix

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
OTHER = 65533  # nobody's number, and not NFS's nobody
REASON = "could lead what root does in"
# what an ordinary user does beside a campaign of root's, in a folder of his own
ATTACK = """
import contextlib, os, sys, time
place, victim = sys.argv[1:]
os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
print("ready", flush=True)
while True:
    for name in os.listdir(place):
        if name.startswith("fsmatrix-") and not os.path.islink(f"{place}/{name}"):
            with contextlib.suppress(OSError):
                os.rename(f"{place}/{name}", f"{place}/away-{time.time_ns()}")
                os.symlink(victim, f"{place}/{name}")
    time.sleep(0.001)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of another user's."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A tree of root's, of the form that a run's has."""
    folder = tmp_path / "victim"
    (folder / "data" / "r").mkdir(parents=True)
    (folder / "data" / "precious").write_text("precious")
    return folder


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    return ProvisionContext("t", tmp_path / "state", Journal(tmp_path / "j/host.jsonl"), "tag1")


def theirs(place: Path) -> Path:
    return place


def below_theirs(place: Path) -> Path:
    (place / "roots").mkdir()
    return place / "roots"


def writable(place: Path) -> Path:
    os.chown(place, 0, 0)
    place.chmod(0o777)
    return place


def of_a_group(place: Path) -> Path:
    os.chown(place, 0, OTHER)
    place.chmod(0o775)
    return place


def listed(folder: Path, user: int, rights: int = 7) -> None:
    """An access control list that gives `user` rights, as setfacl makes it."""
    entries = [(1, 7, -1), (2, rights, user), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(folder, "system.posix_acl_access", struct.pack("<I", 2) + packed)


def by_a_list(place: Path) -> Path:
    os.chown(place, 0, 0)
    listed(place, OTHER)
    assert place.stat().st_mode & 0o777 == 0o775
    return place


def sticky_but_theirs(place: Path) -> Path:
    place.chmod(0o1777)
    return place


def by_a_link_of_theirs(place: Path) -> Path:
    (place.parent / "real" / "x").mkdir(parents=True)
    (place / "link").symlink_to(place.parent / "real")
    return place / "link" / "x"


def by_links_through_theirs(place: Path) -> Path:
    """Each link is root's and leads to a folder of root's; the second lies in one of theirs."""
    by_a_link_of_theirs(place)
    os.chown(place / "link", 0, 0, follow_symlinks=False)
    (place.parent / "first").symlink_to("scratch/link")
    return place.parent / "first" / "x"


SHARED = [
    *(theirs, below_theirs, writable, of_a_group, sticky_but_theirs),
    *(by_a_link_of_theirs, by_links_through_theirs, by_a_list),
]


@pytest.mark.parametrize("shared", SHARED)
def test_root_refuses_what_others_could_rename(
    shared: Callable[[Path], Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(shared(place))
    assert REASON in Directory(DirectoryOptions(path=path)).refusal()
    assert REASON in Devices(DevicesOptions.model_validate({"paths": ["/dev/shm", path]})).refusal()
    assert REASON in images.place_refusal(f"{path}/image", 1 << 30)
    monkeypatch.setenv("SCRATCH", str(path))  # judged as what it stands for
    assert REASON in images.place_refusal("$SCRATCH/image", 1 << 30)
    assert REASON in Directory(DirectoryOptions(path="$SCRATCH")).refusal()
    assert Directory(DirectoryOptions(path=path, shared_place="accept")).refusal() == ""
    monkeypatch.setenv("SUDO_UID", str(OTHER))  # who may be root anyway gains nothing
    owned = shared not in (writable, of_a_group)
    assert (Directory(DirectoryOptions(path=path)).refusal() == "") is owned


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o1775])
def test_root_accepts_what_only_root_can_rename(mode: int, place: Path) -> None:
    os.chown(place, 0, 0)
    place.chmod(mode)
    assert Directory(DirectoryOptions(path=str(place))).refusal() == ""
    assert images.place_refusal(f"{place}/image", 1 << 30) == ""


def test_a_list_that_lets_nobody_else_write_is_no_matter(place: Path) -> None:
    os.chown(place, 0, 0)
    listed(place, OTHER, rights=5)
    assert shared_refusal(place) == ""


@pytest.mark.parametrize("command", ["plan", "run"])
def test_root_makes_no_temporary_files_where_others_could_rename(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(place.parent, "")
    monkeypatch.setenv("TMPDIR", str(place))
    words = ["-o", str(place.parent / "out")] if command == "run" else []
    done = fsmatrix(command, str(file), *words)
    assert done.returncode == 2
    assert f"TMPDIR: {place} belongs to" in done.stderr
    assert list(place.iterdir()) == []


def test_nor_do_its_parts(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with pytest.raises(OSError, match="set TMPDIR to"), work_folder():
        pytest.fail("it was made")
    with pytest.raises(BackendError, match="set TMPDIR to"):
        Scratch.drawn(tmp_path)
    assert list(place.iterdir()) == []


def test_a_device_is_not_followed_by_a_link_of_theirs(place: Path) -> None:
    device = Path("/dev", next(Path("/sys/block").iterdir()).name)
    (place / "disk").symlink_to(device)
    os.chown(place / "disk", OTHER, OTHER, follow_symlinks=False)
    assert devices.way_refusal(str(device)) == ""
    assert "/dev/disk/by-id" in devices.way_refusal(str(place / "disk"))


def test_root_loads_no_library_that_others_could_replace(place: Path) -> None:
    of_a_group(place)
    library = place / "libmpi.so.40"
    library.touch()
    assert f"FSMATRIX_PATH={place}" in tools.load_refusal(str(library))
    place.chmod(0o755)
    assert tools.load_refusal(str(library)) == ""


def test_a_folder_that_is_vouched_for_is_not_left_by_dots(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "tool").write_text("#!/bin/sh\n")
    (place / "tool").chmod(0o755)
    (place.parent / "good").mkdir()
    monkeypatch.setenv("FSMATRIX_PATH", f"{place.parent}/good")
    assert tools.find(f"{place.parent}/good/../scratch/tool") is None


def test_a_relative_place_is_seen_from_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "out").mkdir()
    monkeypatch.chdir(place)
    assert REASON in shared_refusal(Path("out"))
    os.chown(place, 0, 0)
    assert shared_refusal(Path("out")) == ""


def test_a_tmpfs_that_is_shared() -> None:
    folder = Path(f"/dev/shm/fsmatrix-test-{os.getpid()}")
    folder.mkdir()
    try:
        assert Tmpfs(TmpfsOptions(path=str(folder))).refusal() == ""
        folder.chmod(0o777)
        assert REASON in Tmpfs(TmpfsOptions(path=str(folder))).refusal()
    finally:
        folder.rmdir()


def test_an_ordinary_user_is_not_asked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert shared_refusal(place) == ""


def test_links_without_an_end_are_no_loop(place: Path) -> None:
    (place.parent / "a").symlink_to("b")
    (place.parent / "b").symlink_to("a")
    assert "cannot be looked at" in shared_refusal(place.parent / "a" / "x")


def test_a_tree_is_closed_to_others(place: Path, context: ProvisionContext) -> None:
    os.chown(place, 0, 0)
    backend = Directory(DirectoryOptions(path=str(place)))
    access = backend.provision({}, context)
    assert (place / "fsmatrix-tag1").stat().st_mode & 0o7777 == 0o700
    backend.release(access, context)


@pytest.fixture
def accepted(place: Path, context: ProvisionContext) -> Access:
    """The access of a tree that is accepted in a folder of another user's."""
    backend = Directory(DirectoryOptions(path=str(place), shared_place="accept"))
    return backend.provision({}, context)


def led_to(victim: Path, access: Access) -> None:
    """What the folder's owner may do at any time."""
    made = Path(str(access.details["tree"]))
    made.rename(made.with_name("away"))
    made.symlink_to(victim)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_is_held_is_worked_in_wherever_its_name_is(
    accepted: Access, victim: Path, place: Path, context: ProvisionContext
) -> None:
    Directory.mount(accepted, context.journal)
    led_to(victim, accepted)
    Directory.make_run(accepted, "run")
    assert names(place / "away") == [".fsmatrix", "data", "data/run"]
    Directory.remove_run(accepted, "r")  # is not there
    Directory.remove_run(accepted, "run")
    assert names(victim) == ["data", "data/precious", "data/r"]


def test_what_was_moved_is_emptied_where_it_is(
    accepted: Access, victim: Path, place: Path, context: ProvisionContext
) -> None:
    led_to(victim, accepted)
    backend = Directory(DirectoryOptions(path=str(place), shared_place="accept"))
    with pytest.raises(BackendError, match="was moved by somebody who may rename above it"):
        backend.release(accepted, context)
    assert names(place / "away") == []
    assert names(victim) == ["data", "data/precious", "data/r"]
    assert list(context.journal.pending("tree")) == []


@pytest.mark.parametrize("put", ["link", "folder", "closed folder", "tree of another"])
def test_another_thing_in_its_place_is_refused(
    put: str, accepted: Access, victim: Path, place: Path, context: ProvisionContext
) -> None:
    """As a process that opens it for the first time meets it."""
    tree.let_go(str(accepted.details["tree"]), "tag1")
    led_to(victim, accepted)
    made = place / "fsmatrix-tag1"
    if put != "link":
        made.unlink()
        made.mkdir(mode=0o755 if put == "folder" else 0o700)
        (made / "data").mkdir()
    if put == "tree of another":
        text = (place / "away" / ".fsmatrix").read_text()
        (made / ".fsmatrix").write_text(text.replace("tag1", "tag2"))
    before = names(made)
    for act in (Directory.make_run, Directory.remove_run):
        with pytest.raises(BackendError, match="is not the directory that was made"):
            act(accepted, "r")
    assert names(made) == before


@pytest.fixture
def attacker(place: Path, victim: Path) -> Iterator[None]:
    """The owner of the place puts a link in place of each tree of ours, as soon as he sees it."""
    argv = [sys.executable, "-c", ATTACK, str(place), str(victim)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


CAMPAIGN = """
campaign: shared
repetitions: 1
targets:
  there: {{backend: directory, options: {{path: {place}{accept}}}}}
workloads:
  data:
    workload: pattern
    options: {{pattern: seq-write, bytes_per_process: 1MiB}}
    geometry: {{processes_per_node: 2}}
  names:
    workload: metadata
    options: {{files_per_process: 8, dirs_per_process: 8}}
"""


def written(place: Path, accept: str, **words: Any) -> Path:
    file = place.parent / "shared.yaml"
    file.write_text(CAMPAIGN.format(place=place, accept=accept, **words))
    return file


@pytest.mark.parametrize("command", ["plan", "run"])
def test_the_commands_refuse_it(command: str, place: Path) -> None:
    words = [command, str(written(place, ""))]
    done = fsmatrix(*words, *(["-o", str(place.parent / "out")] if command == "run" else []))
    assert done.returncode == 2
    assert REASON in done.stderr
    assert "shared_place: accept" in done.stderr
    assert list(place.iterdir()) == []


def test_programs_are_given_no_path_there(place: Path) -> None:
    file = written(place, ", shared_place: accept")
    text = file.read_text().replace("workload: pattern", "workload: fio")
    text = text.replace("bytes_per_process", "bytes_total")
    file.write_text(text.replace("pattern: seq-write, ", ""))
    done = fsmatrix("plan", str(file))
    assert done.returncode == 2
    assert "shared_place: accept is for the built-in player" in done.stderr


def test_a_campaign_that_is_attacked_all_the_time_touches_nothing_else(
    place: Path, victim: Path, attacker: None
) -> None:
    del attacker
    out = place.parent / "out"
    done = fsmatrix("run", str(written(place, ", shared_place: accept")), "-o", str(out))
    assert done.returncode != 2, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert names(victim) == ["data", "data/precious", "data/r"]
    assert (victim / "data" / "precious").read_text() == "precious"
