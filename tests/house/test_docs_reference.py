"""docs/campaign.md says what the models say, and every example in the documents is accepted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.contract import BACKENDS
from fsmatrix.suite.campaign.campaign import Campaign
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.site import Site, SiteFile, load_site, load_user
from fsmatrix.suite.campaign.yamlio import Tree, parse
from fsmatrix.suite.plan.plan import Installation, Plan, Request, build_plan
from fsmatrix.suite.registry import WORKLOADS
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "campaign.md"
SCRIPT = ROOT / "docs" / "make_reference.py"
Example = tuple[str, str, Any]  # place, text, data


def examples() -> list[Example]:
    """Every YAML block with its document and line."""
    found = []
    for path in (ROOT / "README.md", PAGE, ROOT / "docs" / "ceph.md"):
        text = path.read_text()
        for block in re.finditer(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            place = f"{path.name}:{text.count(chr(10), 0, block.start(1)) + 1}"
            found.append((place, block[1], parse(block[1], place).data))
    return found


def kind_of(data: dict[str, Any]) -> str:
    """campaign, site, user, or a part of a campaign."""
    if "campaign" in data:
        return "campaign"
    if data.keys() == {"defaults"}:
        return "user"
    return "part" if data.keys() <= Campaign.model_fields.keys() else "site"


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(text, id=place) for place, text, data in examples() if kind_of(data) == kind
    ]


def plan(text: str, *sets: str) -> Plan:
    return build_plan(
        Source(text),
        Request(sets=sets),
        installation=Installation(site=SiteFile(), user=Tree(), root=True),
        here=False,
    )


def reference(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_tables_are_those_of_the_models() -> None:
    done = reference("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_finds_a_difference_and_writing_repairs_it(tmp_path: Path) -> None:
    page = tmp_path / "campaign.md"
    page.write_text(PAGE.read_text().replace("| `chunk` | positive size | `1MiB` |", "| old |"))
    changed = page.read_text()
    assert changed != PAGE.read_text()
    assert reference("--check", str(page)).returncode == 1
    assert page.read_text() == changed
    assert reference(str(page)).returncode == 0
    assert page.read_text() == PAGE.read_text()


def test_every_table_has_its_place_and_every_link_its_heading() -> None:
    text = PAGE.read_text()
    generated = set(re.findall(r"<!-- generated: (\S+) -->", text))
    assert set(WORKLOADS.builtin) <= generated
    keys = {name: tuple(BACKENDS.load(name).Options.model_fields) for name in BACKENDS.builtin}
    assert {keys[name] for name in generated & set(keys)} == set(keys.values())
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= slugs


def test_examples_of_all_kinds_are_there() -> None:
    assert {kind_of(data) for _, _, data in examples()} == {"campaign", "part", "site", "user"}
    pages = {"README.md", "campaign.md", "ceph.md"}
    assert {place.partition(":")[0] for place, _, _ in examples()} == pages


@pytest.mark.parametrize("text", of_kind("campaign"))
def test_campaigns_make_plans(text: str) -> None:
    made = plan(text)
    assert made.cases
    assert made.matrix.impossible == ()


@pytest.mark.parametrize("text", of_kind("part"))
def test_parts_fit_into_the_example(text: str) -> None:
    """Each key of the block replaces the same key of the page's whole campaign."""
    whole = PAGE.read_text().split("## An example")[1].split("```yaml\n")[1].split("```")[0]
    base = ["exclude=[]", "factors={pattern: [seq-read]}"]
    own = [f"{key}={json.dumps(value)}" for key, value in parse(text, "part").data.items()]
    made = plan(whole, *base, *own)
    assert made.cases
    assert parse(text, "part").data.keys() <= made.settings.campaign.model_fields_set


@pytest.mark.parametrize("text", of_kind("site"))
def test_site_files_are_accepted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(text)
    site = load_site(file).site
    assert site != Site()
    assert site.model_fields_set == Site.model_fields.keys()  # the example shows every key


@pytest.mark.parametrize("text", of_kind("user"))
def test_user_files_are_accepted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert load_user(file).data == parse(text, "user").data
