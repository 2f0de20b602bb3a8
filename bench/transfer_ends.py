"""The components and the manifest of a case of transfer_cases.py: generated, since a layout is a constant
of its owner."""

from __future__ import annotations

import itertools

from transfer_cases import BYTES, Case, Registers, Shared

CTYPES = {
    "bf16": "pl::bf16",
    "f16": "pl::f16",
    "f32": "float",
    "e4m3": "pl::e4m3",
    "e5m2": "pl::e5m2",
    "i32": "int",
    "i8": "signed char",
    "u8": "unsigned char",
    "i64": "long long",
}


def _text(layout: str, case: Case, copies: int = 1) -> str:
    values = {
        "R": case.rows // copies,
        "C": case.columns,
        "W": case.warps,
        "T": 32 * case.warps,
    }
    return "".join(str(_evaluated(token, values)) for token in _tokens(layout))


def _tokens(layout: str) -> list[str]:
    tokens, word = [], ""
    for letter in layout:
        if letter in "(),:":
            tokens += [word, letter] if word else [letter]
            word = ""
        else:
            word += letter
    return [*tokens, word] if word else tokens


def _evaluated(token: str, values: dict[str, int]) -> object:
    if token in "(),:":
        return token
    return eval(token.replace("/", "//"), {}, values)


def _flat(side: object) -> list[int]:
    if isinstance(side, int):
        return [side]
    assert isinstance(side, tuple)
    return list(itertools.chain.from_iterable(map(_flat, side)))


def _modes(layout: str) -> list[list[tuple[int, int]]]:
    """Each mode's (size, stride), innermost first."""
    shape, stride = (eval(half) for half in layout.split(":"))
    return [list(zip(_flat(a), _flat(b), strict=True)) for a, b in zip(shape, stride, strict=True)]


def _sum(modes: list[tuple[int, int]], variable: str) -> str:
    """A mode as an expression of C++."""
    terms, divide = [], 1
    for size, stride in modes:
        terms.append(f"{variable} / {divide} % {size} * {stride}")
        divide *= size
    return " + ".join(terms)


def _copies(layout: str, case: Case) -> int:
    """How often the role's threads hold the layout: it is written for one of the copies."""
    for copies in (1, 2, 4, 8, 16):
        if case.rows % copies:
            break
        (threads, _) = _modes(_text(layout, case, copies))
        if 32 * case.warps == copies * _size(threads):
            return copies
    raise ValueError(f"{layout} is for no role of {case.warps} warps")


def _size(modes: list[tuple[int, int]]) -> int:
    size = 1
    for count, _ in modes:
        size *= count
    return size


_HEAD = """\
#include <pipelink/component.cuh>

namespace {name} {{
namespace pl = pipelink;
using namespace pl::literals;
using Element = {type};
constexpr int R = {rows};
constexpr int C = {columns};
constexpr auto m = pl::extent<"m">();
constexpr auto warps = pl::claims_warps({warps}_n);
"""

_SOURCE = """\
constexpr auto schedule =
    pl::schedule<"schedule">()(m).tiles(pl::steps_over(m, pl::Literal<R>{{}}), pl::steps_over(1_n, 1_n));
{ports}
constexpr auto contract = pl::contract<"{name}", "source-team", "1.0">(m, warps, {listed}, run, schedule);
PIPELINK_COMPONENT({name}, contract)

PIPELINK_ENTRY({name}, schedule)(pl::Self, int index, pl::Tile& tile, int rows) {{
    tile.row = blockIdx.x + index * gridDim.x;
    tile.column = 0;
    return tile.row * R < rows;
}}
{code}
}}  // namespace {name}
"""

_ARRAY = """\
constexpr auto {x} = pl::array_{direction}<"{x}", Element>(pl::shape(m, pl::Literal<C>{{}}))
                       .covers(pl::by_row(pl::Literal<R>{{}}).clipped(), pl::whole(pl::Literal<C>{{}}));
"""


