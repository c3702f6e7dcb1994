"""The study `io500`: which runs count, families, medians, correlations, on known truths."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.studies.io500 import io500_chart, ranges
from fsmatrix.analysis.studies.io500.io500_result import Io500Study
from fsmatrix.analysis.studies.io500.io500_study import io500
from fsmatrix.analysis.studies.io500.submissions import (
    NOT_TOLD,
    Submission,
    family,
    size_class,
    submissions,
)
from fsmatrix.results.formats.io500_text import PHASES, Score, score
from fsmatrix.suite.importing.recognise import collection
from tests.io500_submissions import old_summary, scores, submission, summary, values, with_outputs


def study(root: Path) -> Io500Study:
    return io500(collection(root), "here")


def one(
    name: str = "a",
    of: dict[str, float] | None = None,
    system: str = "",
    nodes: int = 10,
    year: int = 2024,
) -> Submission:
    of = values() if of is None else of
    return Submission(
        name, f"{name}/x", system or name, "", "Ceph", year, nodes, None, of, score(of)
    )


# -- which runs count ----------------------------------------------------------------------------
def why(root: Path) -> tuple[list[str], dict[str, str]]:
    counted, left = submissions(collection(root).runs)
    return [x.name for x in counted], {x.file: x.why for x in left}


def test_a_text_counts_once_at_its_earliest_place(tmp_path: Path) -> None:
    first, again = "U/s/DAOS/2023/submission-2", "U/s/DAOS/2024/submission-1"
    for place in (first, again):
        submission(tmp_path, place, summary(values()))
    counted, left = why(tmp_path)
    assert counted == [first]
    text = "results/result_summary.txt"
    assert left == {f"{again}/{text}": f"the same text as {first}/{text}"}


def test_the_run_with_outputs_is_the_submission_s_own(tmp_path: Path) -> None:
    place = "U/s/DAOS/2023/submission-2"
    with_outputs(tmp_path, place)
    (tmp_path / place / "result_summary.txt").write_text(summary(values()))
    counted, left = why(tmp_path)
    assert counted == [place]
    assert "lies beside the result of" in left[f"{place}/result_summary.txt"]


def test_a_copy_without_outputs_does_not_hide_the_run_with_them(tmp_path: Path) -> None:
    """Its number of client nodes stands in IOR's output only."""
    place = "U/s/DAOS/2023/submission-2"
    folder = with_outputs(tmp_path, place)
    (tmp_path / place / "result_summary.txt").write_text(
        (folder / "result_summary.txt").read_text()
    )
    counted, left = submissions(collection(tmp_path).runs)
    assert [x.nodes for x in counted] == [1]
    assert [x.file for x in left] == [f"{place}/result_summary.txt"]


def test_of_several_results_in_one_submission_none_is_its_own(tmp_path: Path) -> None:
    place = "U/s/DAOS/2023/submission-2"
    with_outputs(tmp_path, f"{place}/a")
    with_outputs(tmp_path, f"{place}/b", "another\n")
    submission(tmp_path, "U/s/DAOS/2023/submission-3", summary(values()))
    counted, left = why(tmp_path)
    assert counted == ["U/s/DAOS/2023/submission-3"]
    assert [text.split(" ")[:3] for text in left.values()] == [["one", "of", "2"]] * 2


def test_what_is_invalid_or_failed_does_not_count(tmp_path: Path) -> None:
    submission(tmp_path, "U/s/f/2023/submission-1", summary(values(), mark=" [INVALID]"))
    cut = summary(values(2)).rpartition("[SCORE")[0]
    submission(tmp_path, "U/s/f/2023/submission-2", cut)
    submission(tmp_path, "U/s/f/2023/submission-3", summary(values(3)))
    counted, left = why(tmp_path)
    assert counted == ["U/s/f/2023/submission-3"]
    assert sorted(text.split(":")[0] for text in left.values()) == [
        "IO500 calls it invalid",
        "failed",
    ]
    with pytest.raises(ValueError, match="no result counts"):
        io500(collection(tmp_path / "U/s/f/2023/submission-1"), "x")


def test_a_phase_that_its_output_contradicts_makes_no_score(tmp_path: Path) -> None:
    folder = with_outputs(tmp_path, "U/s/f/2023/submission-1")
    path = folder / "result_summary.txt"
    path.write_text(path.read_text().replace("0.220641", "0.320641"))
    found = study(tmp_path)
    (mine,) = found.submissions
    assert "ior-easy-write" not in mine.values
    assert mine.score.bandwidth is None
    assert mine.score.total is None
    assert mine.score.rate is not None
    ((file, phase),) = [(x.file, x.phase) for x in found.checks.phases_differ]
    assert (file, phase) == ("U/s/f/2023/submission-1/results/result_summary.txt", "ior-easy-write")
    assert found.checks.phases == 12


