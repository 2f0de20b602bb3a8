"""Rules on roles: steps, schedule, warps, registers, barriers."""

from __future__ import annotations

from collections.abc import Iterator

from pipelink.abi import ROLE_THREADS
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.model import Instance
from pipelink.place.warps import block_warps
from pipelink.view import End, View, who

SETMAXNREG = (24, 256, 8)


def steps(view: View) -> Iterator[Diagnostic]:
    """Each step is an entry of its component, and an instance stands in one role."""
    path = view.kernel.manifest.path
    seen: dict[str, str] = {}
    for phase in view.kernel.manifest.phases:
        repeated: set[tuple[str, str]] = set()
        for role in phase.roles:
            for name, entry in role.steps:
                instance = view.kernel.instance(name)
                found = view.entry(instance, entry)
                if found is None or found[1].kind != "step":
                    yield _no_step(path, role.name, instance, entry)
                if role.steps.count((name, entry)) > 1 and (name, entry) not in repeated:
                    repeated.add((name, entry))
                    yield Diagnostic(
                        "PL023",
                        f"role '{role.name}' runs '{name}.{entry}' "
                        f"{role.steps.count((name, entry))} times a tile",
                        FilePlace(path, f"{name}.{entry}"),
                        help="name each step once; a second instance of the object runs it again",
                    )
                if seen.setdefault(name, role.name) != role.name:
                    yield Diagnostic(
                        "PL023",
                        f"{who(instance)} runs in role '{seen[name]}' and in role '{role.name}'",
                        FilePlace(path, f"{name}.{entry}"),
                        help=f'give one of the roles an instance of its own: like = "{name}"',
                    )


def _no_step(path: str, role: str, instance: Instance, entry: str) -> Diagnostic:
    known = {
        e.name: Place(instance.name, "entries", n, f"step '{e.name}'")
        for n, e in enumerate(instance.contract.entries)
        if e.kind == "step"
    }
    return Diagnostic(
        "PL016",
        f"role '{role}' runs '{instance.name}.{entry}', and {who(instance)} has no such step",
        FilePlace(path, f"{instance.name}.{entry}"),
        tuple(known.values()),
        help=f"its steps: {', '.join(known) or 'none'}",
    )


def schedule(view: View) -> Iterator[Diagnostic]:
    """A phase's tile schedule is an entry that is one."""
    for name, entry in view.kernel.manifest.schedules:
        instance = view.kernel.instance(name)
        found = view.entry(instance, entry)
        if found is None or found[1].kind != "schedule":
            offers = [
                f"{i.name}.{e.name}"
                for i in view.kernel.instances
                for e in i.contract.entries
                if e.kind == "schedule"
            ]
            yield Diagnostic(
                "PL029",
                f"{who(instance)} has no schedule '{entry}'",
                FilePlace(view.kernel.manifest.path, "schedule"),
                help=f"schedules in this kernel: {', '.join(offers) or 'none'}",
            )


def warps(view: View) -> Iterator[Diagnostic]:
    """All steps of a role run on the same warps."""
    for role in view.kernel.manifest.roles:
        claims = [
            (i, (index, view.value(i, claim.amount)))
            for i in view.role_instances(role.name)
            for index, claim in view.claims_of(i)
            if claim.kind == "warps"
        ]
        for instance, (index, amount) in claims[1:]:
            first, (first_index, first_amount) = claims[0]
            if amount != first_amount:
                yield Diagnostic(
                    "PL023",
                    f"role '{role.name}' has {first_amount} warps by {who(first)}, "
                    f"and {amount} by {who(instance)}",
                    Place(instance.name, "claims", index),
                    (
                        Place(first.name, "claims", first_index),
                        *view.causes(instance, instance.contract.claims[index].amount),
                        *view.causes(first, first.contract.claims[first_index].amount),
                    ),
                    help="put the steps into roles of their own, or choose facts with which they agree",
                )


