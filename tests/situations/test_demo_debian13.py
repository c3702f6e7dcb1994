"""`make demo` on a bare Debian 13: as root and as another user, with nothing but Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.situations.checkout import PATTERNS, Done, demo
from tests.situations.debian import bare, entering, run

pytestmark = [pytest.mark.needs("bare debian")]
USER = ("setpriv", "--reuid=1234", "--regid=1234", "--clear-groups")
DIRECTORIES = {"home", "temporary", "memory"}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """It has no compiler and no mkfs but what Debian cannot do without."""
    with bare("trixie", "python3-venv") as made:
        yield made


def typed(root: Path, out: str, *words: str, home: str = "/root", user: bool = False) -> Done:
    before = entering(root, *(USER if user else ()), home=home)
    return demo(root / "fsmatrix", out, *words, before=before, inside=root)


@pytest.mark.parametrize("home", ["/home/somebody", "/root"])
def test_an_ordinary_user_with_and_without_a_home(root: Path, home: str) -> None:
    own = "/home/somebody"
    if not (root / own[1:]).exists():
        run([*entering(root), "mkdir", "-m", "755", own])
        run([*entering(root), "chown", "-R", "1234:1234", own, "/fsmatrix"])
    done = typed(root, f"user{home.replace('/', '-')}", home=home, user=True)
    assert done.status == 0, done.text
    other = {"home"} if home == own else {"var-tmp"}
    assert done.compared == dict.fromkeys({"temporary", "memory"} | other, PATTERNS), done.text
    assert "needs root" in done.left_out["xfs"]


def test_root_without_a_compiler_and_without_mkfs_and_then_with(root: Path) -> None:
    done = typed(root, "bare", "SYSTEM=0")
    assert done.status == 0, done.text
    assert done.compared.keys() | {"home"} >= DIRECTORIES, done.text
    assert len(done.compared) >= 2
    assert "mkfs.xfs is missing: apt-get install xfsprogs" in done.left_out["xfs"]
    assert done.engines == {"player-python"}
    run([*entering(root), "rm", "-rf", "/fsmatrix/.venv"])
    done = typed(root, "full")
    assert done.status == 0, done.text
    assert done.compared == dict.fromkeys(("xfs", "ext4", "btrfs"), PATTERNS), done.text
    assert done.engines == {"player-c"}