# -- scores --------------------------------------------------------------------------------------
def test_a_score_that_differs_is_listed_with_its_file(tmp_path: Path) -> None:
    bandwidth, rate, total = scores(values(2))
    submission(tmp_path, "U/s/f/2023/submission-1", summary(values()))
    submission(tmp_path, "U/s/f/2019/submission-2", old_summary(values(2), (bandwidth, rate, 1.0)))
    found = study(tmp_path)
    assert found.checks.scores == 6
    ((file, part, printed, again),) = [
        (x.file, x.part, x.printed, x.recomputed) for x in found.checks.scores_differ
    ]
    assert file == "U/s/f/2019/submission-2/results/result_summary.txt"
    assert (part, printed, again) == ("total", 1.0, pytest.approx(total, rel=1e-3))
    assert any(file in line and "printed 1" in line for line in found.says)


def test_scores_that_agree_are_said_to(tmp_path: Path) -> None:
    submission(tmp_path, "U/s/f/2023/submission-1", summary(values()))
    assert any("All 3 printed scores" in line for line in study(tmp_path).says)


# -- families ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [("CephFS", "Ceph"), ("Garden Linux, Ceph", "Ceph"), ("SUSE Enterprise Storage", "Ceph"),
     ("DAOS", "DAOS"), ("/daos", "DAOS"), ("EXAScaler", "Lustre"), ("lustre02", "Lustre"),
     ("IBM Storage Scale 5.2", "Spectrum Scale"), ("irisgpfs", "Spectrum Scale"),
     ("OCI-SpectrumScale", "Spectrum Scale"), ("HPC-BeeGFS", "BeeGFS"), ("wekafs", "WekaIO"),
     ("JUST-IME", "IME"), ("IME140", "IME"), ("Vast", "VAST"), ("GekkoFS", "GekkoFS"),
     ("Prime", NOT_TOLD), ("scratch", NOT_TOLD), ("process", NOT_TOLD)],
)  # fmt: skip
def test_families(name: str, expected: str) -> None:
    assert family([name]) == expected


def test_the_most_telling_name_counts(tmp_path: Path) -> None:
    submission(
        tmp_path,
        "U/Lustre site/scratch/2023/submission-1",
        summary(values()),
        filesystem_type="CephFS",
    )
    submission(tmp_path, "U/Lustre site/scratch/2023/submission-2", summary(values(2)))
    assert [x.family for x in study(tmp_path).submissions] == ["Ceph", "Lustre"]


def test_families_with_as_many_client_nodes_stand_beside_each_other(tmp_path: Path) -> None:
    for number, name in enumerate(("DAOS", "Lustre", "CephFS"), 1):
        place = f"U/s{number}/scratch/2023/submission-1"
        submission(tmp_path, place, summary(values(number)), 10, filesystem_type=name)
    (axes,) = io500_chart.draw(study(tmp_path), 0).axes
    places = sorted(float(np.asarray(drawn.get_offsets())[0, 0]) for drawn in axes.collections)
    assert len(places) == 3
    assert all(low < high for low, high in itertools.pairwise(places))
    assert places == pytest.approx([10] * 3, rel=0.15)


# -- medians and ranges --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("nodes", "size"),
    [(1, "1"), (2, "2 to 9"), (9, "2 to 9"), (10, "10"), (11, "11 to 99"), (100, "100 to 999"),
     (2048, "1000 and more"), (None, "not told"), (0, "not told")],
)  # fmt: skip
def test_classes_of_client_nodes(nodes: int | None, size: str) -> None:
    assert size_class(nodes) == size


def test_medians_and_ranges_by_family_year_and_nodes(tmp_path: Path) -> None:
    for number, (factor, year, nodes) in enumerate([(1, 2023, 10), (2, 2023, 10), (9, 2024, 64)]):
        place = f"U/s{number % 2}/DAOS/{year}/submission-{number}"
        submission(tmp_path, place, summary(values(factor)), nodes)
    found, unit = study(tmp_path), scores(values())[2]
    (row,) = found.families
    assert (row.submissions, row.systems, row.years, row.nodes) == (3, 2, (2023, 2024), (10, 64))
    total = row.ranges["score"]
    assert (total.low, total.median, total.high) == pytest.approx((unit, 2 * unit, 9 * unit))
    medians = {key.key[1]: key.ranges["score"].median for key in found.years}
    assert medians == {"2023": pytest.approx(1.5 * unit), "2024": pytest.approx(9 * unit)}
    sizes = {key.key[1]: key.submissions for key in found.sizes}
    assert sizes == {"10": 2, "11 to 99": 1}
    table = found.table()
    assert len(table) == 5
    assert table["score: median"].tolist()[0] == pytest.approx(2 * unit)


