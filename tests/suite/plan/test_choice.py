"""Which targets take part: `when`, this machine's answers, what was decided before."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fsmatrix.backends.contract import NO_LEVEL, Availability, Foreseen, Space
from fsmatrix.results.evidence.stored import Level
from fsmatrix.results.files.store import CAMPAIGN, StoreError
from fsmatrix.results.units import format_size
from fsmatrix.suite.plan.as_json import plan_json
from fsmatrix.suite.plan.plan import Request
from fsmatrix.suite.run.execute import continued
from tests.suite.planning_stubs import LOOKUP, MIB, Disk, planned, problems

HEAD = """campaign: test
seed: 1
targets:
  a: {{backend: disk, when: usable{a}}}
  b: {{backend: other, when: usable{b}}}
  home: {{backend: disk, when: fallback{home}}}
  more: {{backend: disk, when: fallback}}
  ram: {{backend: memory, when: fallback, reference: true}}
workloads:
  io: {{workload: io}}
"""
BROKEN = ", options: {works: false}"
SMALL = f", options: {{size: {MIB}}}"


def head(**broken: str) -> str:
    return HEAD.format(**{"a": "", "b": "", "home": ""} | broken)


def targets(plan: Any) -> list[str]:
    return [member.name for member in plan.members.targets]


@pytest.mark.parametrize(
    ("broken", "taken", "left_out"),
    [
        ({}, ["a", "b"], []),
        ({"a": BROKEN}, ["b", "home", "ram"], ["a"]),
        ({"a": BROKEN, "b": BROKEN}, ["home", "more", "ram"], ["a", "b"]),
        ({"a": BROKEN, "b": BROKEN, "home": BROKEN}, ["more", "ram"], ["a", "b", "home"]),
        ({"a": SMALL}, ["b", "home", "ram"], ["a"]),
    ],
)
def test_fallbacks_take_part_until_there_are_two_to_compare(
    broken: dict[str, str], taken: list[str], left_out: list[str]
) -> None:
    plan = planned(head=head(**broken))
    assert targets(plan) == taken
    assert [left.target for left in plan.left_out] == left_out
    for name in left_out:
        reason = "does not work" if broken[name] == BROKEN else "must hold 16.0MiB at once"
        said = [line for line in plan.warnings if line.startswith(f"target {name} is left out: ")]
        assert len(said) == 1
        assert reason in said[0]
    assert {case.case.target for case in plan.cases} == set(taken)


def test_elsewhere_the_usable_ones_take_part_unasked() -> None:
    plan = planned(head=head(a=BROKEN), here=False)
    assert targets(plan) == ["a", "b"]
    assert plan.left_out == ()
    chosen = planned(head=head(a=BROKEN), here=False, choose_here=True)
    assert targets(chosen) == ["b", "home", "ram"]


def test_nothing_left_names_every_reason() -> None:
    lone = head(a=BROKEN).replace("  b: ", "  b-b: ")
    only_a = "\n".join(line for line in lone.splitlines() if "fallback" not in line)
    only_a = "\n".join(line for line in only_a.splitlines() if "b-b" not in line) + "\n"
    (found,) = problems(head=only_a)
    assert "no target is left on this machine for this user: a: the disk does not work" in found


MUST = """campaign: test
seed: 1
targets:
  a: {backend: disk, options: {works: false}}
  b: {backend: other}
workloads:
  io: {workload: io}
