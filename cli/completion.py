"""What <TAB> offers: campaigns, results, targets, factors with their levels, metrics.

It runs in any directory that somebody stands in, at every <TAB>.  So nothing is executed, merged
or written; files are opened as those of others are (safefile.py, campaignopen.py), and are small;
what cannot be read offers nothing, and says nothing: the shell would print it into the line.  What
is offered are words that every shell takes as they are, since the scripts of some evaluate them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer

VARIABLE = "_FSMATRIX_COMPLETE"
SECONDS, WAITED = 2, 10  # of CPU, and of time, after which the shell gets nothing
LARGEST = 16 << 20  # bytes of a campaign file that is looked into
LONGEST_TEXT = 1 << 18  # bytes of a campaign's YAML
MOST_ENTRIES = 2000  # of a directory
MOST_LEVELS = 100  # of a factor
PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_.,:/@%+=-]*")
BREAKS = ("=", ":", "@")  # where bash divides words (COMP_WORDBREAKS)

TAKE_CAMPAIGNS = ("plan", "run", "submit")  # the other commands take results

Factors = Mapping[str, list[str]]  # factor -> its levels as they are typed


def complete(run: Callable[[], object]) -> None:
    """Answer the shell: `run` is the program, which typer makes answer instead of act."""
    for timer, number, most in (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, WAITED),
    ):
        signal.signal(number, lambda *_: os._exit(0))
        signal.setitimer(timer, most)
    before = _joined() if os.environ[VARIABLE] == "complete_bash" else ""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            run()
    finally:
        for line in output.getvalue().splitlines():
            print(line.removeprefix(before))


def _joined() -> str:
    """Make one word of what bash divided (a=b is three words); what stands before its last part.

    bash replaces that last part only.
    """
    words = os.environ.get("COMP_WORDS", "").split("\n")
    try:
        place = int(os.environ.get("COMP_CWORD", ""))
    except ValueError:
        return ""
    whole: list[str] = []
    before, glued = "", False
    for number, word in enumerate(words[: place + 1]):
        breaks = word in BREAKS and number > 1
        before = whole[-1] if glued else ""
        if breaks or glued:
            whole[-1] += word
        else:
            whole.append(word)
        glued = breaks
    before = whole[-1] if glued else before
    os.environ["COMP_WORDS"] = "\n".join(whole)
    os.environ["COMP_CWORD"] = str(len(whole) - 1)
    return before.partition("=")[2] if before.startswith("--") else before


# -- what is offered ------------------------------------------------------------------------
def ready(incomplete: str) -> list[str]:
    """Names of the campaigns that come with fsmatrix."""
    names = (item.name for item in files("fsmatrix.jobs").iterdir())
    return _fitting(incomplete, (n.removesuffix(".yaml") for n in names if n.endswith(".yaml")))


def campaigns(incomplete: str) -> list[str]:
    """Ready campaigns, YAML files and directories that may hold some."""
    return ready(incomplete) + _entries(incomplete, (".yaml", ".yml"))


def results(incomplete: str) -> list[str]:
    """Results directories, campaign files, published tables."""
    from fsmatrix.results.files.store import MARKER

    tables = (n.removesuffix(".csv") for n in _names("fsmatrix.results.published", ".csv"))
    published = _fitting(incomplete, (f"published:{name}" for name in tables))
    return _entries(incomplete, (".h5",), MARKER) + (published if incomplete else [])


def runs(incomplete: str) -> list[str]:
    """Ids of the runs in the results directory that stands in the command."""
    from fsmatrix.results.files.store import RUNS

    folder = begun if len(begun := incomplete[:2]) == 2 and begun.isalnum() else "??"
    places = (Path(word) / RUNS for word in _words()[2:] if not word.startswith("-"))
    found = (path.stem for place in places for path in place.glob(f"{folder}/*.h5"))
    return _fitting(incomplete, (name for _, name in zip(range(MOST_ENTRIES), found, strict=False)))


def studies(incomplete: str) -> list[str]:
    """Studies whose claims can be judged, and YAML files."""
    names = (n.removesuffix(".yaml") for n in _names("fsmatrix.results.published.studies", ".yaml"))
    return _fitting(incomplete, names) + _entries(incomplete, (".yaml", ".yml"))


def metrics(incomplete: str) -> list[str]:
    """Metrics of a phase that begin so."""
    from fsmatrix.analysis.units import METRICS

    return _fitting(incomplete, METRICS)


def audits(incomplete: str) -> list[str]:
    """Names of audits that begin so."""
    from fsmatrix.results.audits import run_audits

    return _fitting(incomplete, run_audits())


def factors(ctx: typer.Context, incomplete: str) -> list[str]:
    """Factors of the campaign that stands in the command."""
    return _fitting(incomplete, _of(ctx))


def factors_joined(ctx: typer.Context, incomplete: str) -> list[str]:
    """As `factors`, several joined by plus signs."""
    done, plus, _ = incomplete.rpartition("+")
    return _fitting(incomplete, ("campaign", *(f"{done}{plus}{name}" for name in _of(ctx))))


def levels(ctx: typer.Context, incomplete: str) -> list[str]:
    """factor=level of the campaign in the command; after a comma the next one."""
    done, comma, begun = incomplete.rpartition(",")
    levels_of = _of(ctx)
    if "=" not in begun and not any(name == begun for name in levels_of):
        few = [name for name in levels_of if len(levels_of[name]) > 1 or name == "target"]
        near = [f"{name}={level}" for name in few for level in levels_of[name]]
    else:
        near = [f"{name}={level}" for name in levels_of for level in levels_of[name]]
    return _fitting(incomplete, (f"{done}{comma}{pair}" for pair in near))


def sides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Levels of --by (targets, if it is not there), several with commas."""
    done, comma, _ = incomplete.rpartition(",")
    words = _words()
    by = words[words.index("--by") + 1] if "--by" in words[:-1] else "target"
    near = [level for level in _of(ctx).get(by, []) if level not in done.split(",")]
    return _fitting(incomplete, (f"{done}{comma}{level}" for level in near))


