"""Which storage hosts form a level: drawn by name, once for each block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def choose_hosts(names: Iterable[str], number: int, block_seed: str) -> list[str]:
    """So many of these at random, sorted; the same `block_seed` gives the same ones.

    Those of a smaller level are among those of a larger one, so that levels of one block differ
    by the added hosts only.
    """

    def ticket(name: str) -> bytes:
        return hashlib.blake2b(f"{block_seed}/{name}".encode(), digest_size=16).digest()

    return sorted(sorted(names, key=ticket)[:number])
