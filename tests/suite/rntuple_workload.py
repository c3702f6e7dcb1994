"""LHCb events in files, for the tests of the workload `rntuple`.

As a program, `rntuple_workload FUNCTION ENGINE FOLDER...`: `matrix` or `refused` in a process of
its own; prints what it returns, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from fsmatrix.suite.workloads.streams.lhcb import analysis as generator
from fsmatrix.suite.workloads.streams.lhcb import program
from fsmatrix.suite.workloads.streams.lhcb.analysis import TREE
from fsmatrix.suite.workloads.streams.lhcb.program import MARK, Request
from tests.suite.running import fsmatrix
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
EVENTS = 20_000
COMPRESSIONS = ("none", "zstd")
PAGES = (4096, 16384, 65536, 262144)
CAMPAIGN = """
campaign: lhcb
targets:
{targets}
workloads:
  lhcb: {{workload: rntuple, engine: {engine}, options: {{{options}}}}}
{more}
repetitions: 1
cache: {cache}
settle: {{timeout: 1s}}
order: {{attachments: 1}}
limits: {{time_per_run: 120s}}
"""


def sample(events: int = 400, seed: int = 3) -> dict[str, npt.NDArray[Any]]:
    """Columns of some events."""
    return dict(generator.events(seed, 0, events))


def tree(path: Path, columns: dict[str, npt.NDArray[Any]], name: str = TREE) -> Path:
    """A user's file with a TTree."""
    import uproot  # not needed to collect tests: `pytest -m daos` runs where only DAOS is

    with uproot.recreate(path) as file:
        file.mktree(name, {key: values.dtype for key, values in columns.items()}).extend(columns)
    return path


def campaign(
    folder: Path,
    options: str,
    targets: str = "",
    engine: str = "uproot",
    more: str = "",
    cache: str = "warm",
) -> Path:
    """A campaign on a folder, or on other targets."""
    (folder / "one").mkdir(exist_ok=True)
    own = f"  one: {{backend: directory, options: {{path: {folder / 'one'}}}}}"
    file = folder / "c.yaml"
    given = {"options": options, "engine": engine, "more": more, "cache": cache}
    file.write_text(CAMPAIGN.format(targets=targets or own, **given))
    return file


def run(file: Path, *words: str) -> tuple[int, list[RunRecord], str]:
    """Status of the campaign's run, its records, and what it said."""
    out = file.parent / "out"
    done = fsmatrix("run", file, "-o", out, "--quiet", *words)
    if not (out / "store.json").exists():
        return done.returncode, [], done.stdout + done.stderr
    store = Store.open(out)
    return done.returncode, [store.read(one) for one in store.ids()], done.stdout + done.stderr


def answered(text: str) -> dict[str, Any]:
    """What a program of the analysis printed."""
    (line,) = [line for line in text.splitlines() if line.startswith(MARK)]
    return dict(json.loads(line.removeprefix(MARK)))


def in_root(function: str, *folders: Path) -> Any:
    """What a function of this module returns in a process with ROOT."""
    argv = [sys.executable, "-m", __name__, function, "root", *map(str, folders)]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def matrix(engine_name: str, *folders: Path) -> dict[str, Any]:
    """folder/compression/page -> what was found; "wanted": what is in the events."""
    engine = program._engine(engine_name)
    engine.load(1, False)
    found = {}
    for folder in folders:
        for compression in COMPRESSIONS:
            for page in PAGES:
                place = str(folder / f"{compression}-{page}.root")
                request = Request(EVENTS, 7, compression=compression, page_size=page)
                wanted = answered(program.write(engine, request.text(), place, "0"))
                seen = answered(program.read(engine, request.text(), place, "0"))
                found[place] = seen["selected"] | {"stored": wanted["stored"]}
                found["wanted"] = wanted["selected"]
    return found


def refused(engine_name: str, folder: Path, full: Path) -> dict[str, str]:
    """What a program says of input that it cannot use, and of a full disk."""
    own, wrong, lost = sample(), sample(), sample()
    own["H3_ProbK"][[3, 5]] = np.nan
    own["B_FlightDistance"][7] = np.inf
    del wrong["H2_ProbPi"], wrong["B_VertexChi2"]
    wrong["H1_isMuon"] = wrong["H1_isMuon"].astype("f8")
    files = {
        "nan": tree(folder / f"{engine_name}-nan.root", own),
        "schema": tree(folder / f"{engine_name}-wrong.root", wrong),
        "tree": tree(folder / f"{engine_name}-tree.root", lost, name="Other"),
        "text": folder / f"{engine_name}-text.root",
    }
    files["text"].write_text("no file of ROOT\n" * 20)
    requests = {
        name: Request(400, 0, source=str(path), tree=TREE, compression="none")
        for name, path in files.items()
    }
    words = {
        name: ["write", request.text(), str(folder / "never.root"), "0"]
        for name, request in requests.items()
        if name == "nan"
    } | {name: ["describe", str(path), TREE] for name, path in files.items() if name != "nan"}
    big = Request(40_000, 7, compression="none")
    words["full"] = ["write", big.text(), str(full / "full.root"), "0"]
    said = {}
    for name, given in words.items():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = program.main([engine_name, *given])
        said[name] = f"{status}: {answered(printed.getvalue()).get('error')}"
    return said


def finite(columns: dict[str, npt.NDArray[Any]]) -> bool:
    """Whether there is neither NaN nor infinity."""
    return all(bool(np.isfinite(values).all()) for values in columns.values())


if __name__ == "__main__":
    function = {"matrix": matrix, "refused": refused}[sys.argv[1]]
    print(json.dumps(function(sys.argv[2], *map(Path, sys.argv[3:]))))
