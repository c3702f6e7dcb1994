"""Health, settling and counters of DAOS's backends."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsmatrix.backends.access import DfsAccess
from fsmatrix.backends.daos import daos_state
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.daos.tools import Client, Pool, System
from fsmatrix.backends.local import provenance
from tests.backends.daos_standin import Standin, answer, details


@pytest.fixture
def own_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The only address that this machine seems to have; routes to others leave from there."""
    item = psutil.net_if_addrs()["lo"][0]._replace(address="192.0.2.77")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [item]})
    for name in ("eth0", "bond0"):
        (tmp_path / "net" / name / "statistics").mkdir(parents=True)
        for file in ("rx_bytes", "tx_bytes"):
            (tmp_path / "net" / name / "statistics" / file).write_text("100\n")
    monkeypatch.setattr(provenance, "SYS_NET", tmp_path / "net")
    ways = {"127.0.0.1": "127.0.0.1", "": ""}
    monkeypatch.setattr(provenance, "_source", lambda address: ways.get(address, "192.0.2.77"))
    provenance.interfaces.cache_clear()
    yield "192.0.2.77"
    provenance.interfaces.cache_clear()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"disabled_targets": 1, "total_targets": 8}, "1 of 8 targets are disabled"),
        ({"state": "TargetsExcluded"}, "the pool is in state TargetsExcluded"),
        ({"disabled_ranks": [0, 3]}, "ranks that are disabled: 0, 3"),
        ({"dead_ranks": [2]}, "ranks that are dead: 2"),
        ({"rebuild": {"state": "busy", "status": 0}}, "a rebuild is going on (busy)"),
        ({"rebuild": {"state": "done", "status": -1007}}, "ended with status -1007"),
    ],
)
def test_health_and_settling(standin: Standin, change: dict[str, Any], expected: str) -> None:
    access = DfsAccess("daos-dfs", "a", details(), "bench", "posix1")
    told = answer("daos-pool-query")
    told["response"] |= change
    standin.fault("pool query", "print", text=json.dumps(told))
    (found,) = DaosDfs.health(access)
    assert expected in found
    busy = "busy" in expected
    assert DaosDfs.settle(access, 0.6 if busy else 60.0).reached is not busy


def test_a_pool_map_that_changed_since_attachment(standin: Standin) -> None:
    """The exclusion and its rebuild may be over before anybody looks."""
    access = DfsAccess("daos-dfs", "a", details(), "bench", "posix1")
    assert DaosDfs.health(access) == []
    told = answer("daos-pool-query")
    told["response"] |= {"version": 3}
    standin.fault("pool query", "print", text=json.dumps(told))
    (sentence,) = DaosDfs.health(access)
    assert "targets of the pool were excluded or came back" in sentence
    assert "was 1 and is 3" in sentence


def test_a_degraded_pool_as_recorded(standin: Standin) -> None:
    """An engine of three was killed: excluded, and its data being rebuilt."""
    standin.fault("pool query", "print", text=json.dumps(answer("daos-pool-query-degraded")))
    sentences = DaosDfs.health(DfsAccess("daos-dfs", "a", details(), "bench", "posix1"))
    said = "; ".join(sentences)
    for part in ("state Degraded", "1 of 3 targets are disabled", "disabled: 1", "rebuild", "is 3"):
        assert part in said


def at_looks(monkeypatch: pytest.MonkeyPatch, *free: int, seconds: float = 1.0) -> None:
    """Free bytes that each look at the pool gives (the last for ever), so many seconds apart."""
    told = Pool.model_validate(answer("daos-pool-query")["response"])
    looks = itertools.chain(free, itertools.repeat(free[-1]))
    clock = itertools.count()

    def query(self: Client, pool: str) -> Pool:
        assert (self, pool) == (Client(), "bench")
        tier = told.tiers[0].model_copy(update={"free": next(looks)})
        return told.model_copy(update={"tier_stats": [tier]})

    monkeypatch.setattr(Client, "pool_query", query)
    monkeypatch.setattr(daos_state.time, "monotonic", lambda: seconds * next(clock))
    monkeypatch.setattr(daos_state.time, "sleep", lambda _: None)


