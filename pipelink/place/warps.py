"""Warps and registers: roles of one phase stand side by side, roles of different phases may share
warps. Whole warpgroups start at a multiple of four warps, as wgmma and setmaxnreg need them.

Registers move between roles by setmaxnreg, out of a pool that the launch fixes (registers.py), a
warpgroup at a time: roles that share one have the most that any of them claims. A role that does not run
in a phase keeps what it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from pipelink.diagnostics import Diagnostic, FilePlace, Place, Where
from pipelink.model import Instance, RegisterMove
from pipelink.place.pack import Item, pack
from pipelink.place.registers import RoleNeed, excess, largest_fitting, launch_registers, pool
from pipelink.view import View, who

WARPGROUP = 4


@dataclass(frozen=True)
class RolePlace:
    """A role's warps, and why they are there."""

    name: str
    first_warp: int
    warps: int
    reason: str


@dataclass(frozen=True)
class Block:
    """The threads of a block, and what setmaxnreg does at the start of each phase: by (phase, role), and
    with no role for warpgroups that several roles share. `held` are a role's registers in a phase."""

    threads: int
    launch_registers: int
    roles: tuple[RolePlace, ...]
    registers: dict[tuple[str, str], tuple[RegisterMove, ...]]
    held: dict[tuple[str, str], int]


def place_block(view: View, faults: list[Diagnostic]) -> Block:
    """Warps for every role; faults for what does not fit."""
    roles = _warps(view)
    threads = 32 * max((r.first_warp + r.warps for r in roles), default=0)
    blocks = view.kernel.manifest.blocks_per_sm
    misfit = _threads_fault(view, roles, threads)
    if misfit is not None:
        faults.append(misfit)
        return Block(threads, 0, (), {}, {})
    launch = launch_registers(view.arch, threads, blocks)
    return Block(threads, launch, roles, *_registers(view, roles, threads, launch, faults))


def block_warps(view: View) -> int:
    """The warps of the block."""
    return max((r.first_warp + r.warps for r in _warps(view)), default=0)


def _live(view: View, role: str) -> int:
    """The phases in which a role runs, as a bit set."""
    phases = view.kernel.manifest.phases
    return sum(1 << n for n, p in enumerate(phases) if any(r.name == role for r in p.roles))


def _align(warps: int) -> int:
    return WARPGROUP if warps % WARPGROUP == 0 else 1


def _warps(view: View) -> tuple[RolePlace, ...]:
    """In the manifest's order where that takes no more warps than any other."""
    items = [
        Item(r.name, view.warps(r.name), _align(view.warps(r.name)), _live(view, r.name))
        for r in view.kernel.manifest.roles
        if view.warps(r.name) > 0
    ]
    if not items:
        return ()
    packing = pack(items)
    inorder = _in_order(items)
    end = max(inorder[i.name] + i.size for i in items)
    keeps = end <= packing.end
    starts = inorder if keeps else packing.offsets
    why = "in the manifest's order" if keeps else "whole warpgroups first"
    return tuple(
        RolePlace(i.name, starts[i.name], i.size, _shared(items, starts, i) or why) for i in items
    )


def _in_order(items: list[Item]) -> dict[str, int]:
    starts: dict[str, int] = {}
    for item in items:
        taken = [(starts[o.name], o) for o in items if o.name in starts and o.live & item.live]
        start = 0
        while any(s < start + item.size and start < s + o.size for s, o in taken):
            start += item.align
        starts[item.name] = start
    return starts


def _shared(items: list[Item], starts: dict[str, int], item: Item) -> str:
    others = [
        f"'{o.name}'"
        for o in items
        if o is not item
        and not o.live & item.live
        and starts[o.name] < starts[item.name] + item.size
        and starts[item.name] < starts[o.name] + o.size
    ]
    return f"on warps of {', '.join(others)}, which runs in another phase" if others else ""


