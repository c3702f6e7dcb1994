"""A bare Debian in a folder: nothing but what the installer cannot do without; no test in here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.situations.checkout import APART, copy_to, folder

MINUTES = 10.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# how this machine reaches its package mirror and its package index, given to the bare one
REACH = ("/etc/resolv.conf", "/etc/hosts", str(CERTIFICATES))


@contextmanager
def bare(suite: str, *packages: str) -> Iterator[Path]:
    """The root folder of a bare Debian with a copy of this checkout in /fsmatrix."""
    with folder() as place:
        root = place / suite
        included = ",".join(("python3", "make", "ca-certificates", *packages))
        bare_one = ["debootstrap", "--variant=minbase", f"--include={included}", suite]
        run([*bare_one, str(root), mirror()])
        for path in REACH:
            if Path(path).exists():
                shutil.copy(path, root / path[1:])
        for path in Path("/etc/apt/apt.conf.d").glob("*"):
            if b"Acquire::" in path.read_bytes():
                shutil.copy(path, root / "etc/apt/apt.conf.d")
        copy_to(root / "fsmatrix")
        yield root


def mirror() -> str:
    """The mirror that this machine's own packages come from."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    found = [
        site for site in dict.fromkeys(told.split()) if not site.rstrip("/").endswith("security")
    ]
    if not found:
        pytest.skip("apt names no mirror of Debian")
    return found[0]


def entering(root: Path, *as_user: str, home: str = "/root") -> list[str]:
    """Words that run the rest in that root, which is no mount point, in a mount namespace.

    `as_user`: words that run the rest as somebody else.
    """
    binds = " && ".join(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "sys", "dev"))
    words = [*APART, "sh", "-c", f'{binds} && exec "$@"', "sh"]
    return [*words, "chroot", str(root), "env", "-i", *environment(home), *as_user]


def environment(home: str) -> list[str]:
    """Of a login, and what this machine's pip is told."""
    told = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")]
    own = [f"PATH={PATH}", f"HOME={home}", "LANG=C.UTF-8"]
    bundle = [f"PIP_CERT={CERTIFICATES}"] if CERTIFICATES.exists() else []
    return [*told, *own, *bundle]


def run(words: Sequence[str]) -> None:
    """Run a command; an AssertionError with what it printed if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
