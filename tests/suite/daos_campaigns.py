"""Campaigns on the double of DAOS: its libraries, and a tool `daos` that makes its containers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.backends import daos_places
from tests.backends.daos_standin import TESTS, Standin

POOL = "bench"
WRAPPER = """#!/bin/sh
# the stand-in of the tool, and a directory of the double for each container that it makes
python3 -S {standin} "$@" || exit
case "$*" in
*container\\ create*) mkdir -p "$FSMATRIX_DOUBLE/bench/$5/root" ;;
esac
"""


@dataclass(frozen=True)
class Doubled:
    """The double under campaigns."""

    library: Path  # folder of libdaos and libdfs
    folder: Path
    standin: Standin

    @property
    def violations(self) -> list[str]:
        """Rules of the headers that were broken."""
        return daos_places.Storage(POOL, "", str(self.library), self.folder).violations

    @property
    def left(self) -> list[Path]:
        """What runs left in their containers."""
        return [path for root in self.folder.glob(f"{POOL}/*/root") for path in root.iterdir()]


@pytest.fixture
def doubled_daos(
    standin: Standin,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Doubled:
    """Programs that are started find the double by PATH and FSMATRIX_DOUBLE."""
    library = daos_places.compiled(tmp_path_factory.mktemp("double"))
    double, programs = tmp_path / "daos", tmp_path / "programs"
    double.joinpath(POOL).mkdir(parents=True)
    programs.mkdir()
    tool = programs / "daos"
    tool.write_text(WRAPPER.format(standin=TESTS / "standins" / "daos"))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FSMATRIX_DOUBLE", str(double))
    return Doubled(library, double, standin)
