"""The documents hang together: links and anchors lead somewhere, commands and options exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fsmatrix.cli.app import app
from fsmatrix.results.files.schema import CAMPAIGN_FORMAT

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
# what every page of docs/ has below its title
EVERYWHERE = (
    "[Docs](README.md) · [install](install.md) · [words](glossary.md) · [troubles](troubles.md)"
)
WORDS = (
    "campaign target backend access workload engine factor level case run block plot attachment "
    "session phase geometry finding audit realised reference launcher scheduler store"
)
PROGRAM: Any = typer.main.get_command(app)
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)


def prose(text: str) -> str:
    """Without blocks of code."""
    return FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Targets of links and pictures that are no web addresses."""
    found = re.findall(r"\]\(([^)\s]+)\)", SPAN.sub("", prose(text)))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: dict[str, int] = {}
    made = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose(text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = found.get(slug, 0)
        found[slug] = number + 1
        made.add(f"{slug}-{number}" if number else slug)
    return made


def broken(page: Path, text: str) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            yield link
        elif anchor:
            there = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


def test_a_broken_link_is_found() -> None:
    text = (
        "# A *title*, twice\n# A title twice\n[a](#a-title-twice) [b](#a-title-twice-1) [c](#no)\n"
        "[d](no.md) [e](claims.md#verdicts) [f](claims.md#no) [g](https://x.org/#y) `[h](no)`\n"
        "```\n[i](no)\n# no\n```\n"
    )
    assert list(broken(DOCS / "import.md", text)) == ["#no", "no.md", "claims.md#no"]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_page_leads_to_the_words_and_the_troubles(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    assert title.startswith("# ")
    assert rest.startswith(f"\n{EVERYWHERE}\n\n")


def test_the_index_leads_to_every_page() -> None:
    index = {link.partition("#")[0] for link in links((DOCS / "README.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} <= index
    first = links((ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0])
    assert {"docs/install.md", "docs/README.md", "docs/glossary.md", "docs/troubles.md"} <= {*first}


def test_the_words_are_explained_with_a_place() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\*\*.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    known = {word for names, _, _ in rows for word in re.findall(r"\*\*(.+?)\*\*", names)}
    assert {*WORDS.split(), "test bed"} <= known
    for names, meaning, place in rows:
        assert meaning.endswith("."), names
        assert re.search(r"`.+`|\]\(", place), names


# -- commands ------------------------------------------------------------------------------
def commands(text: str) -> Iterator[list[str]]:
    """Words of every `fsmatrix ...` in blocks and spans of code."""
    blocks = [match.group() for match in FENCE.finditer(text)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = [match[2].replace("\n", " ") for match in SPAN.finditer(prose(text))]
    for line in [*lines, *spans]:
        for part in re.split(r"&&|; |\$ ", line.strip()):
            if not part.strip().startswith("fsmatrix ") or part == CAMPAIGN_FORMAT:
                continue
            try:
                yield shlex.split(part, comments=True)
            except ValueError:  # a part of a command
                continue


def wrong(words: list[str]) -> str:
    """What in a command is no command or option ("": nothing)."""
    here = PROGRAM
    for word in words[1:]:
        if word == "--":  # what follows is another program's
            return ""
        if word.startswith("-"):
            name = word.partition("=")[0]
            known = {option for parameter in here.params for option in parameter.opts}
            known |= {option for parameter in here.params for option in parameter.secondary_opts}
            if name not in known | {"--help", "--version"}:
                return f"{' '.join(words)}: {name}"
        elif hasattr(here, "commands"):
            if word not in here.commands:
                # placeholders and alternatives: `fsmatrix COMMAND`, `testbed up|status|down`
                given = re.split(r"[|,]", word)
                if not word.isupper() and not set(given) <= {*here.commands}:
                    return f"{' '.join(words)}: {word}"
                return ""
            here = here.commands[word]
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [said for words in commands(text) if (said := wrong(words))] == []


def test_a_wrong_command_is_found() -> None:
    text = (
        "```sh\nfsmatrix rnu x\nfsmatrix run x --sett a\n```\n`fsmatrix testbed up ceph --node 3`"
    )
    assert [said for words in commands(text) if (said := wrong(words))] == [
        "fsmatrix rnu x: rnu",
        "fsmatrix run x --sett a: --sett",
        "fsmatrix testbed up ceph --node 3: --node",
    ]
