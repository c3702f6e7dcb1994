"""What a plan says of its time, and what its run takes, on this machine.

Example: python bench/estimates.py quickstart ceph-quickstart --set repetitions=1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from fsmatrix.results.units import format_duration
from fsmatrix.suite.plan.plan import Request, build_plan
from fsmatrix.suite.run.events import Event
from fsmatrix.suite.run.execute import Options, execute
from fsmatrix.suite.run.forecast import Forecast


def compared(campaign: str, sets: tuple[str, ...]) -> str:
    """Said and taken of a campaign, and what was said to be left after the first block."""
    with tempfile.TemporaryDirectory(prefix="fsmatrix-estimates-") as folder:
        out = Path(folder) / "out"
        plan = build_plan(campaign, Request(sets), out=out)
        forecast, learned, blocks = Forecast.of(plan), (0.0, 0.0), set[str]()

        def listen(event: Event) -> None:
            nonlocal learned
            forecast(event)
            if event.what == "attach":
                blocks.add(str(event.facts["attachment"]).partition("-")[0])
                if len(blocks) == 2 and not learned[0]:
                    learned = (time.monotonic(), forecast.seconds)

        begin = time.monotonic()
        execute(plan, out, Options(), listen)
        end = time.monotonic()
    estimated, taken = plan.estimate.seconds, end - begin
    ratio = f"{taken / estimated:.2f} times"
    said, took = format_duration(estimated), format_duration(taken)
    text = f"{campaign}: said {said}, taken {took} ({ratio})"
    if learned[0]:
        rest = end - learned[0]
        said, took = format_duration(learned[1]), format_duration(rest)
        text += f"; after the first block {said} left, taken {took} ("
        text += f"{rest / learned[1]:.2f} times)"
    return text


def main() -> None:
    """Print a line for each campaign."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("campaigns", nargs="+", help="ready campaigns, or files")
    parser.add_argument("--set", action="append", default=[], help="change a setting")
    arguments = parser.parse_args()
    for campaign in arguments.campaigns:
        print(compared(campaign, tuple(arguments.set)), flush=True)


if __name__ == "__main__":
    main()
