"""File systems that the host's kernel may lack, in a QEMU guest whose kernel has them.

One guest for all: a campaign by the command line, every byte verified, and for each file system
mount, write, unmount, mount, verify by the backend's own methods; and a bare disk that has a serial
number, as loop devices have none.  Function only: the guest
is many times slower than any machine.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.player.player import engine_name
from fsmatrix.backends.testbed import ceph_testbed as ceph
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord

HERE = Path(__file__).resolve().parents[2] / "guest"
sys.path.insert(0, str(HERE))
try:
    kernel = importlib.import_module("kernel")
    machine = importlib.import_module("machine")
    namespace = importlib.import_module("namespace")
finally:
    sys.path.remove(str(HERE))

MIB = 1 << 20
MODULES = ("nilfs2", "f2fs", "ceph")  # ext4 is there anyway and does ext2 too
LOCAL = ("ext2", "f2fs", "nilfs2")
CLEANED = "nilfs2+gc"
GREEDY = {"protection_period": 0, "segments": 8, "interval": 1}
KERNEL_CLIENT = "cephfs-kernel"
DEADLINE = 1100.0  # seconds: 90 on a quiet machine, 600 on a busy one
BYTES = 2 * MIB
LIFE = 4 * MIB  # bytes that a life writes (job.py)
SERIAL = "guest2"  # of /dev/vdc, the third disk (machine.py)

pytestmark = [pytest.mark.root, pytest.mark.timeout(3 * DEADLINE)]


@dataclass(frozen=True)
class Told:
    """What the guest told."""

    lives: dict[str, dict[str, Any]]  # by backend; `campaign` too
    share: Path
    skipped: dict[str, str]  # by backend: why it was not tried


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A prepared kernel; its files go with the last test."""
    cache = tmp_path_factory.mktemp("kernel")
    try:
        yield machine.Guest.prepare(cache, MODULES)
    except machine.GuestUnavailable as reason:
        pytest.skip(str(reason))
    finally:
        for file in cache.iterdir():
            file.unlink()


