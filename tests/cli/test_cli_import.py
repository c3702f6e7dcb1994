"""`fsmatrix import`: the command, and its document with the real parsers."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.cli import main as cli
from fsmatrix.results.files.campaignread import texts_of
from fsmatrix.results.files.store import Store
from fsmatrix.suite.importing.importing import Import, labeller
from fsmatrix.suite.importing.recognise import Formats, find
from tests import asking
from tests.analysis.campaigns import phase, record
from tests.suite.toy_import import FORMATS, results_in, tree

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "import"
PAGE = ROOT / "docs" / "import.md"


# -- the command -------------------------------------------------------------------------------
def call(monkeypatch: pytest.MonkeyPatch, *words: object, columns: int = 200) -> int:
    monkeypatch.setattr(sys, "argv", ["fsmatrix", *map(str, words)])
    monkeypatch.setenv("COLUMNS", str(columns))
    return int(cli.command() or 0)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return results_in(tmp_path / "results")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Formats, "all", classmethod(lambda cls: FORMATS))


@pytest.mark.usefixtures("toy")
def test_the_command_says_what_became_of_everything(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out.h5"
    assert call(monkeypatch, "import", results, "-o", out, "--set", "target=x") == 0
    printed = capsys.readouterr().out
    assert "not recognised: " in printed
    assert "failed run: disk full" in printed
    assert "5 runs added to" in printed
    tree(results, {"bad.txt": "TOY"})
    assert call(monkeypatch, "import", results, "-o", out, "--set", "target=x", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["runs_added"], told["runs_kept"], told["written"]) == (0, 5, False)
    assert len(told["already_there"]) == 4
    assert [Path(one["path"]).name for one in told["left_out"]] == ["bad.txt"]
    assert call(monkeypatch, "import", results / "bad.txt", "-o", out) == 2
    assert "bad.txt" in capsys.readouterr().err
    assert call(monkeypatch, "show", out) == 0
    assert "failed" in capsys.readouterr().out
    assert call(monkeypatch, "report", out, "-o", tmp_path / "r.html") == 0
    assert "imported results" in (tmp_path / "r.html").read_text()


def test_no_number_is_left_out_of_a_table_that_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out.h5"
    for one in range(6):  # six factors vary: a column each
        labels = [p for i in range(6) for p in ("--set", f"factor_{i}=level-{int(i == one)}")]
        text = (DATA / "ior-posix-shared.txt").read_text(encoding="utf-8") + f"\n{one}\n"
        (tmp_path / f"{one}.txt").write_text(text, encoding="utf-8")
        assert call(monkeypatch, "import", tmp_path / f"{one}.txt", "-o", out, *labels) == 0
    capsys.readouterr()
    assert call(monkeypatch, "show", out, columns=40) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("read"))
    assert re.search(r"\d.* \[[\d.]+–[\d.]+\]$", row), printed


# -- the documents, with the real parsers ----------------------------------------------------
def examples() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line]


def of_fio(line: str) -> bool:
    """Whether an example needs what fio itself wrote before."""
    return line.startswith("fio ") or "fio.h5" in line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real outputs in the folders that docs/import.md names."""
    root = tmp_path_factory.mktemp("docs")
    ior, mdtest = ((DATA / n).read_text() for n in ("ior-posix-shared.txt", "mdtest-4.0.0.txt"))
    for target, nodes in (("ceph-a", 2), ("ceph-a", 3), ("daos-b", 2)):
        note = f"on {target} with {nodes} storage nodes\n"
        tree(
            root / "results" / target / str(nodes),
            {
                "ior.txt": note + ior,
                "mdtest.txt.gz": gzip.compress((note + mdtest).encode()),
                "README.md": "how it was measured",
            },
        )
    tree(root, {"ior.json": (DATA / "ior-posix-fpp.json").read_text(), "mdtest.txt": mdtest})
    return root


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


def watched(place: Path) -> None:
    """A store with a run, and what tools wrote on four nodes meanwhile."""
    began = datetime.fromisoformat("2026-11-29T14:26:50.5Z").timestamp()
    made = phase("write", 1e8, 4096, 1, np.random.default_rng(1))
    run = record(phases=(replace(made, began=began),), coordinates={})
    Store.create(place / "out").write(run)
    nodes = DATA.parent / "nodes"
    for name, source in {
        "osd1.nmon": "berlin.nmon", "osd2.nmon": "berlin.nmon", "osd3.json": "sar.json",
        "osd4.tab.gz": "collectl.tab.gz", "osd4.dsk.gz": "collectl.dsk.gz",
    }.items():  # fmt: skip
        data = (nodes / source).read_bytes()
        plain = gzip.decompress(data) if name.endswith(".gz") else data
        (place / name).write_bytes(plain.replace(b"node1", name[:4].encode()))


@pytest.fixture(scope="module")
def ran(place: Path) -> dict[str, tuple[int, str]]:
    """Status and output of each example, run one after the other."""
    watched(place)
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for line in examples():
            if of_fio(line) and asking.why_not("fio"):
                continue
            program, *words = shlex.split(line, comments=True)
            if program == "fio":
                made = subprocess.run([program, *words], cwd=place, check=False)
                results[line] = (made.returncode, "in its file")
                continue
            assert program == "fsmatrix"
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                results[line] = (call(patch, *words), printed.getvalue())
    return results


LINES = [
    pytest.param(line, marks=pytest.mark.needs("fio") if of_fio(line) else ())
    for line in examples()
]


@pytest.mark.parametrize("line", LINES)
def test_examples_in_the_documents_run(line: str, ran: dict[str, tuple[int, str]]) -> None:
    status, printed = ran[line]
    assert status == 0, printed
    assert printed


@pytest.mark.usefixtures("ran")
def test_the_documents_python_runs(place: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        result = subprocess.run(
            [sys.executable, "-P", "-c", block],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "IOR" in result.stdout


@pytest.mark.usefixtures("ran")
def test_real_outputs_keep_their_numbers(place: Path) -> None:
    with xr.open_dataset(place / "old.h5", engine="h5netcdf") as dataset:
        assert {"ceph-a", "daos-b"} <= set(dataset["target"].values.tolist())
        assert {"ior", "mdtest"} <= set(dataset["engine"].values.tolist())
        assert dataset["storage_nodes"].dtype.kind in "if"


def test_a_real_directory_of_io500_is_one_run(tmp_path: Path) -> None:
    formats, root = Formats.all(), DATA.parent / "io500"
    found = find([root], formats.summaries)
    outcome = Import(tmp_path / "out.h5", labeller((), None), formats).run(found)
    assert [(one.format, len(one.run_ids)) for one in outcome.taken] == [("io500 directory", 1)]
    texts = texts_of(tmp_path / "out.h5", outcome.taken[0].run_ids[0])
    assert {"result_summary.txt", "ior-easy-write.txt", "config.ini"} <= set(texts)
