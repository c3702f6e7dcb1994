"""Options that several commands share, and small things for printing."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.cli import completion, progress
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.results.files.store import Store
    from fsmatrix.suite.plan.plan import Request

Campaign = Annotated[
    str,
    typer.Argument(
        help="A campaign's YAML file, or the name of a ready-made campaign.",
        autocompletion=completion.campaigns,
    ),
]
CampaignToResume = Annotated[
    str | None,
    typer.Argument(
        help="A campaign's YAML file or a ready-made campaign's name; not needed to resume.",
        autocompletion=completion.campaigns,
    ),
]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Results directory.")]
OutFile = Annotated[Path | None, typer.Option("-o", "--out", help="File to write.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="With --resume: try failed runs again.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: limits.time_per_run=30s (repeatable)."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        help="Only these cases: target=xfs,chunk=4KiB (repeatable).",
        autocompletion=completion.levels,
    ),
]
Shard = Annotated[str, typer.Option("--shard", help="Only part k of N, written k/N.")]
Blocks = Annotated[
    str | None, typer.Option("--blocks", help="Only these blocks: a or a-b, counted from 0.")
]
SkipUnusable = Annotated[
    bool,
    typer.Option("--skip-unusable", help="Leave out targets that this machine cannot provide."),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed of the random order and of the data.")
]
MOST_REASONS = 9  # lines about failed runs; one more says how many others there are
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Results = Annotated[
    Path,
    typer.Argument(help="A results directory or a campaign.h5.", autocompletion=completion.results),
]


def limit_algebra_threads() -> None:
    """Linear algebra in one thread: matrices are small here, and threads that wait spin."""
    import scipy.linalg  # noqa: F401  (with it both libraries are loaded: only those are limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def request(
    sets: list[str] | None,
    only: list[str] | None,
    shard: str,
    seed: int | None,
    blocks: str | None = None,
) -> Request:
    """The request that the options make."""
    from fsmatrix.suite.campaign.campaign import SEEDS
    from fsmatrix.suite.plan.plan import Request

    if seed is not None and seed not in SEEDS:
        allowed = f"must be from {SEEDS.start} to {SEEDS.stop - 1}"
        raise refuse(Origin(f"--seed {seed}"), "", allowed)
    return Request(tuple(sets or ()), tuple(only or ()), _shard(shard), seed, _blocks(blocks))


def _blocks(text: str | None) -> range | None:
    if text is None:
        return None
    first, dash, last = text.partition("-")
    last = last if dash else first
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 10**6:
        return range(int(first), int(last) + 1)
    raise refuse(Origin(f"--blocks {text}"), "", "must be a or a-b with a <= b, for example 0-2")


def _shard(text: str) -> tuple[int, int]:
    k, slash, n = text.partition("/")
    if slash and k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n):
        return int(k), int(n)
    raise refuse(Origin(f"--shard {text}"), "", "must be k/N with 1 <= k <= N, for example 2/8")


def say_failures(console: Console, failures: Sequence[tuple[str, str, str]]) -> None:
    """Runs that failed (run id, status, reason), by reason, the most frequent first.

    A run may come several times: each of its phases is a row of the campaign.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for run, status, reason in dict.fromkeys(failures):
        groups.setdefault((status, reason), []).append(run)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    for (status, reason), runs in ordered[:MOST_REASONS]:
        which = runs[0] if len(runs) == 1 else f"{len(runs)} runs ({runs[0]}, ...)"
        line = f"{status} {which}: {' '.join(reason.split())}"
        progress.line(console, line, "red")
    rest = ordered[MOST_REASONS:]
    if rest:
        count = sum(len(runs) for _, runs in rest)
        console.print(
            f"... and {count} more failed runs for {len(rest)} other reasons: see the report",
            style="red",
            highlight=False,
            soft_wrap=True,
        )


def print_json(value: Any) -> None:
    """One JSON document on standard output; what is no number becomes null."""
    from fsmatrix.analysis.result import plain

    json.dump(plain(value, str), sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def campaign_file(results: Path) -> Path:
    """campaign.h5 of a results directory, merged anew if it was made of other runs; or the file.

    `published:NAME` stays as it is: analysis opens it.
    """
    from fsmatrix.results.files.store import Store

    if results.is_file() or str(results).startswith("published:"):
        return results
    store = Store.open(results)
    fresh = store.merged()
    if fresh is not None:
        return fresh
    try:
        return store.merge()
    except OSError as error:  # a store that may only be read
        return _merged_elsewhere(store, error)


def _merged_elsewhere(store: Store, error: OSError) -> Path:
    """Merge into a temporary folder that goes with this process."""
    end = contextlib.ExitStack()
    folder = end.enter_context(work_folder())
    atexit.register(end.close)
    progress.console(stderr=True).print(
        f"note: {store.directory} cannot be written ({error.strerror}); merged elsewhere for now",
        highlight=False, markup=False,
    )  # fmt: skip
    return store.merge(folder / "campaign.h5")
