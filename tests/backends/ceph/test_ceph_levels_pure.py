"""Levels of the cluster factors on Ceph: what needs no cluster."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.ceph.ceph_options import LevelOptions
from fsmatrix.backends.ceph.levelstate import (
    Host,
    Level,
    hosts_of,
    placement_refusal,
    removing,
)
from fsmatrix.results.evidence.target import parse_redundancy

TREE = {
    "nodes": [
        {"id": -1, "name": "default", "type": "root", "children": [-9, -3]},
        {"id": -9, "name": "rack1", "type": "rack", "children": [-2, -4]},
        {"id": -2, "name": "a", "type": "host", "children": [0, 1]},
        {"id": -3, "name": "b", "type": "host", "children": [2, 3]},
        {"id": -4, "name": "c", "type": "host", "children": [4]},
        {"id": 0, "name": "osd.0", "type": "osd", "device_class": "ssd", "status": "up",
         "reweight": 1.0},
        {"id": 1, "name": "osd.1", "type": "osd", "device_class": "nvme", "status": "up",
         "reweight": 1.0},
        {"id": 2, "name": "osd.2", "type": "osd", "device_class": "ssd", "status": "down",
         "reweight": 1.0},
        {"id": 3, "name": "osd.3", "type": "osd", "device_class": "ssd", "status": "up",
         "reweight": 1.0},
        {"id": 4, "name": "osd.4", "type": "osd", "device_class": "ssd", "status": "up",
         "reweight": 0.0},
    ]
}  # fmt: skip


def test_hosts_have_osds_of_the_class_that_are_up_and_in() -> None:
    assert hosts_of(TREE, "default", "") == [Host("a", (0, 1)), Host("b", (3,))]
    assert hosts_of(TREE, "default", "nvme") == [Host("a", (1,))]
    assert hosts_of(TREE, "rack1", "ssd") == [Host("a", (0,))]
    assert hosts_of(TREE, "default", "hdd") == []
    assert hosts_of(TREE, "elsewhere", "") is None


def level(**changes: Any) -> Level:
    known: dict[str, Any] = {
        "name": "fsmatrix-x", "tag": "t", "hosts": ("a", "b"), "osds": (0, 1),
        "redundancy": parse_redundancy("size=2"), "failure_domain": "host", "device_class": "",
        "pg_num": 64,
    }  # fmt: skip
    return Level(**known | changes)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("filesystem", ["", "cephfs"])
def test_only_what_is_ours_is_made_moved_or_removed(coded: bool, filesystem: str) -> None:
    made = level(
        filesystem=filesystem, redundancy=parse_redundancy("ec=2+1" if coded else "size=2")
    )
    removal = removing(made.name, made.hosts, filesystem, coded)
    for command in [*made.making(), *removal]:
        verb = command.prefix
        assert "move" not in verb
        assert "device-class" not in verb
        first = next(iter(command.arguments.values()))
        if verb in ("osd crush link", "osd crush unlink"):
            assert first in made.hosts
            assert made.name in command.text.split()[-1], "only to and from the root of ours"
        else:
            named = set(command.arguments.values() if verb.startswith("fs ") else [first])
            assert made.name in named
    makers = [command.prefix for command in made.making()]
    assert makers.index("osd crush link") < makers.index(
        f"osd crush rule create-{'erasure' if coded else 'replicated'}"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give redundancy"),
        ({"redundancy": "raid5"}, "write size=1, size=3 or ec=2\\+1"),
        (
            {"redundancy": "size=2", "pools": [{"pool": "p"}]},
            "leave out redundancy: the named pools",
        ),
        ({"redundancy": "size=2", "root": "a b"}, "root"),
        ({"redundancy": "size=2", "failure_domain": "rack"}, "failure_domain"),
        ({"redundancy": "size=2", "nodes": 3}, "nodes"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LevelOptions.model_validate(options)


def test_a_prepared_pool_is_found_by_its_level() -> None:
    options = LevelOptions.model_validate(
        {"pools": [{"pool": "p2", "storage_nodes": 2, "interface": "SATA"},
                   {"pool": "p3", "storage_nodes": 3, "interface": "SATA"}]}
    )  # fmt: skip
    found = options.prepared({"storage_nodes": 3, "interface": "sata"})
    assert found is not None
    assert found.pool == "p3"
    assert options.prepared({"storage_nodes": 4, "interface": "sata"}) is None
    assert options.prepared({"interface": "sata"}) is None, "two of them fit"


def test_class_of_an_interface() -> None:
    options = LevelOptions(redundancy="size=2", classes={"PCIe": "nvme"}, device_class="hdd")
    assert options.class_of({"interface": "PCIe"}) == "nvme"
    assert options.class_of({"interface": "SSD"}) == "ssd"
    assert options.class_of({"storage_nodes": 2}) == "hdd"


@pytest.mark.parametrize("name", ["rados", "libcephfs", "cephfs-fuse", "cephfs-kernel"])
def test_factors_and_attributes_come_from_levels(name: str) -> None:
    kind = contract.load(name)
    levels = {"redundancy": "ec=2+1", "failure_domain": "osd"}
    used = kind(kind.Options.model_validate({"levels": levels}))
    assert used.foreseen().level_factors == {"storage_nodes", "interface"}
    assert used.foreseen().attributes == levels
    plain = kind(kind.Options.model_validate({"pool": "p"} if name == "rados" else {}))
    assert plain.foreseen().level_factors == frozenset()
    assert plain.foreseen().attributes == {}


def test_pool_and_levels_exclude_each_other() -> None:
    kind = contract.load("rados")
    with pytest.raises(ValidationError, match="either pool or levels"):
        kind.Options.model_validate({})
    with pytest.raises(ValidationError, match="either pool or levels"):
        kind.Options.model_validate({"pool": "p", "levels": {"redundancy": "size=2"}})
    kind = contract.load("libcephfs")
    with pytest.raises(ValidationError, match="has a pool of its own"):
        kind.Options.model_validate({"data_pool": "p", "levels": {"redundancy": "size=2"}})


def test_what_cannot_be_placed() -> None:
    assert "needs 3 hosts, and there are 2" in placement_refusal("size=3", "host", 2, 12)
    assert "needs 3 OSDs, and there are 2" in placement_refusal("ec=2+1", "osd", 2, 2)
    assert placement_refusal("ec=2+1", "osd", 2, 3) == ""
