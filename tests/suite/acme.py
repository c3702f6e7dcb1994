"""The package of CONTRIBUTING.md, written from its very text, and installed beside fsmatrix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
# a file's name ends the sentence before its block
BLOCK = re.compile(
    r"`([\w./-]+)`:\n\n```(?:python|toml|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
# Programs of clusters that no registry has.  jsrun starts Open MPI's mpirun; the three of PBS keep
# a folder of jobs and run each when those that it waits for have ended.
PROGRAMS = {
    "jsrun": """#!/bin/sh
[ "$1" = --version ] && { echo "jsrun version 1.0"; exit; }
words="$1 $2"; shift 2
while [ "$1" = -E ]; do export "$2"; words="$words -x ${2%%=*}"; shift 2; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none $words "$@"
""",
    "qsub": """#!/bin/sh
wait=""
[ "$1" = -W ] && { wait=$(echo "${2#depend=afterany:}" | tr : " "); shift 2; }
job=$(ls -d "$PBS_FOLDER"/job* 2>/dev/null | wc -l)
mkdir "$PBS_FOLDER/job$job" && cp "$1" "$PBS_FOLDER/job$job/script"
(
    for other in $wait; do
        while ! [ -e "$PBS_FOLDER/job${other%.here}/ended" ]; do sleep 0.2; done
    done
    bash "$PBS_FOLDER/job$job/script" > "$1.log" 2>&1 < /dev/null
    touch "$PBS_FOLDER/job$job/ended"
) > /dev/null 2>&1 &
echo "$!" > "$PBS_FOLDER/job$job/pid"
echo "$job.here"
""",
    "qstat": """#!/bin/sh
comma=""
printf '{"Jobs": {'
for folder in "$PBS_FOLDER"/job*; do
    [ -e "$folder/script" ] || continue
    state=R; [ -e "$folder/ended" ] && state=F
    token=$(sed -n 's/.*FSMATRIX_TOKEN=//p' "$folder/script")
    printf '%s"%s.here": {"job_state": "%s", "Job_Owner": "%s@here"' \\
        "$comma" "${folder##*job}" "$state" "$USER"
    printf ', "Variable_List": {"FSMATRIX_TOKEN": "%s"}}' "$token"
    comma=", "
done
printf '}}'
""",
}


def blocks() -> dict[str, str]:
    """File -> text, as the page gives them."""
    return dict(BLOCK.findall(PAGE.read_text()))


def write(folder: Path) -> Path:
    """The sources of the package, below `folder`."""
    for name, text in {**blocks(), "acme/__init__.py": ""}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def install(folder: Path) -> dict[str, str]:
    """Write and install it below `folder`; the environment in which fsmatrix finds it."""
    source, target, programs = write(folder / "source"), folder / "target", folder / "programs"
    subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--disable-pip-version-check",
            "--target",
            target,
            source,
        ],
        check=True,
        timeout=PATIENCE,
    )
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (folder / "jobs").mkdir()
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PYTHONPATH": str(target),
        "PATH": path,
        "USER": "me",
        "PBS_FOLDER": str(folder / "jobs"),
    }


def running(folder: Path) -> Iterator[int]:
    """Processes of batch jobs that have not ended."""
    for job in (folder / "jobs").glob("job*"):
        if not (job / "ended").exists():
            yield int((job / "pid").read_text())