def _registers_ports(what: Registers, case: Case, direction: str) -> str:
    layout = _text(what.layout, case, _copies(what.layout, case))
    x = "x" if direction == "out" else "y"
    return (
        _ARRAY.format(x=x, direction="in" if direction == "out" else "out")
        + f'constexpr auto {direction} = pl::fragment_{direction}<"{direction}", Element, "{layout}">'
        "(pl::shape(pl::Literal<R>{}, pl::Literal<C>{}));\n"
        f'constexpr auto run = pl::entry<"run">()(pl::tile, {x}, {direction}, m);\n'
    )


def _registers_code(name: str, what: Registers, case: Case, direction: str) -> str:
    copies = _copies(what.layout, case)
    threads, values = _modes(_text(what.layout, case, copies))
    own = case.rows // copies
    inside = direction == "in"
    arguments = (
        "Element* y, const Element* values" if inside else "const Element* x, Element* values"
    )
    access = "if (row < rows) y[at] = values[v];"
    if not inside:
        access = "values[v] = row < rows ? x[at] : Element{};"
    return f"""
PIPELINK_ENTRY({name}, run)(pl::Self self, const pl::Tile& tile, {arguments}, int rows) {{
    const unsigned thread = pl::role_thread(self);
    const unsigned t = thread % {_size(threads)};
    const unsigned below = thread / {_size(threads)} * {own};
    const unsigned of_thread = {_sum(threads, "t")};
#pragma unroll
    for (unsigned v = 0; v < {_size(values)}; ++v) {{
        const unsigned place = of_thread + {_sum(values, "v")};
        const long long row = static_cast<long long>(tile.row) * R + below + place % {own};
        const long long at = row * C + place / {own};
        {access}
    }}
}}
"""


def _part(what: Shared, case: Case) -> str:
    layout = f'.layout<"{_text(what.layout, case)}">()' if what.layout else ""
    swizzle = f"pl::swizzle_{what.swizzle}" if what.swizzle else "pl::no_swizzle"
    return f'pl::part<"tile", Element>(pl::shape(pl::Literal<R>{{}}, pl::Literal<C>{{}}), {swizzle}){layout}'


def _shared_place(what: Shared, case: Case) -> str:
    """The byte of element (row, column) of a stage, as an expression."""
    layout = (
        _text(what.layout, case)
        if what.layout
        else f"({case.rows},{case.columns}):({case.columns},1)"
    )
    rows, columns = _modes(layout)
    byte = f"(({_sum(rows, 'row')}) + ({_sum(columns, 'column')})) * sizeof(Element)"
    if not what.swizzle:
        return byte
    return f"swizzled({byte})"


def _swizzle_code(what: Shared) -> str:
    if not what.swizzle:
        return ""
    mask = {32: 1, 64: 3, 128: 7}[what.swizzle]
    return f"""
__device__ __forceinline__ unsigned swizzled(unsigned byte) {{
    return byte ^ (byte >> 7 & {mask}) << 4;
}}
"""


def _shared_ports(what: Shared, case: Case, direction: str) -> str:
    x = "x" if direction == "out" else "y"
    part = f"constexpr auto part = {_part(what, case)}"
    stages = max(case.stages, 2)
    if what.tma:
        swizzle = f"pl::swizzle_{what.swizzle}" if what.swizzle else "pl::no_swizzle"
        tensor = (
            'constexpr auto x = pl::tensor_map_in<"x", Element>(pl::shape(m, pl::Literal<C>{}), '
            f"pl::box(pl::Literal<R>{{}}, pl::Literal<C>{{}}), {swizzle})\n"
            "    .covers(pl::by_row(pl::Literal<R>{}), pl::whole(pl::Literal<C>{}));\n"
        )
        ring = f'pl::ring_out<"out">()({stages}_n, pl::by_copies, part)'
        return (
            tensor
            + f"{part}.filled_by(x, 1_n);\nconstexpr auto out = {ring};\n"
            + 'constexpr auto run = pl::entry<"run">()(pl::tile, x, out).plays(pl::fill(out)).by_one_thread();\n'
        )
    array = _ARRAY.format(x=x, direction="in" if direction == "out" else "out")
    proxy = f"pl::{what.proxy}_proxy"
    if what.by == "step":
        port = f'pl::tile_{direction}<"{direction}">()({proxy}, part)'
        plays = ""
    elif direction == "out":
        port = f'pl::ring_out<"out">()({stages}_n, pl::{what.by}, part)'
        plays = ".plays(pl::fill(out))"
    else:
        port = f'pl::ring_in<"in">()({stages}_n, pl::{what.by}, {proxy}, part)'
        plays = ".plays(pl::drain(in))"
    return (
        f"{array}{part};\nconstexpr auto {direction} = {port};\n"
        f'constexpr auto run = pl::entry<"run">()(pl::tile, {x}, {direction}, m){plays};\n'
    )


