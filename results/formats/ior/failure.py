"""Why an IOR failed, from what it and its launcher said."""

from __future__ import annotations

import re

LONGEST_REASON = 300
MOST_LINES = 20_000  # from each end of a long text
_ERRNO = re.compile(
    r"(?:write|read|pwrite|pread|fsync|open64|open|close|fdatasync)\w*\(.{0,200}?failed[:.]? *"
    r"(?:Error: *)?(?P<text>(?:No space left on device|Disk quota exceeded|Input/output error|"
    r"Read-only file system|Permission denied|No such file or directory|Stale file handle|"
    r"Transport endpoint is not connected|Connection timed out|Too many open files|"
    r"Invalid argument|File too large|Cannot allocate memory)[^,(]*)"
)
_DAOS = re.compile(r"ERROR \(aiori-DFS\.c:\d+\): \d+: (-?\d+): (.+)")
_ERROR = re.compile(r"(?:ior )?ERROR(?: \([^)]{0,80}\))?: (.{1,300})")
_PLACE = re.compile(r",? *\((?:[\w.-]+\.c:\d+)\)\.?\s*$")
_WRONG = re.compile(r"(?:[Ii]ncorrect|wrong) data on (\w+)[:(\s]+(\d+) errors found")
_ASSERT = re.compile(r"(\S+\.c):(\d+): (\w+): Assertion `([^']{1,100})' failed")
_SIGNAL = re.compile(r"exited on signal (\d+)(?: \(([\w ]+)\))?|Signal: ([\w ]+) \((\d+)\)")
_ARGUMENT = re.compile(r"Error invalid argument: (\S+)")
_LOADER = re.compile(r"error while loading shared libraries: ([^\n]{1,200})")


def failure_of(text: str) -> str:
    """The most telling reason in stdout and stderr together; empty if there is none.

    A reason of the operating system comes first, then IOR's first ERROR line (later ones
    follow from it), wrong data, a failed assertion, a signal.
    """
    lines = text.split("\n")
    if len(lines) > 2 * MOST_LINES:
        lines = lines[:MOST_LINES] + lines[-MOST_LINES:]
    reasons: dict[str, str] = {}
    for line in lines:
        if len(line) <= 4096:
            _look(line, reasons)
    for kind in ("errno", "daos", "loader", "error", "argument", "wrong", "assert", "signal"):
        if kind in reasons:
            return reasons[kind][:LONGEST_REASON]
    return ""


def _look(line: str, errors: dict[str, str]) -> None:
    """Keep the first reason of each kind."""
    if "failed" in line:
        if match := _ERRNO.search(line):
            reason = match["text"].strip().rstrip(".")
            errors.setdefault("errno", reason[:1].lower() + reason[1:])
        elif match := _ASSERT.search(line):
            place = f"{match[1]}:{match[2]}"
            errors.setdefault(
                "assert", f"IOR stopped itself in {match[3]} ({place}): not {match[4]}"
            )
    if "rror" in line or "ERROR" in line:
        if match := _DAOS.search(line):
            errors.setdefault("daos", f"{match[2].strip()} (DAOS error {match[1]})")
        elif match := _ERROR.match(line):
            errors.setdefault("error", f"IOR: {_PLACE.sub('', match[1]).strip()}")
        elif match := _ARGUMENT.search(line):
            errors.setdefault("argument", f"IOR does not know the argument {match[1]}")
        elif match := _LOADER.search(line):
            errors.setdefault("loader", f"IOR cannot start: {match[1].strip()}")
    if match := _WRONG.search(line):
        errors.setdefault("wrong", f"IOR found wrong data on {match[1]}: {match[2]} errors")
    if "ignal" in line and (match := _SIGNAL.search(line)):
        number, name = match[1] or match[4], match[2] or match[3] or ""
        errors.setdefault("signal", f"IOR was ended by signal {number} ({name.strip()})")