def campaign(backends: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Every byte that is read is compared; writes are read back."""
    options = {"bytes_per_process": BYTES, "chunk": 65536, "verify": True}
    return {
        "campaign": "guest",
        "launcher": "local",
        "targets": {n: {"backend": n, "options": found} for n, found in backends.items()},
        "workloads": {"io": {"workload": "pattern", "options": options}},
        "factors": {"pattern": ["seq-read", "rand-write"]},
        "repetitions": 1,
        "order": {"attachments": 1},
        "limits": {"time_per_run": DEADLINE / 2},
        **more,
    }


@pytest.fixture(scope="module")
def told(guest: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What one guest told.

    Instead of one whose kernel hung, which no program can bring about rightly, a second is asked,
    and the warnings of this run show where the first one hung.
    """
    try:
        return ask(guest, tmp_path_factory.mktemp("guest"))
    except machine.KernelHung as hung:
        warnings.warn(f"a second guest was asked, for {hung}", stacklevel=1)
        return ask(guest, tmp_path_factory.mktemp("guest"))


def ask(guest: Any, folder: Path) -> Told:
    """Run the job in a guest, with a Ceph on the host where there is one."""
    reason = ceph.missing()
    share = folder / "share"
    share.mkdir()
    image = {"size": 160 * MIB}  # mkfs.nilfs2 takes no smaller ones than about 128 MiB
    targets: dict[str, dict[str, Any]] = {"nilfs2": {"device": "/dev/vdb"}, "f2fs": image}
    lives: dict[str, dict[str, Any]] = dict.fromkeys(LOCAL, image)
    lives[CLEANED] = {**image, "cleaner": GREEDY}
    with ExitStack() as stack:
        before = stack.enter_context(namespace.network())
        if not reason:
            conf = bed(stack, before, folder / "bed")
            lives[KERNEL_CLIENT] = targets[KERNEL_CLIENT] = {"conf": conf, "filesystem": "cephfs"}
        (share / "campaign.yaml").write_text(json.dumps(campaign(targets)))
        disk = {"device": "/dev/vdc", "destroy": SERIAL}
        (share / "bare.yaml").write_text(json.dumps(campaign({"device": disk}, cache="bypass")))
        (share / "lives.json").write_text(json.dumps(lives))
        try:
            result = guest.run(
                [sys.executable, "-P", str(HERE / "job.py"), str(machine.SHARE)],
                disks=(1024 * MIB, 160 * MIB, 8 * MIB),
                timeout=DEADLINE,
                share=share,
                network=True,
                before=before,
            )
        except machine.GuestFailed as error:
            error.args = (f"{error}{cluster_says(folder / 'bed')}",)
            raise
    words = "\n".join(path.read_text() for path in sorted(share.glob("*-words")))
    assert result.status == 0, f"{result.output}\n{words}\n{result.console[-2000:]}"
    lines = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    skipped = {KERNEL_CLIENT: reason} if reason else {}
    return Told({line.pop("what"): line for line in lines}, share, skipped)


def cluster_says(bed: Path) -> str:
    """The last lines of a Ceph's logs: whether it still answered the guest."""
    logs = [bed / "log" / name for name in ("cluster.log", "osd.0.log", "mds.a.log")]
    return "".join(f"\n-- {log.name}:\n{log.read_text()[-2000:]}" for log in logs if log.exists())


def bed(stack: ExitStack, before: list[str], folder: Path) -> str:
    """Bring up a small Ceph in the namespace until `stack` ends; path of its ceph.conf."""
    head = (
        "import sys; "
        "from fsmatrix.backends.testbed.ceph_testbed import CephTestbedOptions, down, up; "
    )
    make = (
        "o = CephTestbedOptions(nodes=1, osds_per_node=1, failure_domain='osd', pg_num=8, "
        "address=sys.argv[2]); print(up(o, sys.argv[1]).conf)"
    )

    def do(what: str) -> str:
        argv = [*before, sys.executable, "-P", "-c", head + what, str(folder), namespace.ADDRESS]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[-1] if ran.stdout else ""

    conf = do(make)
    stack.callback(do, "down(sys.argv[1])")
    return conf


@pytest.mark.parametrize("name", [*LOCAL, KERNEL_CLIENT])
def test_mounted_again_every_byte_is_there(told: Told, name: str) -> None:
    if name in told.skipped:
        pytest.skip(f"{name}: {told.skipped[name]}")
    life = told.lives[name]
    assert life["usable"], life
    assert life["version"]
    assert life["filesystem"] == name.removesuffix("fs-kernel")
    assert {"nosuid", "nodev"} <= set(life["mount_options"].split(","))
    assert life["written"] == {"bytes": LIFE, "errors": 0}
    assert life["unmounted"], "the second mount must not be the first"
    assert life["moved"] >= LIFE, "what was verified came from the device or the network"
    assert life["read"] == {"bytes": LIFE, "errors": 0}
    assert life["spoilt"]["errors"] == 1, "one changed byte is found"
    assert life["settled"]
    assert life["health"] == []
    assert life["left"] == []
    assert life["pending"] == 0
    if name in LOCAL:
        assert life["direct_io"] is True


def test_campaign_by_the_command_line_is_verified(told: Told) -> None:
    facts, words = told.lives["campaign"], (told.share / "campaign-words").read_text()
    assert facts["status"] == 0, words
    assert facts["signatures"] == [], "the device is left as empty as it was"
    assert facts["images"] == []
    targets = {"f2fs", "nilfs2", KERNEL_CLIENT} - set(told.skipped)
    verified(told.share / "campaign-out", targets)


def test_bare_disk_is_known_by_its_serial_number(told: Told) -> None:
    facts, words = told.lives["bare"], (told.share / "bare-words").read_text()
    assert facts["status"] == 0, words
    assert facts["signatures"] == []
    for record in verified(told.share / "bare-out", {"device"}):
        assert record.environment["target"]["serial"] == SERIAL


def verified(out: Path, targets: set[str]) -> list[RunRecord]:
    """The records: one for each target and pattern, ok, with every byte and without an error."""
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    assert sorted((r.coordinates["target"], r.coordinates["pattern"]) for r in records) == sorted(
        (target, pattern) for target in targets for pattern in ("rand-write", "seq-read")
    )
    for record in records:
        assert (record.status, record.error) == ("ok", "")
        assert record.engine == engine_name()
        for phase in record.phases:
            assert int(phase.bytes.sum()) == BYTES
            assert int(phase.errors.sum()) == 0
    return records


def test_nilfs2_is_mounted_without_its_cleaner(told: Told) -> None:
    assert told.lives["nilfs2"]["cleaners"] == 0


def test_nilfs2_s_cleaner_gives_space_back_and_ends(told: Told) -> None:
    life = told.lives[CLEANED]
    assert (life["cleaners"], life["cleaners_left"]) == (1, 0)
    assert life["reclaimed"] is True
    assert life["gc"] == "protection=0,segments=8,interval=1"
    assert life["read"] == {"bytes": LIFE, "errors": 0}, "what is in use stays"
    assert (life["health"], life["left"], life["pending"]) == ([], [], 0)


def test_guest_that_does_not_end_is_ended(guest: Any, tmp_path: Path) -> None:
    with pytest.raises(machine.GuestFailed, match="did not end within 1 s"):
        guest.run(["sleep", "1000"], disks=[MIB], timeout=1.0, share=tmp_path)
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [line for line in running if str(tmp_path).encode() in line]


def test_guest_whose_kernel_hangs_tells_where(guest: Any, tmp_path: Path) -> None:
    """A file system that is frozen: who writes to it waits, and no signal ends it."""
    script = (
        "sysctl -q kernel.hung_task_timeout_secs=5; mkfs.ext4 -q /dev/vda; "
        "mount /dev/vda /mnt && fsfreeze -f /mnt && echo frozen && touch /mnt/file"
    )
    with pytest.raises(machine.KernelHung, match=r"INFO: task touch:\d+ blocked") as caught:
        guest.run(["sh", "-c", script], disks=[32 * MIB], timeout=DEADLINE, share=tmp_path)
    assert "percpu_rwsem_wait" in str(caught.value), "the stack says where"
    assert str(caught.value).endswith("-- output:\nfrozen\n")


def test_guest_that_stops_early_tells_its_last_words(guest: Any, tmp_path: Path) -> None:
    broken = machine.Guest(guest.image, tmp_path / "no-initramfs")
    with pytest.raises(machine.GuestFailed, match="no-initramfs"):
        broken.run(["true"])


def test_modules_are_loaded_after_what_they_need() -> None:
    modules = {
        "a": b"\0license=GPL\0depends=b-one,c\0name=a\0",
        "b_one": b"\0depends=c\0",
        "c": b"\0depends=\0",
        "d": b"",
    }
    assert kernel.load_order(["d", "a"], modules) == ["d", "c", "b_one", "a"]
    with pytest.raises(KeyError, match="e"):
        kernel.load_order(["e"], modules)


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(machine.GuestUnavailable, match="qemu-system-x86, busybox-static"):
        machine.Guest.prepare(tmp_path, MODULES)
