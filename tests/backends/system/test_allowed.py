"""What a campaign may hand on to mkfs and mount: lists, tried with the programs themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.allowed import NUMBER, Words
from fsmatrix.backends.local.local import LocalOptions
from fsmatrix.backends.system import tools

MANAGED = ("xfs", "ext4", "ext2", "btrfs", "f2fs", "nilfs2")


def options(name: str) -> type[LocalOptions]:
    found = contract.load(name).Options
    assert issubclass(found, LocalOptions)
    return found


# -- mkfs ------------------------------------------------------------------------------------
FOREIGN: list[tuple[str, list[str]]] = [
    ("xfs", ["-f", "ext4.victim"]),
    ("xfs", ["victim"]),
    ("xfs", ["-l", "file,name=xfs.victim,size=100m"]),
    ("xfs", ["-lfile,name=victim,size=100m"]),
    ("xfs", ["-d", "file,name=victim,size=300m"]),
    ("xfs", ["-l", "size=64m,logdev=victim"]),
    ("xfs", ["-r", "rtdev=victim"]),
    ("xfs", ["-p", "proto"]),
    ("xfs", ["-c", "options=conf"]),
    ("xfs", ["-N"]),
    ("xfs", ["-m", "uuid=11111111-1111-1111-1111-111111111111"]),
    ("xfs", ["-l", "internal=0"]),
    ("ext4", ["-d", "folder"]),
    ("ext4", ["-dfolder"]),
    ("ext4", ["-Fd", "folder"]),
    ("ext4", ["-jdfolder"]),
    ("ext4", ["-l", "badblocks"]),
    ("ext4", ["-z", "undo"]),
    ("ext4", ["-J", "device=UUID=x"]),
    ("ext4", ["-O", "journal_dev"]),
    ("ext4", ["-O", "^has_journal,journal_dev"]),
    ("ext4", ["-E", "offset=4096"]),
    ("ext4", ["-E", "discard"]),
    ("ext4", ["-e", "panic"]),
    ("ext4", ["-n"]),
    ("ext4", ["-S"]),
    ("ext4", ["-t", "ext2"]),
    ("ext4", ["-U", "clear"]),
    ("ext4", ["4096"]),
    ("ext4", ["--", "victim"]),
    ("ext4", ["-L", "-d", "victim"]),
    ("ext4", ["-b"]),
    ("ext4", ["-b 4096"]),
    ("ext2", ["-d", "folder"]),
    ("btrfs", ["victim"]),
    ("btrfs", ["-r", "folder"]),
    ("btrfs", ["--rootdir=folder"]),
    ("btrfs", ["--rootd=folder"]),  # getopt_long takes any beginning that is clear
    ("btrfs", ["--cs=xxhash"]),
    ("btrfs", ["-Mrfolder"]),
    ("btrfs", ["-O", "list-all"]),
    ("btrfs", ["-V"]),
    ("f2fs", ["-c", "victim"]),
    ("f2fs", ["-ivictim"]),
    ("f2fs", ["-O", "ro"]),
    ("nilfs2", ["-n"]),
    ("nilfs2", ["-c"]),
    ("nilfs2", ["victim"]),
]


@pytest.mark.parametrize(("name", "words"), FOREIGN, ids=str)
def test_mkfs_is_handed_nothing_that_is_not_listed(name: str, words: list[str]) -> None:
    with pytest.raises(ValidationError, match="mkfs") as caught:
        options(name)(mkfs_options=words)
    message = str(caught.value)
    assert "allowed are" in message or "is not " in message or "needs a value" in message \
        or "takes no value" in message  # fmt: skip


ALLOWED: list[tuple[str, list[str]]] = [
    ("xfs", ["-b", "size=4096", "-d", "agcount=2", "-i", "size=512,sparse=1", "-L", "a-1"]),
    ("xfs", ["-bsize=4096", "-l", "size=64m,version=2", "-m", "crc=1,reflink=0", "-n", "size=8k"]),
    ("xfs", ["-s", "size=4k", "-d", "sunit=128,swidth=256", "-m", "rmapbt=0"]),
    ("ext4", ["-b", "4096", "-O", "^has_journal", "-E", "stride=4,stripe_width=8", "-m", "0"]),
    ("ext4", ["-b4096", "-Obigalloc", "-C", "16k", "-I", "256", "-J", "size=8", "-T", "small"]),
    ("ext4", ["-i", "16384", "-G", "16", "-N", "1024", "-L", "x", "-j", "-r", "1"]),
    ("ext2", ["-Onone", "-b", "1024", "-m", "1.5"]),
    ("btrfs", ["-d", "single", "-m", "dup", "-n", "16k", "--csum=xxhash", "-L", "x"]),
    ("btrfs", ["-M", "-O", "^no-holes", "--nodesize", "4096", "-R", "free-space-tree"]),
    ("f2fs", ["-O", "extra_attr,inode_checksum", "-o", "5", "-s", "1", "-l", "x", "-i"]),
    ("nilfs2", ["-b", "4096", "-B", "1024", "-L", "x", "-m", "5", "-Oblock_count"]),
]


@pytest.mark.parametrize(("name", "words"), ALLOWED, ids=str)
def test_what_is_listed_is_what_the_program_takes(
    name: str, words: list[str], tmp_path: Path
) -> None:
    kind = contract.load(name)
    chosen = options(name)(mkfs_options=words)
    assert list(chosen.mkfs_options) == words  # as they were: ids and plans stay
    if tools.find(kind.program) is None:  # type: ignore[attr-defined]
        pytest.skip(f"no {name}")
    if name == "btrfs" and os.geteuid() != 0 and list(Path("/sys/block").glob("loop*/loop")):
        pytest.skip("mkfs.btrfs looks into every loop device that is attached: needs root")
    image = tmp_path / "image"
    image.touch()
    identity = "8a4ee2a9-5f37-4dcb-bd8c-5aef1f7b1c37"
    with image.open("r+b") as file:
        file.truncate(1 << 30)
    argv = kind.mkfs(str(image), identity, chosen.mkfs_options)  # type: ignore[attr-defined]
    assert tools.run(argv, deadline=120).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["image"]


LETTERS = st.text("-=,^. abdflmnprLOE4k", max_size=6)
PIECES = st.sampled_from(
    ["-b", "-d", "-l", "-O", "-E", "-L", "-j", "-M", "--csum", "--rootdir", "4096", "size=4k",
     "file", "name=victim", "logdev=victim", "victim", "dup", "single", "^has_journal", "-fd"]
)  # fmt: skip
WORDS = st.lists(st.one_of(PIECES, LETTERS, st.tuples(PIECES, PIECES).map("".join)), max_size=5)


@given(name=st.sampled_from(MANAGED), words=WORDS)
def test_no_word_slips_through(name: str, words: list[str]) -> None:
    """What passes, read again as getopt does, names only what is listed."""
    allowed = options(name).mkfs_words
    if allowed.refusal(words):
        return
    rest = iter(words)
    for word in rest:
        assert word.startswith("-"), words
        long = word.startswith("--")
        option, _, value = word.partition("=") if long else (word[:2], "", word[2:])
        assert option in allowed.options, words
        form = allowed.options[option]
        if form is None:
            assert value == "", words
            continue
        value = value or next(rest)
        assert not value.startswith("-"), words
        assert re.fullmatch(r"[\w.:,=^-]+", value, re.ASCII), words
        assert not re.search(r"victim|file|name|logdev|rootdir", value) or option in (
            "-L", "-l", "-T", "-e", "-E", "--label",
        ), words  # fmt: skip


def test_a_flag_is_not_the_beginning_of_a_cluster() -> None:
    words = Words("x", {"-j": None, "-b": NUMBER, "--long": NUMBER})
    for bad in (
        ["-jb", "4"],
        ["-jb4"],
        ["-bj"],
        ["--long"],
        ["--lon=4"],
        ["--long=x"],
        ["-"],
        [""],
    ):
        assert words.refusal(bad), bad
    for good in (["-j", "-b4"], ["-b", "4", "-j"], ["--long", "4"], ["--long=4"], []):
        assert words.refusal(good) == "", good


def test_a_tool_runs_in_an_empty_folder_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.chdir(tmp_path)
    where = tools.run(["sh", "-c", "pwd; ls -A | wc -l; echo gone > victim"]).stdout.split()
    assert where[1] == "0"
    assert victim.read_text() == "precious"
    assert not Path(where[0]).exists()


@pytest.mark.needs("xfs")
def test_real_mkfs_cannot_name_a_file_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line behind the list: even unchecked words find no relative name."""
    victim, image = tmp_path / "xfs.victim", tmp_path / "image"
    victim.write_bytes(b"precious" * 1000)
    with image.open("wb") as file:
        file.truncate(512 << 20)
    monkeypatch.chdir(tmp_path)
    argv = contract.load("xfs").mkfs(  # type: ignore[attr-defined]
        str(image), "8a4ee2a9-5f37-4dcb-bd8c-5aef1f7b1c37",
        ["-l", "file,name=xfs.victim,size=100m"],
    )  # fmt: skip
    tools.run(argv, deadline=120, check=False)
    assert victim.read_bytes() == b"precious" * 1000


