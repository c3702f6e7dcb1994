"""Evidence as it is stored: read and written again, of before, of others, and damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest

from fsmatrix.results.evidence.evidence import Evidence, Limits, Load, Note, OutputPlace, Rank
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files.runfile import read_run, write_run
from fsmatrix.results.files.schema import InvalidRecordError, to_json
from tests.results.hostile import record

LOOKS = [{"host": "a", "before": {"x": 1}, "after": {"x": 2.5}}]
STORED: dict[str, Any] = {
    "acme": {"a": [1, None]},  # of another package
    "output": {"on_target": True, "written": 0},
    "counters": {"read": LOOKS, "write": []},
    "cache": {"read": {"declared": "cold", "reads": True, "state": "memory"}},
    "limits": {"device_bytes_per_second": 7, "sources": {}, "network_bytes_per_second": 1.5},
    "load": {"before": 3.0, "foreign": 0.2},  # as stored before its noise was known
    "engine": {"name": "ior", "version": "", "nodes": None, "processes": 2, "notes": [
        {"key": "warning", "message": "x", "line": 0, "phase": ""}], "facts": {"more": 1}},
    "seconds": {"settle": 0.5},
    "keys": "a key of this name",
}  # fmt: skip


def test_what_is_read_and_written_again_is_the_same_text() -> None:
    text = json.dumps(STORED)
    assert json.dumps(read(Evidence, json.loads(text), "evidence").document()) == text


FIRST = {  # as files of the first version hold it
    "rank": 1, "host": "n1", "node": 0, "node_rank": 1, "boot_id": "x", "mounts": "mnt:[1]",
    "pid": 7, "cpus": [0, 1], "policy": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    "stored", [FIRST, FIRST | {"processor": "n", "shared": 0, "links": 0.0, "affinity": "core"}]
)
def test_ranks_of_every_version_are_stored_again_as_the_same_text(
    tmp_path: Path, stored: dict[str, object]
) -> None:
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    write_run(first, replace(record(), ranks=(read(Rank, stored, "rank"),)))
    again = read_run(first)
    assert again.ranks[0].cpus == (0, 1)
    assert again.ranks[0].links == stored.get("links")
    write_run(second, again)
    with h5py.File(first) as one, h5py.File(second) as other:
        assert one.attrs["ranks"] == other.attrs["ranks"] == to_json([stored])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pid": "7"}, "rank.pid is '7', not of type int"),
        ({"cpus": [0, "1"]}, r"rank.cpus\[1\] is '1', not of type int"),
        ({"cpus": [True]}, r"rank.cpus\[0\] is True, not of type int"),
        ({"policy": "none"}, "rank.policy is unknown"),
    ],
)
def test_what_a_message_must_not_hold_is_named(changes: dict[str, object], reason: str) -> None:
    place = {key: value for key, value in FIRST.items() if key != "policy"}
    assert read(Rank, place, "rank", exact=True).document() == place
    with pytest.raises(StoredError, match=reason):
        read(Rank, place | changes, "rank", exact=True)


def test_keys_that_nobody_knows_are_kept_in_run_files(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write_run(path, replace(record(), evidence=read(Evidence, STORED, "evidence")))
    again = read_run(path).evidence
    assert again.document() == STORED
    assert again.more == {"acme": STORED["acme"], "keys": STORED["keys"]}
    assert again.load is not None
    assert again.load.more == {"before": 3.0}


def test_what_is_not_there_is_not_known() -> None:
    evidence = read(Evidence, STORED, "evidence")
    assert evidence.world is None
    assert evidence.load == Load(foreign=0.2, noise=None, more={"before": 3.0})
    assert evidence.cache["read"].method is None


def test_new_groups_stand_behind_the_old_ones() -> None:
    evidence = replace(Evidence(), seconds={"settle": 1.0})
    evidence = replace(evidence, output=OutputPlace(on_target=False, written=0))
    evidence = replace(evidence, seconds={"settle": 2.0}, limits=None)
    assert evidence.document() == {
        "seconds": {"settle": 2.0}, "output": {"on_target": False, "written": 0},
    }  # fmt: skip
    assert list(evidence.document()) == ["seconds", "output"]
    assert list(Limits(device_bytes_per_second=1.0, sources={}).document()) == [
        "device_bytes_per_second", "sources",
    ]  # fmt: skip
    assert Note("warning", "x").document() == {
        "key": "warning", "message": "x", "line": 0, "phase": "",
    }  # fmt: skip
    assert Evidence().document() == {}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("counters", 7, "evidence.counters is 7, not a mapping"),
        ("counters", {"read": {}}, r"evidence.counters.read is \{\}, not a list"),
        ("counters", {"read": [{"before": {}}]}, r"evidence.counters.read\[0\].after is missing"),
        ("counters", {"r": [LOOKS[0] | {"after": {"x": "2"}}]}, "x is '2', not of type float"),
        ("world", {"got_ranks": 1.5}, "evidence.world.got_ranks is 1.5, not of type int"),
        ("world", {"got_ranks": True}, "evidence.world.got_ranks is True, not of type int"),
        ("settle", {"write": {"reached": 1}}, "evidence.settle.write.reached is 1, not of type"),
        ("health", {"write": [None]}, r"evidence.health.write\[0\] is None, not of type str"),
    ],
)
def test_a_damaged_value_is_named(tmp_path: Path, key: str, value: object, reason: str) -> None:
    with pytest.raises(StoredError, match=reason):
        read(Evidence, {key: value}, "evidence")
    path = tmp_path / "run.h5"
    write_run(path, replace(record(), evidence=Evidence(more={key: value})))
    with pytest.raises(InvalidRecordError, match=reason):
        read_run(path)
