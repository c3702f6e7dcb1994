"""Sizes and durations as people write them.

Sizes: bytes as a bare integer, or with a unit: KiB = 1024, KB = kB = 1000, and so on.
Durations: seconds as a bare number, or with ns, us, ms, s, min, h, d; for Slurm as it writes them.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

# Text that came from anywhere, as it may be shown.


KEPT = "\n\t\u202f"  # line ends, tabs, and the narrow space of our own numbers


def printable(text: str) -> str:
    """`text` without control characters: a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in KEPT else "\ufffd" for sign in text)


LARGEST = (1 << 63) - 1  # what an int64 of a results file holds
_PREFIXES = "KMGTPE"
SIZE_UNITS: dict[str, int] = {
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate(_PREFIXES, 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate(_PREFIXES, 1)},
}
_ALIASES = {"kB": "KB"}
DURATION_UNITS: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_QUANTITY = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_SLURM = re.compile(r"(?:(\d{1,9})-)?(\d{1,9}(?::\d{1,9}){0,2})", re.ASCII)
_PARTS = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?\s*[a-z]+\s*)+", re.ASCII)


class UnitError(ValueError):
    """A size or duration that cannot be understood; the text says what is allowed."""


def parse_size(value: object, minimum: int = 0) -> int:
    """Bytes of "4KiB", "4KB" or 4194304; UnitError for anything else.

    Refused: ambiguous units ("4k", "4K"), values below `minimum`, fractions of a byte.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(f"a size must be text like '4KiB' or a number of bytes, not {value!r}")
    number, unit = _split(value, "size", "'4KiB', '4KB' or 4194304")
    size = number * _size_unit(str(value), number, unit)
    if size < minimum:
        allowed = "zero or more" if minimum == 0 else f"at least {format_size(minimum)}"
        raise UnitError(f"size {value!r} is too small: it must be {allowed}")
    if size.denominator != 1:
        raise UnitError(f"size {value!r} is no whole number of bytes")
    if size > LARGEST:
        raise UnitError(f"size {value!r} is larger than {LARGEST} bytes")
    return int(size)


def plural(count: int, noun: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_size(size: int, digits: int | None = None) -> str:
    """Exact and shortest text that `parse_size` reads back; with `digits`, rounded (KiB...)."""
    if size == 0:
        return "0B"
    if digits is None:
        exact = [unit for unit, factor in SIZE_UNITS.items() if size % factor == 0]
        return min((f"{size // SIZE_UNITS[unit]}{unit}" for unit in exact), key=_length)
    value, unit = float(size), "B"
    for letter in _PREFIXES:
        if abs(value) < 1024:
            break
        value, unit = value / 1024, f"{letter}iB"
    return f"{value:.{0 if unit == 'B' else digits}f}{unit}"


def _length(text: str) -> tuple[int, int]:
    """Fewest digits first, then the shorter unit."""
    return len(text.rstrip("BiKMGTPE")), len(text)


def parse_duration(value: object, positive: bool = False) -> float:
    """Seconds of 1.5, "60s", "5min", "2h" or "1h30min"; UnitError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(f"a duration must be text like '60s' or a number of seconds, not {value!r}")
    if isinstance(value, str) and _PARTS.fullmatch(value.strip()):
        parts = re.findall(r"([0-9.]+)\s*([a-z]+)", value)
        seconds = sum(
            (Fraction(Decimal(number)) * _duration_unit(value, unit) for number, unit in parts),
            Fraction(0),
        )
    else:
        number, unit = _split(value, "duration", "'60s', '5min', '2h' or a number of seconds")
        seconds = number * (_duration_unit(str(value), unit) if unit else 1)
    if seconds < 0 or (positive and seconds == 0):
        bound = "more than" if positive else "at least"
        raise UnitError(f"duration {value!r} must be {bound} zero")
    try:
        return float(seconds)
    except OverflowError as error:
        raise UnitError(f"duration {value!r} is too large") from error


