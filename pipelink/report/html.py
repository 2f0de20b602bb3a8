"""The linker map as a page that stands alone: shared memory over the program, warps, barriers,
channels, facts. Everything is worked out here, the templates only place it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import jinja2

from pipelink.abi import entry_symbol
from pipelink.arch import ARCHES
from pipelink.driver import Product
from pipelink.model import (
    BarrierPlan,
    Call,
    ChannelPlan,
    PhasePlan,
    Plan,
    RolePlan,
    RoleSteps,
)
from pipelink.report.arena import Arena, arena, columns_drawn
from pipelink.report.identity import summary
from pipelink.report.marks import Mark, mark
from pipelink.resolve import shown
from pipelink.resources import template_dir
from pipelink.sass import Comparison

COLOURS = 8  # of owners, in map.css
WIDEST = 2.5  # how much wider than the narrowest phase one may be drawn
ROW = 54  # pixels of the lowest row of warps
WARP = 11  # and of each warp, where that is more


def encode_html(product: Product, identity: Comparison | None = None) -> bytes:
    """The page; the same plan gives the same bytes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(template_dir())),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    environment.filters["number"] = "{:,}".format
    environment.filters["shown"] = shown
    page = environment.get_template("map.html.j2").render(_Page(product, identity).data())
    return page.encode()


@dataclass(frozen=True)
class Colours:
    """A colour for each owner: the number of its class in map.css. An instance has its owner's."""

    plan: Plan

    @property
    def owners(self) -> dict[str, str]:
        """Each owner's class, in the order in which the manifest has their first instances."""
        names = dict.fromkeys(i.owner for i in self.plan.instances)
        return {name: f"o{n % COLOURS}" for n, name in enumerate(names)}

    @property
    def instances(self) -> dict[str, str]:
        """Each instance's class."""
        return {i.name: self.owners[i.owner] for i in self.plan.instances}

    def of(self, instance: str) -> str:
        return self.instances.get(instance, "glue")

    def all(self, instances: Sequence[str]) -> tuple[str, ...]:
        """The classes of several, each once."""
        return tuple(dict.fromkeys(map(self.of, instances))) or ("glue",)

    def port(self, port: str) -> str:
        return self.of(port.rsplit(".", 1)[0])


@dataclass(frozen=True)
class Phase:
    """A phase as a column: `x` and `width` are percents of the drawing."""

    name: str
    x: float
    width: float
    again: str
    fence: bool


@dataclass(frozen=True)
class Box:
    """A role in a phase, or warps that idle there (`name` is empty), as a cell of a grid."""

    column: int
    row: int
    end: int
    name: str
    where: str
    registers: str
    change: str
    hint: str
    marks: tuple[Mark, ...]


def columns(plan: Plan, colours: Colours) -> tuple[Phase, ...]:
    """Phases side by side; one in which more happens is wider."""
    weights = [_weight(phase) for phase in plan.phases]
    least = max(weights, default=1) / WIDEST
    weights = [max(w, least) for w in weights]
    found, x = [], 0.0
    for phase, weight in zip(plan.phases, weights, strict=True):
        width = 100 * weight / sum(weights)
        again = f"for each tile of {_entry(plan, phase.schedule)}" if phase.schedule else "once"
        found.append(Phase(phase.name, round(x, 3), round(width, 3), again, phase.fence))
        x += width
    return tuple(found)


def _weight(phase: PhasePlan) -> float:
    """How much room the longest role takes: a call three times that of what the glue does."""
    sizes = [sum(3 if isinstance(s, Call) else 1 for s in role.steps) for role in phase.roles]
    return max(sizes, default=1)


def _entry(plan: Plan, call: Call) -> str:
    """INSTANCE.ENTRY of a call."""
    component = next((i.component for i in plan.instances if i.name == call.instance), "")
    return f"{call.instance}.{call.symbol.removeprefix(entry_symbol(component, ''))}"


