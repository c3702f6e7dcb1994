"""Pages of which a part is written from the code: rewritten, or compared."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path


def main(
    about: str | None, page: Path, block: re.Pattern[str], text: Callable[[re.Match[str]], str]
) -> int:
    """The command of such a page: status 1 if --check is given and it is not up to date.

    `block`: its group 1 is the mark that stands before a generated part; `text`: what follows it.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if different")
    parser.add_argument("page", nargs="?", type=Path, default=page)
    arguments = parser.parse_args()
    before = arguments.page.read_text(encoding="utf-8")
    after = block.sub(lambda match: f"{match[1]}{text(match)}\n", before)
    if arguments.check and after != before:
        print(f"{arguments.page} is not what the code is: run docs/{parser.prog}")
    elif after != before:
        arguments.page.write_text(after, encoding="utf-8")
    return int(arguments.check and after != before)
