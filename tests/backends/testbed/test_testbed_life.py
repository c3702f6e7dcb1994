"""The life that all test beds share, with the smallest bed: programs of this machine, no root."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.bed import LEFT, BaseTestbed, end_daemons
from fsmatrix.backends.testbed.daemons import Launch, end_process, proven
from fsmatrix.backends.testbed.home import Home, Kind, Steps

OTHER = Kind("fsmatrix-testbed-other", "other.conf", ())


class SleepOptions(BaseModel):
    """What is asked of the bed."""

    daemons: int = 2
    fails: bool = False  # after they were started
    stays: bool = False  # something cannot be undone


@dataclass(frozen=True, kw_only=True)
class SleepTestbed(BaseTestbed[SleepOptions]):
    """Daemons that sleep."""

    kind = Kind("fsmatrix-testbed-sleep", "sleep.conf", ("log",), words="sleeping test bed")
    Options = SleepOptions

    name: str
    port: int

    @classmethod
    def refusal(cls, options: SleepOptions, folder: Path) -> str:
        return "" if options.daemons else f"{folder}: nobody sleeps"

    @classmethod
    def chosen(cls) -> dict[str, Any]:
        return {"name": "dormouse"}

    @classmethod
    def bring_up(
        cls, home: Home, options: SleepOptions, known: Mapping[str, Any], steps: Steps
    ) -> dict[str, Any]:
        home.conf.write_text(f"{known['id']} {options.stays}")
        for number in range(options.daemons):
            with steps.step(f"sleeper {number}"):
                argv = ("sleep", str(300 + number))
                daemons.start(home, Launch(f"sleep.{number}", argv))
        if options.fails:
            raise RuntimeError("as asked")
        return {"port": 7, "facts": {"asleep": options.daemons}}

    @classmethod
    def end(cls, home: Home, entries: list[Entry]) -> list[str]:
        said, _ = end_daemons(entries)
        if "True" in home.conf.read_text():
            return [*said, f"{LEFT}a dream"]
        return said

    def look(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        return {"health": [f"{self.name} snores"] if self.options.daemons > 2 else []}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a bed whose daemons do not outlive the test."""
    directory = tmp_path / "bed"
    yield directory
    home = Home.at(directory, SleepTestbed.kind)
    if home.exists():
        end_process([proven(entry) for entry in home.journal.pending("process")])


def test_a_bed_comes_up_is_opened_again_and_goes(place: Path) -> None:
    told: list[str] = []
    bed = SleepTestbed.up(
        SleepOptions(), place, begun=told.append, ended=lambda step: told.append(f"{step.name}!")
    )
    assert told == ["sleeper 0", "sleeper 0!", "sleeper 1", "sleeper 1!"]
    assert (bed.name, bed.port, bed.facts, bed.options) == (
        "dormouse", 7, {"asleep": 2}, SleepOptions(),
    )  # fmt: skip
    assert [step.name for step in bed.steps] == ["sleeper 0", "sleeper 1"]
    assert SleepTestbed.open(place) == bed
    found = SleepTestbed.status(place)
    assert (found["state"], found["health"], found["port"]) == ("up", [], 7)
    assert {"id", "made", "complete"} & set(found) == set()
    assert [one["pid"] for one in found["daemons"]] == [bed.pid("sleep.0"), bed.pid("sleep.1")]
    with pytest.raises(BackendError, match="holds a test bed already"):
        SleepTestbed.up(SleepOptions(), place)
    assert SleepTestbed.down(place) == ["ended sleep.0, sleep.1", f"removed {place}"]
    assert not place.exists()
    assert SleepTestbed.down(place) == []


@pytest.mark.parametrize(("daemons", "state"), [(2, "up"), (3, "degraded")])
def test_a_bed_that_is_not_well_is_degraded(daemons: int, state: str, place: Path) -> None:
    SleepTestbed.up(SleepOptions(daemons=daemons), place)
    assert SleepTestbed.status(place)["state"] == state


