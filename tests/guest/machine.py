"""A QEMU guest whose kernel has the file systems that the host's kernel lacks.

It sees the host's files, read-only, below a tmpfs that takes its changes: the project, its
virtual environment and the system's programs are there without being installed.  It runs
one command and stops.  QEMU emulates the processor (KVM is not needed, nor used: there are
machines with a /dev/kvm on which a guest hangs), so everything is many times slower than on
the host: what runs here shows function, never a performance figure.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kernel
from kernel import GuestUnavailable as GuestUnavailable

QEMU = "qemu-system-x86_64"
NEEDED = {
    QEMU: "qemu-system-x86",
    "busybox": "busybox-static",
    "setpriv": "util-linux",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
MEMORY = 1024  # MiB
CPU = "max,la57=off"  # what wheels may want; page tables of 4 levels are faster than of 5
SHARE = Path("/run/guest")  # in the guest: the folder of this run, writable
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KILL_SECONDS = 10.0
# A task that waits for 120 s in a way that no signal ends: the kernel prints where, and ends.
_STACKS = 8000  # characters
_HUNG = "INFO: task "
_KERNEL = "console=ttyS0 panic=-1 hung_task_panic=1 loglevel=7 mitigations=off"

# What the guest does: the command, its status, an immediate stop.
_JOB = """cd {folder}
mkdir -p /run/tmp
export {variables}
{command} < /dev/null > {share}/output 2>&1
echo $? > {share}/status
sync
echo b > /proc/sysrq-trigger
sleep 60
"""


class GuestFailed(Exception):
    """The guest did not come to the end of its command; the text holds its last words."""


class KernelHung(GuestFailed):
    """The guest's kernel hung: a task waits for ever and cannot be killed."""


@dataclass(frozen=True)
class Result:
    """What a command gave in the guest."""

    status: int
    output: str  # stdout and stderr as they came
    console: str  # of the kernel


@dataclass(frozen=True)
class Guest:
    """A prepared kernel; each `run` is a machine of its own."""

    image: Path
    initramfs: Path

    @classmethod
    def prepare(cls, cache: Path, modules: Sequence[str]) -> Guest:
        """Kernel and initramfs with `modules` in the folder `cache`, made if they are not there.

        GuestUnavailable if a program is missing, or the kernel cannot be had.
        """
        if reason := refusal():
            raise GuestUnavailable(reason)
        guest = cls(cache / "kernel", cache / "initramfs")
        if guest.image.exists():
            return guest
        cache.mkdir(parents=True, exist_ok=True)
        package = kernel.download(cache)
        image, every = kernel.unpack(package)
        package.unlink()
        order = kernel.load_order([*kernel.MACHINE_MODULES, *modules], every)
        kernel.write_initramfs(guest.initramfs, order, every)
        guest.image.write_bytes(image)
        return guest

    def run(
        self,
        argv: Sequence[str],
        disks: Sequence[int] = (),
        timeout: float = 120.0,
        *,
        share: Path | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path = Path("/"),
        network: bool = False,
        before: Sequence[str] = (),
    ) -> Result:
        """Run `argv` in `folder` as root in a new guest.

        `disks`: sizes in bytes; empty disks /dev/vda, /dev/vdb, ...  `share`: folder of the
        host that the guest has, writable, at SHARE.  `network`: eth0 by QEMU's user
        networking.  `before`: in front of QEMU's own argv (`nsenter --net=...`).
        GuestFailed if the guest stops without a status, or does not within `timeout` seconds;
        KernelHung if its kernel had a task for 120 s that waits and cannot be killed.
        Nothing stays: QEMU ends with us, also if we are killed, and the disks are removed.
        """
        with tempfile.TemporaryDirectory(prefix="fsmatrix-guest-") as name:
            place = Path(name)
            shared = share or place / "share"
            shared.mkdir(exist_ok=True)
            variables = {"PATH": PATH, "HOME": "/root", "TMPDIR": "/run/tmp", "LC_ALL": "C"}
            if (bytecode := os.environ.get("PYTHONPYCACHEPREFIX")) is not None:
                variables["PYTHONPYCACHEPREFIX"] = bytecode  # compiling takes long here
            (shared / "job").write_text(_job(argv, variables | dict(environment or {}), folder))
            files = [_disk(place / f"disk{number}", size) for number, size in enumerate(disks)]
            command = [*before, *self._command(place, shared, files, network)]
            _wait(["setpriv", "--pdeathsig", "KILL", *command], place, shared, timeout)
            return _result(place, shared)

    def _command(
        self, place: Path, shared: Path, disks: Sequence[Path], network: bool
    ) -> list[str]:
        # one processor: a second one costs more of the host than it gives
        argv = [QEMU, "-machine", "pc,accel=tcg", "-cpu", CPU, "-smp", "1", "-m", str(MEMORY)]
        argv += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
        argv += ["-serial", f"file:{place / 'console'}", "-monitor", "none"]
        argv += ["-kernel", str(self.image), "-initrd", str(self.initramfs)]
        argv += ["-append", _KERNEL]
        argv += [
            "-virtfs",
            "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        ]
        argv += ["-virtfs", f"local,path={shared},mount_tag=share,security_model=none"]
        for number, disk in enumerate(disks):
            argv += ["-drive", f"file={disk},if=none,id=d{number},format=raw,cache=unsafe"]
            argv += ["-device", f"virtio-blk-pci,drive=d{number},serial=guest{number}"]
        if network:
            argv += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]
        return argv


def refusal() -> str:
    """Why there can be no guest here (empty: there can)."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return f"a QEMU guest needs the packages {', '.join(missing)}" if missing else ""


def _job(argv: Sequence[str], variables: Mapping[str, str], folder: Path) -> str:
    """The script of the guest."""
    return _JOB.format(
        folder=shlex.quote(str(folder)),
        variables=" ".join(f"{key}={shlex.quote(text)}" for key, text in variables.items()),
        command=shlex.join(argv),
        share=SHARE,
    )


def _disk(file: Path, size: int) -> Path:
    file.touch()
    os.truncate(file, size)
    return file


def _wait(command: Sequence[str], place: Path, shared: Path, timeout: float) -> None:
    with (place / "qemu").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        text = f"the guest did not end within {timeout:g} s{_last_words(place, shared)}"
        raise GuestFailed(text) from error
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(_KILL_SECONDS)


def _result(place: Path, shared: Path) -> Result:
    status = _text(shared / "status").strip()
    console = _text(place / "console")
    if not status and (hung := console.find(_HUNG)) >= 0:
        text = f"{console[hung:][:_STACKS]}\n-- output:\n{_text(shared / 'output')[-4000:]}"
        raise KernelHung(f"the guest's kernel hung: {text}")
    if not status:
        text = f"the guest stopped before its command ended{_last_words(place, shared)}"
        raise GuestFailed(text)
    return Result(int(status), _text(shared / "output"), console)


def _last_words(place: Path, shared: Path) -> str:
    files = (place / "qemu", place / "console", shared / "output")
    return "".join(f"\n-- {file.name}:\n{_text(file)[-4000:]}" for file in files)


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
