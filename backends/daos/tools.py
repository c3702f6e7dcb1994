"""The tools of DAOS and its agent: called with a deadline, their JSON understood or refused.

Every call is `<tool> --json ...`.  The answer is one object with "response", "error" and
"status" on standard output; status is 0 or a DER_* number (daos_errno.h), and the tool then
exits with 1.  Other lines (a client's file_limit_bump, a warning) may stand around it.
With a dead engine a tool waits for minutes: a deadline ends it.  DAOS 2.4 or later.
Errors of `dmg` all have status -1025; the number of the control plane's fault is in the text only
("code = 606 description = ...").

libdaos waits for ever for an agent that hangs.  So before anything is asked of DAOS the socket of
this node's `daos_agent` is connected to and the connection ended at once: an agent that works then
ends its side too, which takes it no more than reading an end of file.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from fsmatrix.backends.errors import BackendError, NoAnswer, ToolError
from fsmatrix.backends.journal.proof import PREFIX
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.stored import Json, JsonObject, text

AGENT_FOLDER = "/var/run/daos_agent"  # unless DAOS_AGENT_DRPC_DIR says otherwise
AGENT_PATIENCE = 5.0  # seconds for it to end a connection that was ended

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

DAOS = "daos"
NO_DAOS = f"no `{DAOS}` tool on PATH: install the DAOS client and start daos_agent"

DMG = "dmg"
NO_DMG = (
    f"no `{DMG}` tool on PATH: making pools needs an administrator's (package daos-admin), or "
    "prepared pools (levels.pools)"
)
TAKEN = 609  # a pool of that label exists
# faults of the control plane -> what the user can do
FAULTS = {
    604: "the pool is too small: raise levels.size_per_node",
    606: "there is no such rank, or it has not joined",
    609: "a pool of that label exists",
}
# it asks no agent, and gives -1025 for whatever its text says
_MEANINGS = {status: told for status, told in MEANINGS.items() if status != MISC}
_FAULT = re.compile(r"\bcode = (\d+)")


def socket_path() -> Path:
    """Where libdaos looks for the agent."""
    return Path(os.environ.get("DAOS_AGENT_DRPC_DIR") or AGENT_FOLDER) / "daos_agent.sock"


def require_agent() -> None:
    """BackendError, within AGENT_PATIENCE seconds, if no agent answers on this node."""
    path, host = socket_path(), socket.gethostname()
    start = "start it (systemctl start daos_agent)"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(AGENT_PATIENCE)
            connection.connect(str(path))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
    except FileNotFoundError:
        reason = f"does not run: there is no socket {path}: {start}, or set DAOS_AGENT_DRPC_DIR"
    except ConnectionRefusedError:
        reason = f"has died: nobody listens at its socket {path}: {start}"
    except ConnectionResetError:
        return  # it ended its side, and how does not matter
    except PermissionError:
        reason = f"cannot be reached: this user may not open its socket {path}"
    except (TimeoutError, BlockingIOError):
        reason = (
            f"hangs: at its socket {path} a connection was not ended within {AGENT_PATIENCE:g} s: "
            "restart it"
        )
    except OSError as error:
        reason = f"cannot be reached at its socket {path}: {error}"
    else:
        return
    raise BackendError(f"daos_agent on {host} {reason}")


class AnswerModel(BaseModel):
    """What the suite needs of an answer; other fields come and go with releases."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Tier(AnswerModel):
    """Bytes of one storage tier of a pool, over all its targets."""

    media_type: str  # scm or nvme
    total: NonNegativeInt
    free: NonNegativeInt

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the tier by name: `total` and `free`."""
        return {"total": self.total, "free": self.free}


class Rebuild(AnswerModel):
    """Rebuild of a pool; a status other than 0 is a failure's number."""

    state: str  # idle, busy, done
    status: int


class Pool(AnswerModel):
    """Answer of `pool query`."""

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