def test_hard_over_easy() -> None:
    of = values(ior_easy_read=8.0, ior_hard_read=2.0, mdtest_easy_stat=5.0, mdtest_hard_stat=10.0)
    mine = one(of={k: v for k, v in of.items() if k != "mdtest-easy-delete"})
    assert ranges.hard_over_easy(mine, "data read") == 0.25
    assert ranges.hard_over_easy(mine, "files looked up") == 2.0
    assert ranges.hard_over_easy(mine, "files deleted") is None


# -- correlations --------------------------------------------------------------------------------
def pair(of: list[Submission], a: str, b: str) -> ranges.PhasePair:
    return next(x for x in ranges.pairs(of) if {x.a, x.b} == {a, b})


def test_ranks_that_agree_and_ranks_that_are_reversed() -> None:
    of = [
        one(f"s{i}", values(find=2.0**i, ior_easy_read=10.0 * i + 1, ior_hard_read=99.0 - i))
        for i in range(12)
    ]
    assert pair(of, "find", "ior-easy-read").r == pytest.approx(1.0)
    assert pair(of, "find", "ior-hard-read").r == pytest.approx(-1.0)
    assert pair(of, "find", "ior-easy-write").r is None  # constant


def test_r_and_its_interval_by_the_textbook() -> None:
    """r = 1 - 6 sum(d^2) / (n (n^2 - 1)) without ties; Bonett and Wright's error of Fisher's z."""
    order = [3, 1, 2, 6, 4, 5, 9, 7, 8, 12, 10, 11]
    of = [
        one(f"s{i}", values(find=float(i), ior_easy_read=float(rank)))
        for i, rank in enumerate(order, 1)
    ]
    n, squares = len(order), sum((i - rank) ** 2 for i, rank in enumerate(order, 1))
    r = 1 - 6 * squares / (n * (n * n - 1))
    found = pair(of, "find", "ior-easy-read")
    assert (found.r, found.submissions) == (pytest.approx(r), n)
    reach = stats.norm.ppf(0.975) * math.sqrt((1 + r * r / 2) / (n - 3))
    ends = (math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach))
    assert (found.low, found.high) == pytest.approx(ends)


def test_few_submissions_give_no_r() -> None:
    of = [one(f"s{i}", values(find=i + 1.0, ior_easy_read=i + 2.0)) for i in range(9)]
    found = pair(of, "find", "ior-easy-read")
    assert (found.r, found.r_systems, found.low, found.submissions) == (None, None, None, 9)


def test_submissions_of_one_system_count_once_and_ten_nodes_apart() -> None:
    of = [one(f"s{i}", values(find=i + 1.0, ior_easy_read=i + 1.0), nodes=10) for i in range(10)]
    of += [
        one(f"many{i}", values(find=50.0 - i, ior_easy_read=50.0 + i), "same", nodes=11)
        for i in range(30)
    ]
    found = pair(of, "find", "ior-easy-read")
    assert found.submissions == 40
    assert found.r is not None
    assert found.r < 0.5
    assert (found.systems, found.tens) == (11, 10)
    assert found.r_systems == pytest.approx(1.0, abs=0.2)
    assert found.r_ten == pytest.approx(1.0)


def test_the_newest_of_a_system_counts() -> None:
    of = [
        one("x/submission-9", system="s", year=2023),
        one("x/submission-10", system="s", year=2023),
        one("x/submission-99", system="s", year=2019),
    ]
    assert [x.name for x in ranges.one_per_system(of)] == ["x/submission-10"]


def test_it_is_always_said_that_it_describes_only(tmp_path: Path) -> None:
    submission(tmp_path, "U/s/f/2023/submission-1", summary(values()))
    found = study(tmp_path)
    assert found.says[0].startswith("Different hardware: descriptive only.")
    assert found.to_dict()["caveat"] == found.says[0]
    assert found.pages == 2  # of one submission there is no correlation to draw
    assert found.submissions[0].score == Score(*map(pytest.approx, scores(values())))
    assert set(found.submissions[0].values) == set(PHASES)
