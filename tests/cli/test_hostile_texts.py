"""Texts that others made: FIFOs, loops, files without end, directories without end."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign import settings, yamlio
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.importing import recognise
from fsmatrix.suite.importing.recognise import UnreadableError
from fsmatrix.suite.importing.recognise import find as found_below
from fsmatrix.suite.importing.recognise import read as read_text
from fsmatrix.suite.workloads.dbench import loadfile
from fsmatrix.suite.workloads.fio_options import FioOptions
from tests.results.hostile import record
from tests.waiting import PATIENCE


@pytest.fixture(params=["fifo", "loop", "device", "long"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "given.yaml"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "long":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.symlink_to({"loop": path, "device": "/dev/zero"}[request.param])
    return path


def test_yaml_and_campaigns(path: Path) -> None:
    for read in (yamlio.load, settings.find):
        with pytest.raises(CampaignError, match=r"given\.yaml"):
            read(path)


def test_job_files_and_loadfiles(path: Path) -> None:
    with pytest.raises(ValueError, match=r"given\.yaml"):
        FioOptions.model_validate({"job_file": str(path)})
    with pytest.raises(ValueError, match=r"given\.yaml"):
        loadfile(str(path))


def test_texts(path: Path) -> None:
    with pytest.raises(UnreadableError):
        read_text(path)


def test_directories_in_each_other(tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(150):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    with pytest.raises(CampaignError, match="are in each other"):
        found_below([tmp_path], frozenset())


def test_a_directory_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognise, "LIMIT", 10)
    (tmp_path / "result_summary.txt").write_text("x" * 100)
    (one,) = found_below([tmp_path], frozenset({"result_summary.txt"}))

    every = SimpleNamespace(name="any", recognises=lambda _text: True)
    form = SimpleNamespace(name="any", format=every, summaries=("result_summary.txt",))
    _, skipped = recognise.of_directory(one, recognise.Formats((), (form,)))  # type: ignore[arg-type]
    assert "longer than" in str(skipped[0][1])


@pytest.mark.parametrize("command", [["collect"], ["show"], ["bundle", "-o", "b.tar.gz"]])
def test_commands_name_special_files_and_go_on(tmp_path: Path, command: list[str]) -> None:
    store = Store.create(tmp_path / "out")
    store.write(record())
    folder = store.runs / "zz"
    folder.mkdir()
    os.mkfifo(folder / "fifo.h5")
    (folder / "loop.h5").symlink_to(folder / "loop.h5")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fsmatrix.cli.main", command[0], "out", *command[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if command[0] != "show":
        told = " ".join((done.stdout + done.stderr).split())
        assert "is a FIFO" in told
        assert "is a symbolic link" in told
