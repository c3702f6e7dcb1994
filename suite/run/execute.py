"""From a plan to its execution: engines, launcher, attachments, lock, recovery."""

from __future__ import annotations

import json
import secrets
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from fsmatrix.backends.journal.proof import PlannedPaths
from fsmatrix.backends.local.provenance import space
from fsmatrix.results.audits import run_audits
from fsmatrix.results.evidence.stored import Json, Stored, read
from fsmatrix.results.files import safefile
from fsmatrix.results.files.lock import ShardLock
from fsmatrix.results.files.safefile import write_whole
from fsmatrix.results.files.schema import from_json
from fsmatrix.results.files.store import CAMPAIGN, Store, StoreError
from fsmatrix.results.process import CurrentJob
from fsmatrix.results.units import format_size, plural
from fsmatrix.suite.campaign.settings import Source, examine
from fsmatrix.suite.campaign.site import quiet
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, refuse
from fsmatrix.suite.cases.resolve import Engines, first_version
from fsmatrix.suite.nodes.node_watch import Asked
from fsmatrix.suite.plan import estimate
from fsmatrix.suite.plan.as_json import deployment_of, plan_json
from fsmatrix.suite.plan.choice import LeftOut
from fsmatrix.suite.plan.order import Plot
from fsmatrix.suite.plan.plan import Plan, Request, build_plan, lasting
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.conductor import Attachment, Conductor
from fsmatrix.suite.run.events import Event, Listener
from fsmatrix.suite.run.launching import Batch, choose_launcher
from fsmatrix.suite.run.record_writer import Summary
from fsmatrix.suite.session.programs import StopFlag

# bytes, the least: files of runs of one process; campaign.h5 and report.html of one run
RUN_BYTES = 40_000
WHOLE_BYTES = 6_000_000
MOST_TOLD = 3  # settings


@dataclass(frozen=True)
class StoredRequest(Stored):
    """How the campaign of a directory was asked for."""

    sets: tuple[str, ...]
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoredPlan(Stored):
    """What a resume needs of campaign.json (plan/as_json.py)."""

    campaign: str
    seed: int
    fingerprint: str
    source: Source
    request: StoredRequest
    left_out: tuple[LeftOut, ...] = ()
    repetitions: int = 0
    looks: tuple[int, ...] = ()  # numbers of repetitions at which the data were looked at


@dataclass(frozen=True)
class Options:
    """How `fsmatrix run` was asked to go about it."""

    resume: bool = False
    retry_failed: bool = False
    batch: Batch = field(default_factory=Batch)  # whose job this is


def open_store(plan: Plan, out: Path, resume: bool) -> Store:
    """The store of a plan: new, or with `resume` the one that holds the same campaign.

    More repetitions than before are a new look at its data: campaign.json keeps them all
    (`looks`), so that a comparison can count them.
    """
    part = plan.request.shard != (1, 1) or plan.request.blocks is not None
    if reason := _no_room(plan, out):
        raise StoreError(out, reason)
    store = Store.create(out, exist_ok=resume or part)
    stored = store.directory / CAMPAIGN
    repetitions = plan.settings.campaign.repetitions
    looks: tuple[int, ...] = (repetitions,)
    text: dict[str, Json] = {}
    if stored.exists():
        before = _stored(out)
        if before.fingerprint != plan.fingerprint:
            raise refuse(
                Origin(str(out)),
                "",
                f"holds another campaign ({before.campaign}, seed {before.seed}): "
                f"{_differences(before, plan)}; resume it with the same campaign and settings "
                f"(fsmatrix run -o {out} --resume), or choose another directory",
            )
        looks = _looks(store, before.looks, repetitions)
        if looks != before.looks:
            text = from_json(safefile.read_text(stored))
    if plan.request.is_whole or not stored.exists():
        text = plan_json(plan)
    if text:
        write_whole(stored, json.dumps(text | {"looks": looks}).encode())
    return store


def _differences(before: StoredPlan, plan: Plan) -> str:
    """The first settings that differ, as they were and are now."""
    then, _ = examine(before.source, before.request.sets)
    old, new = ({} if each is None else dict(lasting(each)) for each in (then, plan.settings))
    old["seed"], new["seed"] = before.seed, plan.seed
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    told = [f"{name} was {old.get(name)} and is {new.get(name)}" for name in names[:MOST_TOLD]]
    told += [f"{plural(len(names) - len(told), 'other setting')} too"] * (len(names) > len(told))
    return ", ".join(told) or "its settings mean something else in this version or at this site"


