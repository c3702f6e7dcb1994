"""DAOS's command-line tools: called with a deadline, their JSON understood or refused.

Every call is `<tool> --json ...`.  The answer is one object with "response", "error" and
"status" on standard output; status is 0 or a DER_* number (daos_errno.h), and the tool then
exits with 1.  Other lines (a client's file_limit_bump, a warning) may stand around it.
With a dead engine a tool waits for minutes: a deadline ends it.  DAOS 2.4 or later.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsmatrix.backends.errors import BackendError, NoAnswer, ToolError
from fsmatrix.backends.journal.proof import PREFIX
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.values import Json, JsonObject

DEADLINE = 60.0  # seconds for each call: engines that poll on the client's cores make it slow
EXIST, NONEXIST, BUSY, MISC = -1004, -1005, -1012, -1025  # DER_EXIST, DER_NONEXIST...
TIMEDOUT = -1011
# A tool that ends with this has asked for nothing yet: servers that share the client's cores keep
# it waiting for 3 s or so, and DAOS gives up (2.6).
_NOT_BEGUN = "failed to initialize DAOS API"
_TRIES = 3
# what the user can do about a status; the tool's own text says the rest
MEANINGS = {
    -1001: "this user has no right to that: see the access lists of pool and container",
    -1003: "the pool cannot hold that: too few failure domains for these properties",
    -1005: "this system has no object of that name or UUID",
    -1007: "no space is left",
    -1011: "the servers did not answer in time",
    MISC: "daos_agent may have died, or nothing of that name is there",
    -2034: "no daos_agent answers on this node",
}
# daos_prop.h, daos_label_is_valid; a leading "-" would be an option of the tool
NAME = r"^[A-Za-z0-9_][A-Za-z0-9:._-]{0,126}$"
# what ProvisionContext.new_name gives
_OWN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]+-[0-9a-f]{{8}}")
_SHOWN = 300  # characters of an answer that is not understood
_OBJECT = re.compile(r"^\{", re.MULTILINE)
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a tool printed."""

    response: Any
    error: Json
    status: int  # 0, or a DER_* number


def is_name(text: str) -> bool:
    """Whether it may be the label or UUID of a pool or container."""
    return re.fullmatch(NAME[1:-1], text) is not None


def is_own(name: str) -> bool:
    """Whether it may be a name that the suite drew: what it makes on servers has no other."""
    return _OWN.fullmatch(name) is not None


def recorded_deadline(facts: JsonObject) -> float:
    """Of a journal entry; entries of older releases have none.  BackendError if it is none."""
    deadline = facts.get("deadline", DEADLINE)
    if not isinstance(deadline, int | float) or not 0 < deadline < float("inf"):
        raise BackendError(f"{deadline!r} is not a deadline: nothing was destroyed")
    return float(deadline)


class DaosError(ToolError):
    """The tool answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def ask(argv: Sequence[str], deadline: float, meanings: Mapping[int, str] = MEANINGS) -> Any:
    """The response to `argv`, which asks for JSON; `meanings` of a status go into its error.

    DaosError with the tool's own reason; ToolError if the tool is missing or gives no answer
    that can be read; NoAnswer if it does not end within `deadline` seconds.  A tool that could
    not begin in time is called again, within the same seconds.
    """
    end = time.monotonic() + deadline
    for _ in range(_TRIES - 1):
        try:
            return _ask_once(argv, deadline, meanings)
        except DaosError as error:
            deadline = end - time.monotonic()
            if error.status != TIMEDOUT or _NOT_BEGUN not in str(error) or deadline <= 0:
                raise
    return _ask_once(argv, deadline, meanings)


def _ask_once(argv: Sequence[str], deadline: float, meanings: Mapping[int, str]) -> Any:
    called = " ".join(word for word in argv if not word.startswith("--"))
    try:
        ran = tools.run(argv, deadline=deadline, check=False)
    except NoAnswer as error:
        raise NoAnswer(
            f"{called}: still no answer after {deadline:g} s; the tool is installed and was "
            "started, and is ended now. Engines that poll on the client's cores make it slow: "
            "raise `deadline`. Or an engine is dead"
        ) from error
    answer = _answer_in(ran.stdout)
    if answer is None:
        ended = f"exit status {ran.returncode}: {ran.complaint[:_SHOWN]}"
        raise ToolError(f"{called} gave no readable answer ({ended})")
    status = answer.status
    if answer.error is not None or status != 0 or ran.returncode != 0:
        reason = answer.error or ran.complaint[:_SHOWN]
        meaning = f" ({meanings[status]})" if status in meanings else ""
        raise DaosError(f"{called} failed: {reason}{meaning}", status)
    return answer.response


def read(
    kind: type[T], argv: Sequence[str], deadline: float, meanings: Mapping[int, str] = MEANINGS
) -> T:
    """As `ask`, with the response as `kind`; ToolError that names the place if it is not one."""
    response = ask(argv, deadline, meanings)
    try:
        return TypeAdapter(kind).validate_python(response)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "response"
        raise ToolError(f"{' '.join(argv)}: {place} is not understood: {first['msg']}") from error


def _answer_in(text: str) -> Answer | None:
    """The tool's object among other lines; None if there is no whole one."""
    decoder = json.JSONDecoder()
    for begin in _OBJECT.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        if {"response", "error", "status"} <= value.keys() and type(value["status"]) is int:
            return Answer(value["response"], value["error"], value["status"])
    return None