def _shared_code(name: str, what: Shared, case: Case, direction: str) -> str:
    ring = what.by != "step" or what.tma
    state = "pl::RingState& state" if ring else "const pl::RingState& state"
    if what.tma:
        return f"""
PIPELINK_ENTRY({name}, run)
(pl::Self self, const pl::Tile& tile, const pl::TensorMap* x_map, {state}) {{
    out.acquire(self, state);
    const auto barrier = out.expect(self, state);
    pl::bulk_load_2d(out.address(self, part, state), x_map, 0, tile.row * R, barrier);
    out.advance(self, state);
}}
"""
    inside = direction == "in"
    if inside and what.proxy == "async":
        return _bulk_store(name, what, state, ring)
    arguments = f"Element* y, {state}" if inside else f"const Element* x, {state}"
    access = "if (at / C < rows) y[at] = *there;"
    if not inside:
        access = "*there = at / C < rows ? x[at] : Element{};"
    before = after = ""
    if ring:
        before = f"    {direction}.{'wait' if inside else 'acquire'}(self, state);\n"
        release = "in.release(self, state.stage)" if inside else "out.commit(self, state)"
        after = f"    {release};\n    {direction}.advance(self, state);\n"
    return f"""{_swizzle_code(what)}
PIPELINK_ENTRY({name}, run)(pl::Self self, const pl::Tile& tile, {arguments}, int rows) {{
{before}    char* const stage = {direction}.pointer<char>(self, part, state);
    for (unsigned n = pl::role_thread(self); n < R * C; n += 32 * {case.warps}) {{
        const unsigned row = n / C, column = n % C;
        const long long at = (static_cast<long long>(tile.row) * R + row) * C + column;
        auto* const there = reinterpret_cast<Element*>(stage + {_shared_place(what, case)});
        {access}
    }}
{after}}}
"""


def _bulk_store(name: str, what: Shared, state: str, ring: bool) -> str:
    """Writes the bytes of a stage as they lie, by a bulk copy: the tensor is the tile's image."""
    before = "    in.wait(self, state);\n" if ring else ""
    after = "    in.release(self, state.stage);\n    in.advance(self, state);\n" if ring else ""
    return f"""
PIPELINK_ENTRY({name}, run)(pl::Self self, const pl::Tile& tile, Element* y, {state}, int rows) {{
{before}    if (pl::role_thread(self) == 0 && tile.row * R + R <= rows) {{
        asm volatile(
            "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\\n"
            "cp.async.bulk.commit_group;\\n"
            "cp.async.bulk.wait_group.read 0;" ::"l"(y + static_cast<long long>(tile.row) * R * C),
            "r"(in.address(self, part, state)), "n"(R * C * sizeof(Element))
            : "memory");
    }}
    __syncwarp();
{after}}}
"""


_SINK = """\
{ports}
constexpr auto contract = pl::contract<"{name}", "sink-team", "1.0">(m, warps, {listed}, run);
PIPELINK_COMPONENT({name}, contract)
{code}
}}  // namespace {name}
"""