class Container(AnswerModel):
    """Answer of `daos container query` and of `daos container create`."""

    container_uuid: str = Field(min_length=1)
    container_type: str
    container_label: str = ""
    redundancy_factor: NonNegativeInt = 0
    object_class: str = ""
    dir_object_class: str = ""
    file_object_class: str = ""
    chunk_size: NonNegativeInt = 0  # bytes; 0: the tool does not say


class Listed(AnswerModel):
    """One container of `daos container list`; one may have no label."""

    uuid: str = Field(min_length=1)
    label: str = ""


class RankUri(AnswerModel):
    """Where an engine listens: ofi+tcp://10.0.0.1:31416."""

    rank: NonNegativeInt
    uri: str


class System(AnswerModel):
    """Answer of `daos system query`, which the agent gives."""

    system_name: str
    fabric_provider: str
    agent_path: str = ""
    rank_uris: list[RankUri] | None = None


class Version(AnswerModel):
    """Answer of `daos server-version`."""

    name: str
    version: str


class Property(AnswerModel):
    """One line of `daos container get-prop`."""

    name: str
    value: Any


class Member(AnswerModel):
    """An engine as `dmg system query` tells of it."""

    rank: NonNegativeInt
    state: str  # joined, excluded, stopped...
    fault_domain: str  # /server, or /rack/server
    addr: str = ""


class Members(AnswerModel):
    """Answer of `dmg system query`."""

    members: list[Member]


class NewPool(AnswerModel):
    """Answer of `dmg pool create`."""

    uuid: str = Field(min_length=1)
    tgt_ranks: list[NonNegativeInt]
    tier_bytes: list[NonNegativeInt]  # for each rank


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


def ask_tool(argv: Sequence[str], deadline: float, meanings: Mapping[int, str] = MEANINGS) -> Any:
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


def read_answer(
    kind: type[T], argv: Sequence[str], deadline: float, meanings: Mapping[int, str] = MEANINGS
) -> T:
    """As `ask`, with the response as `kind`; ToolError that names the place if it is not one."""
    response = ask_tool(argv, deadline, meanings)
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


def daos_installed() -> bool:
    """Whether the tool is on PATH, and may be run."""
    return tools.find(DAOS) is not None


def daos_absence() -> str:
    """Why `installed` says no, and what to do."""
    return tools.refusal(DAOS) or NO_DAOS


def daos_version() -> str:
    """What `daos version` prints: "DAOS CLI version 2.6.5, libdaos v2.7.0"."""
    return tools.run([DAOS, "version"], deadline=DEADLINE).stdout.strip()


