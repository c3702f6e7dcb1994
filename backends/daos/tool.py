"""DAOS's command-line tools: called with a deadline, their JSON understood or refused.

Every call is `<tool> --json ...`.  The answer is one object with "response", "error" and
"status" on standard output; status is 0 or a DER_* number (daos_errno.h), and the tool then
exits with 1.  Other lines (a client's file_limit_bump, a warning) may stand around it.
With a dead engine a tool waits for minutes: a deadline ends it.  DAOS 2.4 or later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools

DEADLINE = 60.0  # seconds for each call: engines that poll on the client's cores make it slow
EXIST, NONEXIST, BUSY = -1004, -1005, -1012  # DER_EXIST, DER_NONEXIST, DER_BUSY
_SHOWN = 300  # characters of an answer that is not understood
_OBJECT = re.compile(r"^\{", re.MULTILINE)
T = TypeVar("T")


class DaosError(ToolError):
    """The tool answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def ask(argv: Sequence[str], deadline: float) -> Any:
    """The response to `argv`, which asks for JSON.

    DaosError with the tool's own reason; ToolError if the tool is missing, does not end within
    `deadline` seconds, or gives no answer that can be read.
    """
    called = " ".join(word for word in argv if not word.startswith("--"))
    ran = tools.run(argv, deadline=deadline, check=False)
    answer = _answer_in(ran.stdout)
    if answer is None:
        status = f"exit status {ran.returncode}: {ran.complaint[:_SHOWN]}"
        raise ToolError(f"{called} gave no answer that can be read ({status})")
    status = answer["status"]
    if answer["error"] is not None or status != 0 or ran.returncode != 0:
        reason = answer["error"] or ran.complaint[:_SHOWN]
        raise DaosError(f"{called} failed: {reason}", status)
    return answer["response"]


def read(kind: type[T], argv: Sequence[str], deadline: float) -> T:
    """As `ask`, with the response as `kind`; ToolError that names the place if it is not one."""
    response = ask(argv, deadline)
    try:
        return TypeAdapter(kind).validate_python(response)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "response"
        raise ToolError(f"{' '.join(argv)}: {place} is not understood: {first['msg']}") from error


def _answer_in(text: str) -> dict[str, Any] | None:
    """The tool's object among other lines; None if there is no whole one."""
    decoder = json.JSONDecoder()
    for begin in _OBJECT.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        if {"response", "error", "status"} <= value.keys() and type(value["status"]) is int:
            return dict(value)
    return None
