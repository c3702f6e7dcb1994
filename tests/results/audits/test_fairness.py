"""Facts of deployments side by side: what is equal, what favours whom, what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.audits.fairness import JUDGEMENTS, RULES, Judged, fairness
from fsmatrix.results.evidence import target as d
from fsmatrix.results.evidence.stored import StoredError
from fsmatrix.results.evidence.target import NAMES, Deployment, deployment_of

DOCS = Path(__file__).parents[3] / "docs/ceph-vs-daos.md"
GIB = 1 << 30


def judged(fact: str, *values: Any, varied: tuple[str, ...] = ()) -> Judged:
    """One fact of targets a, b, c...; None: not known."""
    targets = {
        name: {} if value is None else {fact: value if isinstance(value, list) else [value]}
        for name, value in zip("abcd", values, strict=False)
    }
    (one,) = [each for each in fairness(targets, varied).facts if each.name == fact]
    return one


def test_every_fact_of_a_deployment_has_a_rule() -> None:
    beside = {"clients", "realised", "reads_from_server_memory"}  # of runs, not of deployments
    assert {rule.name for rule in RULES} == {*NAMES, *beside}
    assert len({rule.title for rule in RULES}) == len(RULES)


def test_every_fact_is_documented() -> None:
    table = DOCS.read_text().partition("| fact | values |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert rows == [rule.title for rule in RULES]


@pytest.mark.parametrize(
    ("fact", "first", "second", "favours"),
    [
        ("redundancy", "none", "replica 3", "a"),
        ("redundancy", "EC 4+2", "replica 2", "a"),
        ("redundancy", "EC 2+1", "EC 4+2", ""),  # 1.5 bytes each
        ("redundancy", "none", "three copies", ""),
        ("failure_domain", "osd", "host", ""),
        ("durability", d.WRITE_BACK, d.DURABLE, "a"),
        ("checksums", "crc64 end to end", "crc32c at rest", "b"),
        ("checksums", "none", "crc32c at rest", "a"),
        ("checksums", "sha256 at rest", "crc32c at rest", ""),
        ("ec_encoder", d.CLIENT, d.SERVER, ""),
        ("chunk_size", 1 << 20, 4 << 20, ""),
        ("transport", d.TCP, d.RDMA, "b"),
        ("encrypted", True, False, "b"),
        ("data_cache", "page cache", "none", "a"),
        ("data_cache", "page cache", "object cache", ""),
        ("clients", 4, 8, "b"),
        ("storage_nodes", 3, 4, "b"),
        ("devices_per_node", 6.0, 3.0, "a"),
        ("media", d.HDD, d.SSD, "b"),
        ("media", d.NVME, d.PMEM, "b"),
        ("media", d.FILE, d.NVME, ""),
        ("media", d.FILE, d.RAM, "b"),
        ("media", [d.FILE, d.RAM], d.RAM, ""),
        ("metadata_media", d.RAM, "PMem or RAM", ""),
        ("shared_cores", d.NONE, d.SHARED, "a"),
        ("shared_cores", d.POLLED, d.SHARED, "b"),
        ("media", "NVMe SSD + SSD", d.HDD, ""),
        ("fill", 0.05, 0.6, "a"),
        ("usable_bytes", 10 * GIB, 5 * GIB, "a"),
        ("server_cores", 64, 32, "a"),
        ("server_memory", 0, 128 * GIB, "b"),
        ("reads_from_server_memory", True, False, "a"),
        ("realised", "emulated", "hardware", ""),
    ],
)
def test_whom_a_difference_favours(fact: str, first: Any, second: Any, favours: str) -> None:
    one = judged(fact, first, second)
    assert (one.judgement, "".join(one.favours)) == ("unequal", favours)
    assert (f"It favours {favours}: {one.why}." in one.says) == bool(favours)
    assert one.whom == (favours or ("depends" if one.why else "not known"))
    other = judged(fact, second, first)
    assert "".join(other.favours) == favours.translate({97: 98, 98: 97})  # the same one


@pytest.mark.parametrize(
    ("fact", "first", "second", "judgement"),
    [
        ("fill", 0.02, 0.12, "equal"),
        ("fill", 0.02, 0.13, "unequal"),
        ("usable_bytes", 100 * GIB, 109 * GIB, "equal"),
        ("usable_bytes", 100 * GIB, 111 * GIB, "unequal"),
        ("usable_bytes", [100 * GIB, 105 * GIB], [107 * GIB], "equal"),
        ("server_memory", 0, 1, "unequal"),
        ("chunk_size", 4 << 20, 4 << 20, "equal"),
        ("chunk_size", [1 << 20, 4 << 20], [4 << 20, 1 << 20], "equal"),
        ("chunk_size", [1 << 20, 4 << 20], [1 << 20], "unequal"),
        ("encrypted", False, False, "equal"),
        ("encrypted", False, None, "unknown"),
        ("encrypted", None, None, "unknown"),
    ],
)
def test_what_is_equal(fact: str, first: Any, second: Any, judgement: str) -> None:
    assert judged(fact, first, second).judgement == judgement


def test_of_three_targets_all_at_the_top_are_favoured() -> None:
    one = judged("transport", d.RDMA, d.TCP, d.RDMA, None)
    assert one.favours == ("a", "c")
    assert one.says == (
        "Transport: RDMA (a, c), TCP (b), unknown (d). It favours a and c: a message takes less "
        "CPU and time, or there is none."
    )


def test_targets_within_the_tolerance_of_the_best_are_favoured_too() -> None:
    assert judged("fill", 0.0214, 0.31, 0.0215).favours == ("a", "c")
    assert judged("usable_bytes", 100 * GIB, 95 * GIB, 50 * GIB).favours == ("a", "b")
    assert "It favours a, c and d: " in judged("transport", d.RDMA, d.TCP, d.RDMA, d.RDMA).says


@pytest.mark.parametrize(
    ("fact", "values", "factor"),
    [
        ("storage_nodes", ([2, 3], [2, 3]), "storage_nodes"),
        ("storage_nodes", ([2, 3], [2]), "storage_nodes"),
        ("media", (["SSD"], ["HDD", "SSD"]), "interface"),
        ("redundancy", (["none", "replica 2"], ["replica 2"]), "object_class"),
        ("data_cache", (["none", "page cache"], ["page cache"]), "caching"),
    ],
)
def test_what_is_varied_on_purpose_is_no_unfairness(
    fact: str, values: tuple[list[Any], list[Any]], factor: str
) -> None:
    assert judged(fact, *values, varied=(factor, "chunk")).judgement == "varied"
    alone = judged(fact, *values, varied=("chunk",)).judgement
    assert alone == ("equal" if values[0] == values[1] else "unequal")


def test_a_factor_of_one_target_excuses_no_difference_of_others() -> None:
    """DFUSE's caching is a factor; that libcephfs has a cache and DFS none is none."""
    dfuse, dfs, libcephfs = ["none", "page cache"], ["none"], ["object cache"]
    vary = {"varied": ("caching",)}
    assert judged("data_cache", dfuse, dfs, **vary).judgement == "varied"
    assert judged("data_cache", dfuse, libcephfs, **vary).judgement == "unequal"
    assert judged("data_cache", dfs, libcephfs, **vary).judgement == "unequal"
    assert judged("data_cache", dfuse, dfs, libcephfs, **vary).judgement == "unequal"
    assert judged("data_cache", dfuse, dfs, None, **vary).judgement == "varied"


