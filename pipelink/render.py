"""Plan to glue: jinja2 templates, with every number placed in by Python."""

from __future__ import annotations

from collections.abc import Iterator

import jinja2

from pipelink import abi
from pipelink.model import Call, InstancePlan, MbarrierPlan, Parameter, Plan
from pipelink.resources import template_dir

_ARGUMENT = {
    "tile": "const pipelink::Tile&",
    "tensor_map": "const pipelink::TensorMap*",
    "ring": "pipelink::RingState&",
    "extent": "int",
}


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
    return environment.get_template("glue.cu.j2").render(
        plan=plan,
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
        roles=[_role(plan, n) for n in range(len(plan.roles))],
        schedule=_invocation(plan.schedule),
    )


def _once_a_component(plan: Plan) -> list[InstancePlan]:
    return list({i.component: i for i in plan.instances}.values())


def _addresses(mbarrier: MbarrierPlan) -> Iterator[int]:
    for n in range(mbarrier.count):
        yield mbarrier.offset + 8 * n


def _declarations(plan: Plan) -> Iterator[str]:
    calls = {c.symbol: c for role in plan.roles for c in role.steps}
    for symbol, call in sorted(calls.items()):
        arguments = ", ".join(["pipelink::Self", *_argument_types(plan, call)])
        yield f"void {symbol}({arguments})"
    types = ", ".join(
        ["pipelink::Self", "int", "pipelink::Tile&", *_argument_types(plan, plan.schedule)]
    )
    yield f"bool {plan.schedule.symbol}({types})"


def _argument_types(plan: Plan, call: Call) -> Iterator[str]:
    for kind, name in call.arguments:
        if kind == "pointer":
            parameter = next(p for p in plan.parameters if p.name == name)
            yield _pointer(parameter)
        elif kind == "fragment":
            element = next(e for r in plan.roles for n, e, _ in r.fragments if n == name)
            own = name.startswith(f"{call.instance}__")
            yield f"{element}*" if own else f"const {element}*"
        else:
            yield _ARGUMENT[kind]


def _pointer(parameter: Parameter) -> str:
    const = "const " if parameter.access == "read" else ""
    return f"{const}{abi.ELEMENT_TYPES[parameter.element]}*"


def _parameter(parameter: Parameter) -> str:
    if parameter.kind == "tensor_map":
        return f"const __grid_constant__ pipelink::TensorMap {parameter.name}"
    if parameter.kind == "pointer":
        return f"{_pointer(parameter)} {parameter.name}"
    return f"int {parameter.name}"


def _invocation(call: Call) -> str:
    """The call's arguments after its leading ones."""
    return "".join(
        f", {'&' if kind == 'tensor_map' else ''}{value}" for kind, value in call.arguments
    )


def _role(plan: Plan, number: int) -> dict[str, object]:
    role = plan.roles[number]
    first, end = 32 * role.first_warp, 32 * (role.first_warp + role.warps)
    last = number == len(plan.roles) - 1
    direction = "inc" if (role.registers or 0) > plan.launch_registers else "dec"
    return {
        "role": role,
        "condition": "" if last else f"(threadIdx.x < {end})",
        "first": first,
        "end": end - 1,
        "setmaxnreg": f"setmaxnreg.{direction}.sync.aligned.u32 {role.registers};"
        if role.registers
        else "",
        "calls": [(c.symbol, c.number, _invocation(c)) for c in role.steps],
    }