@dataclass(frozen=True)
class _Page:
    """What the template is given, section by section."""

    product: Product
    identity: Comparison | None

    @property
    def plan(self) -> Plan:
        return self.product.plan

    @property
    def colours(self) -> Colours:
        return Colours(self.plan)

    def data(self) -> dict[str, object]:
        phases = columns(self.plan, self.colours)
        edges = _edges(self.plan)
        return {
            "plan": self.plan,
            "audited": self.product.audited,
            "colours": self.colours,
            "gradients": self.gradients(),
            "phases": phases,
            "tracks": " ".join(f"minmax(0,{p.width}fr)" for p in phases),
            "arena": self.arena(phases),
            "rows": [_row(a, b) for a, b in pairwise(edges)],
            "boxes": [*self.boxes(edges)],
            "barriers": [self.barrier(n) for n in range(ARCHES[self.plan.target].named_barriers)],
            "tensor": columns_drawn(self.plan, self.colours.of),
            "channels": [*self.channels()],
            "facts": [*self.facts()],
            "ports": self.ports(),
            "audit": self.audit(),
        }

    def arena(self, phases: Sequence[Phase]) -> Arena | None:
        return arena(self.plan, [(p.x, p.x + p.width) for p in phases], self.colours.all)

    def gradients(self) -> list[tuple[str, str]]:
        """Every pair of colours, from a producer's to a consumer's."""
        pairs = {
            (self.colours.port(c.producer), self.colours.port(c.consumer))
            for c in self.plan.channels
        }
        owners = [r.owners for r in self.plan.regions] + [m.owners for m in self.plan.mbarriers]
        pairs |= {(own[0], own[-1]) for own in map(self.colours.all, owners)}
        return sorted(pairs)

    def boxes(self, edges: list[int]) -> Iterator[Box]:
        placed = {r.name: r for r in self.plan.roles}
        for column, phase in enumerate(self.plan.phases):
            busy = []
            for steps in phase.roles:
                role = placed[steps.role]
                first, end = role.first_warp, role.first_warp + role.warps
                busy.append((edges.index(first), edges.index(end)))
                yield self.role_box(phase, steps, role, (column, *busy[-1]))
            for row, last in _between(busy, len(edges) - 1):
                where = _warps(edges[row], edges[last])
                hint = f"{where}: no role of phase {phase.name} runs on them"
                yield Box(column, row, last, "", where, "", "", hint, ())

    def role_box(
        self, phase: PhasePlan, steps: RoleSteps, role: RolePlan, cell: tuple[int, int, int]
    ) -> Box:
        before, now = self.registers(phase, steps)
        where = f"{_warps(role.first_warp, role.first_warp + role.warps)}"
        hint = (
            f"role {role.name}: {where}, {32 * role.warps} threads\n{role.reason}\n{steps.reason}"
        )
        marks = tuple(mark(s, self.plan, self.colours.of) for s in steps.steps)
        change = f"from {before}" if steps.registers else ""
        return Box(*cell, role.name, where, str(now), change, hint, marks)

    def registers(self, phase: PhasePlan, steps: RoleSteps) -> tuple[int, int]:
        """A role's registers a thread before a phase and in it: its warps keep what they had."""
        placed = {r.name: r for r in self.plan.roles}
        warp, held = placed[steps.role].first_warp, self.product.audited.registers
        for earlier in self.plan.phases[: self.plan.phases.index(phase)]:
            for other in earlier.roles:
                role = placed[other.role]
                if other.registers and role.first_warp <= warp < role.first_warp + role.warps:
                    held = other.registers
        return held, steps.registers or held

    def barrier(self, number: int) -> dict[str, object]:
        """Who has an id: several, if in different phases."""
        if number == 0:
            count = self.product.audited.barriers
            hint = f"__syncthreads(), and the glue between phases\nbarriers in the code: {count}"
            return {"id": 0, "held": [], "hint": f"0: {hint}", "reserved": True}
        held = [b for b in self.plan.barriers if b.id <= number < b.id + b.count]
        hint = "\n\n".join(f"{number}: {_barrier(b)}" for b in held) or f"{number}: nobody has it"
        rows = [
            {"name": b.name, "by": b.instance or "the glue", "own": self.colours.of(b.instance)}
            | {"threads": b.threads}
            for b in held
        ]
        return {"id": number, "held": rows, "hint": hint, "reserved": False}

    def channels(self) -> Iterator[dict[str, object]]:
        """Channels of one producer follow one another; the first of them names it."""
        groups: dict[str, list[ChannelPlan]] = {}
        for channel in self.plan.channels:
            groups.setdefault(channel.producer, []).append(channel)
        for producer, group in groups.items():
            for number, c in enumerate(group):
                yield {
                    "channel": c,
                    "span": len(group) if number == 0 else 0,
                    "more": len(group) > 1,
                    "source": self.colours.port(producer),
                    "target": self.colours.port(c.consumer),
                    "conflict": _conflict(c.conflict),
                }

    def facts(self) -> Iterator[dict[str, object]]:
        for f in self.plan.facts:
            if f.kind != "imports" or f.provider == f.instance:
                yield {
                    "name": f.name,
                    "value": shown(f.value),
                    "by": f.instance,
                    "how": {"imports": "default", "chooses": "chosen"}.get(f.kind, f.kind),
                    "own": self.colours.of(f.instance),
                    "taken": [(n, self.colours.of(n)) for n in f.consumers],
                }

    def ports(self) -> dict[str, str]:
        """The ports that take each argument of a call."""
        return {
            a.name: ", ".join(
                p.name.replace("__", ".") for p in self.plan.parameters if p.argument == a.name
            )
            for a in self.plan.arguments
        }

    def audit(self) -> list[tuple[str, str, str]]:
        """What the cubin really has, and what was held against it."""
        a, count = self.product.audited, len({i.component for i in self.plan.instances})
        return [
            ("registers a thread", str(a.registers), f"a launch has {self.plan.launch_registers}"),
            ("barriers", str(a.barriers), "with id 0"),
            ("stack", f"{a.stack_bytes} bytes", f"{self.plan.stack_bytes} declared"),
            ("spilled", f"{a.spill_bytes} bytes", ""),
            ("static shared memory", f"{a.static_shared_bytes} bytes", "beside the arena"),
            ("fold gate", "held", "every binding is a constant in the cubin"),
            ("fingerprints", "held", f"{count} contracts are those of the device code"),
            ("identity", *_identity(self.identity)),
        ]


