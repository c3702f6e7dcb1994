"""What lies below a place and changes what is measured there is said, with the remedy."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.local import underneath
from fsmatrix.backends.system.mounts import mount_of, parse_mountinfo
from tests.suite.running import fsmatrix

CAMPAIGN = """\
campaign: places
targets:
  one: {{backend: directory, options: {{path: "{one}"}}}}
  two: {{backend: directory, options: {{path: "{two}"}}}}
workloads: {{w: {{workload: pattern, options: {{pattern: seq-write, bytes_per_process: 1MiB}}}}}}
repetitions: 6
"""


def notes(folder: Path, one: Path, two: Path, *more: Path) -> list[str]:
    """What `plan` says beside its numbers."""
    file = folder / "places.yaml"
    text = CAMPAIGN.format(one=one, two=two)
    for number, path in enumerate(more):
        other = f'  more{number}: {{backend: directory, options: {{path: "{path}"}}}}\n'
        text = text.replace("workloads:", f"{other}workloads:")
    file.write_text(text)
    done = fsmatrix("plan", file, "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["warnings"])


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An XFS as `mount -o loop` makes it, and its loop device."""
    image, place = tmp_path / "disk.img", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(300 << 20)
    subprocess.run(["mkfs.xfs", "-q", str(image)], check=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place, mount_of(place).source
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.loop
@pytest.mark.needs("xfs")
def test_a_loop_mount_without_direct_io_is_said_and_the_command_cures_it(
    tmp_path: Path, looped: tuple[Path, str]
) -> None:
    place, device = looped
    cure = f"losetup --direct-io=on {device}"
    text = f"{device} below {place} works through the page cache of its image: {cure}"
    assert f"one: {text}" in notes(tmp_path, place, tmp_path)
    items = json.loads(fsmatrix("check", "--json").stdout)
    assert ("mount", str(place), text) in [(i["kind"], i["name"], i["version"]) for i in items]
    subprocess.run(cure.split(), check=True)
    assert not any("losetup" in note for note in notes(tmp_path, place, tmp_path))
    assert not [*underneath.cautions_of_mount(mount_of(place))]


@pytest.mark.loop
@pytest.mark.needs("xfs")
def test_two_targets_on_one_path_or_disk_are_asked_about(
    tmp_path: Path, looped: tuple[Path, str]
) -> None:
    place, _ = looped
    one, two = place / "a", place / "b"
    one.mkdir()
    two.mkdir()
    (tmp_path / "link").symlink_to(place)
    asked = [note for note in notes(tmp_path, one, two) if "is that meant?" in note]
    assert asked == [
        f"targets one and two are on one disk by different paths ({one}, {two}): is that meant?"
    ]
    same = notes(tmp_path, one, tmp_path / "link" / "a")
    assert f"targets one and two are on the same path {one}: is that meant?" in same
    both = [note for note in notes(tmp_path, one, one, two) if "is that meant?" in note]
    assert both[0] == f"targets one and two are on the same path {one}: is that meant?"
    assert both[1].startswith("targets one and two and more0 are on one disk by different paths")
    assert len(both) == 2
    assert not any("is that meant?" in note for note in notes(tmp_path, one, tmp_path))


@pytest.mark.root
def test_an_image_in_memory_is_said(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)
    try:
        image = place / "folder" / "x.img"
        assert [*underneath.cautions_of_place(image)] == [
            f"{image} is in memory (tmpfs): no storage is measured; put it on a disk"
        ]
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert not [*underneath.cautions_of_place(image)]


@pytest.mark.root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")
def test_a_fuse_mount_is_said(tmp_path: Path) -> None:
    """Its kind is known also where no daemon answers: this one is gone at once."""
    place = tmp_path / "fuse"
    place.mkdir()
    daemon = os.open("/dev/fuse", os.O_RDWR)
    try:
        options = f"fd={daemon},rootmode=40000,user_id=0,group_id=0"
        words = ["mount", "-i", "-t", "fuse.sshfs", "-o", options, "none", str(place)]
        subprocess.run(words, check=True, pass_fds=[daemon])
    finally:
        os.close(daemon)  # else `umount` would wait for its answer
    try:
        (said,) = underneath.cautions_of_mount(mount_of(place))
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert said.startswith(f"{place} is a FUSE mount (fuse.sshfs)")
    assert "sshfs -o direct_io" in said


@pytest.mark.parametrize(
    ("fstype", "source", "options", "server"),
    [
        ("nfs4", "vm:/export", "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1", "127.0.0.1"),
        ("nfs4", "vm:/export", "vers=4.2,addr=192.0.2.1", ""),
        ("cifs", "//localhost/share", "", "localhost"),
        ("ceph", "[::1]:6789:/", "", "::1"),
        ("ceph", "192.0.2.1:6789,192.0.2.2:6789:/", "", ""),
        ("xfs", "/dev/sdz1", "", ""),
    ],
)
def test_a_network_mount_whose_server_is_this_machine_is_said(
    fstype: str, source: str, options: str, server: str
) -> None:
    line = f"30 20 0:50 / /mnt/n rw - {fstype} {source} rw,{options}"
    said = " ".join(underneath.cautions_of_mount(parse_mountinfo(line)[0]))
    assert (f"the server {server} of /mnt/n ({fstype}) is this machine" in said) == bool(server)
