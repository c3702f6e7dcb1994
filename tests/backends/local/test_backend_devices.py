"""Several devices of one adapter as one target: options, levels, directories of the user's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import PathsAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices.emulated import DevicesOptions
from fsmatrix.backends.local.devices.several import FACTOR, Devices
from fsmatrix.backends.system import cgroups, mounts
from fsmatrix.backends.system.cgroups import Hierarchy, Limits
from tests.backends.local.devices_target import (
    BOTH,
    MIB,
    SLOW,
    emulated,
    on,
    provisioning,
)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    """What the conductor gives; at the end nothing is left, and nothing had to be left alone."""
    with provisioning(tmp_path) as made:
        yield made


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Mounts of three file systems of the user's, with a sentinel on each."""
    points = [(tmp_path / f"disk{number}").resolve() for number in range(3)]
    for point in points:
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "mine", point], check=True)
        (point / "sentinel").write_text("keep")
    yield points
    for point in points:
        if mounts.mounted_at(point):
            assert sorted(os.listdir(point)) == ["sentinel"]
            subprocess.run(["umount", point], check=True)


# -- options, levels: pure ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either paths or emulated"),
        ({"paths": ["/a"], "emulated": {"device_iops": SLOW, "adapter_iops": BOTH}}, "either"),
        ({"paths": ["/a", "/b", "/a"]}, "a path is given twice"),
        ({"paths": ["a"]}, "must be absolute"),
        ({"emulated": {"count": 0, "device_iops": SLOW, "adapter_iops": BOTH}}, "greater than"),
        ({"emulated": {"device_iops": SLOW}}, "adapter_iops"),
        ({"emulated": {"device_iops": {"read": 0}, "adapter_iops": BOTH}}, "greater than"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DevicesOptions(**options)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (3, ""),
        (4, "4 devices are asked for, and there are 3"),
        (0, "0 is no number of devices"),
        (True, "True is no number"),
        ("two", "'two' is no number"),
    ],
)
def test_levels(number: Any, reason: str) -> None:
    refusal = emulated().level_refusal({FACTOR: number})
    assert refusal.endswith(reason) if not reason else reason in refusal
    assert bool(refusal) == bool(reason)


def test_only_emulated_devices_are_emulated(tmp_path: Path) -> None:
    assert emulated().foreseen().realised == {FACTOR: "emulated"}
    assert on(tmp_path).foreseen().realised == {}


def test_two_directories_of_one_file_system_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    refusal = on(tmp_path / "a", tmp_path / "b").refusal()
    assert f"{tmp_path / 'a'} and {tmp_path / 'b'} are on the same file system" in refusal
    assert "not mounted?" in refusal
    assert "does not exist" in on(tmp_path / "a", tmp_path / "gone").refusal()


def test_access_survives_json() -> None:
    access = PathsAccess("devices", "t", {"numbers": [1]}, ("/a", "/b"))
    assert PathsAccess.from_json(json.loads(json.dumps(access.to_json()))) == access
    assert access.folders == Devices.run_place(access, "").roots == ("/a", "/b")


# -- cgroups, as files -------------------------------------------------------------------------
def test_limits_are_read_as_both_versions_write_them(tmp_path: Path) -> None:
    first, second = tmp_path / "v1", tmp_path / "v2"
    first.mkdir()
    second.mkdir()
    for name in ("read_bps", "write_bps", "write_iops"):
        (first / f"blkio.throttle.{name}_device").write_text("")
    (first / "blkio.throttle.read_iops_device").write_text("7:10 5\n7:1 600\n")
    (second / "io.max").write_text("7:10 riops=5\n7:1 rbps=max wbps=max riops=600 wiops=max\n")
    for folder in (first, second):
        assert cgroups.drive_limits_of(folder, "7:1") == Limits(read_operations=600)
        assert cgroups.drive_limits_of(folder, "7:2") == Limits()


def test_own_cgroup_must_be_one_that_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "PROC_SELF", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("7:blkio:/a/b\n0::/c\n")
    with pytest.raises(BackendError, match=f"{tmp_path}/a/b of this process cannot limit"):
        cgroups.own(Hierarchy(1, tmp_path, "blkio"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c/io.max").touch()
    assert cgroups.own(Hierarchy(2, tmp_path, "io")) == tmp_path / "c"


# -- directories on devices of the user's --------------------------------------------------------
@pytest.mark.root
class TestDirectories:
    def test_whole_life(self, disks: list[Path], context: ProvisionContext) -> None:
        target = on(*disks)
        assert target.refusal() == ""
        access = target.provision({FACTOR: 2}, context)
        target.mount(access, context.journal)
        assert len({Path(path).stat().st_dev for path in access.paths}) == 2
        target.make_run(access, "run")
        roots = target.run_place(access, "run").roots
        assert all(Path(root).is_dir() for root in roots)
        (Path(roots[1]) / "f").write_bytes(bytes(MIB))
        facts = target.describe(access)
        assert facts["capacity"] == 2 * 8 * MIB
        free = target.space(access).bytes
        assert free is not None
        assert free <= 2 * 7 * MIB  # of the fullest, twice
        assert target.space(access).source == f"2 times statfs of {access.paths[1]}"
        assert target.cache(access, "warm", ["run/f"]).facts["files"] == 1
        with pytest.raises(BackendError, match="run/g is not on any of the devices"):
            target.cache(access, "warm", ["run/f", "run/g"])
        assert target.health(access) == []
        target.remove_run(access, "run")
        assert not any(Path(root).exists() for root in roots)
        target.release(access, context)
        assert context.journal.pending() == []

    def test_levels_of_a_block_are_nested_and_drawn(
        self, disks: list[Path], context: ProvisionContext
    ) -> None:
        target, taken = on(*disks), []
        for number in (1, 2, 3):
            access = target.provision({FACTOR: number}, context)
            taken.append(set(access.details["numbers"]))
            target.release(access, context)
        assert taken[0] < taken[1] < taken[2] == {0, 1, 2}

    def test_one_that_goes_away_is_named_and_the_rest_cleared(
        self, disks: list[Path], context: ProvisionContext
    ) -> None:
        target = on(*disks)
        access = target.provision({}, context)
        target.make_run(access, "run")
        subprocess.run(["umount", "--lazy", disks[1]], check=True)
        assert [str(disks[1]) in text for text in target.health(access)] == [True]
        for act in (target.make_run, target.remove_run):
            with pytest.raises(BackendError, match=str(disks[1])):
                act(access, "run")
        with pytest.raises(BackendError, match=str(disks[1])):
            target.mount(access, context.journal)
        assert not list(disks[0].glob("*/data/run"))
        target.release(access, context)
        assert os.listdir(disks[0]) == os.listdir(disks[2]) == ["sentinel"]
