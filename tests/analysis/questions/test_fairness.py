"""Fairness of a campaign's targets, from what its runs store: analysis, commands, report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.questions.fairness import fairness
from fsmatrix.analysis.report import report
from fsmatrix.results.record import RunRecord
from tests.analysis import campaigns
from tests.analysis.commands import call

GIB = 1 << 30
CEPH = {"redundancy": "replica 2", "transport": "TCP", "media": "file", "server_memory": 64 * GIB}
DAOS = {"redundancy": "none", "transport": "TCP", "durability": "durable on return"}


def told(
    record: RunRecord, facts: dict[str, dict[str, Any]], realised: dict[str, str]
) -> RunRecord:
    """The run of a target with these facts."""
    of_target = {"name": record.coordinates["target"], "backend": "x"}
    deployment = facts.get(record.coordinates["target"])
    if deployment is not None:
        of_target["deployment"] = deployment
    environment = {**record.environment, "target": of_target, "realised": realised}
    return replace(record, environment=environment)


def records(
    facts: dict[str, dict[str, Any]], realised: dict[str, str] | None = None, blocks: int = 2
) -> Iterator[RunRecord]:
    for record in campaigns.realistic(
        ("xfs", "ext4"), blocks=blocks, chunks=(4096,), processes=(1,), troubles=False
    ):
        yield told(record, facts, realised or {})


def campaign(folder: Path, facts: dict[str, dict[str, Any]], **more: Any) -> Path:
    return campaigns.write(folder / "campaign.h5", records(facts, **more))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaign(tmp_path_factory.mktemp("fair"), {"xfs": CEPH, "ext4": DAOS})


def test_what_runs_store_is_judged(compared: Path) -> None:
    found = fairness(open_campaign(compared))
    of = {fact.name: fact for fact in found.judged.facts}
    assert (of["redundancy"].judgement, of["redundancy"].favours) == ("unequal", ("ext4",))
    assert of["transport"].judgement == "equal"
    assert of["media"].values == {"ext4": "unknown", "xfs": "file"}
    assert of["durability"].judgement == "unknown"
    assert of["realised"].values == {"ext4": "hardware", "xfs": "hardware"}
    assert of["reads_from_server_memory"].values == {"ext4": "unknown", "xfs": "yes"}
    assert found.stored
    assert next(iter(found.table()["judgement"])) == "unequal"
    assert set(found.table().columns) == {"fact", "ext4", "xfs", "judgement", "favours"}


def test_a_factor_that_the_campaign_varies_is_no_unfairness(tmp_path: Path) -> None:
    """The same difference of storage nodes, as a factor of both targets and as one's own fact."""
    many = []
    for record in records({"xfs": CEPH, "ext4": CEPH}):
        for nodes in (2, 3):
            coordinates = {**record.coordinates, "storage_nodes": nodes}
            given = {**CEPH, "storage_nodes": nodes}
            made = replace(record, coordinates=coordinates, case_id=f"{record.case_id[:-1]}{nodes}")
            many.append(told(made, {"xfs": given, "ext4": given}, {"storage_nodes": "emulated"}))
    found = fairness(open_campaign(campaigns.write(tmp_path / "campaign.h5", many)))
    of = {fact.name: fact for fact in found.judged.facts}
    assert of["storage_nodes"].judgement == "varied"
    assert of["storage_nodes"].values == {"ext4": "2 or 3", "xfs": "2 or 3"}
    assert of["realised"].values == {"ext4": "emulated", "xfs": "emulated"}


def test_a_fact_that_differs_between_attachments_is_a_range(tmp_path: Path) -> None:
    many = [
        told(record, {name: {"fill": 0.1 + 0.3 * record.block} for name in ("xfs", "ext4")}, {})
        for record in records({})
    ]
    found = fairness(open_campaign(campaigns.write(tmp_path / "campaign.h5", many)))
    (fill,) = [fact for fact in found.judged.facts if fact.name == "fill"]
    assert fill.values["xfs"] == "10 % to 40 %"


def test_a_run_that_failed_before_it_met_its_storage_tells_nothing_of_it(tmp_path: Path) -> None:
    facts = {"xfs": CEPH, "ext4": CEPH}
    many = list(records(facts, realised={"storage_nodes": "emulated"}))
    failed = replace(many[0], status="failed", error="not attached", phases=())
    many[0] = told(failed, {"xfs": {}, "ext4": {}}, {})
    found = fairness(open_campaign(campaigns.write(tmp_path / "campaign.h5", many)))
    (realised,) = [fact for fact in found.judged.facts if fact.name == "realised"]
    assert realised.values == {"ext4": "emulated", "xfs": "emulated"}


def test_runs_of_before_tell_nothing(tmp_path: Path) -> None:
    found = fairness(open_campaign(campaign(tmp_path, {})))
    assert not found.stored
    assert found.judged.counts["unequal"] == 0
    assert found.short("out") == []


