"""Markdown tables that benches print, or put into a page between two marks."""

from __future__ import annotations

from pathlib import Path


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write(page: Path, text: str, begin: str, end: str = "") -> None:
    """Replace what the page has between the marks; without `end`, all below `begin`."""
    before, _, rest = page.read_text().partition(begin)
    after = f"\n{end}{rest.partition(end)[2]}" if end else ""
    page.write_text(f"{before}{begin}\n\n{text}{after}")
