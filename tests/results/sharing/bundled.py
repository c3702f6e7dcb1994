"""Results in which every field holds a name that must not be in a bundle."""

import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.record import Case, Finding, Latency, Monitor, Phase, RunRecord
from tests.ranks import rank

# made up; none is part of a word that may stay
SECRETS = {
    "host": "mars17",
    "fqdn": "venus.hpc.geheim.example",
    "user": "xaverius",
    "home": "joergina",
    "path": "projekt471",
    "file": "plan9daten",
    "ipv4": "10.47.11.8",
    "ipv6": "2001:db8:47::11",
    "mac": "00:1b:44:11:3a:b7",
    "serial": "S4EVNX0R47",
    "wwid": "naa.5000c500a1b2c3d4",
    "job": "8123456",
    "uuid": "ce350c37-197a-40f6-9b10-8dafde0f8e81",
    "mail": "chef@geheim.example",
    "account": "m2geheim",
    "export": "saturn03",
}


HOST, FQDN, USER, JOB = (SECRETS[name] for name in ("host", "fqdn", "user", "job"))


PATH = f"/lustre/{SECRETS['path']}/{USER}/{SECRETS['file']}"


# one sentence with all of them
SENTENCE = (
    f"{USER} in job {JOB} on {HOST} ({FQDN}, {SECRETS['ipv4']}, [{SECRETS['ipv6']}]:67, "
    f"{SECRETS['mac']}): {PATH} and /home/{SECRETS['home']}/x, disks {SECRETS['serial']} and "
    f"{SECRETS['wwid']}, {SECRETS['uuid']}; {SECRETS['account']} asks {SECRETS['mail']}, "
    f"{SECRETS['export']}:/export"
)


TOLD = {
    "host": HOST,
    "hosts": [FQDN, f"{HOST}ib0"],
    "user": USER,
    "account": SECRETS["account"],
    "serial": SECRETS["serial"],
    "wwid": SECRETS["wwid"],
    "job_id": int(JOB),
    "text": SENTENCE,
    "mount_point": PATH,
    "mount_source": f"{SECRETS['export']}:/{SECRETS['path']}",
    HOST: {"busy": 0.5},
    PATH: [SENTENCE],
    "address": f"{SECRETS['ipv4']}:6789",
}


CAMPAIGN = f"""# by {USER}, {SENTENCE}
campaign: geheim-study
description: "{SENTENCE}"
targets:
  {HOST}: {{backend: directory, options: {{path: {PATH}}}}}
launcher: {{hosts: [{HOST}, {FQDN}]}}
"""


def phase(seed, name="write"):
    random = np.random.default_rng(seed)
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    counts[random.integers(0, histogram.BINS, 50)] = random.integers(1, 99, 50)
    return Phase(
        name,
        start=np.zeros(2),
        end=1 + random.random(2),
        bytes=random.integers(1, 2**40, 2),
        operations=random.integers(1, 2**20, 2),
        errors=np.zeros(2, np.int64),
        began=1.7e9,
        latency={"write": Latency(counts, random.random(), 1e-6, 1e-2)},
        interval=0.1,
        interval_bytes=random.integers(0, 99, 5),
        interval_operations=None,
        errors_by_errno={f"E{HOST}": 1},
        facts=dict(TOLD),
    )


def secretive(repetition):
    """A run with a secret in every field that holds text."""
    case = Case(HOST, "pattern", {"chunk": 4096, "file": PATH}, level={"place": FQDN})
    severity = "invalid" if repetition == 2 else "warning"
    return RunRecord(
        case=case.canonical,
        case_id=case.case_id,
        work_id=case.work_id,
        repetition=repetition,
        attempt=1,
        block=repetition,
        attachment=f"b{repetition:03d}-{HOST}-5073ecf9",
        session=f"s-{HOST}",
        status="failed" if repetition == 1 else "ok",
        engine=f"e-{HOST}",
        engine_version=f"3.33-{HOST}",
        started=f"2026-11-22T02:59:5{repetition}+00:00",
        duration=1.5,
        job=f"{JOB}_{repetition}",
        error=SENTENCE if repetition == 1 else "",
        failure=dict(TOLD),
        argv=((PATH, "--host", HOST, f"--user={USER}"), (SENTENCE,)),
        coordinates={
            "target": HOST,
            "workload": "pattern",
            "chunk": 4096,
            "place": FQDN,
            f"f-{HOST}": PATH,
        },
        environment={"machine": dict(TOLD) | {"cpus": 2, "kernel": "6.1.0"}, **TOLD},
        companions=(f"x-{HOST}",),
        ranks=(rank(HOST, more=TOLD), rank(FQDN)),
        phases=(phase(repetition), phase(repetition, f"p-{HOST}")),
        monitor=Monitor(
            (HOST, FQDN), np.arange(3.0), {f"m-{HOST}": np.ones((2, 3))}, {f"m-{HOST}": f"u-{HOST}"}
        ),
        nodes=Monitor(
            (SECRETS["export"], HOST),
            np.arange(3.0),
            {f"link_sent:l-{HOST}": np.ones((2, 3))},
            {f"link_sent:l-{HOST}": "B s-1"},
        ),
        evidence=read(
            Evidence,
            {
                "cpu": {"write": {HOST: {"busy": 0.5}, FQDN: {"busy": 0.25}}},
                "nodes": {SECRETS["export"]: {"source": "ssh", "why_not": SENTENCE}},
                **TOLD,
            },
            "evidence",
        ),
        findings=(Finding(f"a-{HOST}", 1, severity, SENTENCE, SENTENCE, f"p-{HOST}", TOLD),),
        texts={f"out.{HOST}": f"{SENTENCE}\n" * 200, "plain": SENTENCE},
    )


def plan(text=CAMPAIGN):
    return {
        "campaign": "geheim-study",
        "description": SENTENCE,
        "seed": 7,
        "fingerprint": "f",
        "source": {"file": f"{PATH}/c.yaml", "text": text},
        "request": {
            "sets": [f"targets.{HOST}.options.path={PATH}"],
            "only": [f"target={HOST}"],
            "shard": [1, 4],
        },
        "settings": [
            {"key": "repetitions", "value": 3, "origin": f"/home/{SECRETS['home']}/site.yaml:3"},
            {"key": "cache", "value": "cold", "origin": f"{PATH}/c.yaml:9"},
            {"key": "launcher.hosts", "value": [HOST], "origin": "/etc/fsmatrix/site.yaml:1"},
        ],
        "site": {"slurm": {"account": SECRETS["account"]}},
    }
