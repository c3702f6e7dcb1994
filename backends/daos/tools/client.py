"""The `daos` tool of one DAOS system: what a client may ask and make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar

from fsmatrix.backends.daos.tools import agent, tool
from fsmatrix.backends.daos.tools.answers import Container, Listed, Pool, Property, System, Version
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.values import Json, JsonObject, text

TOOL = "daos"
MISSING = f"no `{TOOL}` tool on PATH: install the DAOS client and start daos_agent"
T = TypeVar("T")


def installed() -> bool:
    """Whether the tool is on PATH, and may be run."""
    return tools.find(TOOL) is not None


def absence() -> str:
    """Why `installed` says no, and what to do."""
    return tools.refusal(TOOL) or MISSING


def version() -> str:
    """What `daos version` prints: "DAOS CLI version 2.6.5, libdaos v2.7.0"."""
    return tools.run([TOOL, "version"], deadline=tool.DEADLINE).stdout.strip()


@dataclass(frozen=True)
class Client:
    """Which system is asked (empty: the agent's own), and seconds for each call."""

    system: str = ""
    deadline: float = tool.DEADLINE

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """Of an access's details, or of a journal entry's facts."""
        return cls(text(details, "system"), tool.recorded_deadline(details))

    @property
    def details(self) -> dict[str, str | float]:
        """What `of` reads."""
        return {"system": self.system, "deadline": self.deadline}

    def within(self, seconds: float) -> Client:
        """The same, with at most that many seconds for a call."""
        return Client(self.system, min(seconds, self.deadline))

    def ask(self, *words: str) -> Any:
        """The response to `daos words...`; errors as of `tool.ask` and `agent.require`."""
        return tool.ask(self._argv(words), self.deadline)

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
        except tool.DaosError as error:
            if error.status == tool.NONEXIST:
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
        except tool.DaosError as error:
            if error.status == tool.NONEXIST:
                return []
            raise

    def create(self, pool: str, label: str, *options: str, layout: str = "POSIX") -> Container:
        """Make a container; `options` are arguments of `daos container create`."""
        words = ("container", "create", pool, label, f"--type={layout}", *options)
        return self._read(Container, *words)

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        if not installed():
            raise ToolError(absence())
        agent.require()
        system = [f"--sys-name={self.system}"] if self.system else []
        return [TOOL, "--json", *system, *words]

    def _read(self, kind: type[T], *words: str) -> T:
        return tool.read(kind, self._argv(words), self.deadline)
