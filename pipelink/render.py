"""Plan to glue: jinja2 templates, with every number placed in by Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jinja2

from pipelink import abi
from pipelink.arch import ARCHES
from pipelink.model import (
    Call,
    Convert,
    Copy,
    Hand,
    InstancePlan,
    MbarrierPlan,
    Move,
    Parameter,
    PhasePlan,
    Plan,
    Rearrange,
    RegisterMove,
    RoleSteps,
    Step,
    TilePlace,
)
from pipelink.place.shared import COLUMNS_WORD
from pipelink.resources import template_dir
from pipelink.transfer.records import Base, Moves, Shuffle

_ARGUMENT = {
    "tile": "const pipelink::Tile&",
    "tensor_map": "const pipelink::TensorMap*",
    "ring": "pipelink::RingState&",
    "extent": "int",
}
_SHARED_TILE = "const pipelink::RingState&"


def render(plan: Plan) -> str:
    """The glue's CUDA source; the same plan gives the same text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(template_dir())),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    steps = [s for p in plan.phases for r in p.roles for s in r.steps]
    return environment.get_template("glue.cu.j2").render(
        plan=plan,
        glue=bool(plan.allocated_columns)
        or any(phase.fence for phase in plan.phases)
        or any(not isinstance(s, Call) or s.fence or s.one for s in steps),
        columns_word=next((r.offset for r in plan.regions if r.name == COLUMNS_WORD), 0),
        components=[(i.component, f"{i.fingerprint}ull") for i in _once_a_component(plan)],
        mismatch=abi.MISMATCH_PREFIX,
        entries=list(_declarations(plan)),
        instances=[
            (
                i,
                [
                    (name, f"{abi.fnv1a(name.encode()):#018x}ull", v)
                    for name, v in i.bindings.items()
                ],
            )
            for i in plan.instances
        ],
        parameters=", ".join(map(_parameter, plan.parameters)),
        mbarriers=[(m, list(_addresses(m))) for m in plan.mbarriers],
        init_fence=ARCHES[plan.target].bulk_tensor_copy,
        phases=[_phase(plan, phase) for phase in plan.phases],
    )


def _once_a_component(plan: Plan) -> list[InstancePlan]:
    return list({i.component: i for i in plan.instances}.values())


def _addresses(mbarrier: MbarrierPlan) -> Iterator[int]:
    for n in range(mbarrier.count):
        yield mbarrier.offset + 8 * n


def _declarations(plan: Plan) -> Iterator[str]:
    steps = [s for p in plan.phases for r in p.roles for s in r.steps if isinstance(s, Call)]
    for symbol, call in sorted({c.symbol: c for c in steps}.items()):
        arguments = ", ".join(["pipelink::Self", *_argument_types(plan, call)])
        yield f"void {symbol}({arguments})"
    schedules = {p.schedule.symbol: p.schedule for p in plan.phases if p.schedule}
    for symbol, schedule in sorted(schedules.items()):
        types = ", ".join(
            ["pipelink::Self", "int", "pipelink::Tile&", *_argument_types(plan, schedule)]
        )
        yield f"bool {symbol}({types})"


def _argument_types(plan: Plan, call: Call) -> Iterator[str]:
    for kind, name in call.arguments:
        what, _, element = kind.partition(" ")
        if what == "pointer":
            parameter = next(p for p in plan.parameters if p.name == name)
            yield _pointer(parameter)
        elif what == "fragment":
            yield f"{abi.ELEMENT_TYPES[element]}*"
        elif what == "fragment_in":
            yield f"const {abi.ELEMENT_TYPES[element]}*"
        elif what == "tile" and name != "tile":
            yield _SHARED_TILE
        else:
            yield _ARGUMENT[what]


def _pointer(parameter: Parameter) -> str:
    const = "const " if parameter.access == "read" else ""
    return f"{const}{abi.ELEMENT_TYPES[parameter.element]}*"


def _parameter(parameter: Parameter) -> str:
    if parameter.kind == "tensor_map":
        return f"const __grid_constant__ pipelink::TensorMap {parameter.name}"
    if parameter.kind == "pointer":
        return f"{_pointer(parameter)} {parameter.name}"
    return f"int {parameter.name}"


def _invocation(call: Call, plain: Sequence[str] = ()) -> str:
    """The call's arguments after its leading ones. Registers are words, but for `plain` ones."""
    return "".join(f", {_passed(kind, value, plain)}" for kind, value in call.arguments)


def _passed(kind: str, value: str, plain: Sequence[str]) -> str:
    what, _, element = kind.partition(" ")
    if what == "tensor_map":
        return f"&{value}"
    if what in ("fragment", "fragment_in") and value not in plain:
        return f"reinterpret_cast<{abi.ELEMENT_TYPES[element]}*>({value})"
    return value


def _phase(plan: Plan, phase: PhasePlan) -> dict[str, object]:
    return {
        "phase": phase,
        "schedule": _invocation(phase.schedule) if phase.schedule else "",
        "roles": [_role(plan, phase, n) for n in range(len(phase.roles))],
        "first": phase is plan.phases[0],
        "setmaxnreg": _setmaxnreg(phase.moves, 0),
    }


