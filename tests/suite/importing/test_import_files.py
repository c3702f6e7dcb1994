"""What is imported: labels from paths, files that are found and read."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.importing import recognise
from fsmatrix.suite.importing.importing import compile_pattern, labeller
from fsmatrix.suite.importing.recognise import BinaryError, UnreadableError, find, read
from tests.suite.toy_import import tree


# -- labels --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("r/{target}/{n}/*.json", "r/ceph-a/3/x.json", {"target": "ceph-a", "n": 3}),
        ("r/{target}/{n}/*.json", "r/ceph-a/3/x.txt", None),
        ("r/{target}/*.json", "r/a/b/x.json", None),
        ("{target}.txt", "2024.txt", {"target": "2024"}),
        ("{share}.txt", "0.25.txt", {"share": 0.25}),
        ("{n}.txt", "-007.txt", {"n": -7}),
        ("{size}.txt", "4k.txt", {"size": "4k"}),
        ("{size}.txt", "1e3.txt", {"size": "1e3"}),
        ("{id}.txt", "1234567890123456789.txt", {"id": "1234567890123456789"}),
        ("{a}-{b}.txt", "x-1.txt", {"a": "x", "b": 1}),
        ("{a}/{a}.txt", "x/x.txt", {"a": "x"}),
        ("{a}/{a}.txt", "x/y.txt", None),
        ("**/{target}/*.txt", "x.txt", None),
        ("**/{target}/*.txt", "a/x.txt", {"target": "a"}),
        ("**/{target}/*.txt", "p/q/a/x.txt", {"target": "a"}),
        ("{target}/**", "a/b/c.txt", {"target": "a"}),
        ("{target}/run[0-9]?.txt", "a/run12.txt", {"target": "a"}),
        ("{target}/run[!0-9].txt", "a/run1.txt", None),
        ("{target}+(x).txt", "a+(x).txt", {"target": "a"}),
        ("/data/{target}/*.txt", "/data/a/x.txt", {"target": "a"}),
    ],
)
def test_patterns(pattern: str, path: str, expected: dict[str, Any] | None) -> None:
    assert compile_pattern(pattern).levels([path]) == expected


@pytest.mark.parametrize(
    ("pattern", "path"), [("{a}-{b}.txt", "x-y-1.txt"), ("{a}*.txt", "xy.txt")]
)
def test_patterns_that_can_be_read_in_two_ways(pattern: str, path: str) -> None:
    with pytest.raises(ValueError, match="two ways"):
        compile_pattern(pattern).levels([path])


@given(st.text("ab*?[]!^-{", max_size=8), st.text("ab[]!^-{", max_size=6))
def test_wildcards_mean_what_fnmatch_means(pattern: str, name: str) -> None:
    if pattern == "**":
        return  # any number of components
    expected = re.match(fnmatch.translate(pattern), name) is not None
    compiled = compile_pattern(pattern)
    assert (compiled.longest.fullmatch(name) is not None) == expected
    assert (compiled.shortest.fullmatch(name) is not None) == expected


@pytest.mark.parametrize(
    ("sets", "pattern", "told"),
    [
        (["target"], None, ["name=value"]),
        (["target="], None, ["name=value"]),
        (["phase=write"], None, ["phase", "target, workload", "storage_nodes"]),
        (["run_id=1"], None, ["run_id"]),
        (["engine=ior"], None, ["engine"]),
        (["a b=1"], None, ["a b", "letters"]),
        (["n=1", "n=2"], None, ["twice"]),
        (["target=a"], "{target}/*", ["--set too"]),
        ([], "results/*.json", ["names no factor"]),
        ([], "{run_id}/*.json", ["run_id"]),
        ([], "{1}/*.json", ["{1}"]),
        ([], "{}/*.json", ["{}"]),
    ],
)
def test_labels_that_are_refused(sets: list[str], pattern: str | None, told: list[str]) -> None:
    with pytest.raises(CampaignError) as caught:
        labeller(sets, pattern)
    assert all(word in str(caught.value) for word in told), str(caught.value)


# -- files -----------------------------------------------------------------------------------
def test_directories_are_walked_in_order(tmp_path: Path) -> None:
    root = tree(tmp_path / "r", {"b/2": "", "b/10": "", "a": "", ".hidden": "", ".git/x": ""})
    (root / "link").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "fifo")
    found = find([root, root / "b" / "2"], frozenset())
    assert [one.path.relative_to(root).as_posix() for one in found] == ["a", "b/10", "b/2"]
    assert [one.recorded for one in found] == ["r/a", "r/b/10", "r/b/2"]
    assert found[1].names == ((root / "b" / "10").as_posix(), "r/b/10")
    assert found[1].inside == "b/10"
    (named,) = find([root / "link"], frozenset())
    assert (named.named, named.recorded) == (True, "link")
    with pytest.raises(CampaignError, match="none: no such file"):
        find([root, tmp_path / "none"], frozenset())


def test_compressed_files_and_what_is_not_utf8(tmp_path: Path) -> None:
    data = "\ufeffspeed é\r\n".encode() + b"\xff\n"
    tree(tmp_path, {"a": data, "b.bin": gzip.compress(data)})
    assert read(tmp_path / "a") == read(tmp_path / "b.bin")
    assert read(tmp_path / "a").text == "speed é\r\n\ufffd\n"
    assert read(tmp_path / "a").sha256 == hashlib.sha256(data).hexdigest()


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognise, "LIMIT", 5000)
    packed = gzip.compress(os.urandom(2000).hex().encode())
    tree(
        tmp_path,
        {
            "binary": b"\x89HDF\r\n\0",
            "tar.gz": gzip.compress(b"name" + b"\0" * 600),
            "utf16": "IOR-4.0.0: MPI Coordinated\n".encode("utf-16"),
            "long": "x" * 5001,
            "bomb.gz": gzip.compress(b"x" * 10_000_000),
            "cut.gz": packed[:-300],
            "broken.gz": packed[:100] + b"zzzz" + packed[104:],
            "right": "x" * 5000,
        },
    )
    os.mkfifo(tmp_path / "fifo")
    for name, error, told in (
        ("binary", BinaryError, "not text"),
        ("tar.gz", BinaryError, "not text"),
        ("utf16", BinaryError, "iconv --from-code UTF-16"),
        ("long", UnreadableError, "longer"),
        ("bomb.gz", UnreadableError, "longer"),
        ("cut.gz", UnreadableError, "damaged gzip"),
        ("broken.gz", UnreadableError, "damaged gzip"),
        ("fifo", UnreadableError, "regular"),
        ("none", UnreadableError, "No such file"),
    ):
        with pytest.raises(error, match=told):
            read(tmp_path / name)
    assert len(read(tmp_path / "right").text) == 5000
