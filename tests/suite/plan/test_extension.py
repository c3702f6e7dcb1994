"""A campaign gets more blocks: by the command that the analysis gives, with its looks recorded."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from fsmatrix.analysis.comparison.extension import extension, record_of
from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import digest
from fsmatrix.suite.plan.plan import Plan, Request, build_plan
from fsmatrix.suite.run.execute import continued, open_store, stored_plan
from tests.suite.running import fsmatrix

CAMPAIGN = """
campaign: grows
targets:
  here: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 1MiB, chunk: 64KiB}}}}
factors:
  pattern: [seq-write]
repetitions: {repetitions}
"""


def campaign(folder: Path, repetitions: int) -> Path:
    (folder / "data").mkdir(exist_ok=True)
    file = folder / "grows.yaml"
    file.write_text(CAMPAIGN.format(path=folder / "data", repetitions=repetitions))
    return file


def looks(out: Path) -> list[int]:
    found: list[int] = json.loads((out / "campaign.json").read_text())["looks"]
    return found


def pretend(out: Path, plan: Plan, repetitions: int) -> None:
    """Files named as runs, of which only the names are looked at."""
    (case,) = {planned.case.case_id for planned in plan.cases}
    for number in range(repetitions):
        run = out / "runs" / case[:2] / f"{case}-r{number:04d}-a1.h5"
        run.parent.mkdir(exist_ok=True)
        run.touch()


def test_more_repetitions_are_a_look_of_their_own(tmp_path: Path) -> None:
    out, file = tmp_path / "out", campaign(tmp_path, 6)
    plan = build_plan(str(file), Request(), out=out)
    open_store(plan, out, resume=False)
    assert looks(out) == [6]
    pretend(out, plan, 6)
    open_store(stored_plan(out, Request()), out, resume=True)
    assert looks(out) == [6]
    open_store(stored_plan(out, Request(sets=("repetitions=10",))), out, resume=True)
    assert looks(out) == [6, 10]
    pretend(out, plan, 10)
    shorter = build_plan(str(file), continued(out, Request()))
    assert shorter.settings.campaign.repetitions == 6
    open_store(shorter, out, resume=True)
    assert looks(out) == [6, 10]  # what was looked at stays so
    part = stored_plan(out, Request(sets=("repetitions=14",), only=("pattern=seq-write",)))
    open_store(part, out, resume=True)
    assert looks(out) == [6, 10, 14]


def test_a_look_is_at_what_there_is_when_more_is_planned(tmp_path: Path) -> None:
    out, file = tmp_path / "out", campaign(tmp_path, 30)
    plan = build_plan(str(file), Request(), out=out)
    open_store(plan, out, resume=False)
    open_store(stored_plan(out, Request(sets=("repetitions=40",))), out, resume=True)
    assert looks(out) == [40]  # nothing was there to look at
    pretend(out, plan, 7)
    open_store(stored_plan(out, Request(sets=("repetitions=50",))), out, resume=True)
    assert looks(out) == [7, 50]


def test_a_store_of_a_version_without_looks_has_had_one(tmp_path: Path) -> None:
    out, file = tmp_path / "out", campaign(tmp_path, 6)
    plan = build_plan(str(file), Request(), out=out)
    open_store(plan, out, resume=False)
    pretend(out, plan, 6)
    stored = json.loads((out / "campaign.json").read_text())
    (out / "campaign.json").write_text(json.dumps({k: stored[k] for k in stored if k != "looks"}))
    open_store(stored_plan(out, Request(sets=("repetitions=8",))), out, resume=True)
    assert looks(out) == [6, 8]


def test_the_command_of_the_advice_adds_blocks_and_keeps_the_rest(tmp_path: Path) -> None:
    out, file = tmp_path / "two words", campaign(tmp_path, 2)
    assert fsmatrix("run", file, "-o", out, "--quiet").returncode == 0
    store = Store.open(out)
    store.merge()
    before = {path: digest(path.read_bytes().hex()) for path in store.files()}
    seed = json.loads((out / "campaign.json").read_text())["seed"]
    advice = extension(record_of(open_campaign(out)), [2], [5], 0.05, 1)
    words = shlex.split(advice.command)
    assert words[:2] == ["fsmatrix", "run"]
    grown = fsmatrix(*words[1:], "--quiet")
    assert grown.returncode == 0, grown.stderr
    assert "2 were there before" in grown.stderr + grown.stdout
    records = [store.read(run) for run in store.ids()]
    assert [record.repetition for record in records] == list(range(6))
    assert [record.block for record in records] == list(range(6))
    assert {record.status for record in records} == {"ok"}
    assert len({record.attachment for record in records}) == 6
    assert {path: digest(path.read_bytes().hex()) for path in before} == before
    assert json.loads((out / "campaign.json").read_text())["seed"] == seed
    assert looks(out) == [2, 6]
    store.merge()
    found = record_of(open_campaign(out))
    assert (found.looks, found.planned, found.store) == ((6,), 6, str(out))
    again = fsmatrix("run", "-o", out, "--resume", "--quiet")
    assert "6 were there before" in again.stderr + again.stdout
