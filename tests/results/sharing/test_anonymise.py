"""No name of a host, user, path, address or job is left, and everything else is as it was."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.record import Case, Finding, Phase, RunRecord
from fsmatrix.results.sharing.anonymise import Anonymiser, ClashError, Learner, Rewriter
from fsmatrix.results.sharing.vocabulary import Vocabulary
from tests.ranks import rank

CASE = Case("xfs", "pattern", {"chunk": 4096})


def record(**fields):
    values = {
        "case": CASE.canonical,
        "case_id": CASE.case_id,
        "work_id": CASE.work_id,
        "repetition": 0,
        "attempt": 1,
        "block": 0,
        "attachment": "b000-xfs-5073ecf9-31198f",
        "session": "5f5634ca090b",
        "status": "ok",
        "engine": "fio",
        "engine_version": "3.33",
        "started": "2026-11-22T02:59:54.666+00:00",
        "coordinates": {"target": "xfs", "workload": "pattern", "chunk": 4096},
    }
    return RunRecord(**(values | fields))


def anonymiser(*records, learn=()):
    learner = Learner()
    for kind, name in learn:
        learner.vocabulary.learn(kind, name)
    for one in records:
        learner.record(one)
    return Anonymiser(learner)


KNOWN = (
    ("host", "mars17"),
    ("host", "mars[18-20]"),
    ("host", "venus.hpc.geheim.de"),
    ("user", "xaver"),
    ("job", "8123456_3"),
    ("job", "42"),
    ("serial", "WD-WX12 345"),
    ("serial", "S4EVNX0R"),
    ("account", "m2geheim"),
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rank 3 on mars17: EIO", "rank 3 on host-1: EIO"),
        ("MARS17 and mars17ib0", "host-1 and host-1ib0"),
        ("mars99 was never learnt", "host-1 was never learnt"),
        ("venus.hpc.geheim.de venus", "host-1.domain-1 host-1"),
        ("login.hpc.geheim.de", "host-1.domain-1"),
        ("mars[18-20]", "host-1"),
        ("mars17-9 mars17_x", "host-1-9 host-1_x"),
        ("xaver_pool XAVER xaverproject", "user-1_pool user-1 user-1project"),
        ("job 42 of 42 files", "job job-1 of 42 files"),
        ("slurm-8123456.out 8123456", "slurm-job-1.out job-1"),
        ("disk WD-WX12 345, disk S4EVNX0R", "disk serial-1, disk serial-2"),
        ("10.1.2.3:6789 10.1.2.3@o2ib 10.1.2.4", "ipv4-1:6789 ipv4-1@o2ib ipv4-2"),
        ("[2001:db8::1]:3300 2001:0db8:0::1", "[ipv6-1]:3300 ipv6-1"),
        ("00:1b:44:11:3a:b7", "mac-1"),
        ("ce350c37-197a-40f6-9b10-8dafde0f8e81", "uuid-1"),
        ("joe@geheim.org", "mail-1"),
        ("/home/joe/run.1/out: no space", "/home/user-1/path-1/path-2: no space"),
        ("in /home/joe: joe", "in /home/user-1: user-1"),
        ("-o=/scratch/p17/x --out /scratch/p17", "-o=/scratch/path-1/path-2 --out /scratch/path-1"),
        ("$HOME/p17 ~joe/p17 ./p17", "$HOME/path-1 ~user-1/path-1 ./path-1"),
        ("tcp://mars17:99/p17", "tcp://host-1:99/path-1"),
        ("//mars17/p17", "//host-1/path-1"),
        ("mars17:/p17 on /mnt/p18", "host-1:/path-1 on /mnt/path-2"),
        ("naa.5000c500a1b2c3d4", "serial-1"),
    ],
)
def test_names_in_texts(text, told):
    vocabulary = Vocabulary()
    for kind, name in KNOWN:
        vocabulary.learn(kind, name)
    vocabulary.learn_text(text)
    rewriter = Rewriter(vocabulary)
    assert rewriter.text(text, True) == told
    assert rewriter.text(told, True) == told


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 ::1 0.0.0.0 localhost",
        "12:34:56 2026-11-22T02:59:54.666+00:00",
        "12.5 MB/s, 3 op/s, read/service",
        "/dev/null /proc/meminfo /sys/block /usr/bin/fio /tmp",
        "/dev/nvme0n1p1 /dev/loop0",
        "2a078b3d4664aa2a-r0000-a1 82e1a45e8b6f405c",
        "6.18.44-fc-v595",
        "Intel(R) Xeon(R) Processor @ 2.50GHz",
        "rw,noatime,inode64",
    ],
)
def test_what_is_no_name_stays(text):
    made = anonymiser(learn=KNOWN)
    assert made.text(text) == text


words = st.from_regex(r"[a-z][a-z0-9]{2,8}(-[a-z0-9]{1,4})?", fullmatch=True)


@settings(max_examples=150)
@given(
    hosts=st.lists(words, min_size=1, max_size=6, unique=True),
    users=st.lists(words, max_size=3, unique=True),
    texts=st.lists(st.text(max_size=30), max_size=4),
)
def test_same_in_same_out_different_in_different_out(hosts, users, texts):
    vocabulary = Vocabulary()
    for kind, names in (("host", hosts), ("user", users)):
        for name in names:
            vocabulary.learn_text(name)
            vocabulary.learn(kind, name)
    for text in texts:
        vocabulary.learn_text(text)
    rewriter = Rewriter(vocabulary)
    told = {name: rewriter.field("host", name) for name in {*hosts, *users}}
    assert len(set(told.values())) == len(told)
    for name, pseudonym in told.items():
        assert rewriter.text(f"on {name}: failed", True) == f"on {pseudonym}: failed"
        assert rewriter.field("host", pseudonym) == pseudonym
        assert (
            name == pseudonym
            or name in ("root", "none", "true", "false", "auto", "admin")
            or (name not in pseudonym.split("-"))
        )
    for text in texts:
        once = rewriter.text(text, True)
        assert rewriter.text(once, True) == once
        assert rewriter.text(text, True) == once


paths = st.lists(words, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))


@given(one=paths, other=paths)
def test_paths_keep_their_order(one, other):
    made = anonymiser()
    first, second = made.document([one, other])
    assert (first == second) == (one == other)
    assert second.startswith(first + "/") == other.startswith(one + "/")
    assert made.document(first) == first


def test_names_that_look_like_pseudonyms_are_told_apart():
    one = record(ranks=(rank("host-2"), rank("mars17")), error="host-2 and mars17 failed")
    made = anonymiser(one).record(one)
    names = [each.host for each in made.ranks]
    assert names == ["hostx-1", "hostx-2"] or names == ["hostx-2", "hostx-1"]
    assert made.error == f"{names[0]} and {names[1]} failed"


def test_a_host_like_an_ordinary_word():
    """It goes from its own fields and from sentences, and is told; keys and levels stay."""
    one = record(
        ranks=(rank("node"),),
        evidence=read(
            Evidence,
            {
                "cpu": {"write": {"node": {"busy": 0.5}}},
                "cache": {"write": {"state": "node", "counters": "node"}},
            },
            "evidence",
        ),
        error="node lost",
        coordinates={"target": "xfs", "workload": "pattern", "node": 3},
    )
    made = anonymiser(one)
    told = made.record(one)
    assert told.ranks == (rank("host-1"),)
    assert told.evidence.document() == {
        "cpu": {"write": {"host-1": {"busy": 0.5}}},
        "cache": {"write": {"state": "node", "counters": "node"}},
    }
    assert told.error == "host-1 lost"
    assert told.coordinates == one.coordinates
    assert made.rewriter.ordinary == {"node": "host"}


def test_ids_numbers_and_the_suites_own_words_stay():
    one = record(
        ranks=(rank("write", boot_id="ce350c37-197a-40f6-9b10-8dafde0f8e81"),),
        phases=(Phase("write", *(np.ones(1),) * 2, *(np.ones(1, np.int64),) * 3),),
        findings=(Finding("short", 1, "warning", "took 1 s on write", phase="write"),),
        environment={"machine": {"kernel": "6.1.0-18-amd64", "cpus": 2}},
    )
    told = anonymiser(one).record(one)
    kept = (
        "case",
        "case_id",
        "work_id",
        "repetition",
        "status",
        "engine",
        "engine_version",
        "started",
        "session",
        "attachment",
        "coordinates",
    )
    assert {n: getattr(told, n) for n in kept} == {n: getattr(one, n) for n in kept}
    assert told.environment == {**one.environment, "anonymised": True}  # ids are of other texts
    assert told.phases[0] == one.phases[0]
    assert (told.findings[0].phase, told.findings[0].message) == ("write", "took 1 s on host-1")
    assert told.ranks == (rank("host-1", boot_id="uuid-1"),)


def test_a_target_that_is_a_host_is_replaced_everywhere():
    case = Case("mars17", "pattern", {"chunk": 4096})
    one = record(
        case=case.canonical,
        ranks=(rank("mars17"),),
        attachment="b000-mars17-50",
        coordinates={"target": "mars17", "workload": "pattern"},
    )
    told = anonymiser(one).record(one)
    assert json.loads(told.case)["target"] == told.coordinates["target"] == "host-1"
    assert (told.attachment, told.case_id) == ("b000-host-1-50", one.case_id)


def test_levels_that_would_become_one_are_refused():
    one = record(ranks=(rank("mars17"),), coordinates={"target": "mars17", "workload": "w"})
    other = replace(one, coordinates={"target": "MARS17", "workload": "w"})
    made = anonymiser(one, other)
    made.record(one)
    with pytest.raises(ClashError, match=r"'mars17' and 'MARS17' of factor 'target'"):
        made.record(other)


YAML_TEXT = """# asked for by Dr. Geheim
campaign: study   # on mars17
description: "Runs on mars17, see /home/joe/notes # 1"
targets:
  fast: {backend: directory, options: {path: /scratch/p17/joe}}   # joe's
  mars17: {backend: xfs, options: {device: /dev/disk/by-id/x-S4EV, serial: S4EV}}
