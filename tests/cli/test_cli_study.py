"""`fsmatrix study io500`: the command, the page, and the place of one's own run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.studies.io500.io500_study import io500
from fsmatrix.results.formats.io500_text import GIB
from fsmatrix.results.record import Geometry
from fsmatrix.suite.importing.recognise import collection
from tests.analysis.campaigns import phase, record, write
from tests.analysis.commands import call
from tests.io500_submissions import DATA, scores, submission, summary, values

Patch = pytest.MonkeyPatch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ceph on 10 client nodes, 1 to 4 times as fast, and DAOS on 64."""
    for factor in range(1, 5):
        place = f"Uni/sys{factor}/CephFS/2024/submission-{factor}"
        submission(tmp_path / "all", place, summary(values(factor)), 10)
    submission(tmp_path / "all", "Lab/s/DAOS/2023/submission-9", summary(values(50)), 64)
    return tmp_path / "all"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: Patch, capsys: Any) -> Path:
    """An imported run between the second and the third Ceph; its find is the third's."""
    text, out = tmp_path / "mine.txt", tmp_path / "mine.h5"
    text.write_text(summary(values(2.5, find=3 * values()["find"])))
    words = ("import", text, "-o", out, "--set", "target=ours", "--set", "nodes=10")
    assert call(monkeypatch, *words) == 0
    capsys.readouterr()
    return out


