"""A campaign with a database: its conductor is killed, it is resumed, its numbers are stored."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from fsmatrix import analysis
from fsmatrix.results.files.store import Store
from fsmatrix.suite.oltp.account import DATA
from tests.suite.oltp_steps import left_running, named
from tests.suite.running import Running, fsmatrix, ranks_of

pytestmark = [pytest.mark.needs("postgresql", "own folders"), pytest.mark.xdist_group("oltp")]
CAMPAIGN = """
campaign: oltp
targets:
  here: {backend: directory, options: {path: PATH}}
workloads:
  tpcc:
    workload: tpcc
    options: {warm_up: 1s, runtime: 6s, settings: {max_wal_size: 64MB, min_wal_size: 32MB}}
repetitions: 1
order: {attachments: 1}
cache: warm
launcher: local
limits: {time_per_run: 4min, space: 2GiB}
"""


def beside_more_ranks(folder: Path, launcher: str) -> Path:
    """A campaign whose sessions have two ranks, because another of its workloads needs them."""
    place = folder / "place"
    place.mkdir()
    text = CAMPAIGN.replace("PATH", str(place)).replace("launcher: local", f"launcher: {launcher}")
    text = text.replace("warm_up: 1s, runtime: 6s", "warm_up: 1s, runtime: 3s")
    text = text.replace(
        "repetitions:",
        "  io: {workload: pattern, options: {pattern: seq-write, bytes_per_process: 1MiB}}\n"
        "factors: {processes_per_node: [1, 2]}\nimpossible: skip\nrepetitions:",
    )
    (folder / "oltp.yaml").write_text(text)
    return folder / "oltp.yaml"


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize(
    "launcher",
    [
        "mpirun",
        pytest.param(
            "{name: mpirun, emulated_nodes: 2}", marks=pytest.mark.needs("emulated nodes")
        ),
    ],
)
def test_a_database_in_a_session_of_several_ranks(tmp_path: Path, launcher: str) -> None:
    """Open MPI's own files are in a folder of the session's user alone; the database's are not."""
    campaign, out = beside_more_ranks(tmp_path, launcher), tmp_path / "out"
    done = fsmatrix("run", campaign, "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert [record.status for record in records] == ["ok"] * 3
    (oltp,) = (record for record in records if record.engine == "postgresql")
    assert {record.session for record in records} == {oltp.session}, "one of two ranks"
    assert list((tmp_path / "place").iterdir()) == []


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL", "rank"])
def test_folders_of_a_database_go_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short: sockets are in it
    temporary.chmod(0o711)
    monkeypatch.setenv("TMPDIR", str(temporary))
    try:
        campaign, out = beside_more_ranks(tmp_path, "mpirun"), tmp_path / "out"
        running = Running(campaign, "-o", out)
        deadline = time.monotonic() + 120
        while not list(temporary.glob("fsmatrix-work-*/s/.s.PGSQL.*")):
            assert time.monotonic() < deadline, "no server was started"
            time.sleep(0.05)
        (data,) = (tmp_path / "place").glob(f"fsmatrix-*/data/*/{DATA}")
        if end == "rank":
            os.kill(ranks_of(out)[1], signal.SIGKILL)
            running.end()
        else:
            running.process.send_signal(signal.Signals[end])
            running.process.communicate()
        assert left_running(data.parent) == []
        if end == "SIGKILL":  # its ranks end by themselves; what they leave goes with the next
            fsmatrix("run", campaign, "-o", out, "--resume", "--set", "limits.time_per_run=1s")
        assert list(temporary.iterdir()) == []
        assert list((tmp_path / "place").iterdir()) == []
    finally:
        shutil.rmtree(temporary)


def working(place: Path, deadline: float = 120.0) -> Path:
    """The run's directory, once its users work."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        for data in place.glob(f"fsmatrix-*/data/*/{DATA}"):
            if named("pgbench", str(data.parent)):
                return data.parent
        time.sleep(0.05)
    pytest.fail(f"nobody works in {place}")


def test_a_killed_campaign_leaves_nothing_and_is_resumed(tmp_path: Path) -> None:
    place, out = tmp_path / "place", tmp_path / "out"
    place.mkdir(mode=0o700)  # nobody but the user gets there by the path
    (tmp_path / "oltp.yaml").write_text(CAMPAIGN.replace("PATH", str(place)))
    running = Running(tmp_path / "oltp.yaml", "-o", out)
    run = working(place)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.communicate()
    assert left_running(run) == []
    done = fsmatrix("run", tmp_path / "oltp.yaml", "-o", out, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(place.iterdir()) == []
    assert fsmatrix("collect", out).returncode == 0
    ds = analysis.open(str(out))
    assert ds["phase"].values.tolist() == ["transactions"]
    assert ds["status"].values.tolist() == ["ok"]
    assert ds["engine"].values.tolist() == ["postgresql"]
    rate = float(ds["transaction_rate"][0])
    assert rate == float(ds["iops"][0]) > 0
    assert 0 < float(ds["new_order_rate"][0]) < rate
    assert float(ds["latency_mean"][0]) > 0
    shares = [float(ds[f"cpu_{name}"][0]) for name in ("user", "system", "iowait", "idle")]
    assert sum(shares) == pytest.approx(1, abs=0.2)  # the rest was stolen
    kinds = {str(kind) for kind in ds["kind_name"].values}
    assert (
        {"new-order", "payment"}
        <= kinds
        <= {
            *("new-order", "new-order-cancelled", "payment"),
            *("order-status", "delivery", "stock-level"),
        }
    )
    assert np.isfinite(ds["began"].values).all()
