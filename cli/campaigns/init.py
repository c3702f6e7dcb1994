"""`fsmatrix init`: a first campaign of one's own, with what each part of it is for."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import progress
from fsmatrix.suite.campaign.yamlio import Origin, refuse

PATHS = """  first: {{backend: directory, options: {{path: {0}}}}}
  second: {{backend: directory, options: {{path: {1}}}}}"""
CEPH = """  rados: {{backend: rados, options: {{pool: {0}, user: {1}}}}}    # a pool that exists
  cephfs: {{backend: libcephfs, options: {{user: {1}}}}}  # or cephfs-kernel, cephfs-fuse"""
CAMPAIGN = """# fsmatrix plan {file} says what this takes; fsmatrix run {file} -o out does it.
campaign: {name}
targets:                # what is compared; call them what the report shall call them
{targets}
workloads:              # what is done on each
  io:
    workload: pattern
    options:
      bytes_total: 1GiB # of all processes together; more than the servers' memory, if you can
      fixed: time       # each run ends after so long, however fast the target is
      seconds: 5s
factors:                # every combination of levels is a case
  pattern: [seq-write, seq-read, rand-read]
  chunk: [4KiB, 1MiB]
  processes_per_node: [1, 2]
geometry: {{nodes: 1}}    # client nodes
cache: cold             # before each timed read; warm, bypass
repetitions: 6          # the fewest that can prove a difference
order: {{attachments: 6}} # so often each target is attached anew
"""
IMPORT = """no campaign is needed for what was measured already:
fsmatrix import {0} -o results.h5
fsmatrix show results.h5
fsmatrix report results.h5 -o report.html"""


def init(
    path: Annotated[
        list[str] | None,
        typer.Option("--path", help="A place to compare, twice: a mount, '$SCRATCH'."),
    ] = None,
    ceph: Annotated[
        str | None, typer.Option("--ceph", help="A pool of a Ceph, beside its CephFS.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help='With --ceph: its user without "client."; admin.')
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path(
        "campaign.yaml"
    ),
) -> None:
    """Write a campaign of your own, with comments; what you do not say is asked.

    Example: fsmatrix init --path /mnt/a --path '$SCRATCH' -o mine.yaml
    """
    from fsmatrix.results.files.atomic_write import write_whole

    if os.path.lexists(out):
        raise refuse(Origin(f"--out {out}"), "", "is there already: name another file")
    if not path and ceph is None:
        kind = _asked("1 two paths, 2 a Ceph, 3 results that you have", "1")
        while kind not in ("1", "2", "3"):
            kind = _asked("1, 2 or 3", "1")
        if kind == "3":
            progress.echo(IMPORT.format(shlex.quote(_asked("which files or directories"))))
            return
        ceph = _asked("a pool of it") if kind == "2" else None
        user = user or (_asked("its user", "admin") if kind == "2" else None)
        path = [] if kind == "2" else [_asked("the first path"), _asked("the second path")]
    text = _text(path or [], ceph, user, str(out))
    write_whole(out, text.encode())
    progress.echo(f"{out}: fsmatrix plan {shlex.quote(str(out))}")


def _asked(question: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        raise refuse(Origin("fsmatrix init"), "", "give --path twice, or --ceph POOL")
    return str(typer.prompt(question, default))


def _text(paths: list[str], pool: str | None, user: str | None, file: str) -> str:
    """The campaign; CampaignError if that is none, in its own lines."""
    from fsmatrix.suite.campaign.settings import Source
    from fsmatrix.suite.plan.plan import Request, build_plan

    if (pool is None) != (len(paths) == 2) or (pool is not None and paths):
        raise refuse(Origin("fsmatrix init"), "", "give --path twice, or --ceph POOL alone")
    if user is not None and pool is None:
        raise refuse(Origin(f"--user {user}"), "", "belongs to --ceph")
    meant = [text if text[:1] in "/~$" else str(Path(text).absolute()) for text in paths]
    given = meant if pool is None else [pool, user or "admin"]
    targets = (PATHS if pool is None else CEPH).format(*map(json.dumps, given))
    text = CAMPAIGN.format(
        file=shlex.quote(file), name="ceph" if paths == [] else "two-paths", targets=targets
    )
    build_plan(Source(text, file), Request(), here=False)
    return text
