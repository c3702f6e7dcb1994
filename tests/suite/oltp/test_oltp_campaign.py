"""A campaign with a database: its conductor is killed, it is resumed, its numbers are stored."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from fsmatrix import analysis
from fsmatrix.suite.oltp.task import DATA
from tests.suite.oltp_steps import left_running, named
from tests.suite.running import Running, fsmatrix

pytestmark = [pytest.mark.needs("postgresql"), pytest.mark.xdist_group("oltp")]
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