@pytest.mark.parametrize(
    ("free", "timeout", "reached"),
    [
        ([900], 10.0, True),  # nothing changes
        ([600, 700, 800, 800], 30.0, True),  # it comes back, and then no more
        ([600, 700, 800, 900, 950, 970, 980, 990, 995], 5.0, False),  # still growing in the end
        ([300], 10.0, False),  # too little, and it may still come
        ([300], 100.0, True),  # too little, and nothing came for long
        ([300, 300, 900], 30.0, True),  # it came
    ],
)
def test_space_that_comes_back_late(
    monkeypatch: pytest.MonkeyPatch, free: list[int], timeout: float, reached: bool
) -> None:
    """1000 bytes were free at attachment."""
    at_looks(monkeypatch, *free)
    settled = daos_state.settle(details(free=1000), timeout)
    assert settled.reached is reached
    assert settled.state["free"]["scm"] == free[-1] or not reached
    assert settled.seconds <= timeout + 3


@pytest.mark.parametrize(
    ("looks", "at_least", "at_most"),
    [
        ([1000, 900], 0.0, 3.0),  # enough
        ([1000, 300, 300, 400, 600], 3.0, 12.0),  # it comes
        ([1000, 300], daos_state.LATE, daos_state.LATE + 6.0),  # it does not
        (
            [1000, *range(10, 490)],
            daos_state.LONGEST_WAIT,
            daos_state.LONGEST_WAIT + 6.0,
        ),  # too slowly
        ([300], 0.0, 3.0),  # nobody knows of more
    ],
)
def test_space_of_an_earlier_attachment(
    monkeypatch: pytest.MonkeyPatch, looks: list[int], at_least: float, at_most: float
) -> None:
    monkeypatch.setattr(daos_state, "_most", {})
    at_looks(monkeypatch, *looks)
    said: list[str] = []
    for _ in looks[:2]:
        began = daos_state.time.monotonic()
        pool = daos_state.returned(Client(), "bench", said.append)
        took = daos_state.time.monotonic() - began
    assert at_least <= took <= at_most
    assert bool(said) is (at_least > 0)
    assert daos_state.free_space(pool).bytes in looks[1:] or looks == [300]


def test_bulk_data_goes_to_nvme() -> None:
    told = answer("daos-pool-query")["response"]
    pool = Pool.model_validate(told)
    assert daos_state.free_space(pool).bytes == told["tier_stats"][0]["free"]
    told["tier_stats"][1] |= {"total": 10**13, "free": 9 * 10**12}
    assert daos_state.free_space(Pool.model_validate(told)).bytes == 9 * 10**12
    told["tier_stats"] = None
    assert daos_state.free_space(Pool.model_validate(told)).bytes is None


@pytest.mark.parametrize(
    ("provider", "uris", "counted"),
    [
        ("ofi+tcp", ["ofi+tcp://192.0.2.1:31416", "ofi+tcp://192.0.2.2:31416"], True),
        ("ofi+tcp;ofi_rxm", ["ofi+tcp;ofi_rxm://192.0.2.1:31416"], True),
        ("ucx+tcp", ["ucx+tcp://[2001:db8::1]:31416"], True),
        ("ofi+tcp", ["ofi+tcp://192.0.2.1:31416", "ofi+tcp://127.0.0.1:31416"], False),
        ("ofi+tcp", ["ofi+tcp"], False),
        ("ofi+tcp", [], False),
        ("ofi+verbs;ofi_rxm", ["ofi+verbs;ofi_rxm://192.0.2.1:31416"], False),
        ("ofi+cxi", ["ofi+cxi://0x2ad8"], False),
        ("ucx+dc_x", ["ucx+dc_x://192.0.2.1:31416"], False),
    ],
)
def test_counters_only_where_the_bytes_are_seen(
    provider: str, uris: list[str], counted: bool, own_address: str
) -> None:
    system = System.model_validate(
        {
            "system_name": "s",
            "fabric_provider": provider,
            "rank_uris": [{"rank": rank, "uri": uri} for rank, uri in enumerate(uris)],
        }
    )
    details = {"provider": provider, "servers": daos_state.servers(system)}
    counters = DaosDfs.counters(DfsAccess("daos-dfs", "a", details, "bench", "x"))
    names = ("network_received_bytes", "network_sent_bytes") if counted else ()
    assert counters == dict.fromkeys(names, 100.0)  # of one interface


def test_an_engine_on_this_machine_is_not_counted(own_address: str) -> None:
    def counters(address: str) -> dict[str, float]:
        details = {"provider": "ofi+tcp", "servers": [address]}
        return DaosDfs.counters(DfsAccess("daos-dfs", "a", details, "bench", "x"))

    assert counters(own_address) == {}
    assert counters("192.0.2.78") != {}