def _no_room(plan: Plan, out: Path) -> str:
    """Why the least that is still to be written does not fit beside images (empty: it does)."""
    begun = is_stored(out)
    left = plan.estimate.runs - (len(Store.open(out).ids()) if begun else 0)
    if left <= 0:
        return ""
    images = sum(
        member.foreseen().state_bytes for member in plan.members.targets if member.testbed is None
    ) - sum(file.stat().st_size for file in (out / "state").rglob("*.img"))
    needed = WHOLE_BYTES + RUN_BYTES * left
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    room = space(place)
    if room.bytes is None or needed + max(images, 0) <= room.bytes:
        return ""
    beside = f" beside images of {format_size(images, 1)}" if images > 0 else ""
    return (
        f"the results of {plural(left, 'run')} need {format_size(needed, 1)} or more"
        f"{beside}; {place} has {format_size(room.bytes, 1)} free ({room.source}): "
        + ("make room there" if begun else "choose another directory (-o)")
    )


def _looks(store: Store, before: Sequence[int], repetitions: int) -> tuple[int, ...]:
    """Numbers of repetitions at which the data were or will be looked at, those of `before` first.

    A look that was planned and not reached is one at what was reached.
    """
    *earlier, last = before
    if repetitions <= last:
        return (*earlier, last)
    reached = min(last, store.repetitions())
    last_but_one = (reached,) if reached > max(earlier, default=0) else ()
    return (*earlier, *last_but_one, repetitions)


def _stored(out: Path) -> StoredPlan:
    """campaign.json of a directory; StoreError if it is damaged, NotTrusted if not ours."""
    safefile.require_trusted(out)
    try:
        stored = read(StoredPlan, from_json(safefile.read_text(out / CAMPAIGN)), CAMPAIGN)
    except ValueError as error:
        raise StoreError(
            out / CAMPAIGN,
            f"damaged: remove it and resume with the campaign's own file and seed ({error})",
        ) from error
    return stored if stored.looks else replace(stored, looks=(stored.repetitions,))


def is_stored(out: Path) -> bool:
    """Whether a directory holds a campaign."""
    return (out / CAMPAIGN).exists()


def continued(out: Path, request: Request) -> Request:
    """The request, with what was decided when the campaign of a directory began."""
    before = _stored(out)
    return replace(
        request,
        seed=before.seed if request.seed is None else request.seed,
        targets=before.request.targets,
        left_out=tuple((left.target, left.reason) for left in before.left_out),
    )


def stored_plan(
    out: Path, request: Request, here: bool = True, choose_here: bool | None = None
) -> Plan:
    """The plan that a directory holds, made again from its own text and settings."""
    stored = _stored(out)
    sets = stored.request.sets + request.sets
    again = replace(continued(out, replace(request, seed=None)), sets=sets)
    return build_plan(stored.source, again, here=here, choose_here=choose_here)


def execute(plan: Plan, out: Path, options: Options, tell: Listener) -> Summary:
    """Run a plan (one shard of it) into its store; CampaignError or ResultError if refused."""
    if plan.agreements:
        tree = plan.settings.tree
        raise CampaignError(
            tree.problem(("targets", names[0], "options"), f"(of {', '.join(names)}) {text}")
            for text, names in plan.agreements.items()
        )
    run_audits()  # a broken one is refused now, not after the first run
    launcher = choose_launcher(plan, options.batch)
    store = open_store(plan, out, options.resume)
    k, n = plan.request.shard
    batch = options.batch
    lock = ShardLock(store.directory, k, n, batch.job, batch.ended, plan.request.blocks)
    with lock, StopFlag() as stop:
        conductor = Conductor(
            store,
            settings_of(plan, store.directory, options),
            launcher,
            named_of(plan),
            stop,
            tell,
            lock.lost,
        )
        conductor.recover()
        return conductor.run(attachments(plan, store, stop, tell, batch.job))


