"""Who speaks to which cluster, and a connection as that user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.results.evidence.values import JsonObject

# A client of CephFS tests by a write whether it may write to a pool, and a write to a full pool
# waits: without that test it can read and remove there, and a write is refused (ENOSPC).
NO_WAIT = {"client_check_pool_perm": "false"}
TIMEOUT = 8.0  # seconds for connecting and for each call: an error is told within 10


@dataclass(frozen=True)
class Login:
    """Configuration, user and file of its key; empty: Ceph's default.  No secrets."""

    conf: str = ""
    user: str = "admin"  # without "client."
    keyring: str = ""

    @classmethod
    def expanded(cls, conf: str, user: str, keyring: str) -> Login:
        """From a user's words, with `~` in front replaced by the home directory."""
        return cls(*(os.path.expanduser(text) for text in (conf, user, keyring)))  # noqa: PTH111

    @classmethod
    def of(cls, facts: JsonObject) -> Login:
        """From an access's details or a journal entry."""
        return cls(*(str(facts.get(name, "")) for name in ("conf", "user", "keyring")))

    @property
    def facts(self) -> dict[str, str]:
        """As plain text for accesses and journal entries; `of` reads it."""
        return asdict(self)

    def connect(
        self, timeout: float | None = None, options: Mapping[str, str] | None = None
    ) -> Cluster:
        """A connection; CephError within about `timeout` seconds (default TIMEOUT)."""
        seconds = TIMEOUT if timeout is None else timeout
        keyring = self.keyring
        return Cluster(self.conf, self.user, keyring=keyring, timeout=seconds, options=options)


def root_text(values: JsonObject, client: JsonObject) -> str:
    """What a Ceph driver of the player gets as its root: lines key=value."""
    lines = [f"{name}={value}" for name, value in values.items() if value not in ("", None)]
    return "\n".join([*lines, *(f"option.{name}={value}" for name, value in client.items())])