def _role(plan: Plan, phase: PhasePlan, number: int) -> dict[str, object]:
    steps = phase.roles[number]
    role = next(r for r in plan.roles if r.name == steps.role)
    first, end = 32 * role.first_warp, 32 * (role.first_warp + role.warps)
    plain = [v.name for v in steps.variables if v.element == "f32" and v.name not in _moved(steps)]
    kept = _Kept(phase.schedule is not None)
    actions = [_action(step, plain, kept) for step in steps.steps]
    return {
        "role": role,
        "steps": steps,
        "condition": _condition(plan, phase, number),
        "first": first,
        "end": end - 1,
        "setmaxnreg": _setmaxnreg(steps.moves, role.warps),
        "actions": actions,
        "addresses": kept.addresses,
        "thread": any(isinstance(s, Move | Copy | Rearrange) for s in steps.steps),
        "plain": plain,
        "elect": f"threadIdx.x < {first + 32} && " if role.warps > 1 else "",
        "alone": all(isinstance(s, Call) and s.one for s in steps.steps),
    }


def _condition(plan: Plan, phase: PhasePlan, number: int) -> str:
    """Which threads run a role: what the roles before it in the phase leave; all, if they are what
    is left of the block."""
    placed = {r.name: r for r in plan.roles}
    own = placed[phase.roles[number].role]
    first, end = 32 * own.first_warp, 32 * (own.first_warp + own.warps)
    before = {
        w
        for r in phase.roles[:number]
        for w in range(placed[r.role].first_warp, placed[r.role].first_warp + placed[r.role].warps)
    }
    left = [w for w in range(plan.threads // 32) if w not in before]
    if left == list(range(own.first_warp, own.first_warp + own.warps)):
        return ""
    if left[: own.warps] == list(range(own.first_warp, own.first_warp + own.warps)):
        return f"(threadIdx.x < {end})"
    return f"(threadIdx.x >= {first} && threadIdx.x < {end})"


def _setmaxnreg(every: tuple[RegisterMove, ...], warps: int) -> list[tuple[str, str]]:
    """(condition, instruction): registers go up or down from what the warps had before."""
    moves = []
    for move in every:
        direction = "inc" if move.registers > move.held else "dec"
        first, end = 32 * move.first_warp, 32 * (move.first_warp + move.warps)
        least = f"threadIdx.x >= {first} && " if first else ""
        condition = f"if ({least}threadIdx.x < {end}) "
        instruction = f"setmaxnreg.{direction}.sync.aligned.u32 {move.registers};"
        moves.append(("" if move.warps == warps else condition, instruction))
    return moves


def _moved(steps: RoleSteps) -> frozenset[str]:
    """The registers that the glue itself touches, as words."""
    names: set[str] = set()
    for step in steps.steps:
        if isinstance(step, Move):
            names.add(step.registers)
        elif isinstance(step, Convert | Rearrange):
            names |= {step.source, step.target}
    return frozenset(names)


_HANDED = {"acquire": "acquire", "wait": "wait", "commit": "hand_over", "release": "hand_over"}


@dataclass(frozen=True)
class _Address:
    """An address of each thread that is the same in every tile."""

    name: str
    offset: int
    base: Base


MOST_KEPT = 8  # addresses of a role: each takes a register for all of its loop


class _Kept:
    """The addresses of a role's moves that stand before its loop over tiles: each once."""

    def __init__(self, loops: bool) -> None:
        self.loops = loops
        self.addresses: list[_Address] = []

    def of(self, place: TilePlace, moves: Moves) -> list[str] | None:
        """The bases of a move in the current stage; None where they are computed in place."""
        if not self.loops or len(self.addresses) + len(moves.bases) > MOST_KEPT:
            return None
        stage = f" + {place.state}.stage * {place.stage_bytes}" if place.state else ""
        return [f"{self._name(place.offset, base)}{stage}" for base in moves.bases]

    def _name(self, offset: int, base: Base) -> str:
        for known in self.addresses:
            if (known.offset, known.base) == (offset, base):
                return known.name
        self.addresses.append(_Address(f"at{len(self.addresses)}", offset, base))
        return self.addresses[-1].name


def _action(step: Step, plain: Sequence[str], kept: _Kept) -> dict[str, object]:
    """A step with what its template needs beside it."""
    action: dict[str, object] = {"step": step, "do": step.__struct_config__.tag}
    if isinstance(step, Call):
        action["arguments"] = _invocation(step, plain)
    if isinstance(step, Hand):
        side = "full" if step.act in ("commit", "wait") else "empty"
        action["slot"] = f"{abi.fnv1a(f'{step.port}.{side}'.encode()):#018x}ull"
        action["function"] = _HANDED[step.act]
    if isinstance(step, Move):
        action["kept"] = kept.of(step.place, step.moves)
    if isinstance(step, Copy):
        action["kept"] = kept.of(step.source, step.load)
        action["kept_target"] = kept.of(step.target, step.store)
    if isinstance(step, Rearrange):
        action["way"] = "shuffle" if isinstance(step.way, Shuffle) else "permute"
    return action
