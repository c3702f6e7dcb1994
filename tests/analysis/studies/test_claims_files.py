"""Study files: those that come with fsmatrix, faulty ones, and what documentation shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.cli.questions.claims_lessons import claims as command
from fsmatrix.cli.questions.claims_lessons import read_study
from fsmatrix.suite.campaign.yamlio import CampaignError


def test_every_study_that_comes_with_fsmatrix_is_sound() -> None:
    assert claims_files.names() == ["cern", "flash-oltp", "page-cache", "ssd-cluster"]
    for name in claims_files.names():
        assert claims_files.load(name) == read_study(name)


GOOD = """\
study: mine
title: mine
source: {paper: none}
factors:
  interface: {levels: [SATA, PCIe]}
claims:
  - id: one
    says: it is so
    number: n
    place: p
    metric: bandwidth
    where: {interface: SATA}
    compare: {steps: chunk}
    claimed: {low: 1}
"""


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("    number: n\n", "    numbr: n\n"), 9, "unknown key 'numbr' (did you mean 'number'?)"),
        (("metric: bandwidth", "metric: bandwith"), 11, "did you mean 'bandwidth'?"),
        (("{interface: SATA}", "{interface: SAS}"), 12, "no level 'SAS'"),
        (("{interface: SATA}", "{interfaces: SATA}"), 12, "no factor 'interfaces'"),
        (("{steps: chunk}", "{steps: chunk, knee: chunk}"), 13, "give one of"),
        (("{low: 1}", "{low: 3, high: 2}"), 14, "low 3 is above high 2"),
        (("{low: 1}", "{low: fast}"), 14, "fast"),
        ((GOOD[GOOD.index("claims:") :], "claims: []"), 1, "at least one claim"),
        (("claims:\n", "claims: [\n"), 0, "not valid YAML"),
    ],
)
def test_bad_study(tmp_path: Path, change: tuple[str, str], line: int, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(CampaignError) as refused:
        read_study(str(path))
    assert words in str(refused.value)
    assert len(refused.value.problems) <= 2  # what is wrong, and nothing that follows from it
    assert f"mine.yaml:{line or ''}" in str(refused.value)


def test_unknown_study_and_good_file(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="did you mean 'ssd-cluster'"):
        read_study("ssd-clster")
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert read_study(str(path)).claims[0].id == "one"


def test_command(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    picture = tmp_path / "claims.png"
    arguments = ["cern", "published:cern-lhcb-rntuple", "--json", "--figure", str(picture)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = {one["claim"]: one for one in json.loads(done.stdout)["claims"]}
    six = found["cascade-over-ice-uncompressed-writes"]
    assert six["verdict"] == "cannot be tested"
    assert six["apparent"] is True
    assert found["ice-wins-at-4m"]["apparent"] is False
    assert picture.stat().st_size > 1000
    one = CliRunner().invoke(app, [*arguments[:2], "--claim", "second-trial-zstd-reads"])
    assert "as claimed in 3 of 8 cells, not in page size 4 MiB, object class RP_XSF" in one.stdout
    assert one.stdout.count("(may be chance)") == 8
    assert "second-trial-zstd-writes" not in one.stdout
    unknown = CliRunner().invoke(app, [*arguments[:2], "--claim", "third-trial"])
    assert "no claim 'third-trial': there are dfs-over-dfuse" in str(unknown.exception)
    shown = CliRunner().invoke(app, ["page-cache", "published:ssd-per-hba"])
    assert "one value per cell" in shown.stdout
    refused = CliRunner().invoke(app, ["page-cache", "published:nothing"])
    assert isinstance(refused.exception, CampaignError)


DOCS = (Path(__file__).parents[3] / "docs" / "claims.md").read_text(encoding="utf-8")


def test_examples_of_the_documentation(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    exec(compile(program, "claims.md", "exec"), {})
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    path = tmp_path / "mine.yaml"
    path.write_text(example)
    assert read_study(str(path)).claims[0].quantifier == "range"
    for name in claims_files.names():
        assert f"`{name}`" in DOCS
