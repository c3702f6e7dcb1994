"""pgbench's logs, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.results import histogram
from fsmatrix.suite.oltp import logs

NAMES = ("new-order", "payment")


def test_a_window_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.1"
    path.write_text(
        "0 1 900 0 99 999999 0\n"  # before the window
        "0 2 1000 0 100 0 0\n"
        "1 1 3000 1 101 500000 2\n"
        "0 3 serialization 1 101 600000 9\n"
        "0 4 deadlock 0 101 700000 9\n"
        "1 2 5000 0 101 999999 1\n"
        "1 3 700 1 102 0 0\n"  # after it
    )
    found = logs.count([path, tmp_path / "log.1"][:1], NAMES, 2, (100.0, 102.0), lag=False)
    assert found.outside == 2
    assert found.of_users.tolist() == [1, 2]
    assert found.each_second.tolist() == [1, 2]
    assert (found.retries, found.retried) == (3, 2)
    assert found.failures == {"serialization": 1, "deadlock": 1}
    told = {name: times.answer for name, times in found.latency.items()}
    assert told["new-order"].count == 2
    assert told["new-order"].total == pytest.approx(6e-3)
    assert (told["new-order"].minimum, told["new-order"].maximum) == (1e-3, 5e-3)
    assert histogram.dense(told["payment"].histogram)[histogram.bin_of(3_000_000)] == 1
    assert not found.service


def test_a_schedule_has_lag_and_what_was_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.1"
    path.write_text("0 1 1500 0 100 0 500 0\n0 2 skipped 0 100 5 0 0\n")
    found = logs.count([path], NAMES, 1, (100.0, 101.0), lag=True)
    assert found.skipped == 1
    assert found.latency["new-order"].total == 1_500_000
    assert found.service["new-order"].total == 1_000_000


def test_an_empty_log_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_text("")
    found = logs.count([tmp_path / "log.1"], NAMES, 3, (0.0, 1.0), lag=False)
    assert found.of_users.tolist() == [0, 0, 0]
    assert found.latency == {}


def test_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_text("what is this\n")
    with pytest.raises(ValueError, match="what"):
        logs.count([tmp_path / "log.1"], NAMES, 1, (0.0, 1.0), lag=False)
