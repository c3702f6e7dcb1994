"""A test bed's directory that somebody else made, or can change, is not used."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.system import trusted
from fsmatrix.backends.testbed.bed import LEFT
from fsmatrix.backends.testbed.home import Home
from tests.backends.testbed.test_testbed_life import SleepOptions, SleepTestbed

NOBODY = 65534
TWO = SleepOptions()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


def as_nobody(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *argv]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory like /var/tmp: everybody may make something in it."""
    folder = Path(tempfile.mkdtemp(prefix="fsmatrix-trust-", dir="/var/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_directory_that_another_user_made_first_is_refused(public: Path) -> None:
    place = public / "bed"
    assert as_nobody("mkdir", place).returncode == 0
    with pytest.raises(BackendError, match=r"belongs to user 65534.*--directory"):
        SleepTestbed.up(TWO, place)
    assert list(place.iterdir()) == []


@needs_root
def test_a_bed_that_is_up_cannot_be_changed_by_another_user(public: Path) -> None:
    place = public / "bed"
    before = os.umask(0)  # the worst that a caller can have
    try:
        SleepTestbed.up(TWO, place)
        assert os.umask(0) == 0  # as it was
    finally:
        os.umask(before)
    try:
        loose = [path for path in (place, *place.rglob("*")) if path.lstat().st_mode & 0o022]
        assert loose == []
        assert as_nobody("mv", place, public / "other").returncode != 0
        assert as_nobody("rm", "-f", place / "sleep.conf").returncode != 0
        assert as_nobody("sh", "-c", f"echo evil > {place}/sleep.conf").returncode != 0
    finally:
        assert SleepTestbed.down(place)
    assert not place.exists()


@needs_root
def test_what_a_strangers_bed_says_is_not_done(public: Path) -> None:
    """Its journal could name any process, its marker is easily written."""
    place = public / "bed"
    as_nobody("mkdir", place)
    marker = Path(tree.MARKER).name
    tree.write_marker(public, SleepTestbed.kind.tag)
    as_nobody("cp", public / marker, place / marker)
    (public / marker).unlink()
    assert Home.at(place, SleepTestbed.kind).exists()
    victim = subprocess.Popen(["sleep", "300"])
    try:
        start = int(Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19])
        Home.at(place, SleepTestbed.kind).journal.begin(
            "process", role="sleep.0", argv=["sleep", "300"], pid=victim.pid, start=start
        )
        os.chown(place / "journal.jsonl", NOBODY, NOBODY)
        said = SleepTestbed.down(place)
        assert len(said) == 1
        assert said[0].startswith(f"{LEFT}{place} belongs to user 65534")
        assert SleepTestbed.status(place)["state"] == "distrusted"
        with pytest.raises(BackendError, match="belongs to user 65534"):
            SleepTestbed.open(place)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@needs_root
def test_a_link_is_refused_whoever_owns_it(public: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    link = public / "bed"
    link.symlink_to(own)
    with pytest.raises(BackendError, match="is a symbolic link"):
        SleepTestbed.up(TWO, link)
    link.unlink()
    as_nobody("ln", "-s", own, link)
    with pytest.raises(BackendError, match="is a symbolic link of nobody"):
        SleepTestbed.up(TWO, link / "deeper")
    assert list(own.iterdir()) == []


@needs_root
def test_who_could_replace_it_from_above_is_seen(public: Path) -> None:
    above = public / "above"
    as_nobody("mkdir", above)
    (above / "bed").mkdir()
    assert "above belongs to nobody" in trusted.distrust(above / "bed", {})
    assert trusted.distrust(above / "bed", {"SUDO_UID": str(NOBODY)}) == ""  # root anyway


@pytest.mark.parametrize(
    ("mode", "refused"),
    [(0o755, False), (0o700, False), (0o775, True), (0o777, True), (0o1777, True)],
)
def test_modes_of_the_directory(tmp_path: Path, mode: int, refused: bool) -> None:
    place = tmp_path / "bed"
    place.mkdir()
    place.chmod(mode)
    assert ("can be written by others" in trusted.distrust(place)) is refused


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_modes_above_the_directory(tmp_path: Path, mode: int, refused: bool) -> None:
    above = tmp_path / "above"
    (above / "bed").mkdir(parents=True)
    above.chmod(mode)
    assert ("can be written to by others" in trusted.distrust(above / "bed")) is refused


def test_nothing_there_is_nobodys(tmp_path: Path) -> None:
    assert trusted.distrust(tmp_path / "none") == ""
    (tmp_path / "file").touch()
    assert "is no directory" in trusted.distrust(tmp_path / "file")
