"""What an IOR command line says about a run (options of IOR 3.2 to 4.1, their union)."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.results.formats.ior.model import size

# short options that take a value; all others are flags (parse_options.c of 3.2.1 to 4.1)
VALUED = "aAbdDfGijJlMNoOQstTUX"
FLAGS = {
    "c": "collective",
    "C": "reorder_tasks",
    "e": "fsync",
    "F": "file_per_process",
    "k": "keep",
    "R": "check_read",
    "W": "check_write",
    "Y": "fsync_per_write",
    "z": "random_offset",
    "Z": "reorder_random",
}
SIZES = {"b": "block_size", "t": "transfer_size"}
COUNTS = {"s": "segments", "D": "stonewall", "i": "iterations", "Q": "task_offset"}
# what says where, how long before, and how it is reported: no other work
NO_WORK = "AGdfjkNorvwB"
REPORTS = ("summary", "save", "verbose", "outlier")  # how directives begin that are none either
# directives of -O
DIRECTIVES = {
    "stonewallingwearout": "stonewall_wear_out",
    "useo_direct": "direct",
    "fsync": "fsync",
    "fsyncperwrite": "fsync_per_write",
    "maxtimeduration": "limited",
}


def settings(argv: Sequence[str]) -> dict[str, str | int]:
    """Settings by the names of the workload's options, and `read`, `write`, `script`.

    `other_options`: what else makes it other work (`--mpiio.hintsFileName=h -g`), in one text.
    What is not on the command line is absent, except flags: without its flag one is off.
    A run by a script (-f) tells only `script`.
    """
    seen: dict[str, str | int] = dict.fromkeys(FLAGS.values(), False)
    seen |= {"direct": False, "stonewall_wear_out": False}
    access: set[str] = set()
    others: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word in ("--posix.odirect", "--posix.odirect=1"):
            seen["direct"] = True
        elif word.startswith("--"):
            others.append(word)
        if not word.startswith("-") or word.startswith("--"):
            continue
        name, equals, value = word[1:].partition("=")
        for index, letter in enumerate(name):
            if letter in VALUED:
                given = name[index + 1 :] + equals + value
                if equals and index + 1 == len(name):
                    given = value
                given = given or next(words, "")
                others += _value(seen, letter, given)
                break
            if letter in "rw":
                access.add(letter)
            elif letter == "B":
                seen["direct"] = True
            elif letter in FLAGS:
                seen[FLAGS[letter]] = True
            elif letter not in NO_WORK:
                others.append(f"-{letter}")
    if others:
        seen["other_options"] = " ".join(sorted(others))
    if seen.get("script"):
        return {"script": True}
    neither = not access and not seen["check_read"] and not seen["check_write"]
    seen["write"] = "w" in access or neither
    seen["read"] = "r" in access or seen["check_read"] or neither
    return seen


def _value(seen: dict[str, str | int], letter: str, value: str) -> list[str]:
    """Put what an option says; what no setting has a name for."""
    if letter == "a":
        seen["api"] = value
    elif letter == "f":
        seen["script"] = True
    elif letter == "T":
        seen["limited"] = value != "0"
    elif letter in SIZES or letter in COUNTS:
        amount = size(value)
        if amount is not None:
            seen[(SIZES | COUNTS)[letter]] = amount
    elif letter == "O":
        return [
            f"-O {rest}" for directive in value.split(",") if (rest := _directive(seen, directive))
        ]
    elif letter not in NO_WORK:
        return [f"-{letter} {value}"]
    return []


def _directive(seen: dict[str, str | int], text: str) -> str:
    """As `_value` of one of -O: itself if it makes other work that has no name here."""
    name, _, given = text.strip().partition("=")
    if option := DIRECTIVES.get(name.strip().lower()):
        seen[option] = given.strip() not in ("", "0")
        return ""
    return "" if name.lower().startswith(REPORTS) else text.strip()