def _identity(comparison: Comparison | None) -> tuple[str, str]:
    if comparison is None:
        return "not compared", "pipelink verify builds the control"
    return ("differs" if comparison.differences else "held"), summary(comparison)


def _edges(plan: Plan) -> list[int]:
    """The warps at which some role begins or ends."""
    starts = {r.first_warp for r in plan.roles} | {r.first_warp + r.warps for r in plan.roles}
    return sorted({0, plan.threads // 32} | starts)


def _row(first: int, end: int) -> dict[str, object]:
    pixels = max(ROW, WARP * (end - first))
    return {"warps": _warps(first, end).partition(" ")[2], "pixels": pixels, "count": end - first}


def _between(busy: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """Runs of rows that none of these take."""
    start = 0
    for first, last in [*sorted(busy), (end, end)]:
        if start < first:
            yield start, first
        start = max(start, last)


def _warps(first: int, end: int) -> str:
    return f"warp {first}" if end == first + 1 else f"warps {first}–{end - 1}"


def _barrier(b: BarrierPlan) -> str:
    by = f"{b.instance}.{b.name}" if b.instance else f"{b.name}, of the glue"
    ids = f", ids {b.id}–{b.id + b.count - 1}" if b.count > 1 else ""
    return f"{by}\n{b.threads} threads{ids}\n{b.reason}"


def _conflict(ways: int) -> str:
    return "–" if not ways else "none" if ways == 1 else f"{ways} ways"
