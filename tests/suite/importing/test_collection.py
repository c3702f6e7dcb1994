"""Directories of IO500 submissions are read as they lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.importing.recognise import collection
from tests.io500_submissions import old_summary, submission, summary, values, with_outputs

HERE = "Uni/sys/CephFS/2024/submission-1"


def test_both_forms_are_read_with_place_and_form(tmp_path: Path) -> None:
    submission(tmp_path, HERE, summary(values()), 10, filesystem_type="CephFS")
    submission(tmp_path, "Lab/old/scratch/2019/submission-2", old_summary(values(2)), None)
    (tmp_path / "Lab/old/scratch/2019/submission-2/io500.sh").write_text(
        "  io500_info_filesystem='Lustre' # e.g. GPFS\n"
    )
    old, new = collection(tmp_path).runs
    assert (old.place.year, old.place.filesystem, old.place.system) == (2019, "scratch", "Lab/old")
    assert old.declared.filesystem == ("Lustre",)
    assert new.file == f"{HERE}/results/result_summary.txt"
    assert new.declared.nodes == 10
    assert len(old.parsed.phases) == len(new.parsed.phases) == 12


def test_outputs_beside_a_summary_are_read_and_tables_of_processes_are_not(tmp_path: Path) -> None:
    folder = with_outputs(tmp_path, HERE)
    (folder / "mdtest-easy-write.csv").write_bytes(b"\x00" * 10)
    (run,) = collection(tmp_path).runs
    assert (run.parsed.nodes, run.parsed.processes) == (1, 2)
    assert sum(phase.facts["own_output"] for phase in run.parsed.phases) == 12  # all but find


def test_a_submission_without_a_summary_is_named(tmp_path: Path) -> None:
    submission(tmp_path, HERE, summary(values()))
    empty = tmp_path / "Uni/sys/CephFS/2025/submission-3"
    empty.mkdir(parents=True)
    (empty / "io500.sh").write_text("#!/bin/sh\n")
    assert collection(tmp_path).without == ("Uni/sys/CephFS/2025/submission-3",)


def test_a_summary_that_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    submission(tmp_path, HERE, summary(values()))
    bad = submission(tmp_path, "Uni/sys/CephFS/2025/submission-4", summary(values()))
    text = summary(values()) + "[RESULT]   find   3,5 kIOPS : time 3,0 seconds\n"
    (bad / "result_summary.txt").write_text(text)
    found = collection(tmp_path)
    assert [run.place.submission for run in found.runs] == [HERE]
    ((where, why),) = found.unread
    assert where == "Uni/sys/CephFS/2025/submission-4/results"
    assert "decimal commas" in why


def test_links_and_hidden_files_are_left_alone(tmp_path: Path) -> None:
    folder = submission(tmp_path, HERE, summary(values()))
    (tmp_path / "again").symlink_to(folder)
    shutil.copytree(folder, tmp_path / ".hidden")
    assert len(collection(tmp_path).runs) == 1


def test_progress_is_told(tmp_path: Path) -> None:
    submission(tmp_path, HERE, summary(values()))
    seen: list[tuple[int, int]] = []
    collection(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(done, seen[-1][1]) for done in range(1, seen[-1][1] + 1)]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "no such directory"),
        ("file", "is no directory"),
        ("empty", "no results of IO500 below it"),
    ],
)
def test_what_is_no_collection_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CampaignError, match=why):
        collection(tmp_path / name)