def test_counts_sentences_and_json() -> None:
    sides = {
        "ceph": {"redundancy": ["replica 3"], "transport": ["TCP"], "durability": [d.WRITE_BACK]},
        "daos": {"redundancy": ["none"], "transport": ["TCP"]},
    }
    made = fairness(sides)
    assert made.counts == {
        "unequal": 1, "unknown": len(RULES) - 2, "varied": 0, "equal": 1,
    }  # fmt: skip
    assert tuple(made.counts) == JUDGEMENTS
    says = made.says
    assert says[0] == (
        f"Of {len(RULES)} facts that decide whether ceph and daos are compared fairly: 1 unequal, "
        f"{len(RULES) - 2} unknown, 1 equal."
    )
    assert says[1] == (
        "Redundancy: replica 3 (ceph), none (daos). It favours daos: a write stores fewer bytes "
        "for each byte of a client."
    )
    assert "durability of a write" in says[2]
    assert "targets.NAME.deployment" in says[2]
    told = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    of = {fact["fact"]: fact for fact in told["facts"]}
    assert of["redundancy"]["favours"] == ["daos"]
    assert of["durability"]["values"] == {"ceph": d.WRITE_BACK, "daos": None}
    assert made.among(["daos", "ceph"]).to_dict() == made.to_dict()


def test_one_target_alone_is_not_compared() -> None:
    with pytest.raises(ValueError, match="one target alone"):
        fairness({"a": {}})


@pytest.mark.parametrize(
    ("text", "stored"),
    [("none", 1.0), ("replica 2", 2.0), ("EC 8+2", 1.25), ("EC 0+2", None), ("RP_2G1", None)],
)
def test_bytes_stored_for_a_byte(text: str, stored: float | None) -> None:
    assert d.stored_bytes(text) == stored


def test_a_deployment_is_stored_and_read_back() -> None:
    told = Deployment(redundancy="none", encrypted=False, fill=0.25, server_memory=0)
    document = json.loads(json.dumps(told.document()))
    assert document == {"redundancy": "none", "encrypted": False, "fill": 0.25, "server_memory": 0}
    assert deployment_of({"target": {"name": "a", "deployment": document}}).facts == told.facts
    assert deployment_of({"target": {"name": "a"}}).facts == {}  # files of before
    assert deployment_of({}).facts == {}
    assert deployment_of({"imported": {}, "target": "x"}).facts == {}
    with pytest.raises(StoredError, match=r"deployment\.server_memory"):
        deployment_of({"target": {"deployment": {"server_memory": "much"}}})


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1.0, 1e30], ids=["nan", "inf", "negative", "huge"]
)
def test_impossible_numbers_are_not_known(value: float) -> None:
    assert Deployment(fill=value, devices_per_node=2.0).facts == {"devices_per_node": 2.0}


def test_what_is_known_first_counts() -> None:
    first, second = Deployment(transport="TCP"), Deployment(transport="RDMA", media="SSD")
    assert first.completed(second).facts == {"transport": "TCP", "media": "SSD"}


@pytest.mark.parametrize(
    ("declared", "comes_to"), [("RAM", "RAM"), ("PMem", "PMem"), ("SSD", "PMem or RAM")]
)
def test_what_is_declared_says_which_of_several_it_is(declared: str, comes_to: str) -> None:
    seen = Deployment(media="PMem or RAM", metadata_media="PMem or RAM")
    told = seen.completed(Deployment(media=declared)).facts
    assert told == {"media": comes_to, "metadata_media": "PMem or RAM"}