"""


def test_a_target_that_must_be_there_refuses_the_campaign_with_its_line() -> None:
    (found,) = problems(head=MUST)
    assert found.startswith("c.yaml:4: targets.a: not available here: the disk does not work")
    assert "--skip-unusable" in found
    assert targets(planned(head=MUST, only=("target=b",))) == ["a", "b"]  # nothing runs on a


def test_skip_unusable_goes_on_without_it_and_records_it() -> None:
    plan = planned(head=MUST, skip_unusable=True)
    assert targets(plan) == ["b"]
    stored = plan_json(plan)
    assert stored["left_out"] == [{"target": "a", "reason": "the disk does not work"}]
    assert stored["request"]["targets"] == ["b"]


def campaign_file(out: Path, **damage: Any) -> Path:
    """A directory of results that holds that campaign, with some keys replaced."""
    out.mkdir(0o700)
    stored = plan_json(planned(head=MUST, skip_unusable=True)) | {"looks": [5]} | damage
    (out / CAMPAIGN).write_text(json.dumps(stored))
    return out


def test_what_was_decided_is_read_from_the_directory_of_the_results(tmp_path: Path) -> None:
    again = continued(campaign_file(tmp_path / "new"), Request())
    assert (again.seed, again.targets) == (1, ("b",))
    assert again.left_out == (("a", "the disk does not work"),)
    assert continued(campaign_file(tmp_path / "old", looks=[], left_out=[]), again).left_out == ()


@pytest.mark.parametrize(
    ("damage", "key"),
    [
        ({"source": "a text"}, "source"),
        ({"seed": None}, "seed"),
        ({"request": {}}, "request.sets"),
        ({"left_out": [{"target": "a"}]}, "left_out[0].reason"),
        ({"looks": ["two"]}, "looks[0]"),
    ],
)
def test_a_damaged_campaign_file_is_refused_with_the_key(
    damage: Any, key: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=re.escape(f"campaign.json.{key} is")):
        continued(campaign_file(tmp_path / "out", **damage), Request())


def test_what_was_decided_holds_also_where_the_machine_has_changed() -> None:
    plan = planned(head=head(), targets=("b", "home", "ram"), left_out=(("a", "was broken"),))
    assert targets(plan) == ["b", "home", "ram"]
    assert str(plan.left_out[0]) == "target a is left out: was broken"
    (found,) = problems(head=head(home=BROKEN), targets=("b", "home"))
    assert "targets.home: not available here" in found


def test_only_the_targets_of_a_shard_are_asked() -> None:
    head = MUST.replace("b: {backend: other}", "b: {backend: other, system: second}")
    found = []
    for k in (1, 2):
        try:
            plan = planned(head=head, shard=(k, 2))
        except Exception as error:  # noqa: BLE001  its text is looked at below
            found.append(str(error))
        else:
            found.append({case.case.target for case in plan.cases})
    assert {"b"} in found
    assert any(isinstance(text, str) and "targets.a: not available here" in text for text in found)


class Absent(Disk):
    """Its check says no; its options would say yes."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def check(cls) -> Availability:
        cls.asked.append("check")
        return Availability(False, reason="its program is missing: apt-get install it")


def test_the_words_are_those_of_check_and_it_is_asked_once() -> None:
    lookup = replace(LOOKUP, backends=type(LOOKUP.backends)({**LOOKUP.backends, "other": Absent}))
    Absent.asked.clear()
    plan = planned(head=head(), lookup=lookup)
    assert targets(plan) == ["a", "home", "ram"]
    assert plan.left_out[0].reason == "its program is missing: apt-get install it"
    assert Absent.asked == ["check"]


class Keeping(Disk):
    """Keeps its size in the state directory."""

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        size = int(self.options.size)  # type: ignore[attr-defined]
        return replace(super().foreseen(level), state_bytes=size)

    def space(self, access: Any = None) -> Space:
        return Space(None, None, "unknown")


def test_images_of_several_targets_share_the_room_of_the_results_directory(tmp_path: Path) -> None:
    lookup = replace(
        LOOKUP,
        backends=type(LOOKUP.backends)({**LOOKUP.backends, "disk": Keeping, "other": Keeping}),
    )
    most = shutil.disk_usage(tmp_path).free * 6 // 10
    size = f", options: {{size: {most}}}"
    made = head(a=size, b=size, home=size)
    plan = planned(head=made, lookup=lookup, out=tmp_path / "out")
    assert targets(plan)[0] == "a"
    assert f"images need {format_size(2 * most, 1)} and" in plan.left_out[0].reason
    assert targets(planned(head=made, lookup=lookup)) == ["a", "b"]  # no directory to be asked
    assert not (tmp_path / "out").exists()
    (tmp_path / "out/state").mkdir(parents=True)
    plan = planned(head=made, lookup=lookup, out=tmp_path / "out")
    assert f"{tmp_path}/out/state has" in plan.left_out[0].reason