launcher: {hosts: [mars17, "mars18"]}
factors:
  chunk: [4KiB, 1MiB]
"""


def test_a_campaign_keeps_its_meaning_and_loses_names_and_comments():
    learner = Learner()
    learner.campaign(YAML_TEXT)
    made = Anonymiser(learner)
    told = made.campaign(YAML_TEXT)
    read = YAML(typ="safe", pure=True).load
    assert read(told) == made.document(read(YAML_TEXT))
    for name in ("mars17", "mars18", "joe", "p17", "S4EV", "Geheim", "by-id"):
        assert name not in told
    assert "# 1" in told  # no comment: it stands in a text
    assert read(told)["factors"] == {"chunk": ["4KiB", "1MiB"]}


def test_settings_tell_what_they_hold():
    learner = Learner()
    plan = {
        "settings": [{"key": "targets.a.options.serial", "value": "S4EV", "origin": "/x/c.yaml:3"}],
        "request": {
            "sets": [
                "targets.a.options.serial=S4EW",
                "targets.b.options.destroy=S4EX",
                "targets.c.options.destroy=no-signature",
            ]
        },
    }
    learner.document(plan)
    told = Anonymiser(learner).document([plan, "disks S4EV and S4EW"])
    assert told[0]["settings"][0]["value"] == "serial-1"
    assert told[0]["request"]["sets"] == [
        "targets.a.options.serial=serial-2",
        "targets.b.options.destroy=serial-3",
        "targets.c.options.destroy=no-signature",
    ]
    assert told[1] == "disks serial-1 and serial-2"


def test_what_is_no_yaml_is_refused():
    with pytest.raises(ValueError, match="no YAML"):
        anonymiser().campaign("a: [1, 'b\n")
