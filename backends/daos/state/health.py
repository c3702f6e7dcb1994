"""What is wrong with a pool, in sentences.

A look starts a tool, which takes CPU time from clients and engines on its machine.  So none is
taken while a step is timed: each change of the pool map (targets excluded, drained, reintegrated;
a rebuild follows) raises its version, and that is compared with the version at attachment.
"""

from __future__ import annotations

import time

from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.state.facts import AtAttachment
from fsmatrix.backends.daos.tools.answers import Pool
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import JsonObject

LONGEST = 25.0  # seconds for a look; the conductor waits 30
QUIET = frozenset({"idle", "done"})  # states of a rebuild


def rebuilding(pool: Pool) -> bool:
    """Whether a rebuild goes on; False if the pool does not say."""
    return pool.rebuild is not None and pool.rebuild.state not in QUIET


def ailments(pool: Pool) -> list[str]:
    """What is wrong with a pool now, one sentence each."""
    sentences = []
    if pool.state not in ("", "Ready"):
        sentences.append(f"the pool is in state {pool.state}")
    if pool.disabled_targets:
        sentences.append(f"{pool.disabled_targets} of {pool.total_targets} targets are disabled")
    for what, ranks in (("disabled", pool.disabled_ranks), ("dead", pool.dead_ranks)):
        if ranks:
            sentences.append(f"ranks that are {what}: {', '.join(map(str, ranks))}")
    if rebuilding(pool) and pool.rebuild:
        sentences.append(f"a rebuild is going on ({pool.rebuild.state})")
    if pool.rebuild and pool.rebuild.status:
        sentences.append(f"the last rebuild ended with status {pool.rebuild.status}")
    return sentences


def health(details: JsonObject) -> list[str]:
    """What is wrong with the pool and container of an access, or was since its attachment."""
    place, began = Place.of(details), time.monotonic()
    try:
        pool = place.client.within(LONGEST).pool_query(place.pool)
        left = LONGEST - (time.monotonic() - began)
        gone = place.within(left).gone() if left > 1 else ""
    except BackendError as error:
        return [str(error)]
    sentences = ailments(pool)
    before = AtAttachment.of(details).pool_version
    if pool.version != before:
        sentences.append(
            "since it was attached, targets of the pool were excluded or came back (the pool map's "
            f"version was {before} and is {pool.version})"
        )
    return [*sentences, gone] if gone else sentences
