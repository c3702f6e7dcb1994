"""`fsmatrix bundle` as a user calls it, and what the other group does with the archive."""

import json
import re
import shlex
from itertools import pairwise

import pytest

from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.plan.as_json import plan_json
from fsmatrix.suite.plan.plan import Request, build_plan
from fsmatrix.suite.run.execute import open_store, stored_plan
from tests.analysis import campaigns
from tests.analysis.commands import call
from tests.archives import unpack

SITE = """defaults:
  order: {attachments: 7}
  settle: {timeout: 3s}
"""


def campaign(place):
    return f"""# the study
campaign: compared
targets:
  xfs: {{backend: directory, options: {{path: {place}/geheim1}}}}
  ext4: {{backend: directory, options: {{path: {place}/geheim2}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_total: 1MiB}}}}
factors:
  pattern: [seq-write, rand-write]
"""


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A results directory as a run leaves it, with made-up figures."""
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setenv("FSMATRIX_SITE", str(tmp_path / "site.yaml"))
    for name in ("geheim1", "geheim2"):
        (tmp_path / name).mkdir()
    asked = Request(sets=("repetitions=2",), only=("pattern=seq-write",), seed=11)
    plan = build_plan(Source(campaign(tmp_path), str(tmp_path / "c.yaml")), asked)
    store = open_store(plan, tmp_path / "out", resume=False)
    store.append(campaigns.realistic(targets=("xfs", "ext4"), chunks=(4096,), processes=(1,)))
    monkeypatch.chdir(tmp_path)
    return store.directory


def without_advice(comparisons):
    for one in comparisons:
        assert one["extension"].pop("says")
        one["extension"].pop("command")


@pytest.mark.parametrize("anonymise", [True, False])
def test_the_other_group_sees_the_same(out, tmp_path, monkeypatch, capsys, anonymise):
    words = ["bundle", out, *(["--anonymise"] if anonymise else [])]
    assert call(monkeypatch, *words) == 0
    name = "compared-anonymous" if anonymise else "compared"
    assert f"{name}.tar.gz: " in capsys.readouterr().out
    inside = unpack(tmp_path / f"{name}.tar.gz", tmp_path / "there")
    assert inside.name == name
    for command in (["show"], ["compare"]):
        shown = []
        for place in (out, inside):
            assert call(monkeypatch, *command, place, "--json") == 0
            shown.append(json.loads(capsys.readouterr().out))
        if command == ["compare"]:  # the command that adds blocks is one of the place
            for answer in shown:
                without_advice(answer)
        assert shown[0] == shown[1]
        assert len(json.dumps(shown[0])) > 1000
    assert call(monkeypatch, "report", inside, "-o", tmp_path / "r.html") == 0
    assert "compared" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert ("geheim1" in (tmp_path / "r.html").read_text(encoding="utf-8")) != anonymise


def test_the_command_of_the_readme_makes_the_same_plan(out, tmp_path, monkeypatch):
    """Also where no site file says what the first site's did."""
    before = json.loads((out / "campaign.json").read_text())
    assert call(monkeypatch, "bundle", out) == 0
    inside = unpack(tmp_path / "compared.tar.gz", tmp_path / "there")
    monkeypatch.setenv("FSMATRIX_SITE", "")
    line = re.search(r"^fsmatrix run .*$", (inside / "README.md").read_text(), re.MULTILINE)
    words = shlex.split(line[0])
    given = {o: [v for k, v in pairwise(words) if k == o] for o in ("--seed", "--set", "--only")}
    assert set(given["--set"]) == {"repetitions=2", "order.attachments=7", "settle.timeout=3.0"}
    asked = Request(tuple(given["--set"]), tuple(given["--only"]), (1, 1), int(given["--seed"][0]))
    again = plan_json(build_plan(str(inside.parent / words[2]), asked))
    for name in ("fingerprint", "cases", "order", "repetitions", "seed"):
        assert again[name] == before[name], name
    bare = plan_json(build_plan(str(inside.parent / words[2]), Request(seed=11)))
    assert bare["order"] != before["order"]  # the settings are needed
    assert stored_plan(inside, Request()).seed == 11


def test_json_says_what_was_done(out, tmp_path, monkeypatch, capsys):
    path = sorted(Store.open(out).files())[0]
    path.write_bytes(path.read_bytes()[:100])
    assert (
        call(monkeypatch, "bundle", out, "-o", "x.tgz", "--anonymise", "--no-runs", "--json") == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == "x.tgz"
    assert told["size"] == (tmp_path / "x.tgz").stat().st_size
    assert told["left_out"][0][0].endswith(path.name)
    assert told["replaced"]["host"] >= 1
    assert list((unpack(tmp_path / "x.tgz", tmp_path / "there") / "runs").iterdir()) == []


def test_bad_input_is_a_sentence(out, tmp_path, monkeypatch, capsys):
    (tmp_path / "x.tgz").write_text("mine")
    for words, reason in (
        (["bundle", out, "-o", "x.tgz"], "is there already"),
        (["bundle", tmp_path], "is not a store"),
        (["bundle", out, "-o", "x.zip"], "NAME.tar.gz"),
    ):
        assert call(monkeypatch, *words) == 2
        assert reason in capsys.readouterr().err
    assert (tmp_path / "x.tgz").read_text() == "mine"