def rehearse(plan: Plan) -> Iterator[tuple[Plot, list[str]]]:
    """What a run would make and remove for each attachment, in order; nothing is done.

    Names that a run makes hold its tag and random digits; here they say dry-run.
    """
    for plot in plan.plots():
        member = plan.target(plot.target)
        if member.testbed is None:
            commands = member.backend(member.options).commands(
                plot.level, plan.block_seed(plot.block)
            )
            yield plot, commands


def settings_of(plan: Plan, out: Path, options: Options) -> Settings:
    """What holds for all runs of a campaign."""
    campaign, site = plan.settings.campaign, plan.settings.site
    return Settings(
        time_per_run=campaign.limits.time_per_run,
        settle_timeout=campaign.settle.timeout,
        time_without_progress=campaign.limits.time_without_progress,
        cache_method=campaign.cache_method,
        affinity=campaign.affinity,
        client_ceiling=campaign.client_ceiling,
        sources=campaign.monitor.sources,
        monitor=Asked(
            campaign.monitor.interval, campaign.monitor.nodes, prometheus=site.site.prometheus or ""
        ),
        bytes_limit=plan.settings.bytes_limit,
        refused=lambda path: site.forbidden(path) or site.unmounted(path),
        out=out,
        in_job=bool(options.batch.job),
        retry_failed=options.retry_failed,
    )


def named_of(plan: Plan) -> PlannedPaths:
    """Images and devices that the plan names: only there may leftovers be, beside the store."""
    options = {target.name: target.options for target in plan.members.targets}
    places = {
        kind: {name: str(getattr(of_target, kind, "")) for name, of_target in options.items()}
        for kind in ("image", "device")
    }
    return PlannedPaths(places["image"], places["device"])


def attachments(
    plan: Plan, store: Store, stop: StopFlag, tell: Listener, batch_job: CurrentJob
) -> Iterator[Attachment]:
    """The plan's plots in order, as the conductor wants them; waits in quiet hours."""
    engines = Engines(plan.settings.campaign.engines)
    for plot in plan.plots():
        _wait_for_quiet_hours(plan, stop, tell)
        store.require()
        member = plan.target(plot.target)
        # a resumed plot is attached anew: its runs are of another attachment
        name = f"{plot.attachment}-{secrets.token_hex(3)}"
        specs = [
            replace(_spec(plan, store, plot, index, name, engines), batch_job=batch_job.id)
            for index in range(len(plot.runs))
        ]
        yield Attachment(
            name=name,
            block=plot.block,
            target=plot.target,
            backend=member.backend(member.options),
            level=plot.level,
            geometry=plot.geometry,
            specs=specs,
            provision_options={"device_state": plot.key.device_state},
            block_seed=plan.block_seed(plot.block),
            testbed=member.testbed,
            planned=deployment_of(member, plot.level),
        )


def _spec(
    plan: Plan, store: Store, plot: Plot, index: int, attachment: str, engines: Engines
) -> RunSpec:
    planned, repetition = plot.runs[index]
    assert planned.work is not None
    extra = {"reference": True} if planned.reference else {}
    engine = engines.get(planned.engine)
    before = first_version(store.directory, engine)
    return RunSpec(
        case=planned.case,
        workload=planned.work,
        engine=engine,
        engine_before=before if before != engine.version else "",
        coordinates={**planned.coordinates, **extra},
        repetition=repetition,
        attempt=store.next_attempt(planned.case.case_id, repetition),
        block=plot.block,
        attachment=attachment,
        campaign_seed=plan.seed,
        realised=planned.realised,
        closed_loop=planned.closed_loop,
        limits=estimate.of_target(
            plan.target(plot.target),
            plot.level,
            plan.settings.site.site,
            planned.case.geometry.nodes,
        ),
    )


def _wait_for_quiet_hours(plan: Plan, stop: StopFlag, tell: Listener) -> None:
    is_told = False
    while (end := quiet(plan.settings.site.site, datetime.now().astimezone())) is not None:
        if not is_told:
            tell(Event("waiting", f"quiet hours of this site until {end.isoformat()}"))
            is_told = True
        left = (end - datetime.now().astimezone()).total_seconds()
        if select.select([stop], [], [], min(60.0, max(left, 0.1)))[0]:
            return  # the conductor sees the signal
