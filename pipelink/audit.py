"""The cubin and the link log, held against the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelink import abi, elf, machine
from pipelink.arch import ARCHES
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, ToolError, checkpoint
from pipelink.model import Plan, Sync

# Log codes of these hundreds mean that the composition broke: setmaxnreg ignored (C7504 to C7509),
# wgmma serialised (C7510), C7602.
_BROKEN = re.compile(r"\((C7[56]\d\d)\)")

_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_UNDEFINED = re.compile(
    r"(?:Unresolved extern function|[Uu]ndefined reference to) '([A-Za-z_][A-Za-z0-9_]*)'"
)
_TWICE = re.compile(r"(\S+): .*named '([A-Za-z_][A-Za-z0-9_]*)': symbol multiply defined")


@dataclass(frozen=True)
class Audited:
    """What the linked code really uses."""

    registers: int
    barriers: int
    stack_bytes: int
    spill_bytes: int
    static_shared_bytes: int


def audit(plan: Plan, cubin: bytes, log: str) -> Audited:
    """Raises with everything in which cubin or log are not what the plan says."""
    try:
        found = elf.read_cubin(cubin)
    except elf.ElfError as error:
        raise ToolError(f"the linker made a cubin that can't be read: {error}") from error
    frames = [tuple(map(int, m)) for m in _STACK.findall(log)]
    barriers = _BARRIERS.search(log)
    used = _USED.search(log)
    reserved = ARCHES[plan.target].reserved_shared
    facts = Audited(
        registers=int(used[1]) if used else found.registers.get(plan.kernel, 0),
        barriers=int(barriers[1]) if barriers else 0,
        stack_bytes=max((f[0] for f in frames), default=found.frame_bytes.get(plan.kernel, 0)),
        spill_bytes=sum(f[1] + f[2] for f in frames),
        static_shared_bytes=max(0, found.static_shared.get(plan.kernel, 0) - reserved),
    )
    checkpoint([*_log_codes(plan, log), *_stack(plan, facts), *_shape(plan, found, facts)])
    return facts


def _where(plan: Plan) -> FilePlace:
    return FilePlace(plan.manifest, plan.kernel)


def _log_codes(plan: Plan, log: str) -> Iterator[Diagnostic]:
    for line in log.splitlines():
        code = _BROKEN.search(line)
        if code:
            yield Diagnostic(
                "PL043",
                f"the link of '{plan.kernel}' broke ({code[1]})",
                _where(plan),
                notes=(line.strip(),),
                help="a live assert or printf, a call that is not inlined, or a role without a register claim",
            )


def _stack(plan: Plan, facts: Audited) -> Iterator[Diagnostic]:
    if facts.stack_bytes > plan.stack_bytes or (facts.spill_bytes and not plan.stack_bytes):
        yield Diagnostic(
            "PL044",
            f"'{plan.kernel}' uses {facts.stack_bytes} stack bytes a thread and spills "
            f"{facts.spill_bytes} bytes, its contracts declare {plan.stack_bytes}",
            _where(plan),
            help="claim more registers, choose smaller tiles, or declare the bytes with claims_stack",
        )


def _shape(plan: Plan, found: elf.Cubin, facts: Audited) -> Iterator[Diagnostic]:
    uses = machine.uses(plan.target, found.text.get(plan.kernel, b""))
    problems = [*_resources(plan, found, facts)]
    problems += _code(plan, uses) if uses else _barrier_count(plan, facts)
    for problem in problems:
        message = f"the cubin of '{plan.kernel}' is not as planned: {problem}"
        yield Diagnostic("PL045", message, _where(plan))


def _resources(plan: Plan, found: elf.Cubin, facts: Audited) -> Iterator[str]:
    if found.kernels != (plan.kernel,):
        yield f"its kernels are {', '.join(found.kernels) or 'none'}"
    if facts.static_shared_bytes:
        yield (
            f"{facts.static_shared_bytes} bytes of static shared memory, padding included, are in "
            "no contract; use claims_shared"
        )
    launch = plan.launch_registers
    if facts.registers > launch:
        yield f"it uses {facts.registers} registers a thread, a launch has {launch}"
    allocated = -(-facts.registers // 8) * 8
    if any(r.registers for p in plan.phases for r in p.roles) and allocated < launch:
        yield f"it launches with {allocated} registers a thread, the roles share {launch}"


def _barrier_count(plan: Plan, facts: Audited) -> Iterator[str]:
    """All that the link log tells of barriers, where the code itself can't be read."""
    ids = max((b.id + b.count - 1 for b in plan.barriers), default=0) + 1
    if facts.barriers > ids:
        yield f"it uses {facts.barriers} named barriers, the plan {ids}"


