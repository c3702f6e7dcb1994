"""Garbage collection of NILFS2 and F2FS: settings.  A guest shows that it works (test_guest.py)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.local import cleaner
from fsmatrix.backends.local.cleaner import CleanerOptions
from fsmatrix.backends.local.f2fs import F2fs, F2fsOptions
from fsmatrix.backends.local.nilfs2 import Nilfs2, Nilfs2Options
from fsmatrix.backends.system import tools

STUDY = {"protection_period": "1s", "segments": 2, "interval": "5s"}


def backend(**options: Any) -> Nilfs2:
    return Nilfs2(Nilfs2Options.model_validate(options))


def test_the_settings_of_the_study_are_a_level_of_gc() -> None:
    assert backend(cleaner=STUDY).foreseen().attributes == {
        "gc": "protection=1,segments=2,interval=5"
    }
    assert backend().foreseen().attributes == {"gc": "none"}


@pytest.mark.parametrize(
    ("mount_options", "level"),
    [
        ("", "background_gc=on"),
        ("background_gc=off,lazytime", "background_gc=off"),
        ("atgc,background_gc=sync,gc_merge", "background_gc=sync,gc_merge,atgc"),
        ("background_gc=off,background_gc=on,nogc_merge", "background_gc=on"),
    ],
)
def test_f2fs_is_told_by_mount_options(mount_options: str, level: str) -> None:
    options = F2fsOptions.model_validate({"mount_options": mount_options})
    assert F2fs(options).foreseen().attributes == {"gc": level}


def test_they_are_what_the_cleaner_reads() -> None:
    text = CleanerOptions.model_validate(STUDY).text()
    words = dict(line.split() for line in text.splitlines() if " " in line)
    assert words["protection_period"] == "1"
    assert words["nsegments_per_clean"] == words["mc_nsegments_per_clean"] == "2"
    assert words["cleaning_interval"] == words["mc_cleaning_interval"] == "5"
    assert words["min_clean_segments"] == "0"  # always


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segments": 0}, "greater than or equal to 1"),
        ({"segments": 33}, "less than or equal to 32"),
        ({"interval": "1.5s"}, "whole seconds, not 1.5"),
        ({"protection_period": "100ms"}, "whole seconds, not 0.1"),
        ({"interval": 0}, "at least one second"),
        ({"policy": "timestamp"}, "Extra inputs"),
    ],
)
def test_wrong_ones_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        backend(cleaner=options)


def test_without_the_program_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "missing", lambda name: f"no {name}")
    assert backend(cleaner=STUDY).refusal() == f"no {cleaner.PROGRAM}"
    assert backend().refusal() == ""
