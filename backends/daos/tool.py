"""The `daos` tool: called with a deadline, its JSON understood or refused.

Every call is `daos --json [--sys-name=S] ...`.  The answer is one object with "response",
"error" and "status" on standard output; status is 0 or a DER_* number (daos_errno.h), and the
tool then exits with 1.  Other lines (a client's file_limit_bump, a warning) may stand around it.
With a dead engine the tool waits for minutes: DEADLINE ends it.  DAOS 2.4 or later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools

TOOL = "daos"
MISSING = f"no `{TOOL}` tool on PATH: install the DAOS client and start daos_agent"
DEADLINE = 10.0  # seconds for each call
EXIST, NONEXIST, BUSY = -1004, -1005, -1012  # DER_EXIST, DER_NONEXIST, DER_BUSY
_SHOWN = 300  # characters of an answer that is not understood
_OBJECT = re.compile(r"^\{", re.MULTILINE)


class DaosError(ToolError):
    """The tool answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Answer(BaseModel):
    """What the suite needs of an answer; other fields come and go with releases."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Tier(_Answer):
    """Bytes of one storage tier of a pool, over all its targets."""

    media_type: str  # scm or nvme
    total: NonNegativeInt
    free: NonNegativeInt

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the tier by name: `total` and `free`."""
        return {"total": self.total, "free": self.free}


class Rebuild(_Answer):
    """Rebuild of a pool; a status other than 0 is a failure's number."""

    state: str  # idle, busy, done
    status: int


class Pool(_Answer):
    """Answer of `daos pool query`."""

    uuid: str = Field(min_length=1)
    state: str
    total_targets: NonNegativeInt
    active_targets: NonNegativeInt
    disabled_targets: NonNegativeInt
    total_engines: NonNegativeInt
    version: NonNegativeInt
    rebuild: Rebuild | None = None
    tier_stats: list[Tier] | None = None
    disabled_ranks: list[NonNegativeInt] | None = None
    dead_ranks: list[NonNegativeInt] | None = None

    @property
    def tiers(self) -> list[Tier]:
        """All tiers; none where the tool gives none."""
        return self.tier_stats or []


class Container(_Answer):
    """Answer of `daos container query` and of `daos container create`."""

    container_uuid: str = Field(min_length=1)
    container_type: str
    container_label: str = ""
    redundancy_factor: NonNegativeInt = 0
    object_class: str = ""
    dir_object_class: str = ""
    file_object_class: str = ""
    chunk_size: NonNegativeInt = 0  # bytes; 0: the tool does not say


class RankUri(_Answer):
    """Where an engine listens: ofi+tcp://10.0.0.1:31416."""

    rank: NonNegativeInt
    uri: str


class System(_Answer):
    """Answer of `daos system query`, which the agent gives."""

    system_name: str
    fabric_provider: str
    rank_uris: list[RankUri] | None = None


class Property(_Answer):
    """One line of `daos container get-prop`."""

    name: str
    value: Any


T = TypeVar("T")


def installed() -> bool:
    """Whether the tool is on PATH."""
    return tools.find(TOOL) is not None


def version() -> str:
    """What `daos version` prints: "DAOS CLI version 2.6.5, libdaos v2.7.0"."""
    return tools.run([TOOL, "version"], deadline=DEADLINE).stdout.strip()


def ask(system: str, *words: str, deadline: float | None = None) -> Any:
    """The response to `daos --json words...`.

    DaosError with the tool's own reason; ToolError if the tool is missing, does not end within
    `deadline` seconds (at most and by default DEADLINE), or gives no answer that can be read.
    """
    if not installed():
        raise ToolError(MISSING)
    argv = [TOOL, "--json", *([f"--sys-name={system}"] if system else []), *words]
    limit = DEADLINE if deadline is None else min(deadline, DEADLINE)
    ran = tools.run(argv, deadline=limit, check=False)
    called = f"{TOOL} {' '.join(words)}"
    answer = _answer_in(ran.stdout)
    if answer is None:
        status = f"exit status {ran.returncode}: {ran.complaint[:_SHOWN]}"
        raise ToolError(f"{called} gave no answer that can be read ({status})")
    status = answer["status"]
    if answer["error"] is not None or status != 0 or ran.returncode != 0:
        reason = answer["error"] or ran.complaint[:_SHOWN]
        raise DaosError(f"{called} failed: {reason}", status)
    return answer["response"]


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


def _read(kind: type[T], system: str, *words: str, deadline: float | None = None) -> T:
    """As `ask`, with the response as `kind`; ToolError that names the place if it is not one."""
    response = ask(system, *words, deadline=deadline)
    try:
        return TypeAdapter(kind).validate_python(response)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "response"
        called = f"{TOOL} {' '.join(words)}"
        raise ToolError(f"{called}: {place} is not understood: {first['msg']}") from error


def system_query(system: str) -> System:
    """What the agent knows of the system; shows that the agent answers."""
    return _read(System, system, "system", "query")


def pool_query(pool: str, system: str, deadline: float | None = None) -> Pool:
    """State and space of a pool."""
    return _read(Pool, system, "pool", "query", pool, deadline=deadline)


def container_query(pool: str, container: str, system: str) -> Container | None:
    """A container by label or UUID; None if it, or its pool, does not exist."""
    try:
        return _read(Container, system, "container", "query", pool, container)
    except DaosError as error:
        if error.status == NONEXIST:
            return None
        raise


def properties(pool: str, container: str, system: str) -> dict[str, Any]:
    """Properties of a container by name."""
    lines = _read(list[Property], system, "container", "get-prop", pool, container)
    return {item.name: item.value for item in lines}


def create(pool: str, label: str, system: str, *options: str) -> Container:
    """Make a POSIX container; `options` are further arguments of `daos container create`."""
    return _read(Container, system, "container", "create", pool, label, "--type=POSIX", *options)


def remove(pool: str, label: str, system: str, uuid: str = "") -> bool:
    """Destroy the container `label` if its UUID is `uuid` (empty: the label is proof enough).

    False if there is none.  BackendError, with nothing done, if another one is called so.
    What a killed program still holds open is closed by force.
    """
    container = container_query(pool, label, system)
    if container is None:
        return False
    if uuid and container.container_uuid != uuid:
        raise BackendError(
            f"container {label} of pool {pool} is another one ({container.container_uuid}) than "
            f"the suite's ({uuid}): not destroyed"
        )
    words = ("container", "destroy", pool, container.container_uuid)
    try:
        ask(system, *words)
    except DaosError as error:
        if error.status != BUSY:
            raise
        ask(system, *words, "--force")
    return True


def remove_recorded(facts: Mapping[str, Any]) -> bool:
    """As `remove`, of the container that a journal entry tells of."""
    pool, label, system = (str(facts[name]) for name in ("pool", "label", "system"))
    return remove(pool, label, system, str(facts.get("uuid", "")))
