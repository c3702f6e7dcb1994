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

    What is not on the command line is absent, except flags: without its flag one is off.
    A run by a script (-f) tells only `script`.
    """
    seen: dict[str, str | int] = dict.fromkeys(FLAGS.values(), False)
    seen |= {"direct": False, "stonewall_wear_out": False}
    access: set[str] = set()
    words = iter(argv[1:])
    for word in words:
        if word in ("--posix.odirect", "--posix.odirect=1"):
            seen["direct"] = True
        if not word.startswith("-") or word.startswith("--"):
            continue
        name, equals, value = word[1:].partition("=")
        for index, letter in enumerate(name):
            if letter in VALUED:
                given = name[index + 1 :] + equals + value
                if equals and index + 1 == len(name):
                    given = value
                _value(seen, letter, given or next(words, ""))
                break
            if letter in "rw":
                access.add(letter)
            elif letter == "B":
                seen["direct"] = True
            elif letter in FLAGS:
                seen[FLAGS[letter]] = True
    if seen.get("script"):
        return {"script": True}
    neither = not access and not seen["check_read"] and not seen["check_write"]
    seen["write"] = "w" in access or neither
    seen["read"] = "r" in access or seen["check_read"] or neither
    return seen


def _value(seen: dict[str, str | int], letter: str, value: str) -> None:
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
        for directive in value.split(","):
            name, _, given = directive.partition("=")
            option = DIRECTIVES.get(name.strip().lower())
            if option:
                seen[option] = given.strip() not in ("", "0")