def _code(plan: Plan, uses: machine.Uses) -> Iterator[str]:
    """What the code does with barriers and registers, and the plan does not say."""
    moves = [m for p in plan.phases for own in (p.moves, *(r.moves for r in p.roles)) for m in own]
    planned = tuple(sorted(move.registers for move in moves))
    if uses.registers != planned:
        yield f"it sets registers {_listing(uses.registers)}, the roles have {_listing(planned)}"
    planned_barriers = {(b.id + n, b.threads) for b in plan.barriers for n in range(b.count)}
    for number, threads in sorted(set(uses.barriers) - planned_barriers - {(0, 0)}):
        yield (
            f"it uses named barrier {number} for {threads or 'all'} threads, which no contract claims "
            f"({_claimed(plan)}); use claims_barrier"
        )
    whole = uses.barriers.count((0, 0)) - _whole_block(plan)
    if whole > 0 and len(plan.roles) > 1:
        yield (
            f"it has {whole} __syncthreads() in a kernel of {len(plan.roles)} roles, "
            "where it waits for threads that never come; use claims_barrier"
        )


def _whole_block(plan: Plan) -> int:
    """How often the glue has all threads of the block wait."""
    steps = [s for p in plan.phases for r in p.roles for s in r.steps]
    inside = sum(isinstance(s, Sync) and s.scope == "block" for s in steps)
    around = bool(plan.mbarriers or plan.allocated_columns) + bool(plan.allocated_columns)
    return around + len(plan.phases) - 1 + inside


def _claimed(plan: Plan) -> str:
    rows = [
        f"'{b.instance}.{b.name}' has {b.id}" + (f" to {b.id + b.count - 1}" if b.count > 1 else "")
        for b in plan.barriers
    ]
    return ", ".join(rows) or "none is claimed"


def _listing(numbers: tuple[int, ...]) -> str:
    return " and ".join(map(str, numbers)) or "of no role"


def _missing(symbol: str) -> str:
    entry = re.fullmatch(r"pipelink__(\w+?)__(\w+)", symbol)
    return f"define PIPELINK_ENTRY({entry[1]}, {entry[2]}) in its source" if entry else ""


def defined_twice(log: str) -> list[tuple[str, str]]:
    """(object, symbol) of each definition that the linker met a second time."""
    return list(dict.fromkeys(_TWICE.findall(log)))


def refused(plan: Plan, log: str, definers: Mapping[str, list[str]]) -> InputError:
    """A refused link, in words: gates by name, then whatever else the linker said. `definers` are
    the objects that define a symbol, for those that are defined twice."""
    owners = {i.component: i.owner for i in plan.instances}
    faults = []
    for symbol in dict.fromkeys(_UNDEFINED.findall(log)):
        if symbol == abi.UNBOUND:
            faults.append(
                Diagnostic(
                    "PL040",
                    f"a binding in '{plan.kernel}' did not fold to a constant",
                    _where(plan),
                    notes=(
                        "an instance number or slot is known at run time only, or a call not inlined",
                        "or the code uses a fact, claim or port that its contract does not list",
                    ),
                    help="list what the code uses in pl::contract; pass `self` as it came; keep functions inline",
                )
            )
        elif symbol.startswith(abi.MISMATCH_PREFIX):
            component = symbol.removeprefix(abi.MISMATCH_PREFIX)
            faults.append(
                Diagnostic(
                    "PL041",
                    f"the contract of {component} of {owners.get(component, '?')} is another one in the "
                    "device pass than in the host pass",
                    _where(plan),
                    help="let no value of a contract depend on __CUDA_ARCH__, and relink with a fresh plan",
                )
            )
        else:
            faults.append(
                Diagnostic(
                    "PL042", f"nobody defines '{symbol}'", _where(plan), help=_missing(symbol)
                )
            )
    for _, symbol in defined_twice(log):
        objects = definers.get(symbol, [])
        faults.append(
            Diagnostic(
                "PL042",
                f"'{symbol}' is defined by {' and by '.join(objects)}",
                FilePlace(objects[0]) if objects else _where(plan),
                tuple(map(FilePlace, objects[1:])),
                help="give it internal linkage (static, or an unnamed namespace), or a namespace of its owner",
            )
        )
    if not faults:
        lines = tuple(filter(None, map(str.strip, log.splitlines())))
        faults.append(
            Diagnostic("PL042", f"nvJitLink refuses '{plan.kernel}'", _where(plan), notes=lines)
        )
    return InputError(*faults)