# -- the terminal and JSON -----------------------------------------------------------------------
def test_the_terminal_has_sentences_and_families(
    root: Path, monkeypatch: Patch, capsys: Any
) -> None:
    assert call(monkeypatch, "study", "io500", root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Different hardware: descriptive only.")
    assert lines[1].startswith("Counted: 5 submissions of 5 systems, 2023 to 2024, with 10 to 64")
    assert "All 15 printed scores" in lines[2]
    assert any(line.split()[:4] == ["Ceph", "4", "4", "2024"] for line in lines)
    assert any(line.startswith("Score by client nodes") for line in lines)


def test_json_has_all_of_it(root: Path, monkeypatch: Patch, capsys: Any) -> None:
    assert call(monkeypatch, "study", "io500", root, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["checks"]["scores_differ"] == []
    assert len(told["submissions"]) == 5
    ceph = next(one for one in told["families"] if one["family"] == "Ceph")
    bandwidth = scores(values())[0]
    assert ceph["bandwidth_score_gib_s"]["median"] == pytest.approx(2.5 * bandwidth)
    assert ceph["bandwidth_score_gib_s"]["high"] == pytest.approx(4 * bandwidth)
    assert told["hard_over_easy"][0]["data_written"]["submissions"] == 4
    assert told["mine"] == []


@pytest.mark.parametrize("suffix", ["csv", "md", "svg"])
def test_tables_and_pictures(root: Path, monkeypatch: Patch, suffix: str) -> None:
    out = root.parent / f"io500.{suffix}"
    assert call(monkeypatch, "study", "io500", root, "-o", out) == 0
    assert out.exists()


# -- one's own run -------------------------------------------------------------------------------
def test_one_s_own_run_stands_among_those_of_its_size(root: Path, mine: Path) -> None:
    found = io500(collection(root), "x", open_campaign(mine))
    (standing,) = found.standings
    assert (standing.name.split(",")[0], standing.nodes, standing.size) == ("ours", 10, "10")
    places = {place.what: place for place in standing.places}
    assert len(places) == 12 + 3
    easy = places["ior-easy-write"]
    assert (easy.below, easy.submissions, easy.percentile) == (2, 4, 0.5)
    assert easy.value == pytest.approx(2.5 * values()["ior-easy-write"])
    assert easy.median == pytest.approx(2.5 * values()["ior-easy-write"])
    of = values(2.5, find=3 * values()["find"])
    assert places["score"].value == pytest.approx(scores(of)[2])
    assert places["bandwidth score"].value == pytest.approx(scores(of)[0])


def test_a_value_equal_to_another_counts_half(root: Path, mine: Path) -> None:
    from fsmatrix.analysis.studies.io500.standing import _place

    place = _place("find", "kIOPS", 3.0, [1.0, 2.0, 3.0, 4.0])
    assert (place.below, place.equal, place.percentile) == (2, 1, 2.5 / 4)
    assert _place("find", "kIOPS", 3.0, []).percentile is None


def test_it_is_said_that_few_are_of_its_size(
    root: Path, mine: Path, monkeypatch: Patch, capsys: Any
) -> None:
    assert call(monkeypatch, "study", "io500", root, "--mine", mine) == 0
    printed = capsys.readouterr().out
    assert "among 4 submissions with 10 client nodes (few: a place among 4 says little)" in printed
    assert "more than 2 of 4 (percentile 50)" in printed


def test_a_size_that_nobody_submitted_has_no_place(
    root: Path, tmp_path: Path, monkeypatch: Patch, capsys: Any
) -> None:
    text, out = tmp_path / "own.txt", tmp_path / "own.h5"
    text.write_text(summary(values(2.5)))
    assert call(monkeypatch, "import", text, "-o", out, "--set", "nodes=500") == 0
    assert call(monkeypatch, "study", "io500", root, "--mine", out) == 0
    assert "no submission of this size has one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [((), "the number of client nodes is not told"), (("--set", "nodes=10"), "")],
)
def test_without_client_nodes_it_cannot_stand_anywhere(
    root: Path, tmp_path: Path, monkeypatch: Patch, capsys: Any, words: tuple[str, ...], why: str
) -> None:
    text, out = tmp_path / "own.txt", tmp_path / "own.h5"
    text.write_text(summary(values(2.5)))
    assert call(monkeypatch, "import", text, "-o", out, *words) == 0
    assert call(monkeypatch, "study", "io500", root, "--mine", out) == (2 if why else 0)
    assert why in capsys.readouterr().err


def test_an_invalid_run_of_one_s_own_is_refused(
    root: Path, tmp_path: Path, monkeypatch: Patch, capsys: Any
) -> None:
    out = tmp_path / "own.h5"
    assert call(monkeypatch, "import", DATA, "-o", out) == 0
    assert call(monkeypatch, "study", "io500", root, "--mine", out) == 2
    assert "no phase of IO500 has a valid result: 1 runs are invalid" in capsys.readouterr().err


def test_a_campaign_without_phases_of_io500_is_refused(
    root: Path, tmp_path: Path, monkeypatch: Patch, capsys: Any
) -> None:
    out = tmp_path / "ior.h5"
    assert call(monkeypatch, "import", DATA / "ior-easy-write.txt", "-o", out) == 0
    assert call(monkeypatch, "study", "io500", root, "--mine", out) == 2
    assert "no phase of IO500 in it; there are write" in capsys.readouterr().err


# -- the page ------------------------------------------------------------------------------------
def test_the_page_is_one_file_that_says_what_it_is(
    root: Path, mine: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "io500.html"
    assert call(monkeypatch, "study", "io500", root, "--mine", mine, "-o", out) == 0
    page = out.read_text()
    assert "Different hardware: descriptive only." in page
    assert "<h2>Your run</h2>" in page
    assert "Uni/sys1/CephFS/2024/submission-1" in page
    assert "http" not in page.replace("http-equiv", "")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_names_of_submissions_are_only_text(root: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    name = "<script>alert(1)<"
    place = f"Uni/{name}/{name}CephFS/2024/submission-77"
    submission(root, place, summary(values(7)), 10, filesystem_type=name)
    out = tmp_path / "io500.html"
    assert call(monkeypatch, "study", "io500", root, "-o", out) == 0
    page = out.read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page


# -- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere",), "nowhere: no such directory"),
        (("empty",), "empty: no results of IO500 below it"),
        (("all", "-o", "x.doc"), "must end in .html, .png"),
        (("all", "-o", "none/x.html"), "no directory none"),
        (("all", "--mine", "nothing"), "nothing: does not exist"),
    ],
)
def test_bad_input(
    root: Path, monkeypatch: Patch, capsys: Any, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(root.parent)
    (root.parent / "empty").mkdir()
    assert call(monkeypatch, "study", "io500", *words) == 2
    assert why in capsys.readouterr().err
    assert sorted(path.name for path in root.parent.iterdir()) == ["all", "empty"]


# -- a store of one's own ------------------------------------------------------------------------
def test_a_campaign_of_the_workload_stands_by_its_medians(root: Path, tmp_path: Path) -> None:
    """Its phases have names of its own; each number of client nodes stands in its class."""
    rng = np.random.default_rng(1)
    records = []
    for nodes in (10, 64):
        for block, factor in enumerate((1.5, 2.5, 9.0)):
            easy = factor * values()["ior-easy-write"] * GIB
            made = replace(
                phase("create-mdtest-hard", 1.0, 1, 1, rng, operations=5000),
                end=np.array([1.0 / factor]),
            )
            records.append(
                record(
                    phases=(phase("write-ior-easy", easy, 1 << 20, 1, rng), made),
                    block=block,
                    coordinates={"nodes": nodes},
                    workload="io500",
                    geometry=Geometry(nodes=nodes),
                )
            )
    found = io500(collection(root), "x", open_campaign(write(tmp_path / "campaign.h5", records)))
    places = {(x.nodes, y.what): y for x in found.standings for y in x.places}
    assert set(places) == {
        (nodes, name) for nodes in (10, 64) for name in ("ior-easy-write", "mdtest-hard-write")
    }
    easy_, hard = places[10, "ior-easy-write"], places[10, "mdtest-hard-write"]
    assert (easy_.below, easy_.submissions) == (2, 4)
    assert easy_.value == pytest.approx(2.5 * values()["ior-easy-write"], rel=1e-3)
    assert hard.value == pytest.approx(12.5)
    assert (places[64, "ior-easy-write"].below, places[64, "ior-easy-write"].submissions) == (0, 1)


def test_names_cannot_command_a_terminal(root: Path, monkeypatch: Patch, capsys: Any) -> None:
    """Nor can a name that is no UTF-8 end the command."""
    for number, name in enumerate(("\x1b[31mred", "\udcff")):
        place = f"Uni/{name}/CephFS/2024/submission-8{number}"
        submission(root, place, summary(values(7), printed=(1.0, 1.0, 1.0 + number)), 10)
    assert call(monkeypatch, "study", "io500", root, "-o", root.parent / "x.html") == 0
    printed = capsys.readouterr().out
    assert "submission-80/results/result_summary.txt: bandwidth printed 1" in printed
    assert "submission-81/results/result_summary.txt: bandwidth printed 1" in printed
    assert not {"\x1b", "\udcff"} & set(printed)