def format_duration(seconds: float) -> str:
    """A duration as people say it, rounded: 40 s, 12 min, 3.5 h, 42 days."""
    for unit, most in (("s", 90), ("min", 90), ("h", 48)):
        count = seconds / float(DURATION_UNITS[unit])
        if count < most:
            return f"{count:.1f} h" if unit == "h" else f"{count:.0f} {unit}"
    days = seconds / float(DURATION_UNITS["d"])
    return f"{days:.{0 if days >= 10 else 1}f} days"


def slurm_seconds(text: str) -> float | None:
    """Seconds of Slurm's D-HH:MM:SS, HH:MM:SS, MM:SS or minutes; None for UNLIMITED and others."""
    match = _SLURM.fullmatch(text)
    if match is None:
        return None
    days, parts = match[1], [int(part) for part in match[2].split(":")]
    if days is not None:  # D-HH, D-HH:MM, D-HH:MM:SS
        parts += [0] * (3 - len(parts))
    elif len(parts) == 1:  # minutes
        parts = [0, *parts, 0]
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _split(value: int | float | str, what: str, allowed: str) -> tuple[Fraction, str]:
    if isinstance(value, float) and not math.isfinite(value):
        raise UnitError(f"a {what} must be finite, not {value!r}")
    if not isinstance(value, str):
        return Fraction(value), ""
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{value!r} is no {what}: write it like {allowed}")
    return Fraction(Decimal(match[1])), match[2]


def _size_unit(text: str, number: Fraction, unit: str) -> int:
    unit = _ALIASES.get(unit, unit)
    if not unit:
        return 1
    if unit in SIZE_UNITS:
        return SIZE_UNITS[unit]
    letter = unit[0].upper()
    if letter in _PREFIXES and unit[1:].lower() in {"", "b", "i", "ib"}:
        amount = f"{float(number):g}" if number < 10**300 else "..."
        power = _PREFIXES.index(letter) + 1
        raise UnitError(
            f"size {text!r} is ambiguous: write {amount}{letter}iB (x 1024^{power}) or "
            f"{amount}{letter}B (x 1000^{power})"
        )
    allowed = ", ".join(SIZE_UNITS)
    raise UnitError(f"size {text!r} has an unknown unit {unit!r}: allowed are {allowed}")


def _duration_unit(text: str, unit: str) -> Fraction:
    if unit in DURATION_UNITS:
        return DURATION_UNITS[unit]
    advice = " (min is minutes, ms is milliseconds)" if unit.lower() == "m" else ""
    raise UnitError(
        f"duration {text!r} has an unknown unit {unit!r}{advice}: "
        f"allowed are {', '.join(DURATION_UNITS)}"
    )


def _positive_size(value: object) -> int:
    return parse_size(value, minimum=1)


def _positive_duration(value: object) -> float:
    return parse_duration(value, positive=True)


def _slurm_duration(value: object) -> float:
    """As sbatch reads it, a bare number as minutes; or as every duration, with a unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return parse_duration(value)
    text = str(value).strip()
    if (seconds := slurm_seconds(text)) is not None:
        return parse_duration(seconds, positive=True)
    if ":" in text or (not _QUANTITY.fullmatch(text) and not _PARTS.fullmatch(text)):
        allowed = "00:30:00, 1-00:00:00, 2h, or a number of minutes"
        raise UnitError(f"{value!r} is no time of Slurm: write it like {allowed}")
    return parse_duration(f"{text}min" if text[-1:].isdecimal() else text, positive=True)


Size = Annotated[int, BeforeValidator(parse_size)]
PositiveSize = Annotated[int, BeforeValidator(_positive_size)]
Duration = Annotated[float, BeforeValidator(parse_duration)]
PositiveDuration = Annotated[float, BeforeValidator(_positive_duration)]
SlurmDuration = Annotated[float, BeforeValidator(_slurm_duration)]