def _fitting(incomplete: str, words: Iterable[str]) -> list[str]:
    """Plain words that begin with what is there, sorted."""
    return sorted({w for w in words if w.startswith(incomplete) and PLAIN.fullmatch(w)})


def _names(package: str, suffix: str) -> list[str]:
    return [item.name for item in files(package).iterdir() if item.name.endswith(suffix)]


def _entries(incomplete: str, suffixes: tuple[str, ...], marker: str = "") -> list[str]:
    """Files that end so, and directories: a slash after those that are not marked."""
    folder, slash, begun = incomplete.rpartition("/")
    shown = []
    try:
        with os.scandir(folder + slash or ".") as entries:
            for _, entry in zip(range(MOST_ENTRIES), entries, strict=False):
                if entry.name.startswith(".") and not begun.startswith("."):
                    continue
                name = f"{folder}{slash}{entry.name}"
                if entry.is_dir():
                    whole = marker and os.path.lexists(Path(name) / marker)
                    shown.append(name if whole else f"{name}/")
                elif entry.name.endswith(suffixes) and entry.is_file():
                    shown.append(name)
    except OSError:  # no such directory: nothing to offer
        return []
    return _fitting(incomplete, shown)


# -- the campaign in the command ------------------------------------------------------------
def _of(ctx: typer.Context) -> Factors:
    """Factors and levels of the first campaign or results that the command names."""
    from fsmatrix.results.files.safefile import ResultError
    from fsmatrix.suite.campaign.yamlio import CampaignError

    for given in _words()[2:]:
        if given.startswith("-"):
            continue
        with contextlib.suppress(ResultError, CampaignError, OSError, ValueError):
            levels_of = _factors(given, ctx.info_name in TAKE_CAMPAIGNS)
            if levels_of:
                return {
                    name: list(dict.fromkeys(its))[:MOST_LEVELS] for name, its in levels_of.items()
                }
    return {}


def _words() -> list[str]:
    """The words before the one that is completed: an unfinished line is not parsed by typer."""
    bash = os.environ.get("COMP_WORDS")
    if bash is not None:
        before = bash.split("\n")[: int(os.environ["COMP_CWORD"])]
    else:
        before = os.environ.get("_TYPER_COMPLETE_ARGS", "").split()
    words = []
    for word in before:
        with contextlib.suppress(ValueError):  # a quote that is still open
            words += shlex.split(word)
    return words


def _factors(given: str, campaign: bool) -> Factors:
    if campaign:
        return _of_yaml(given)
    path = Path(given)
    if not path.is_dir():
        return _of_file(path, follow=True)
    merged = path / "campaign.h5"
    return _of_file(merged, follow=False) if os.path.lexists(merged) else _of_plan(path)


def _of_yaml(given: str) -> Factors:
    """Targets and factors of a campaign's text, as far as it is well formed."""
    from fsmatrix.results.files import safefile
    from fsmatrix.suite.campaign.yamlio import parse

    if given in ready(given):
        text = (files("fsmatrix.jobs") / f"{given}.yaml").read_text(encoding="utf-8")
    else:
        text = safefile.read_text(Path(given), LONGEST_TEXT, follow=True)
    data = parse(text, given).data
    if not isinstance(data, dict):
        return {}
    levels_of = {"target": list(data["targets"])} if isinstance(data.get("targets"), dict) else {}
    own = data.get("factors")
    for name, its in own.items() if isinstance(own, dict) else ():
        levels_of[name] = [str(level) for level in its] if isinstance(its, list) else []
    return levels_of


def _of_plan(store: Path) -> Factors:
    """Of a results directory that was not merged yet: what its plan says."""
    from fsmatrix.results.files import safefile
    from fsmatrix.results.files.schema import from_json
    from fsmatrix.results.files.store import CAMPAIGN

    plan = from_json(safefile.read_text(store / CAMPAIGN, LARGEST))
    cases = plan.get("cases") if isinstance(plan, dict) else None
    levels_of: dict[str, list[str]] = {}
    for case in cases if isinstance(cases, list) else ():
        own = case.get("coordinates") if isinstance(case, dict) else None
        for name, level in own.items() if isinstance(own, dict) else ():
            levels_of.setdefault(name, []).append(_level(name, level))
    return levels_of


def _of_file(path: Path, follow: bool) -> Factors:
    import numpy as np

    from fsmatrix.results.files import campaignread

    if path.stat().st_size > LARGEST:
        return {}
    with campaignread.opened(path, follow).file as file:
        columns = json.loads(file.attrs["factors"]) | {"phase": "phase"}
        return {
            name: [_level(name, value) for value in np.unique(file[column][...]).tolist()]
            for name, column in columns.items()
        }


def _level(name: str, level: Any) -> str:
    """A level as it is typed behind --where."""
    from fsmatrix.analysis.units import level_text

    text = level.decode("utf-8", "replace") if isinstance(level, bytes) else level
    plain = text if isinstance(text, str | int | float) else str(text)
    return level_text(name, plain).replace(" ", "")
