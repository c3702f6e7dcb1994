"""An emulated bare device: a throttled loop device on an image of the suite's own."""

from __future__ import annotations

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import images, loop
from fsmatrix.backends.local.devices import limits
from fsmatrix.backends.local.devices.bare.options import EmulatedDevice
from fsmatrix.backends.system.cgroups.throttle import Limits
from fsmatrix.results.evidence.values import JsonObject, mapping, text, whole


def refusal() -> str:
    """Why it cannot be made here (empty: it can)."""
    return loop.loop_refusal() or limits.refusal()


def make(options: EmulatedDevice, context: ProvisionContext) -> JsonObject:
    """Attach the image (made once, every byte written); not throttled yet."""
    context.state.mkdir(parents=True, exist_ok=True)
    image = images.image_for(context, options.size)
    device, _ = loop.attach(image, context.journal, "required")
    try:
        loop.forbid_discard(device)
    except BaseException:
        loop.detach(device, context.journal, str(image.facts["path"]))
        raise
    rates = Limits(read_operations=options.iops.read, write_operations=options.iops.write)
    return {"device": device, "image": str(image.facts["path"]), "limits": vars(rates)}


def throttle(attached: JsonObject, journal: Journal) -> None:
    """Limit what this process's cgroup does on it."""
    rates = mapping(attached, "limits")
    wanted = Limits(**{name: whole(rates, name) for name in rates})
    limits.impose(text(attached, "device"), wanted, journal)


def lift(attached: JsonObject, journal: Journal) -> None:
    """Undo `throttle`; harmless where that is done."""
    limits.lift(text(attached, "device"), journal)


def release(attached: JsonObject, journal: Journal) -> None:
    """Lift the limit and detach it; the image stays until the campaign ends."""
    lift(attached, journal)
    loop.detach(text(attached, "device"), journal, text(attached, "image"))
