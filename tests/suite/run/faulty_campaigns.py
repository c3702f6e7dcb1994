"""A campaign on a directory, by the command line, and what became of its runs."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.results.files.store import Store

CAMPAIGN = """
campaign: faults
seed: 7
targets:
  here: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 4MiB, chunk: 64KiB, {options}}}}}
factors:
  pattern: [seq-write, rand-read]
  processes_per_node: [2]
repetitions: {repetitions}
order: {{attachments: 2, block: {block}}}
limits: {{time_per_run: {limit}}}
"""


def write_campaign(
    folder: Path,
    path: Path,
    *,
    repetitions: int = 2,
    options: str = "fsync: end",
    limit: str = "30s",
    block: int = 1,
) -> Path:
    campaign = folder / "faults.yaml"
    campaign.write_text(
        CAMPAIGN.format(
            path=path, repetitions=repetitions, options=options, limit=limit, block=block
        )
    )
    return campaign


def statuses(out: Path) -> dict[str, str]:
    store = Store.open(out)
    return {run: store.status(run) for run in store.ids()}
