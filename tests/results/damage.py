"""What happens to a program's output on its way: lines cut, doubled, swapped, garbled."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st


def damage(lines: list[str], data: st.DataObject, kinds: Sequence[str]) -> list[str]:
    """One damage of one of these kinds, at a line that `data` draws; `lines` may be changed.

    cut: ends within the line.  behead: begins at it.  double: the line twice; copy: once more
    at another place.  swap: with another.  garble: a character that is none.  foreign: a line
    of something else before it.  crlf: the end of line of Windows.
    """
    at = data.draw(st.integers(0, len(lines) - 1))
    kind = data.draw(st.sampled_from(kinds))
    if kind == "cut":
        return [*lines[:at], lines[at][: data.draw(st.integers(0, len(lines[at])))]]
    if kind == "behead":
        return lines[at:]
    if kind == "double":
        lines.insert(at, lines[at])
    elif kind == "copy":
        lines.insert(data.draw(st.integers(0, len(lines))), lines[at])
    elif kind == "swap":
        other = data.draw(st.integers(0, len(lines) - 1))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "garble" and lines[at]:
        place = data.draw(st.integers(0, len(lines[at]) - 1))
        lines[at] = lines[at][:place] + "\ufffd" + lines[at][place + 1 :]
    elif kind == "foreign":
        lines.insert(at, data.draw(st.text(max_size=40)).replace("\n", " "))
    elif kind == "crlf":
        lines[at] += "\r"
    return lines


def damaged(text: str, data: st.DataObject, kinds: Sequence[str]) -> str:
    """The text after one to three damages."""
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        lines = damage(lines, data, kinds)
    return "\n".join(lines)