def test_damaged_facts_are_unknown(tmp_path: Path) -> None:
    damaged: dict[str, Any] = {"xfs": {**CEPH, "media": 5}, "ext4": DAOS}
    found = fairness(open_campaign(campaign(tmp_path, damaged)))
    of = {fact.name: fact for fact in found.judged.facts}
    assert of["transport"].values == {"ext4": "TCP", "xfs": "unknown"}


def test_the_report_shows_every_fact_and_escapes_it(tmp_path: Path) -> None:
    hostile = {"xfs": {**CEPH, "media": "<script>alert(1)</script>"}, "ext4": DAOS}
    ds = open_campaign(campaign(tmp_path, hostile))
    page = report.render(ds)
    section = page.partition('<section id="fairness">')[2].partition("</section>")[0]
    assert section.count("<tr><td") == len(fairness(ds).judged.facts)
    assert "a write stores fewer bytes for each byte of a client" in section
    assert "&lt;script&gt;alert(1)" in section
    assert "<script>alert(1)" not in page
    assert '<a href="#fairness">' in page


def test_commands(
    compared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    def said(*words: Any) -> str:
        assert call(monkeypatch, *words) == 0
        return capsys.readouterr().out

    sentence = "Redundancy: none (ext4), replica 2 (xfs). It favours ext4"
    for command in ("fairness", "compare", "show"):
        assert sentence in " ".join(said(command, compared).split())
    picture = tmp_path / "fair.pdf"
    facts = json.loads(said("fairness", compared, "--json", "--out", picture))
    assert facts["targets"] == ["ext4", "xfs"]
    assert picture.read_bytes().startswith(b"%PDF")
    (pair,) = json.loads(said("compare", compared, "--json"))
    assert pair["fairness"]["counts"] == facts["counts"]
    (pair,) = json.loads(said("compare", compared, "--by", "pattern", "--targets",
                              "seq-read,rand-read", "--json"))  # fmt: skip
    assert "fairness" not in pair
    assert call(monkeypatch, "fairness", compared, "--targets", "xfs,zfs") == 2
    assert "no target zfs is compared here (there are: ext4, xfs)" in capsys.readouterr().err
    assert call(monkeypatch, "fairness", compared, "--targets", "xfs") == 2
    assert "one target alone" in capsys.readouterr().err


# -- test beds on one machine ------------------------------------------------------------------
ONE = "Test beds on one machine: they share its cores; not comparable as systems"
POLLED = {"shared_cores": "shared, and the servers poll"}
SHARED = {"shared_cores": "shared"}
ALONE = {"shared_cores": "none"}
CALLED = ("is faster", "is ahead", "% faster", "times as fast", "proven", "▲", "▼", "●", "○")


def beds(folder: Path, one: dict[str, Any], other: dict[str, Any], **more: Any) -> Path:
    """A campaign that proves a difference."""
    return campaign(folder, {"xfs": one, "ext4": other}, blocks=7, **more)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beds(tmp_path_factory.mktemp("beds"), POLLED, SHARED)


@pytest.mark.parametrize("command", ["show", "compare", "lessons"])
def test_nobody_is_ahead_on_test_beds_of_one_machine(
    emulated: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, command, emulated) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.lower().startswith(ONE.lower())
    said = [word for word in CALLED if word in out]
    assert said == (["proven"] if command == "lessons" else [])  # of chunk sizes, there
    if command == "compare":
        assert "ratio" in out  # in numbers, and not judged
        assert "Servers on the clients' cores: " in out


def test_the_report_marks_nobody_either(emulated: Path, tmp_path: Path) -> None:
    text = report.write_report(emulated, tmp_path / "report.html").read_text()
    body = text[text.index('<section id="answer">') : text.index('<section id="targets">')]
    assert f"<p>{ONE}.</p>" in body
    assert 'class="matrix"' not in body
    assert 'class="number clear"' not in body
    assert 'class="verdict faster"' not in body
    assert 'class="verdict slower"' not in body
    assert [word for word in CALLED if word in body] == []


@pytest.mark.parametrize(
    ("one", "other"), [(POLLED, ALONE), (ALONE, ALONE), (POLLED, {}), ({}, {})]
)
def test_other_targets_are_compared(
    tmp_path: Path,
    one: dict[str, Any],
    other: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "compare", beds(tmp_path, one, other)) == 0
    out = capsys.readouterr().out
    assert ONE not in out
    assert "is faster" in " ".join(out.split())


def test_emulated_storage_nodes_are_a_bed_whatever_else_is_known(tmp_path: Path) -> None:
    made = beds(tmp_path, {}, {}, realised={"storage_nodes": "emulated"})
    assert summarise(open_campaign(made)).cluster.one_machine
    limited = beds(tmp_path, {}, {}, realised={"interface": "emulated"})
    assert not summarise(open_campaign(limited)).cluster.one_machine