def component(case: Case, what: Registers | Shared, name: str, direction: str) -> str:
    """The source of one end."""
    element = case.element if direction == "out" else case.out_element
    head = _HEAD.format(
        name=name, type=CTYPES[element], rows=case.rows, columns=case.columns, warps=case.warps
    )
    if isinstance(what, Registers):
        ports = _registers_ports(what, case, direction)
        code = _registers_code(name, what, case, direction)
    else:
        ports = _shared_ports(what, case, direction)
        code = _shared_code(name, what, case, direction)
    listed = f"{'x' if direction == 'out' else 'y'}, {direction}"
    body = _SOURCE if direction == "out" else _SINK
    return head + body.format(name=name, ports=ports, listed=listed, code=code)


def end_name(case: Case, what: Registers | Shared, direction: str) -> str:
    """A component is known by what it is made of: cases share it."""
    element = case.element if direction == "out" else case.out_element
    staged = (
        f"_s{max(case.stages, 2)}"
        if isinstance(what, Shared) and (what.by != "step" or what.tma)
        else ""
    )
    return f"{direction}_{what.name}_{element}_{case.rows}x{case.columns}_w{case.warps}{staged}"


def components(case: Case) -> dict[str, str]:
    """The sources of a case by name."""
    found = {
        end_name(case, case.source, "out"): component(
            case, case.source, end_name(case, case.source, "out"), "out"
        )
    }
    for sink in case.sinks:
        name = end_name(case, sink, "in")
        found[name] = component(case, sink, name, "in")
    return found


def manifest(case: Case, objects: str = "") -> str:
    """The kernel of a case; objects lie in the folder `objects`."""
    sinks = [f"sink{n}" for n in range(len(case.sinks))]
    lines = [
        f'kernel = "{kernel_name(case)}"',
        f'target = "{case.arch}"',
        'schedule = "source.schedule"',
    ]
    names = {"source": end_name(case, case.source, "out")}
    names |= {s: end_name(case, w, "in") for s, w in zip(sinks, case.sinks, strict=True)}
    for instance, name in names.items():
        lines += ["", f"[instances.{instance}]", f'object = "{objects}{name}.o"']
    if case.roles == 1:
        steps = ", ".join(f'"{n}.run"' for n in names)
        lines += ["", "[[roles]]", 'name = "all"', f"steps = [{steps}]"]
    else:
        for instance in names:
            lines += ["", "[[roles]]", f'name = "{instance}s"', f'steps = ["{instance}.run"]']
    for sink in sinks:
        lines += ["", "[[channels]]", 'from = "source.out"', f'to = "{sink}.in"']
        if case.stages > 1 and case.roles > 1 and not _any_ring(case):
            lines.append(f"stages = {case.stages}")
        if case.rounding:
            lines.append(f'rounding = "{case.rounding}"')
    lines += ["", "[parameters]", 'x = "source.x"']
    lines += [f'y{n} = "{s}.y"' for n, s in enumerate(sinks)]
    return "\n".join(lines) + "\n"


def _any_ring(case: Case) -> bool:
    return any(
        isinstance(w, Shared) and (w.by != "step" or w.tma) for w in (case.source, *case.sinks)
    )


def kernel_name(case: Case) -> str:
    return f"t_{case.name}"


def image(what: Shared, case: Case) -> list[int]:
    """Of each element of a tile as it lies in memory: its number, row-major."""
    layout = _text(what.layout, case) if what.layout else ""
    size, count = BYTES[case.out_element], case.rows * case.columns
    places = [0] * count
    for number in range(count):
        row, column = divmod(number, case.columns)
        at = (
            number
            if not layout
            else sum(_step(mode, n) for mode, n in zip(_modes(layout), (row, column), strict=True))
        )
        byte = at * size
        if what.swizzle:
            byte ^= (byte >> 7 & {32: 1, 64: 3, 128: 7}[what.swizzle]) << 4
        places[byte // size] = number
    return places


def _step(mode: list[tuple[int, int]], number: int) -> int:
    total = 0
    for size, stride in mode:
        total += number % size * stride
        number //= size
    return total
