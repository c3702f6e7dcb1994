"""Directories removed whole: however deep, by several at once, and nothing that is not theirs."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.cache import bypass
from fsmatrix.backends.journal import tree
from fsmatrix.backends.system.files import FOLDER, MOST_OPEN, visit
from fsmatrix.backends.system.workfolder import empty, remove_tree

DEEP = 1900  # folders of 10 characters: 19 kB, where a path may have 4095 bytes
FILES = 200  # descriptors


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def nested(top: Path, depth: int = DEEP, each: int = 100) -> None:
    """Folders in folders, and a file in every `each` of them and in the last."""
    top.mkdir(exist_ok=True)
    folder = os.open(top, FOLDER)
    for number in range(depth):
        name = f"{number:010d}"
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, FOLDER, dir_fd=folder)
        os.close(folder)
        folder = below
        if number % each == 0 or number == depth - 1:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)


@pytest.mark.usefixtures("few_files")
def test_a_run_as_deep_as_one_likes(tmp_path: Path) -> None:
    nested(tmp_path / "run")
    remove_tree(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    remove_tree(tmp_path / "run")  # gone already


@pytest.mark.usefixtures("few_files")
def test_a_tree_as_deep_as_one_likes(tmp_path: Path) -> None:
    nested(tmp_path / "tree")
    tree.write_marker(tmp_path / "tree", "t")
    tree.remove_tree(tmp_path / "tree", "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_files")
def test_caches_of_files_as_deep_as_one_likes(tmp_path: Path) -> None:
    nested(tmp_path / "run")
    found = bypass(tmp_path, ["run"])
    assert found.facts["files"] == DEEP // 100 + 1
    remove_tree(tmp_path / "run")


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").write_text("keep")
    (tmp_path / "run/a").mkdir(parents=True)
    (tmp_path / "run/a/link").symlink_to(tmp_path / "theirs")
    (tmp_path / "run/lost").symlink_to("nowhere")
    os.mkfifo(tmp_path / "run/fifo")
    remove_tree(tmp_path / "run")
    assert (tmp_path / "theirs/file").read_text() == "keep"
    (tmp_path / "run").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="run"):
        remove_tree(tmp_path / "run")
    assert (tmp_path / "theirs/file").read_text() == "keep"


@pytest.mark.root
def test_what_is_mounted_in_it_stays(tmp_path: Path) -> None:
    inside = tmp_path / "run" / "/".join("abcdefgh" * 8) / "inside"
    inside.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(inside)], check=True)
    handle = os.open(tmp_path / "run", FOLDER)
    try:
        (inside / "file").write_text("keep")
        with pytest.raises(OSError, match="is mounted in it"):
            remove_tree(tmp_path / "run")
        with pytest.raises(OSError, match="on another file system") as error:  # unseen before
            empty(handle, str(tmp_path / "run"))
        assert error.value.errno == errno.EXDEV
        assert str(error.value.filename).endswith("/h/inside")
        assert (inside / "file").read_text() == "keep"
    finally:
        os.close(handle)
        subprocess.run(["umount", str(inside)], check=True)
    remove_tree(tmp_path / "run")


REMOVE = """
import sys
from pathlib import Path
from fsmatrix.backends.system.workfolder import remove_tree
print("ready", flush=True)
sys.stdin.readline()
remove_tree(Path(sys.argv[1]))
"""


def test_several_kernels_remove_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    nested(run, 5 * MOST_OPEN, each=1)
    for number in range(300):
        (run / f"{number % 7}").mkdir(exist_ok=True)
        (run / f"{number % 7}/{number}").mkdir()
        (run / f"{number % 7}/{number}/file").touch()
    argv = [sys.executable, "-P", "-c", REMOVE, str(run)]
    kernels = [
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for kernel in kernels:
        assert kernel.stdout is not None
        kernel.stdout.readline()
    for kernel in kernels:
        assert kernel.stdin is not None
        kernel.stdin.write(b"go\n")
        kernel.stdin.flush()
    said = [kernel.communicate()[1].decode() for kernel in kernels]
    assert said == [""] * 4
    assert not run.exists()


def test_a_folder_that_moves_away_is_left_alone(tmp_path: Path) -> None:
    """Its ".." leads elsewhere: what is there is not taken for the tree."""
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    nested(run, 2 * MOST_OPEN)
    theirs.mkdir()
    (theirs / "file").write_text("keep")
    far = run / f"{0:010d}" / f"{1:010d}" / f"{2:010d}"
    handle = os.open(run, FOLDER)
    moved = []

    def move(folder: int) -> list[str]:
        moved.append(folder)
        if len(moved) == MOST_OPEN + 10:  # those far above are closed by now
            far.rename(theirs / "far")
        return [name for name in os.listdir(folder) if name.isdigit()]

    try:
        with pytest.raises(OSError, match="was moved"):
            visit(handle, move)
    finally:
        os.close(handle)
    assert (theirs / "file").read_text() == "keep"


def test_names_that_are_made_meanwhile_go_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    until = time.monotonic() + 0.3

    def make() -> None:
        number = 0
        while time.monotonic() < until:
            number += 1
            try:
                (run / f"{number}").mkdir()
            except FileNotFoundError:
                return

    maker = threading.Thread(target=make)
    maker.start()
    remove_tree(run, memory=30.0)
    maker.join()
    assert not run.exists()
