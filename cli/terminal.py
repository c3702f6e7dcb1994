"""What people read of a command: the one place where text goes to a terminal.

Names, descriptions, reasons and outputs of programs come from campaigns, results and other
people; what a terminal would obey in them is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fsmatrix.results.printable import printable


class Terminal(Console):
    """A console that obeys only itself: no text brings a control character to it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As Console's, which everything that is printed passes."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console(stderr: bool = False) -> Terminal:
    """Standard output, or standard error, for people."""
    return Terminal(stderr=stderr)


def line(console: Console, text: str, style: str | None = None) -> None:
    """One line of plain text, whole however long: its words are neither markup nor highlighted."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def echo(text: str, *, err: bool = False) -> None:
    """One text as it is, on a line of its own: neither wrapped nor styled."""
    print(printable(text), file=sys.stderr if err else sys.stdout)


def raw(text: str) -> None:
    """A text as it is on standard output: a terminal gets it without what it would obey."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