@dataclass(frozen=True)
class Client:
    """Which system is asked (empty: the agent's own), and seconds for each call."""

    system: str = ""
    deadline: float = DEADLINE

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """Of an access's details, or of a journal entry's facts."""
        return cls(text(details, "system"), recorded_deadline(details))

    @property
    def details(self) -> dict[str, str | float]:
        """What `of` reads."""
        return {"system": self.system, "deadline": self.deadline}

    def within(self, seconds: float) -> Client:
        """The same, with at most that many seconds for a call."""
        return Client(self.system, min(seconds, self.deadline))

    def ask(self, *words: str) -> Any:
        """The response to `daos words...`; errors as of `tool.ask` and `agent.require`."""
        return ask_tool(self._argv(words), self.deadline)

    def system_query(self) -> System:
        """What the agent knows of its system; BackendError if that is not the one of the options.

        The tool answers for the agent's own system whatever name it is given; libdaos refuses.
        """
        system = self._read(System, "system", "query")
        if self.system not in ("", system.system_name):
            raise BackendError(
                f"option system: daos_agent belongs to {system.system_name!r}, not {self.system!r}"
            )
        return system

    def server_version(self) -> str:
        """Release of the servers; BackendError where the tool is too old to tell it."""
        return self._read(Version, "server-version").version

    def pool_query(self, pool: str) -> Pool:
        """State and space of a pool, and which of its engines are out."""
        return self._read(Pool, "pool", "query", pool, "--show-disabled")

    def container_query(self, pool: str, container: str) -> Container | None:
        """A container by label or UUID; None if it, or its pool, does not exist."""
        try:
            return self._read(Container, "container", "query", pool, container)
        except DaosError as error:
            if error.status == NONEXIST:
                return None
            raise

    def properties(self, pool: str, container: str) -> dict[str, Json]:
        """Properties of a container by name."""
        lines = self._read(list[Property], "container", "get-prop", pool, container)
        return {item.name: item.value for item in lines}

    def containers(self, pool: str) -> list[Listed]:
        """All containers of a pool; none of a pool that does not exist."""
        try:
            return self._read(list[Listed] | None, "container", "list", pool) or []  # type: ignore[arg-type]
        except DaosError as error:
            if error.status == NONEXIST:
                return []
            raise

    def create(self, pool: str, label: str, *options: str, layout: str = "POSIX") -> Container:
        """Make a container; `options` are arguments of `daos container create`."""
        words = ("container", "create", pool, label, f"--type={layout}", *options)
        return self._read(Container, *words)

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        if not daos_installed():
            raise ToolError(daos_absence())
        require_agent()
        system = [f"--sys-name={self.system}"] if self.system else []
        return [DAOS, "--json", *system, *words]

    def _read(self, kind: type[T], *words: str) -> T:
        return read_answer(kind, self._argv(words), self.deadline)


def fault_of(error: Exception) -> int:
    """Number of the control plane's fault in an error's text; 0: none."""
    match = _FAULT.search(str(error))
    return int(match[1]) if match else 0


@dataclass(frozen=True)
class Control:
    """Whose configuration dmg reads (empty: its own), and seconds for each call."""

    config: str = ""
    deadline: float = DEADLINE

    def members(self) -> list[Member]:
        """All engines of the system."""
        return self._read(Members, "system", "query").members

    def pool(self, label: str) -> Pool | None:
        """A pool by label or UUID; None if there is none."""
        try:
            return self._read(Pool, "pool", "query", label)
        except DaosError as error:
            if error.status == NONEXIST or _unknown(error):
                return None
            raise

    def create(self, label: str, ranks: Sequence[int], size: int) -> NewPool:
        """Make a pool of `size` bytes in all on these ranks."""
        return self._read(NewPool, *creation(label, ranks, size))

    def destroy(self, pool: str) -> None:
        """Destroy a pool with all that is in it, and what holds it open."""
        self.ask(*destruction(pool))

    def ask(self, *words: str) -> Any:
        """The response to `dmg words...`; errors as of `tool.ask`."""
        return ask_tool(self._argv(words), self.deadline, _MEANINGS)

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        if tools.find(DMG) is None:
            raise ToolError(tools.refusal(DMG) or NO_DMG)
        config = [f"--config-path={self.config}"] if self.config else []
        return [DMG, "--json", *config, *words]

    def _read(self, kind: type[T], *words: str) -> T:
        try:
            return read_answer(kind, self._argv(words), self.deadline, _MEANINGS)
        except DaosError as error:
            if meaning := FAULTS.get(fault_of(error)):
                raise DaosError(f"{error}: {meaning}", error.status) from error
            raise


def creation(label: str, ranks: Sequence[int], size: int) -> tuple[str, ...]:
    """Words of dmg that make a pool."""
    chosen = ",".join(map(str, ranks))
    return ("pool", "create", label, f"--ranks={chosen}", f"--size={size}B")


def destruction(pool: str) -> tuple[str, ...]:
    """Words of dmg that destroy a pool."""
    return ("pool", "destroy", pool, "--recursive", "--force")


def _unknown(error: DaosError) -> bool:
    return "unable to find pool" in str(error)
