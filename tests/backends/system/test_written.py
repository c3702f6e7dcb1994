"""Paths with ~ and variables, and files that are named by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.files import expand, place_of, wrong_path


def test_expansion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = (tmp_path / "real").resolve()
    real.mkdir()
    (tmp_path / "home").symlink_to(real)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(real))
    monkeypatch.setenv("SCRATCH", str(tmp_path / "home"))
    monkeypatch.setenv("USER", "eva")
    for path in ("~/x", "$HOME/x", "${HOME}/x", "$TMPDIR/x", "${TMPDIR}/x", "$SCRATCH/x"):
        assert expand(path) == real / "x"
    assert expand("$HOME") == real  # a home that is a link is no link "elsewhere"
    assert expand("/scratch/$USER/x") == Path("/scratch/eva/x")
    assert expand("$SCRATCH/$USER") == real / "eva"
    assert expand("${TMPDIR}_$USER") == Path(f"{real}_eva")
    assert expand("/a$$b") == Path("/a$b")
    assert place_of(f"{tmp_path}/home/image") == real / "image"
    monkeypatch.delenv("TMPDIR")
    assert expand("$TMPDIR/y") == Path("/tmp").resolve() / "y"


def test_what_is_no_absolute_path_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", "relative")
    with pytest.raises(
        BackendError, match=r"\$SCRATCH/x: 'relative/x' on .* is not an absolute path"
    ):
        expand("$SCRATCH/x")
    monkeypatch.delenv("SCRATCH")
    with pytest.raises(BackendError, match=r"/data/\$SCRATCH: \$SCRATCH is not set on "):
        expand("/data/$SCRATCH")


@pytest.mark.parametrize("path", ["/a$", "$/x", "${x", "/a\0b", "x/$HOME", "~eva/x"])
def test_wrong_ones(path: str) -> None:
    assert wrong_path(path)
    assert not wrong_path("/a/$b/c")
