"""What all tests share: who may run them, and that no skip goes unseen."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests import asking, ceph_beds

# No verdict depends on an absolute time (a machine may be slow or busy) or on chance: the same
# commit is asked the same examples.  `make fuzz` asks new ones.
settings.register_profile("fsmatrix", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("fsmatrix")

# A part that no package registry has may be missing in CI; such a skip's reason begins so.
NOT_TO_BE_HAD = "not in any registry"


TESTS = Path(__file__).parent
# Markers that ask for rights: what of tests/asking.py each means.
RIGHTS = {"root": "mounts", "loop": "loops", "setuid": "others"}
# Modules of minutes, as the table of `make test` shows them: they begin first, in this order.
LONG = (
    "situations/test_demo_debian13.py",
    "situations/test_demo_here.py",
    "backends/local/test_guest.py",
    "suite/run/test_campaign_faults.py",
    "situations/test_demo_debian12.py",
    "suite/run/test_campaign_ceph_faults.py",
    "suite/run/test_tutorial.py",
    "suite/test_other_packages.py",
    "suite/run/test_campaign_files.py",
    "suite/run/test_campaign_devices.py",
    "backends/player/test_player_cephfs_nonblocking.py",
    "suite/workloads/test_workload_rntuple.py",
    "suite/session/test_orphaned_processes.py",
    "suite/run/test_campaign_engines.py",
    "suite/run/test_campaign_bare.py",
    "slurm/test_submit_faults.py",
    "slurm/test_submit.py",
    "backends/ceph/test_ceph_levels.py",
)
# Helpers that start campaigns, sessions or batch systems: a test of a module that has one measures.
MEASURING = {
    "tests.suite.running",
    "tests.suite.sessions",
    "tests.slurm.lab",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that ask for what is not here are skipped, visibly; long modules come first."""
    for item in items:
        asked = [what for marker, what in RIGHTS.items() if item.get_closest_marker(marker)]
        asked += [what for marker in item.iter_markers("needs") for what in marker.args]
        if reason := asking.first_refusal(*asked):
            item.add_marker(pytest.mark.skip(reason=reason))
        if asked or _measures(item):
            item.add_marker("real")
    turns = {TESTS / name: turn for turn, name in enumerate(LONG)}
    for item in items:
        if item.get_closest_marker("real"):
            turns.setdefault(item.path, len(LONG))
    for item in items:  # modules that share a cluster follow each other
        if kind := ceph_beds.kind_of(item.path):
            turns[item.path] = min(turns.get(path, len(LONG)) for path in ceph_beds.modules(kind))
    items.sort(key=lambda item: (turns.get(item.path, len(LONG) + 1), ceph_beds.kind_of(item.path)))


class Together(LoadScopeScheduling):
    """One worker runs a module, or all the modules that share a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return ceph_beds.kind_of(self.config.rootpath / module) or module


@pytest.hookimpl(optionalhook=True)  # a test runs pytest without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """What `--dist loadscope` means here."""
    return Together(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def _measures(item: pytest.Item) -> bool:
    """Whether the test's module starts campaigns, sessions or a batch system."""
    named = vars(getattr(item, "module", None) or object).values()
    return any(getattr(each, "__module__", "") in MEASURING for each in named)


def _skipped(reporter: pytest.TerminalReporter) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] = 1 + reasons.get(
            reason.removeprefix("Skipped: "), 0
        )
    return reasons


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, why, and what would bring it."""
    reasons = _skipped(terminalreporter)
    if reasons:
        terminalreporter.section("skipped parts")
        for reason, count in sorted(reasons.items()):
            terminalreporter.write_line(f"{count} x {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped part that the registries have is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None:
        return
    hidden = [r for r in _skipped(reporter) if not r.startswith(NOT_TO_BE_HAD)]
    if hidden:
        reporter.write_line(f"CI: skipped although it can be had: {hidden}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests see neither the user's nor the site's settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("FSMATRIX_SITE", "")
    yield


_BEDS: pytest.StashKey[ceph_beds.CephBeds] = pytest.StashKey()


@pytest.fixture(scope="session")
def beds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ceph_beds.CephBeds]:
    """The real Ceph clusters that run; none at the end."""
    made = request.config.stash[_BEDS] = ceph_beds.CephBeds(tmp_path_factory.mktemp("beds"))
    yield made
    made.keep("")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest, beds: ceph_beds.CephBeds) -> Iterator[CephTestbed]:
    """The real Ceph of the kind that the module uses, which it leaves as it was."""
    kind = ceph_beds.kind_of(request.path)
    assert kind, "name this module in tests/ceph_beds.py, under the kind of cluster it needs"
    with ceph_beds.as_it_was(beds.get(kind)) as one:
        yield one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """A cluster lasts as long as the next test is of a module that uses it."""
    try:
        yield
    finally:
        if running := item.config.stash.get(_BEDS, None):
            running.keep(ceph_beds.kind_of(nextitem.path) if nextitem else "")
