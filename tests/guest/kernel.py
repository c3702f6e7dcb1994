"""The guest's kernel and its first file system, from Debian's kernel package.

The package is downloaded (apt checks its hash) and read, never installed.  Out of it come the
kernel image and the modules that a guest needs, with those that they depend on.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

META_PACKAGE = "linux-image-amd64"  # the ordinary kernel: the cloud one lacks most of these
# For the machine itself: disks, root file system, network.  Checksums are found by name, not
# by a dependency, and so come first.
MACHINE_MODULES = (
    *("crc32_generic", "crc32c_generic", "virtio_pci", "virtio_blk", "virtio_net"),
    *("9pnet_virtio", "9p", "overlay", "loop", "ext4"),
)
_FOLDERS = re.compile(r"/kernel/(fs|net|lib|crypto|drivers/(virtio|block|net))/")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")  # of the section .modinfo
_DOWNLOAD_SECONDS = 120.0

# The first program.  Root file system: the host's, read-only, below a tmpfs that takes changes.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do
    insmod /modules/$module.ko || echo "guest: module $module cannot be loaded"
done
mount -t tmpfs tmpfs /changes && mkdir /changes/upper /changes/work
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 host /host &&
mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work overlay /new &&
mount -t tmpfs tmpfs /new/run && mkdir /new/run/guest /new/run/lock &&
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /new/run/guest || exit 1
ln -sf /proc/self/mounts /new/etc/mtab
hostname guest
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
    ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up && ip route add default via 10.0.2.2
fi
for folder in proc sys dev; do mount --move /$folder /new/$folder; done
exec switch_root /new /bin/sh /run/guest/job
"""


class GuestUnavailable(Exception):
    """No guest can be made here; the text says what is missing and what would bring it."""


def download(folder: Path) -> Path:
    """The kernel package as a file in `folder`; GuestUnavailable if apt does not give it."""
    package = _newest_kernel()
    argv = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package]
    ran = _run(argv, folder)
    if ran.returncode:  # the lists may be older than the archive
        _run(["apt-get", "-q", "update"], folder)
        ran = _run([*argv[:-1], _newest_kernel()], folder)
    found = list(folder.glob("linux-image-*.deb"))
    if ran.returncode or len(found) != 1:
        raise GuestUnavailable(f"apt-get download {package} failed: {ran.stderr.strip()}")
    return found[0]


def unpack(package: Path) -> tuple[bytes, dict[str, bytes]]:
    """(kernel image, modules by name) of a kernel package; one pass, nothing on the disk."""
    image, modules = b"", {}
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                is_image = member.name.startswith("./boot/vmlinuz-")
                is_module = member.name.endswith(".ko") and _FOLDERS.search(member.name)
                content = archive.extractfile(member) if is_image or is_module else None
                if content is not None and is_image:
                    image = content.read()
                elif content is not None:
                    modules[_plain(Path(member.name).stem)] = content.read()
    if process.returncode or not image:
        raise GuestUnavailable(f"{package.name} holds no kernel that can be read")
    return image, modules


def load_order(wanted: Iterable[str], modules: Mapping[str, bytes]) -> list[str]:
    """`wanted` and all that they depend on, dependencies first; KeyError for an unknown one."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        found = _DEPENDS.search(modules[name])
        for needed in found[1].decode().split(",") if found else ():
            if needed:
                add(_plain(needed))
        order.append(name)

    for name in wanted:
        add(_plain(name))
    return order


def write_initramfs(file: Path, order: Sequence[str], modules: Mapping[str, bytes]) -> None:
    """A cpio archive with busybox, INIT and the modules `order`."""
    tree = file.with_suffix(".tree")
    for name in ("bin", "proc", "sys", "dev", "modules", "changes", "host", "new"):
        (tree / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, tree / "bin/busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    (tree / "modules/order").write_text("\n".join(order))
    for name in order:
        (tree / f"modules/{name}.ko").write_bytes(modules[name])
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with file.open("wb") as archive:
        argv = [busybox, "cpio", "-o", "-H", "newc"]
        subprocess.run(
            argv, cwd=tree, input=names.encode(), stdout=archive, stderr=subprocess.PIPE, check=True
        )
    shutil.rmtree(tree)


def _newest_kernel() -> str:
    """The package that META_PACKAGE depends on; META_PACKAGE itself if apt does not tell."""
    ran = _run(["apt-cache", "depends", "--important", META_PACKAGE], Path("/"))
    found = re.search(r"Depends: (linux-image-\S+)", ran.stdout)
    return found[1] if found else META_PACKAGE


def _run(argv: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise GuestUnavailable(f"{' '.join(argv)}: no end in {_DOWNLOAD_SECONDS:g} s") from error


def _plain(name: str) -> str:
    return name.replace("-", "_")
