"""Steps of long analyses on standard error: after a second, and never on standard output."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

from fsmatrix.analysis.steps import LOGGER, step
from fsmatrix.cli import app, progress
from fsmatrix.cli.progress import Waiting
from tests.waiting import PATIENCE


class Heard(io.StringIO):
    """A stream that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.some = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.some.set()
        return count


def test_the_first_words_need_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.01)
    heard = Heard()
    with Waiting(Console(file=heard), "lessons: reading"):
        assert heard.some.wait(PATIENCE)
        step("lessons: 126 targets")
    assert "lessons: reading ..." in heard.getvalue()
    assert "lessons: 126 targets ..." in heard.getvalue()
    assert not [one for one in LOGGER.handlers if isinstance(one, Waiting)]


def test_who_answers_at_once_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", PATIENCE)
    heard = Heard()
    with Waiting(Console(file=heard), "show: reading"):
        step("reading campaign.h5")
    assert heard.getvalue() == ""


def test_in_a_terminal_it_is_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.01)
    heard = Heard()
    with Waiting(Console(file=heard, force_terminal=True), "lessons: reading"):
        step("lessons: [bold]126[/] targets")
        deadline = time.monotonic() + PATIENCE
        while "126" not in heard.getvalue() and time.monotonic() < deadline:
            heard.some.wait(0.1)
    assert "[bold]126[/] targets" in heard.getvalue()


def test_every_command_that_is_waited_for_exists() -> None:
    every = (*app.app.registered_commands, *app.app.registered_groups)
    assert {one.name for one in every} >= app.WAITED_FOR
