"""Do the tests see small faults?  `python -m tests.mutants --count 40 --seed 1`.

A mutant is one small change in one place of the product: an operator, a number, a condition, a call
that is left out.  Each runs in a copy of what is committed against the tests of its folder; those
that survive show what no test looks at.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutants.drawn import FOLDERS, LEFT_OUT, draw
from tests.mutants.places import Mutant
from tests.mutants.trial import Copy, Limits, Verdict, commit, copied, try_out

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("killed", "by time", "survived", "unsure", "gone")
Row = dict[str, Any]  # of --out: a mutant and, when it was tried, its verdict


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="mutants, in equal parts of folders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", default="HEAD", help="revision whose code is drawn from")
    parser.add_argument("--against", help="revision that has the mutants and the tests, if another")
    parser.add_argument("--only", default="", help="mutants of these numbers: 3,17")
    parser.add_argument("--jobs", type=int, default=2, help="tests at once")
    parser.add_argument("--whole", action="store_true", help="survivors: all of the top folder too")
    parser.add_argument("--minutes", type=float, default=15.0, help="that a mutant may take")
    parser.add_argument("--out", type=Path, help="JSON; what it holds already is not run again")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    return parser.parse_args()


def rows(copy: Copy, drawn: Sequence[Mutant]) -> list[Row]:
    """The mutants as they are in the revision that they were drawn from."""
    return [
        {
            "number": number,
            "path": mutant.place.path,
            "line": mutant.place.line,
            "function": mutant.place.function,
            "kind": mutant.place.kind,
            "old": mutant.place.text,
            "ordinal": mutant.place.ordinal,
            "new": mutant.line((copy.tree / mutant.place.path).read_bytes()),
        }
        for number, mutant in enumerate(drawn, 1)
    ]


def text(row: Row) -> str:
    """`path:line function: - old + new`."""
    where = f"{row['path']}:{row['line']} {row['function'] or '(module)'}"
    return f"{where}: - {row['old']} + {row['new']}"


def resume(out: Path | None, head: Row, fresh: Sequence[Row]) -> list[Row]:
    """The rows of an earlier run of the same mutants, or fresh ones."""
    if out is None or not out.exists():
        return list(fresh)
    earlier = json.loads(out.read_text())
    kept = [{key: row.get(key) for key in fresh[0]} for row in earlier["mutants"]] if fresh else []
    if {key: earlier[key] for key in head} != head or kept != fresh:
        sys.exit(f"mutants: {out} is of other mutants: name another file")
    return list(earlier["mutants"])


def try_all(
    copy: Copy, drawn: Sequence[Mutant], told: list[Row], asked: argparse.Namespace
) -> None:
    """Those that are asked for and have no verdict; each is stored when it has one."""
    only = {int(number) for number in asked.only.split(",") if number}
    limits = Limits(asked.jobs, asked.whole, asked.minutes * 60)
    for mutant, row in zip(drawn, told, strict=True):
        if "verdict" in row or (only and row["number"] not in only):
            continue
        print(f"{row['number']}/{len(told)} {text(row)}", flush=True)
        here = mutant.find(copy.tree)
        row |= asdict(try_out(copy, here, limits) if here else Verdict("gone"))
        print(
            f"    {row['verdict']} {row['by']} ({row['seconds']:.0f} s; {row['said']})", flush=True
        )
        if asked.out:
            aside = asked.out.with_name(f"{asked.out.name}.new")
            aside.write_text(json.dumps({**head_of(asked), "mutants": told}, indent=1) + "\n")
            aside.replace(asked.out)


def head_of(asked: argparse.Namespace) -> Row:
    """What a file of results is of."""
    return {
        "seed": asked.seed,
        "of": commit(ROOT, asked.of),
        "against": commit(ROOT, asked.against or asked.of),
    }


def table(told: Sequence[Row]) -> str:
    """Markdown: a line for each folder; then the mutants that were not surely killed."""
    lines = [f"| folder | mutants | {' | '.join(VERDICTS)} | seconds |", "|---" * 8 + "|"]
    tried = [row for row in told if "verdict" in row]
    for folder in (*FOLDERS, ""):
        part = [row for row in tried if row["path"].startswith(folder)]
        found = Counter(row["verdict"] for row in part)
        cells = [folder or "**all**", len(part), *(found[one] for one in VERDICTS)]
        seconds = sum(row["seconds"] for row in part)
        lines.append(f"| {' | '.join(map(str, cells))} | {seconds:.0f} |")
    for verdict in VERDICTS[1:]:
        part = [row for row in tried if row["verdict"] == verdict]
        lines += ["", f"{verdict}:", *map(text, part)] if part else []
    left_out = ", ".join(LEFT_OUT.prefixes)
    return "\n".join([*lines, "", f"Never changed, as {LEFT_OUT.why}: {left_out}."])


def main() -> int:
    """Status 1 if a mutant survived."""
    asked = arguments()
    head = head_of(asked)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tests end what they started
    with copied(ROOT) as copy:
        copy.check_out(head["of"])
        drawn = draw(copy.tree, asked.count, asked.seed)
        told = resume(asked.out, head, rows(copy, drawn))
        if asked.list:
            print("\n".join(f"{row['number']} {text(row)}" for row in told))
            return 0
        copy.check_out(head["against"])
        try_all(copy, drawn, told, asked)
    print(table(told))
    return int(any(row.get("verdict") == "survived" for row in told))


if __name__ == "__main__":
    sys.exit(main())
