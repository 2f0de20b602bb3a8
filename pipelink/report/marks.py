"""The steps of a role as small marks with what there is to say of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipelink.abi import entry_symbol
from pipelink.model import Call, Convert, Copy, Hand, Move, Plan, Rearrange, Step, Sync, TilePlace
from pipelink.transfer.records import Moves, Shuffle

_ACTS = {
    "acquire": "waits until the stage is empty",
    "commit": "hands the filled stage over",
    "wait": "waits until the stage is full",
    "release": "gives the stage back",
}
FENCE = "then a fence to the async proxy"


@dataclass(frozen=True)
class Mark:
    """A step: `kind` is how it looks (call, hand, move, sync), `own` the class of its colour."""

    kind: str
    label: str
    own: str
    hint: str


def mark(step: Step, plan: Plan, colour: Callable[[str], str]) -> Mark:
    """A step's mark; hints are lines."""
    if isinstance(step, Call):
        return _call(step, plan, colour)
    if isinstance(step, Sync):
        where = {"warp": "within each warp", "block": "the whole block"}
        said = where.get(step.scope, f"named barrier {step.barrier}")
        lines = [f"sync: {said}, {step.threads} threads", step.reason]
        return Mark("sync", "sync", "glue", "\n".join(lines))
    if isinstance(step, Hand):
        return _hand(step, plan, colour)
    if isinstance(step, Move):
        lines = [f"{step.moves.direction}: {step.what}", _moves(step.moves), _place(step.place)]
        return Mark("move", step.moves.direction, "glue", _lines(lines, step.fence))
    if isinstance(step, Copy):
        lines = [f"copy: {step.what}", _moves(step.load), _moves(step.store)]
        return Mark("move", "copy", "glue", _lines(lines, step.fence))
    return _registers(step)


def _registers(step: Convert | Rearrange) -> Mark:
    """What changes registers and no memory."""
    if isinstance(step, Convert):
        c = step.conversion
        how = ", ".join(dict.fromkeys(c.instructions))
        lines = [f"convert: {step.what}", f"{c.count} values a thread by {how}"]
        return Mark("move", "convert", "glue", "\n".join(lines))
    label = "shuffle" if isinstance(step.way, Shuffle) else "permute"
    way = "within each thread"
    if isinstance(step.way, Shuffle):
        way = f"{step.way.shuffles} shuffles, within each warp"
    return Mark("move", label, "glue", f"{label}: {step.what}\n{way}")


def _call(step: Call, plan: Plan, colour: Callable[[str], str]) -> Mark:
    instance = next((i for i in plan.instances if i.name == step.instance), None)
    component = instance.component if instance else ""
    label = f"{step.instance}.{step.symbol.removeprefix(entry_symbol(component, ''))}"
    lines = [f"call: {label}"]
    if instance is not None:
        lines.append(f"{component} {instance.version} of {instance.owner}")
    lines.append(f"takes {', '.join(value for _, value in step.arguments) or 'nothing'}")
    return Mark("call", label, colour(step.instance), _lines(lines, step.fence))


def _hand(step: Hand, plan: Plan, colour: Callable[[str], str]) -> Mark:
    name = next((i.name for i in plan.instances if i.number == step.number), "")
    lines = [
        f"{step.act}: {name}.{step.port}",
        f"{_ACTS[step.act]}, {step.stages} stages",
        f"mbarriers from byte {step.mbarrier:,}",
    ]
    if step.fence:
        lines.append("after a fence to the async proxy")
    return Mark("hand", step.act, colour(name), "\n".join(lines))


def _moves(moves: Moves) -> str:
    ways = "no bank conflict" if moves.conflict == 1 else f"{moves.conflict}-way bank conflict"
    return f"{len(moves.accesses)} {moves.instruction} a thread, {ways}"


def _place(place: TilePlace) -> str:
    stages = f", stages of {place.stage_bytes:,} bytes" if place.stage_bytes else ""
    return f"at byte {place.offset:,}{stages}"


def _lines(lines: list[str], fence: bool) -> str:
    return "\n".join([*lines, FENCE] if fence else lines)
