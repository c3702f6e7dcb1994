"""DAOS containers without files, for ROOT, against a stand-in of the `daos` tool."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import DaosAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import containers
from fsmatrix.backends.daos.native import DaosObjects
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from tests.backends.daos.test_backend_daos import impossible
from tests.backends.daos_places import REAL_POOL
from tests.backends.daos_standin import THEIRS, Standin

RUN = "0123456789abcdef-r0000-a1"


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    journal = Journal(tmp_path / "journals/host.jsonl")
    return ProvisionContext("root-a", tmp_path / "state", journal, "tag1")


def objects(**options: Any) -> DaosObjects:
    kind = contract.load("daos-objects")
    backend = kind(kind.Options(**{"pool": "bench"} | options))
    assert isinstance(backend, DaosObjects)
    return backend


def test_each_run_has_containers_of_its_own(standin: Standin, context: ProvisionContext) -> None:
    backend = objects(rd_fac=0, checksum="crc32")
    access = backend.provision({"object_class": "SX"}, context)
    assert isinstance(access, DaosAccess)
    assert access == DaosAccess.from_json(json.loads(json.dumps(access.to_json())))
    assert (access.pool, access.oclass) == ("bench", "SX")
    assert standin.ours == [access.container]
    backend.mount(access, context.journal)
    backend.make_run(access, RUN)
    backend.make_run(access, RUN)  # another node did
    own = f"{access.container}.{RUN}"
    assert backend.run_root(access, RUN) == f"daos://bench/{own}"
    assert standin.ours == [access.container, own]
    made = standin.containers[own]
    assert made["type"] == standin.containers[access.container]["type"] == "ROOT"
    assert made["options"]["properties"] == "rd_fac:0,cksum:crc32"
    assert made["options"]["oclass"] is None  # no property of such a container
    others = [f"{own}.writer1", f"{own}0", f"{access.container}.other"]
    standin.keep({**standin.containers, **{label: THEIRS | {"uuid": label} for label in others}})
    backend.remove_run(access, RUN)
    assert standin.ours == [access.container, *others[1:]]
    facts = backend.describe(access)
    assert facts["object_class"] == "SX"
    assert facts["container"]["container_type"] == "ROOT"
    backend.release(access, context)
    assert standin.containers == {"posix1": THEIRS}
    assert context.journal.pending() == []


def test_a_crash_leaves_nothing(standin: Standin, context: ProvisionContext) -> None:
    """The runs' containers are not journalled: their labels hold that of the one that is."""
    access = objects().provision({}, context)
    objects().make_run(access, RUN)
    assert len(standin.ours) == 2
    (undone,) = undo_pending(context.journal.path.parent)
    assert undone == f"destroyed container {access.container} of pool bench"
    assert standin.containers == {"posix1": THEIRS}


@pytest.mark.parametrize("label", ["posix1", "fsmatrix-", "fsmatrix-a-00000000.x", "a-00000000"])
def test_a_forged_entry_takes_nothing_beside(standin: Standin, label: str) -> None:
    """Only a label with random digits proves that what begins so is the suite's."""
    standin.keep({"posix1": THEIRS, f"{label}.mine": THEIRS | {"uuid": "mine"}})
    facts = {"pool": "bench", "label": label, "layout": "ROOT", "system": ""}
    with pytest.raises(
        BackendError, match="not one of the suite's containers: nothing was destroyed"
    ):
        containers.destroy_recorded(facts)
    assert f"{label}.mine" in standin.containers


def test_files_have_no_place_there() -> None:
    for option in ("container", "dir_oclass", "file_oclass", "chunk_size", "library"):
        value = {"chunk_size": "1MiB", "library": "/x"}.get(option, "S1")
        with pytest.raises(ValidationError, match=f"{option}: only for containers with files"):
            objects(**{option: value})
    with pytest.raises(BackendError, match="there is no data cache in the client"):
        DaosObjects.cache(DaosAccess("daos-objects", "a"), "warm", [])


def test_what_needs_files_is_refused(standin: Standin) -> None:
    reasons = impossible("workload: pattern", backend="daos-objects")
    assert "pattern speaks only" in reasons
    assert "target a gives DAOS containers without files" in reasons


def test_a_name_that_is_too_long(standin: Standin, context: ProvisionContext) -> None:
    access = objects().provision({}, context)
    with pytest.raises(BackendError, match="give the target a shorter name"):
        objects().make_run(access, "x" * 127)


@pytest.mark.daos
@pytest.mark.skipif(
    not REAL_POOL or shutil.which("daos") is None,
    reason="not in any registry: DAOS; with a pool in FSMATRIX_DAOS_POOL its containers are "
    "made by the real tool (here only by a stand-in)",
)
def test_real_daos(context: ProvisionContext) -> None:
    backend = objects(pool=REAL_POOL, rd_fac=0, checksum="crc32")
    before = {each.uuid for each in Client().containers(REAL_POOL)}
    access = backend.provision({"object_class": "SX"}, context)
    try:
        backend.mount(access, context.journal)
        backend.make_run(access, RUN)
        backend.make_run(access, RUN)
        label = backend.run_root(access, RUN).rpartition("/")[2]
        made = Client().container_query(REAL_POOL, label)
        assert made is not None
        assert made.container_type == "ROOT"
        assert Client().properties(REAL_POOL, label)["cksum"] == "crc32"
        Client().create(REAL_POOL, f"{label}.1", layout="ROOT")  # as a program would
        facts = backend.describe(access)
        assert [name for name, value in facts.items() if "error" in str(value)] == []
        backend.remove_run(access, RUN)
        assert Client().container_query(REAL_POOL, f"{label}.1") is None
        backend.make_run(access, RUN)
    finally:
        backend.release(access, context)
    assert {each.uuid for each in Client().containers(REAL_POOL)} == before
    assert context.journal.pending() == []
