"""Evidence as it is stored: read and written again, of before, of others, and damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.evidence.evidence import Evidence, Limits, Load, Note, OutputPlace
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files.hdf5.schema import InvalidRecordError
from fsmatrix.results.files.run.runfile import read_run, write_run
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