def test_the_refusal_names_file_line_value_and_what_is_allowed(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(
        "campaign: hostile\n"
        "targets:\n"
        "  x:\n"
        "    backend: xfs\n"
        "    options:\n"
        '      mkfs_options: ["-l", "file,name=xfs.victim,size=100m"]\n'
        "workloads:\n"
        "  p: {workload: pattern, options: {bytes_per_process: 1MiB}}\n"
    )
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "fsmatrix"), "plan", str(campaign)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 2
    said = " ".join((ran.stdout + ran.stderr).split())
    assert "campaign.yaml:6" in said
    assert "'file' is not one of" in said
    assert "lazy-count" in said


# -- mount -------------------------------------------------------------------------------------
BAD_MOUNTS: list[tuple[str, str]] = [
    *((name, option) for name in MANAGED for option in (
        "suid", "dev", "user", "users", "owner", "group", "loop", "loop=x", "bind", "remount",
        "x-mount.mkdir", "X-mount.owner=nobody", "X-mount.subdir=etc", "uhelper=x", "helper=x",
        "_netdev", "offset=4096", "sizelimit=1", "context=x", "noatime,suid", "noatime,", ",",
        "noatime=1", "NOATIME", "comment=x", "nofail", "auto", "defaults", "ro", "exec",
        "no atime", "noatime\\,suid", '"noatime"',
    )),
    ("xfs", "logdev=x"), ("xfs", "rtdev=x"), ("xfs", "norecovery"),
    ("ext4", "journal_dev=1"), ("ext4", "journal_path=x"), ("ext4", "errors=panic"),
    ("ext4", "sb=1"), ("ext4", "usrjquota=x"), ("ext4", "noload"), ("ext4", "data_err=x"),
    ("btrfs", "device=x"), ("btrfs", "fatal_errors=panic"), ("btrfs", "subvol=x"),
    ("btrfs", "subvolid=5"), ("btrfs", "degraded"), ("btrfs", "rescue=all"),
    ("f2fs", "fault_injection=1"), ("f2fs", "test_dummy_encryption"), ("nilfs2", "cp=1"),
    ("nilfs2", "errors=panic"), ("nilfs2", "gcpid=1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), BAD_MOUNTS, ids=str)
def test_mount_is_handed_nothing_that_is_not_listed(name: str, text: str) -> None:
    with pytest.raises(ValidationError, match="mount option"):
        options(name)(mount_options=text)


GOOD_MOUNTS: list[tuple[str, str]] = [
    ("xfs", "noatime,logbufs=8,logbsize=256k,allocsize=1m,largeio"),
    ("ext4", "noatime,data=ordered,commit=30,nobarrier,data_err=abort,dioread_nolock"),
    ("ext2", "noatime,errors=remount-ro"),
    ("btrfs", "noatime,compress=zstd:3,discard=async,space_cache=v2,nodatacow,ssd"),
]


@pytest.mark.parametrize(("name", "text"), GOOD_MOUNTS, ids=str)
def test_listed_mount_options_pass_as_they_are(name: str, text: str) -> None:
    assert options(name)(mount_options=text).mount_options == text


NAMES = st.text("abcdefnostuvix-._=,", max_size=14)


@given(name=st.sampled_from(MANAGED), text=st.lists(NAMES, max_size=3).map(",".join))
def test_no_mount_option_slips_through(name: str, text: str) -> None:
    kind = options(name)
    alone, valued = kind.mount_words
    try:
        passed: Any = kind(mount_options=text)
    except ValidationError:
        return
    for option in passed.mount_options.split(",") if text else ():
        key, given_, _ = option.partition("=")
        assert key in (valued.keys if given_ else alone.keys)