def _threads_fault(view: View, roles: tuple[RolePlace, ...], threads: int) -> Diagnostic | None:
    arch, blocks = view.arch, view.kernel.manifest.blocks_per_sm
    listing = ", ".join(f"{r.name} {32 * r.warps}" for r in roles)
    places = tuple(dict.fromkeys(_warp_places(view)))
    if not 0 < threads <= arch.threads_per_block:
        return Diagnostic(
            "PL033",
            f"the roles have {threads} threads ({listing}), a block of {arch.name} has "
            f"1 to {arch.threads_per_block}",
            FilePlace(view.kernel.manifest.path, "roles"),
            places,
        )
    most = min(arch.warps_per_sm * 32 // threads, arch.blocks_per_sm)
    if blocks > most:
        return Diagnostic(
            "PL033",
            f"{blocks} blocks of {threads} threads ({listing}) do not fit an SM of {arch.name}: it has "
            f"{arch.warps_per_sm * 32} threads and {arch.blocks_per_sm} blocks",
            FilePlace(view.kernel.manifest.path, "blocks_per_sm"),
            places,
            help=f"at most {most} fit",
        )
    return None


Moved = dict[tuple[str, str], tuple[RegisterMove, ...]]


def _registers(
    view: View,
    roles: tuple[RolePlace, ...],
    threads: int,
    launch: int,
    faults: list[Diagnostic],
) -> tuple[Moved, dict[tuple[str, str], int]]:
    """What setmaxnreg sets, and what roles have then: nothing, where it can't be used or not every role
    says its registers."""
    claims = {r.name: c[2] for r in roles if (c := register_claim(view, r.name))}
    whole = threads % 128 == 0 and len(claims) == len(roles)
    if not (view.arch.setmaxnreg and len(roles) > 1 and whole):
        every = [(r.name, c) for r in roles if (c := register_claim(view, r.name))]
        faults += [_above_launch(view, n, c, launch, threads) for n, c in every if c[2] > launch]
        return {}, {}
    held = dict.fromkeys(range(threads // 128), launch)
    found: Moved = {}
    have: dict[tuple[str, str], int] = {}
    for phase in view.kernel.manifest.phases:
        running = [r for r in roles if any(s.name == r.name for s in phase.roles)]
        governing = _governing(running, claims)
        for name, groups in _batches(running):
            wanted = {g: claims[governing[g]] for g in groups}
            found[phase.name, name] = _moves(wanted, held)
            held |= wanted
        for role in running:
            have[phase.name, role.name] = held[role.first_warp // WARPGROUP]
        needs, idle = _needs(governing, claims, held)
        if excess(view.arch, [*needs, *idle], view.kernel.manifest.blocks_per_sm) > 0:
            faults.append(_too_many_registers(view, needs, idle))
            break
    return found, have


def _needs(
    governing: dict[int, str], claims: dict[str, int], held: dict[int, int]
) -> tuple[list[RoleNeed], list[RoleNeed]]:
    """What the roles of a phase have by whose claim, and what idle warpgroups keep."""
    names = list(governing.values())
    needs = [RoleNeed(n, 128 * names.count(n), claims[n]) for n in dict.fromkeys(names)]
    return needs, [RoleNeed("idle warps", 128, n) for g, n in held.items() if g not in governing]


def warpgroups(role: RolePlace) -> range:
    """The warpgroups that a role has warps of."""
    return range(role.first_warp // WARPGROUP, -(-(role.first_warp + role.warps) // WARPGROUP))


def _own_warps(role: RolePlace) -> range:
    return range(role.first_warp, role.first_warp + role.warps)


def _governing(running: list[RolePlace], claims: dict[str, int]) -> dict[int, str]:
    """For each warpgroup in use the role that claims the most of those in it."""
    found: dict[int, str] = {}
    for role in running:
        for group in warpgroups(role):
            other = found.get(group)
            if other is None or claims[role.name] > claims[other]:
                found[group] = role.name
    return found


def _batches(running: list[RolePlace]) -> Iterator[tuple[str, list[int]]]:
    """Warpgroups that are set together: those with warps of several roles, or idle ones, before the roles
    part, under no name, since all warps of one execute it; then each role's own."""
    own = {
        role.name: [g for g in warpgroups(role) if set(range(4 * g, 4 * g + 4)) <= set(_own_warps(role))]
        for role in running
    }
    every = dict.fromkeys(g for role in running for g in warpgroups(role))
    yield "", [g for g in every if not any(g in groups for groups in own.values())]
    yield from own.items()


def _moves(wanted: dict[int, int], held: dict[int, int]) -> tuple[RegisterMove, ...]:
    """Warpgroups that have another number than they want, those side by side of the same kind at once."""
    found: list[RegisterMove] = []
    for group, registers in wanted.items():
        if held[group] == registers:
            continue
        last = found[-1] if found else None
        first = group * WARPGROUP
        alike = last and (last.held, last.registers) == (held[group], registers)
        if last and alike and last.first_warp + last.warps == first:
            found[-1] = replace(last, warps=last.warps + WARPGROUP)
        else:
            found.append(RegisterMove(first, WARPGROUP, held[group], registers))
    return tuple(found)


def register_claim(view: View, role: str) -> tuple[Instance, int, int] | None:
    """The largest register claim of a role's steps: (instance, index, registers)."""
    found = [(i, *c) for i in view.role_instances(role) if (c := view.claim(i, "registers"))]
    return max(found, key=lambda f: f[2], default=None)


def _claim_places(view: View, needs: list[RoleNeed]) -> list[Where]:
    claims = [register_claim(view, n.name) for n in needs]
    return [Place(c[0].name, "claims", c[1], f"{c[2]} registers a thread") for c in claims if c]


def _register_causes(view: View, needs: list[RoleNeed]) -> Iterator[Where]:
    for need in needs:
        claim = register_claim(view, need.name)
        if claim:
            yield from view.causes(claim[0], claim[0].contract.claims[claim[1]].amount)


def _too_many_registers(view: View, needs: list[RoleNeed], idle: list[RoleNeed]) -> Diagnostic:
    arch, blocks = view.arch, view.kernel.manifest.blocks_per_sm
    every = [*needs, *idle]
    threads = sum(n.threads for n in every)
    total = sum(n.threads * n.registers for n in every)
    listing = " + ".join(f"{n.threads} x {n.registers} ({n.name})" for n in every)
    fits = [(n, largest_fitting(arch, every, n.name, blocks)) for n in needs]
    offers = [_offer(needs, n.name, f) for n, f in fits if f]
    places = _claim_places(view, needs)
    each = launch_registers(arch, threads, blocks)
    return Diagnostic(
        "PL031",
        f"the roles claim {total} registers, the pool has {pool(arch, threads, blocks)}: {listing}",
        places[0],
        (*places[1:], *dict.fromkeys(_warp_places(view)), *_register_causes(view, needs)),
        notes=(f"a launch of {threads} threads has {each} each",),
        help=f"what fits: {', or '.join(offers)}" if offers else "use fewer roles or smaller tiles",
    )


def _offer(needs: list[RoleNeed], name: str, fitting: int) -> str:
    """The registers of every role, with those of role `name` lowered to what fits."""
    return " and ".join(f"{fitting if n.name == name else n.registers} ({n.name})" for n in needs)


def _warp_places(view: View) -> Iterator[Where]:
    """The claims that make the block as large as it is."""
    for instance, index, claim in view.claims("warps"):
        threads = 32 * view.value(instance, claim.amount)
        yield Place(instance.name, "claims", index, f"{threads} threads of '{instance.name}'")
        yield from view.causes(instance, claim.amount)


def _above_launch(
    view: View, role: str, claim: tuple[Instance, int, int], launch: int, threads: int
) -> Diagnostic:
    instance, index, registers = claim
    return Diagnostic(
        "PL031",
        f"role '{role}' needs {registers} registers a thread by {who(instance)}, a launch of {threads} "
        f"threads has {launch}",
        Place(instance.name, "claims", index),
        (
            *view.causes(instance, instance.contract.claims[index].amount),
            *dict.fromkeys(_warp_places(view)),
        ),
        notes=(f"{registers} x {threads} = {registers * threads}, of {launch * threads}",),
        help="registers move between roles only if each claims registers and the block is of whole warpgroups",
    )