def register_values(view: View) -> Iterator[Diagnostic]:
    """Where one role has all threads, registers stay as launched and any number will do."""
    low, high, step = SETMAXNREG
    if not view.arch.setmaxnreg or len(view.kernel.manifest.roles) == 1:
        high, step = view.arch.registers_per_thread, 1
    for instance, index, claim in view.claims("registers"):
        amount = view.value(instance, claim.amount)
        if low <= amount <= high and amount % step == 0:
            continue
        why = (
            f"{amount} < {low}"
            if amount < low
            else f"{amount} > {high}"
            if amount > high
            else f"{amount} % {step} != 0"
        )
        nearest = max(low, min(high, -(-amount // step) * step))
        yield Diagnostic(
            "PL034",
            f"{who(instance)} claims {amount} registers a thread: {why}",
            Place(instance.name, "claims", index),
            view.causes(instance, claim.amount),
            notes=(
                f"a role's registers are {low} to {high}"
                + (f" in steps of {step}" if step > 1 else ""),
            ),
            help=f"claim {nearest}",
        )


def registers_move(view: View) -> Iterator[Diagnostic]:
    """setmaxnreg is for all roles or for none: a claim that changes nothing is told."""
    names = [r.name for r in view.kernel.manifest.roles]
    claims = {n: [view.claim(i, "registers") for i in view.role_instances(n)] for n in names}
    if not view.arch.setmaxnreg or len(names) == 1 or not any(any(c) for c in claims.values()):
        return
    path, warps_ = view.kernel.manifest.path, block_warps(view)
    if warps_ % 4:
        message = f"registers do not move between roles, as a block of {warps_} warps has no whole warpgroups"
        yield Diagnostic("PL031", message, FilePlace(path, "roles"), remark=True)
    for name in names:
        if not any(claims[name]):
            message = f"registers do not move between roles, as role '{name}' claims none"
            yield Diagnostic("PL031", message, FilePlace(path, name), remark=True)


def barrier_threads(view: View) -> Iterator[Diagnostic]:
    """A named barrier that waits for more threads than its role has never opens."""
    for instance, index, claim in view.claims("barrier"):
        role = view.role_of(instance)
        if not role:
            continue
        of = "warpgroup of " if claim.scope == "warpgroup" else ""
        threads, have = view.barrier_threads(instance, claim), 32 * view.warps(role)
        have = min(have, 128) if of else have
        if threads > have or threads % 32 or threads <= 0:
            yield Diagnostic(
                "PL032",
                f"barrier '{claim.name}' of {who(instance)} is for {threads} threads, "
                f"{'a ' + of if of else ''}its role '{role}' has {have}",
                Place(instance.name, "claims", index),
                view.causes(instance, claim.amount, ROLE_THREADS),
                help=f"claim it for {have} threads" if threads > have else "claim whole warps",
            )


# Who arrives at a ring where one thread runs the step: the glue elects it, and the header another.
ALONE = ("copies",)


def one_thread(view: View) -> Iterator[Diagnostic]:
    """A step that one thread runs has no registers of the role, and arrives for itself."""
    for instance in view.kernel.instances:
        for index, entry in view.run_entries(instance):
            if entry.threads != "one":
                continue
            ends = [view.end(f"{instance.name}.{name}") for name in entry.arguments]
            for end in filter(None, ends):
                if end.kind == "fragment":
                    what = f"takes '{end.port.name}', which all threads of the role have"
                elif end.kind == "ring" and end.port.by not in ALONE:
                    what = f"arrives at '{end.port.name}' by {end.port.by.replace('_', ' ')}"
                else:
                    continue
                yield Diagnostic(
                    "PL037",
                    f"step '{entry.name}' of {who(instance)} is run by one thread, and {what}",
                    Place(instance.name, "entries", index),
                    (end.place,),
                    help="let all threads of the role run it",
                )
    yield from _ring_of_some(view)
    yield from _met_by_one(view)


def _met_by_one(view: View) -> Iterator[Diagnostic]:
    """A named barrier that only steps of one thread use waits for threads that never come."""
    for instance, index, claim in view.claims("barrier"):
        using = [e for _, e in view.run_entries(instance) if e.name in claim.during]
        if using and all(e.threads == "one" for e in using):
            count = view.barrier_threads(instance, claim)
            yield Diagnostic(
                "PL037",
                f"barrier '{claim.name}' of {who(instance)} is for {count} threads, and step "
                f"'{using[0].name}', which meets there, is run by one",
                Place(instance.name, "claims", index),
                help="let all threads of the role run it, or leave the barrier out",
            )


def _ring_of_some(view: View) -> Iterator[Diagnostic]:
    """A ring's state is each thread's own: steps that one thread runs and steps that all run would not
    agree on the stage."""
    for end in view.ports("shared"):
        taking = [
            (n, e)
            for n, e in view.run_entries(end.instance)
            if end.port.name in e.arguments and e.kind == "step"
        ]
        if end.kind == "ring" and len({e.threads for _, e in taking}) > 1:
            one = next(e for _, e in taking if e.threads == "one")
            other = next(e for _, e in taking if e.threads != "one")
            yield Diagnostic(
                "PL037",
                f"step '{one.name}' of {who(end.instance)} is run by one thread and '{other.name}' by all, and "
                f"both take ring '{end.name}', whose stage each thread keeps for itself",
                end.place,
                tuple(Place(end.instance.name, "entries", n) for n, _ in taking),
                help="let one thread run both, or all threads",
            )


def scopes(view: View) -> Iterator[Diagnostic]:
    """What is one for each warpgroup, or arrives by warpgroups, needs whole warpgroups."""
    for instance in view.kernel.instances:
        role = view.role_of(instance)
        if not role or view.warps(role) % 4 == 0:
            continue
        asked = [
            (f"claim '{c.name}'", Place(instance.name, "claims", n))
            for n, c in view.claims_of(instance)
            if c.scope == "warpgroup" or c.by == "each_warpgroup"
        ]
        asked += [
            (f"port '{p.name}'", Place(instance.name, "ports", n))
            for n, p in enumerate(instance.contract.ports)
            if p.by == "each_warpgroup" and not view.idle(End(instance, n))
        ]
        for title, place in asked:
            yield Diagnostic(
                "PL037",
                f"{title} of {who(instance)} is by warpgroups of 4 warps, its role '{role}' has "
                f"{view.warps(role)}",
                place,
                view.causes(instance, ROLE_THREADS),
                help="claim whole warpgroups, or let each_warp arrive",
            )


def placed(view: View) -> Iterator[Diagnostic]:
    """Every instance runs in a role, or it would be linked for nothing."""
    for instance in view.kernel.instances:
        schedules = {name for name, _ in view.kernel.manifest.schedules}
        if not view.role_of(instance) and instance.name not in schedules:
            yield Diagnostic(
                "PL016",
                f"{who(instance)} stands in no role",
                FilePlace(view.kernel.manifest.path, instance.name),
                help="add one of its steps to a role, or remove the instance",
            )