def test_a_bed_with_a_dead_daemon_is_degraded(place: Path) -> None:
    bed = SleepTestbed.up(SleepOptions(), place)
    daemons.kill(bed._home, "sleep.1")
    found = SleepTestbed.status(place)
    assert (found["state"], found["health"]) == ("degraded", [])
    assert [one["state"] for one in found["daemons"]] == ["running", "gone"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": 3}, "bed.options is 3, not a mapping"),
        ({"steps": [{"name": "x"}]}, "bed.steps[0].seconds is missing"),
        ({"complete": "yes"}, "bed.complete is 'yes', not of type bool"),
    ],
)
def test_a_damaged_bed_is_named_and_goes(place: Path, changes: dict[str, Any], reason: str) -> None:
    SleepTestbed.up(SleepOptions(), place)
    file = place / "bed.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    for look in (SleepTestbed.open, SleepTestbed.status):
        with pytest.raises(BackendError, match=re.escape(f"{file}: {reason}")):
            look(place)
    assert SleepTestbed.down(place) == ["ended sleep.0, sleep.1", f"removed {place}"]


def test_an_entry_of_no_process_is_named(place: Path) -> None:
    bed = SleepTestbed.up(SleepOptions(), place)
    entry = bed._home.journal.begin("process", role="sleep.2", argv="sleep 1")
    with pytest.raises(BackendError, match=rf"entry {entry.id}: facts\.argv is 'sleep 1', not a"):
        SleepTestbed.status(place)
    bed._home.journal.end(entry)


def test_a_daemon_is_started_again_as_it_was_journalled() -> None:
    launch = Launch("osd.0", ("ceph-osd", "-i", "0"), "/c", "n", environment={"A": "b"})
    assert Launch.of({**vars(launch), "argv": list(launch.argv)}) == launch
    assert Launch.of({"role": "x", "argv": ["y"]}) == Launch("x", ("y",))  # as older releases


def test_what_is_refused_makes_nothing(place: Path) -> None:
    with pytest.raises(BackendError, match="nobody sleeps"):
        SleepTestbed.up(SleepOptions(daemons=0), place)
    assert not place.exists()
    with pytest.raises(BackendError, match="holds no sleeping test bed"):
        SleepTestbed.open(place)


def test_what_fails_is_taken_down(place: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^as asked$"):
        SleepTestbed.up(SleepOptions(fails=True), place)
    assert not place.exists()


def test_what_fails_and_cannot_be_undone_says_both_and_stays(place: Path) -> None:
    with pytest.raises(BackendError, match=r"^as asked; left alone: a dream$") as caught:
        SleepTestbed.up(SleepOptions(fails=True, stays=True), place)
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__notes__ == [f"{LEFT}a dream"]
    found = SleepTestbed.status(place)
    assert (found["state"], found["name"], "facts" in found) == ("interrupted", "dormouse", False)
    with pytest.raises(BackendError, match="interrupted"):
        SleepTestbed.open(place)
    (place / "sleep.conf").write_text("False")
    assert SleepTestbed.down(place) == [f"removed {place}"]


def test_a_bed_of_another_kind_is_not_seen(place: Path) -> None:
    Home.at(place, OTHER).make()
    assert SleepTestbed.down(place) == []
    assert SleepTestbed.status(place)["state"] == "none"
    with pytest.raises(BackendError, match="holds no sleeping test bed"):
        SleepTestbed.open(place)
    assert place.exists()


def test_a_bed_of_another_host_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = SleepTestbed.up(SleepOptions(), place)
    monkeypatch.setattr("fsmatrix.backends.testbed.bed.boot_id", lambda: "another boot")
    monkeypatch.setattr("fsmatrix.backends.testbed.bed.socket.gethostname", lambda: "elsewhere")
    with pytest.raises(BackendError, match="this test bed runs on host"):
        SleepTestbed.down(place)
    monkeypatch.undo()
    assert SleepTestbed.status(place)["state"] == "up"
    assert bed.pid("sleep.0") > 0
