"""Layers of settings, the site file, quiet hours."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.suite.campaign.settings import resolve
from fsmatrix.suite.campaign.site import Site, load_site, quiet
from fsmatrix.suite.campaign.yamlio import CampaignError
from tests.suite.planning_stubs import HEAD, planned, problems, text


def layers(tmp_path: Path, site: str = "", user: str = "", **more: Any) -> dict[str, Any]:
    """Arguments that make these texts the site and the user file."""
    (tmp_path / "site.yaml").write_text(site)
    (tmp_path / "fsmatrix").mkdir(exist_ok=True)
    (tmp_path / "fsmatrix" / "settings.yaml").write_text(user)
    environ = {"FSMATRIX_SITE": str(tmp_path / "site.yaml"), "XDG_CONFIG_HOME": str(tmp_path)}
    return {"environ": environ, **more}


def explained(body: str, **more: Any) -> dict[str, tuple[object, str]]:
    rows = planned(body, **more).settings.explain()
    return {path: (value, origin) for path, value, origin in rows}


def test_a_later_layer_wins_and_every_value_knows_its_origin(tmp_path: Path) -> None:
    more = layers(
        tmp_path,
        site="defaults:\n  repetitions: 7\n  limits: {time_per_run: 5s, space: 1GiB}\n",
        user="defaults:\n  limits:\n    time_per_run: 6s\n  settle: {timeout: 1s}\n",
        sets=["settle.timeout=250ms"],
    )
    found = explained("limits: {bytes_written: 1TiB}\n", **more)
    site, user = tmp_path / "site.yaml", tmp_path / "fsmatrix" / "settings.yaml"
    assert found["repetitions"] == (7, f"{site}:2")
    assert found["limits.space"] == (1 << 30, f"{site}:3")
    assert found["limits.time_per_run"] == (6.0, f"{user}:3")
    assert found["limits.bytes_written"] == (1 << 40, "c.yaml:8")
    assert found["settle.timeout"] == (0.25, "--set settle.timeout=250ms")
    assert found["order.attachments"] == (6, "default")
    assert found["targets.a.backend"] == ("disk", "c.yaml:4")


def test_another_launcher_does_not_inherit_options(tmp_path: Path) -> None:
    site = "defaults: {launcher: {name: srun, options: [--mpi=pmix]}}\n"
    more = layers(tmp_path, site=site)
    assert planned(**more).settings.campaign.launcher.options == ("--mpi=pmix",)
    kept = planned("launcher: {emulated_nodes: 2}\n", **more).settings.campaign.launcher
    assert (kept.name, kept.options, kept.emulated_nodes) == ("srun", ("--mpi=pmix",), 2)
    other = planned("launcher: mpirun\n", **more).settings.campaign.launcher
    assert (other.name, other.options) == ("mpirun", ())
    renamed = planned("launcher: {name: srun, emulated_nodes: 2}\n", sets=["launcher=mpirun"])
    assert renamed.settings.campaign.launcher.name == "mpirun"


def test_the_sites_mpi_presets_the_launcher(tmp_path: Path) -> None:
    found = explained("", **layers(tmp_path, site="modules: [x]\nmpi: {launcher: srun}\n"))
    assert found["launcher.name"] == ("srun", f"{tmp_path / 'site.yaml'}:2")
    assert found["site.modules"] == (["x"], f"{tmp_path / 'site.yaml'}:1")


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ("bytes: 1GiB", "caps.bytes: the campaign writes"),
        ("nodes: 3", "caps.nodes: the campaign uses 4 client nodes; the site allows 3"),
        ("hours: 0.001", "caps.hours: the campaign takes about"),
    ],
)
def test_caps_cannot_be_exceeded_whatever_later_layers_say(
    tmp_path: Path, caps: str, message: str
) -> None:
    body = "limits: {bytes_written: 1EiB}\ngeometry: {nodes: 4, processes_per_node: 4}\n"
    more = layers(tmp_path, site=f"caps:\n  {caps}\n", user="")
    assert f"{tmp_path / 'site.yaml'}:2: {message}" in "\n".join(problems(body, **more))
    refused = problems(body, **layers(tmp_path, site=f"caps:\n  {caps}\n", sets=["caps.bytes=9EB"]))
    assert "unknown key 'caps'" in refused[0]


def test_forbidden_paths_are_refused_also_through_links_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "link"))
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    site = f"forbidden_paths:\n- {tmp_path / 'home'}\n"
    below = [str(tmp_path / path) for path in ("home", "home/x", "link/x/../y")]
    for path in (*below, "~/x", "$HOME", "${TMPDIR}/x", "$TMPDIR"):
        head = HEAD.replace("disk}", f"disk, options: {{path: '{path}'}}}}")
        found = problems(head=head, **layers(tmp_path, site=site))
        assert f"which {tmp_path / 'site.yaml'}:2 forbids" in found[0]
    head = HEAD.replace("disk}", f"disk, options: {{path: {tmp_path / 'homes'}}}}}")
    assert planned(head=head, **layers(tmp_path, site=site)).cases
    monkeypatch.delenv("HOME")  # ~ is known all the same, and what uses the path knows it
    (tmp_path / "home.yaml").write_text(f"forbidden_paths: [{Path.home()}]")
    forbidden = load_site(tmp_path / "home.yaml")
    assert "forbids" in forbidden.forbidden("$HOME/x")
    assert "forbids" in forbidden.forbidden(f"{Path.home()}/$NOT_SET/x")


def test_a_promised_mount_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(f"mounts:\n  {tmp_path}: lustre\n  /proc: proc\n")
    site = load_site(file)
    told = site.unmounted(tmp_path / "below")
    assert told.endswith(f"nothing is mounted at {tmp_path}, {file}:2 promises lustre")
    assert site.unmounted("/proc/self") == ""
    assert site.unmounted("/usr") == ""


@pytest.mark.parametrize(
    ("site", "user", "message"),
    [
        ("defalts: {}\n", "", "unknown key 'defalts' (did you mean 'defaults'?)"),
        ("defaults: {targets: {}}\n", "", "unknown key 'targets'"),
        ("caps: {bytes: 3k}\n", "", "caps.bytes"),
        ("quiet_hours: [{from: 25:00, to: 3:00}]\n", "", "'25:00' is not a time of day"),
        ("quiet_hours: [{from: '22:00', to: '06:00', timezone: Mars}]\n", "", "not a time zone"),
        ("mounts: {scratch: lustre}\n", "", "'scratch' is not an absolute path"),
        ("", "caps: {bytes: 1GB}\n", "belongs to the site file"),
        ("- a\n", "", "must be a mapping"),
    ],
)
def test_a_bad_site_or_user_file_is_named(
    tmp_path: Path, site: str, user: str, message: str
) -> None:
    found = problems(**layers(tmp_path, site=site, user=user))
    name = "settings.yaml:1" if user else "site.yaml:1"
    assert message in found[0]
    assert name in found[0]


def test_a_site_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="cannot be read"):
        resolve(text(), environ={"FSMATRIX_SITE": str(tmp_path / "none")})


def test_set_replaces_what_stands_at_its_path() -> None:
    plan = planned(
        "factors: {chunk: [4KiB, 8KiB]}\nexclude: [{chunk: 4KiB}]\n",
        sets=[
            "factors={chunk: [1KiB]}",
            "exclude.0.chunk=[2KiB,1KiB]",
            "exclude=[]",
            "targets.a.options.size=2GiB",
        ],
    )
    assert {case.coordinates["chunk"] for case in plan.cases} == {1024}
    assert plan.target("a").options.size == 2 << 30
    assert (
        "the list has no such item"
        in problems("exclude: [{chunk: 1}]\n", sets=["exclude.1.chunk=2"])[0]
    )
    assert "not a mapping" in problems(sets=["seed.x=2"])[0]


def test_a_plan_explains_seeds_and_the_defaults_of_options() -> None:
    body = "factors: {chunk: [4KiB]}\n"
    rows = {path: (value, origin) for path, value, origin in planned(body).explain()}
    assert rows["seed"] == (1, "c.yaml:2")
    assert rows["targets.a.options.size"] == (1 << 30, "default")
    assert rows["workloads.io.options.depth"] == (1, "default")
    assert rows["workloads.io.options.chunk"] == (1 << 20, "varied by c.yaml:8")
    assert ("seed", 5, "--seed") in planned(seed=5).explain()
    drawn = [
        row for row in planned(head=HEAD.replace("seed: 1\n", "")).explain() if row[0] == "seed"
    ]
    assert drawn[0][2] == "drawn"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_quiet_hours_cross_midnight_and_join() -> None:
    site = Site.model_validate(
        {
            "quiet_hours": [
                {"days": ["fri"], "from": "22:00", "to": "06:00", "timezone": "UTC"},
                {"days": ["sat"], "from": "06:00", "to": "24:00", "timezone": "UTC"},
            ]
        }
    )
    assert quiet(site, at("2026-07-31 21:59")) is None  # a Friday
    assert quiet(site, at("2026-07-31 22:00")) == at("2026-08-02 00:00")
    assert quiet(site, at("2026-08-01 05:59")) == at("2026-08-02 00:00")
    assert quiet(site, at("2026-08-02 00:00")) is None
    assert quiet(site, at("2026-07-31 05:00")) is None


def test_quiet_hours_are_in_their_own_time_zone() -> None:
    hours = [{"from": "08:00", "to": "09:00", "timezone": "Asia/Tokyo"}]
    site = Site.model_validate({"quiet_hours": hours})
    end = quiet(site, at("2026-07-31 23:30"))
    assert end == at("2026-08-01 00:00")
    assert quiet(load_site(None).site, at("2026-07-31 23:30")) is None
