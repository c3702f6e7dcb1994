"""The text of job scripts: recorded files for several sites, and quoting."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.slurm import submitting
from fsmatrix.slurm.scheduler import BatchJob
from fsmatrix.slurm.slurm import Slurm, sbatch_word, script_text, time_text
from fsmatrix.slurm.submitting import Submitter
from fsmatrix.suite.campaign.yamlio import CampaignError, Tree
from fsmatrix.suite.plan.plan import Installation, Plan, build_plan

DATA = Path(__file__).parent.parent / "data" / "slurm"
SITES = ("plain", "cray", "conda", "apptainer")
JOB = BatchJob(
    name="n",
    token="t",
    about=("x",),
    command=("true",),
    directory=Path("/d"),
    log="a-%j.log",
    seconds=60,
)


def planned(site: Path | None, **changes: str) -> Plan:
    from fsmatrix.suite.plan.plan import Request

    sets = tuple(f"{name.replace('__', '.')}={value}" for name, value in changes.items())
    environ = {"FSMATRIX_SITE": str(site) if site else ""}
    return build_plan(
        DATA / "campaign.yaml",
        Request(sets),
        installation=Installation(user=Tree(), environ=environ),
        here=False,
    )


def scripts(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.setattr(submitting.files, "new_token", lambda: "0a1b2c3d")
    monkeypatch.setattr("fsmatrix.slurm.submitting.sys.executable", "/opt/fsmatrix/bin/python")
    return dict(Submitter(Slurm()).rehearse(plan, Path("/scratch/me/out"), Path("/home/me")))


@pytest.mark.parametrize("site", SITES)
def test_the_scripts_are_those_that_were_recorded(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read the recorded files as a user would; after a wanted change, write them anew."""
    made = scripts(planned(DATA / f"{site}.yaml"), monkeypatch)
    for recorded in sorted((DATA / site).glob("*.sh")):
        assert made[recorded.stem] == recorded.read_text(), recorded
    assert len(list((DATA / site).glob("*.sh"))) == 2  # a job, and the one that collects


def test_jobs_of_a_block_stand_together_one_system_and_node_count_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scripts(planned(None), monkeypatch)
    blocks = [key.rpartition("-b")[2] for key in made]
    assert blocks == ["0-0"] * 4 + ["1-1"] * 4 + ["collect"]
    found = sorted(
        (
            text[text.index("--job-name=") :].split()[0],
            text[text.index("--nodes=") :].split()[0],
            text[text.index("--blocks") :].split()[1],
        )
        for key, text in made.items()
        if key != "collect"
    )
    assert found == [
        (f"--job-name=fsmatrix-{system}", f"--nodes={nodes}", block)
        for system in ("ceph-a", "daos-b")
        for nodes in (1, 4)
        for block in ("0-0", "1-1")
    ]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("slurm__job-name", "x", "cannot be set here: it keeps jobs of one storage system apart"),
        ("slurm__comment", "x", "it identifies a job whose submission was interrupted"),
        ("slurm__ntasks_per_node", "4", "the campaign's geometry says it"),
        ("slurm__a b", "x", "is not an option of sbatch"),
        ("slurm__qos", '"a\\nb"', "must be one line of printable characters"),
        ("slurm__mail-user", '"a\\nb"', "must be one line of printable characters"),
        ("slurm__directives", '["#SBATCH --x"]', "write it as a key of this section"),
        ("slurm__directives", '["rm -rf x"]', "is not a directive"),
        ("slurm__directives", '["#PBS -o /etc/motd"]', "is not a directive"),
        ("slurm__directives", '["#BSUB -o /etc/motd"]', "is not a directive"),
        ("slurm__outpu", "/etc/motd", "sbatch takes it for output"),
        ("slurm__wra", "reboot", "sbatch takes it for wrap"),
        ("slurm__export_file", "x", "a file that Slurm would read"),
        ("slurm__expor", "NONE", "jobs would not do what was planned"),
        ("slurm__uid", "0", "as the user who submits them"),
        ("slurm__Output", "x", "must find what jobs print"),
        ("slurm__environment", "{a-b: c}", "is not the name of a variable"),
        ("slurm__gres", "[1]", "must be text, a number, true or false"),
        ("slurm__parallel", "0", "greater than or equal to 1"),
        ("slurm", "{venv: a, conda: b}", "exclude each other"),
    ],
)
def test_bad_settings_are_named(setting: str, value: str, said: str) -> None:
    with pytest.raises(CampaignError, match="slurm") as caught:
        planned(None, **{setting: value})
    assert said in str(caught.value)


def test_what_the_site_does_not_have_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = DATA / "cray.yaml"
    with pytest.raises(CampaignError, match=r"no partition 'standrad' \(did you mean 'standard'"):
        scripts(planned(site, slurm__partition="standrad"), monkeypatch)
    with pytest.raises(CampaignError, match="at most 1 hours"):
        scripts(planned(site, slurm__time="2h"), monkeypatch)
    with pytest.raises(CampaignError, match=r"slurm.partition: a job of 3600 s is too short, 4870"):
        scripts(planned(site, limits__time_per_run="79min"), monkeypatch)
    with pytest.raises(CampaignError, match="200 nodes are needed; a job there has 128"):
        scripts(planned(site, factors__nodes="[200]"), monkeypatch)
    with pytest.raises(CampaignError, match=r"cray.yaml:\d+: slurm.licenses: no target is of"):
        scripts(planned(site, targets__ceph__system="ceph-c"), monkeypatch)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_no_text_leaves_its_word(text: str) -> None:
    """What bash reads in the command is what was asked; no text makes a new #SBATCH line."""
    job = dataclasses.replace(JOB, command=("run", text), directory=Path("/") / text, about=(text,))
    made = script_text(job, "a.sh")
    lines = made.split("\n")
    options = [line for line in lines if line.startswith("#SBATCH")]
    exec_line = made[made.index("\nexec ") :]
    assert shlex.split(exec_line) == ["exec", "run", text]
    if text.isprintable():
        spoken = script_text(dataclasses.replace(JOB, options={"qos": text}), "a.sh")
        word = next(line for line in spoken.split("\n") if line.startswith("#SBATCH --qos="))
        assert _as_sbatch_reads(word.removeprefix("#SBATCH ")) == f"--qos={text}"
    else:
        with pytest.raises(ValueError, match="printable"):
            sbatch_word(text)
    assert len(options) == len(
        [line for line in script_text(JOB, "a.sh").split("\n") if line.startswith("#SBATCH")]
    )


def _as_sbatch_reads(text: str) -> str:
    """Quotes hold words together, a backslash holds a character (test_submit.py asks sbatch)."""
    words = shlex.split(text)
    assert len(words) == 1
    return words[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(60, "0-00:01:00"), (86399, "0-23:59:59"), (90061, "1-01:01:01")]
)
def test_times_as_slurm_writes_them(seconds: int, text: str) -> None:
    assert time_text(seconds) == text
