"""The standing fault test (tests/chaos, `make chaos`): it runs, and sees what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import NAMESPACES, ROOT
from tests.chaos.checks import Outcome
from tests.chaos.table import table
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.root, pytest.mark.loop, pytest.mark.needs("ext4", "mpirun", "fio")]

PLANTED = """
import json, random, subprocess, sys, time
from pathlib import Path
from fsmatrix.results.process import start_of
from tests.chaos import place
from tests.chaos.victims import strike

place.GRACE = 0.2
subprocess.run(["mount", "-t", "tmpfs", "chaos", str(place.MEMORY)], check=True)
with place.Place(Path(sys.argv[1]) / "here") as here:
    clean = here.touched() + here.left()
    (here.target / "fsmatrix-0123456789abcdef").mkdir()
    (here.tmp / "ompi.x").mkdir()
    (here.store / "state/image").mkdir(parents=True)
    (here.store / "state/image/mnt").mkdir()
    (here.store / "journal").mkdir()
    (here.store / "journal/.x.tmp").touch()
    (place.MEMORY / "segment").touch()
    left = subprocess.Popen(["sleep", "1000"])
    subprocess.run(["mount", "-t", "tmpfs", "ours", str(here.store / "state/image/mnt")])
    found = here.left()
    (here.target / "theirs").unlink()
    subprocess.run(["umount", str(here.theirs)])
    subprocess.run(["losetup", "--detach", here.device])
    strike("KILL", here.sleeper, random.Random(1))
    until = time.monotonic() + 60
    while start_of(here.sleeper) and time.monotonic() < until:
        time.sleep(0.01)  # a killed process is there for a moment
    print(json.dumps([clean, found, here.touched()]))
"""


def test_it_sees_what_is_left_and_touched(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*NAMESPACES, sys.executable, "-c", PLANTED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    clean, found, touched = json.loads(ran.stdout)
    assert clean == []
    text = "\n".join(found)
    for planted in (
        "process ",
        "mount ",
        "in the target: fsmatrix-0",
        "in TMPDIR: ompi.x",
        "in /dev/shm: segment",
        "in state: mnt",
        "half-written journal/.x.tmp",
    ):
        assert planted in text
    assert len(touched) == 5
    assert not (tmp_path / "here").exists()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o711)  # a database's user passes through
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_conductor_and_a_torn_run_file(tmp_path: Path, place: Path) -> None:
    """Two scenarios of the real program, each with all that it checks."""
    for kind in ("SIGKILL to conductor", "torn run file"):
        out = tmp_path / "chaos.jsonl"
        words = [
            "--seed",  # one that draws short campaigns
            "5",
            "--scenario",
            "1",
            "--only",
            kind,
            "--out",
            out,
            "--place",
            place / kind.split()[0],
        ]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.chaos", *map(str, words)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "SEED=5\n" in ran.stdout
        outcome = json.loads(out.read_text().splitlines()[-1])
        assert (outcome["fault"], outcome["after"], outcome["wrong"]) == (kind, "0", [])


def test_the_table_counts_tries_faults_and_violations() -> None:
    def one(**fields: Any) -> dict[str, Any]:
        return {"seed": 7, **vars(Outcome("SIGKILL to rank")), **fields}

    text = table([one(faults=2, met=["1"], after="0"), one(faults=3, met=["1"], wrong=["x"])])
    assert "| SIGKILL to rank | 2 | 5 | 2 x 1 | 1 x 0 | 0 | 1 |" in text
    assert "5 kills in 2 scenarios, 1 with violations; seeds 7." in text
