"""What terminals, pages, mails and launchers put into an output is taken out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fsmatrix.results.formats.base import Note, Parsed, Parser

_COLOUR = re.compile(r"\x1b\[[\d;]{0,30}[mK]")
_BLANKS = str.maketrans(dict.fromkeys("\t\u00a0\u2007\u202f", " "))
_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e", '"'))
_HOST = r"([A-Za-z][\w.-]{0,100}):"
# What stands before a line, with the rank or the host that printed it: nothing but marks and
# blanks, srun, hydra, Open MPI and PRRTE, pdsh.
_KINDS = (
    r"()",
    r"[ \t]*(\d{1,7}):",
    r"[ \t]*\[(\d{1,7})\]",
    r"[ \t]*\[[^][\s,]{1,100},(\d{1,7})\](?:\[[^][\s]{1,100}\])?<std(?:out|err)>:",
    rf"[ \t]*{_HOST}",
)
# When a line was printed: moreutils' ts, kubectl logs, container and system logs.
_STAMP = re.compile(
    r"[ \t]*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: [\w.-]{1,100} [\w./-]{1,100}\[\d{1,9}\]:)?"
    r"|\d\d:\d\d:\d\d(?:\.\d{1,9})?)\]?(?: std(?:out|err) [FP])?(?:[ \t]|$)",
    re.ASCII | re.MULTILINE,
)
_BEFORE = tuple(
    (kind, re.compile(rf"((?:[ \t>|]*[>|])?){kind}([ \t]*)", re.ASCII)) for kind in _KINDS
)
_BEGINNING = re.compile(
    r"mdtest-\S{1,80} was launched|-- started at |IOR-\S{1,40}: MPI Coord|Began {1,40}: "
    r"|access {1,40}bw\(MiB/s\)|access,bw\(MiB/s\)|dbench version |Running for \d{1,9} seconds"
    r"|Throughput \S{1,24} MB/sec|ISO date,label|\[RESULT(?:-invalid)?\]"
    r'|(?P<key>"(?:fio version|Began)" ?:)'
)
_LONGEST = 200  # characters before a beginning
_MOST = 50_000_000  # lines of the texts of all ranks


def unlabelled(text: str) -> list[str]:
    """An output without colours, times and what else stands before each of its lines.

    It is one text, or one for each rank or host that began an output of its own (worlds of one
    task each).  What nobody of them printed is in all of them; every line keeps its place.
    """
    text = _COLOUR.sub("", _plain(text))
    before = list(_before(text))
    if any(_STAMP.match(each) for each, _ in before):
        text = "".join(map(_unstamped, text.splitlines(keepends=True)))
        before = list(_before(text))
    found = _labels(before)
    first = next(found, None)
    if first is None:
        return [text]
    quote, kind, blanks, _ = first
    own = {label[-1]: None for label in (first, *found) if label[1] == kind}
    label = re.compile(rf"{re.escape(quote)}{kind}(?:{blanks}|$)", re.ASCII)
    lines = []
    for line in text.split("\n"):
        match = label.match(line)
        if match is None or (_HOST in kind and match[1] not in own):
            lines.append(("-", line))
        else:
            lines.append((match[1], line[match.end() :]))
    if len(own) == 1 or len(own) * len(lines) > _MOST:
        return ["\n".join(line for _, line in lines)]
    return [
        "\n".join(line if by == one or by not in own else "" for by, line in lines) for one in own
    ]


def _plain(text: str) -> str:
    """With blanks, quotes and ends of lines as programs print them, not as pages show them."""
    if "\r" in text and "\n" not in text:
        text = text.replace("\r", "\n")
    if '"' not in text:
        text = text.replace("&quot;", '"').translate(_QUOTES)
    return text.translate(_BLANKS)


def _before(text: str) -> Iterator[tuple[str, bool]]:
    """What stands in its line before each beginning of an output, and whether that is JSON's."""
    for beginning in _BEGINNING.finditer(text):
        start = beginning.start()
        before = text[max(0, start - _LONGEST) : start].rpartition("\n")[2]
        yield before, beginning["key"] is not None


def _unstamped(line: str) -> str:
    """Without the time at which it was printed."""
    match = _STAMP.match(line)
    return line[match.end() :] if match else line


def _labels(found: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, str, str, str]]:
    """What stands before each beginning of an output: marks, kind, blanks, and who printed it."""
    for before, is_json in found:
        if is_json:  # JSON is indented
            before = before.rstrip(" \t")
        for kind, pattern in _BEFORE if before else ():
            if match := pattern.fullmatch(before):
                yield match[1], kind, match[3], match[2]
                break


def runs_of(parse: Parser, texts: Sequence[str], source: str) -> list[Parsed]:
    """All runs of an output; those of several ranks were at work at the same time."""
    runs = [run for text in texts for run in parse(text, source)]
    if len(texts) == 1:
        return runs
    note = Note("simultaneous", f"{len(texts)} ranks or hosts each began an output of their own")
    return [replace(run, notes=(note, *run.notes)) for run in runs]
