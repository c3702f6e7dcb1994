"""`make demo` on this machine, when it lacks what a fresh machine or a container lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.situations.checkout import APART, PATTERNS, Done, copy_to, demo, folder
from tests.waiting import PATIENCE

pytestmark = [  # only who has rights can take them away
    pytest.mark.needs("loops"),
]
MANAGED = {"xfs", "ext4", "btrfs"}
DIRECTORIES = {"home", "temporary", "memory"}


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A copy with an environment of its own, made by the README's first command."""
    with folder() as place:
        yield copy_to(place / "fsmatrix")


def hiding(*paths: str) -> list[str]:
    """A mount namespace in which these files can be neither run nor opened as what they are."""
    binds = [f"mount --bind /dev/null {path}" for path in paths if path]  # others are not here
    return [*APART, "sh", "-c", " && ".join([*binds, 'exec "$@"']), "sh"]


def read_only(path: str) -> list[str]:
    """A mount namespace in which a directory may only be read."""
    bind = f"mount --bind {path} {path} && mount -o remount,bind,ro {path}"
    return [*APART, "sh", "-c", f'{bind} && exec "$@"', "sh"]


def program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or ""


WITHOUT = ["setpriv", "--bounding-set", "-sys_admin,-mknod,-net_admin", "--inh-caps", "-all"]
SHELF = "/opt"  # any directory that everybody has
SITUATIONS = {
    "everything": ([], {}, MANAGED, {}),
    "no mkfs.xfs and mkfs.btrfs": (
        hiding(program("mkfs.xfs"), program("mkfs.btrfs")),
        {},
        {"ext4", "home", "memory"},
        {"xfs": "mkfs.xfs is missing: ", "btrfs": "mkfs.btrfs is missing: "},
    ),
    "no CAP_SYS_ADMIN": (WITHOUT, {}, DIRECTORIES, {"ext4": "may not mount (no CAP_SYS_ADMIN)"}),
    "no /dev/loop-control": (
        hiding("/dev/loop-control"),
        {},
        DIRECTORIES,
        {"ext4": "no loop devices"},
    ),
    "a home that may not be written": (
        [*read_only(SHELF), *WITHOUT],
        {"HOME": SHELF},
        {"temporary", "var-tmp", "memory"},
        {"home": f"{SHELF} is not writable"},
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.needs(*sorted(MANAGED)) if name == "everything" else ()
        )
        for name in SITUATIONS
    ],
)
def test_the_demo_compares_what_there_is_and_says_what_there_is_not(
    checkout: Path, name: str
) -> None:
    before, env, targets, left_out = SITUATIONS[name]
    done = _demo(checkout, name.split()[-1].strip("/").replace("/", "-"), before, env)
    assert done.status == 0, done.text
    assert done.compared == dict.fromkeys(targets, PATTERNS), done.text
    assert done.left_out.keys() >= left_out.keys()
    for target, reason in left_out.items():
        assert reason in done.left_out[target]
        said = [line for line in done.text.splitlines() if f"target {target} is left out" in line]
        assert len(said) == 1
        assert reason in said[0]
        assert f"<b>{target}</b>: " in (done.out / "report.html").read_text(encoding="utf-8")
    assert "failed:" not in done.text
    assert "The report:" in done.text


def _demo(checkout: Path, out: str, before: Sequence[str], env: dict[str, str]) -> Done:
    done = demo(
        checkout,
        out,
        "SYSTEM=0",
        f"PYTHON={sys.executable}",
        before=before,
        env={"TMPDIR": "/tmp", **env},
    )
    return done


def test_a_target_that_must_be_there_and_is_not_is_refused_before_anything_is_made(
    checkout: Path, tmp_path: Path
) -> None:
    campaign = tmp_path / "must.yaml"
    campaign.write_text(
        "campaign: must\n"
        "targets:\n"
        "  here: {backend: directory, options: {path: /var/tmp}}\n"
        "  xfs: {backend: xfs}\n"
        "workloads: {io: {workload: pattern, options: {bytes_per_process: 1MiB}}}\n"
        "repetitions: 1\n"
    )
    program = [str(Path(sys.executable).with_name("fsmatrix")), "run", str(campaign)]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*WITHOUT, *program, "-o", str(tmp_path / "out"), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    refused = run()
    assert refused.returncode == 2, refused.stderr
    assert "must.yaml:4: targets.xfs: not available here: this root may not mount" in refused.stderr
    assert not (tmp_path / "out").exists()
    went_on = run("--skip-unusable")
    assert went_on.returncode == 0, went_on.stderr
    done = Done(0, went_on.stderr, tmp_path / "out")
    assert set(done.compared) == {"here"}
    assert "may not mount" in done.left_out["xfs"]
    again = run("--resume")  # what was decided holds
    assert again.returncode == 0, again.stderr
    assert "may not mount" in done.left_out["xfs"]
