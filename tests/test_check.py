"""Each rule: what it finds in a kernel that breaks it, and nothing in one that does not."""

import pytest
from contracts import ALL, add, change, drop, play, repeat
from msgspec.structs import replace

from pipelink.abi import (
    Claim,
    Copy,
    Cover,
    Fact,
    Field,
    Part,
    Port,
    Promise,
    Requirement,
    SharedType,
    Tiling,
)
from pipelink.check import (
    FIRST,
    RULES,
    channels,
    coverage,
    objects,
    parameters,
    protocol,
    rings,
    roles,
    values,
)

ACT = "epilogue of activation (instance 'act')"
LOAD = "loader of data (instance 'load')"
MMA = "mainloop of matrix (instance 'mma')"
LOADER, MAINLOOP, EPILOGUE = ALL["loader"], ALL["mainloop"], ALL["epilogue"]


def found(rule, toy, *contracts):
    """The messages of one rule, with these contracts in place of those of the same name."""
    toy.contracts |= {c.component: c for c in contracts}
    return [f"{d.code}: {d.message}" for d in rule(toy.view())]


@pytest.mark.parametrize("rule", [*FIRST, *RULES], ids=lambda r: f"{r.__module__}.{r.__name__}")
def test_a_right_kernel_passes(rule, toy):
    assert found(rule, toy) == []


@pytest.mark.parametrize(
    ("rule", "contract", "message"),
    [
        (
            objects.target,
            replace(EPILOGUE, target="sm_100a"),
            f"PL024: {ACT} was built for sm_100a, the kernel is for sm_90a",
        ),
        (
            objects.floating_point,
            replace(EPILOGUE, floating_point="ftz=1 div=1 sqrt=1 fma=1"),
            (
                f"PL025: {ACT} was built with floating-point mode 'ftz=1 div=1 sqrt=1 fma=1', "
                f"{LOAD} with 'ftz=0 div=1 sqrt=1 fma=1'"
            ),
        ),
        (
            objects.toolchain,
            replace(EPILOGUE, toolchain=(12, 9)),
            f"PL026: {ACT} was built with CUDA major version 12, {LOAD} with 13",
        ),
        (
            objects.requirements,
            add(EPILOGUE, "requires", Requirement("hidden % 3 == 0", "thirds")),
            f"PL020: {ACT} requires hidden % 3 == 0, and hidden = 4096",
        ),
        (
            objects.requirements,
            add(EPILOGUE, "requires", Requirement("depth > 0", "none")),
            f"PL015: a requirement of {ACT}: 'depth > 0' reads 'depth', which has no value",
        ),
        (
            roles.warps,
            change(EPILOGUE, "claims", "warps", amount="4"),
            f"PL023: role 'math' has 8 warps by {MMA}, and 4 by {ACT}",
        ),
        (
            roles.register_values,
            change(EPILOGUE, "claims", "registers", amount="16"),
            f"PL034: {ACT} claims 16 registers a thread: 16 < 24",
        ),
        (
            roles.register_values,
            change(EPILOGUE, "claims", "registers", amount="264"),
            f"PL034: {ACT} claims 264 registers a thread: 264 > 256",
        ),
        (
            roles.register_values,
            change(EPILOGUE, "claims", "registers", amount="154"),
            f"PL034: {ACT} claims 154 registers a thread: 154 % 8 != 0",
        ),
        (
            roles.barrier_threads,
            change(EPILOGUE, "claims", "store", amount="384"),
            f"PL032: barrier 'store' of {ACT} is for 384 threads, its role 'math' has 256",
        ),
        (
            roles.barrier_threads,
            change(EPILOGUE, "claims", "store", amount="100"),
            f"PL032: barrier 'store' of {ACT} is for 100 threads, its role 'math' has 256",
        ),
        (
            channels.conversions,
            change(EPILOGUE, "ports", "acc", element="bf16"),
            (
                f"PL053: 'mma.acc' of {MMA} hands f32 to 'act.acc' of {ACT}, which takes bf16, and the "
                "channel does not say how to round"
            ),
        ),
        (
            channels.conversions,
            change(EPILOGUE, "ports", "acc", element="i32"),
            (
                f"PL053: 'mma.acc' of {MMA} hands f32 to 'act.acc' of {ACT}, which takes i32: "
                "there is no conversion of f32 to i32"
            ),
        ),
        (
            channels.fit,
            change(
                EPILOGUE,
                "ports",
                "acc",
                space="shared",
                by="step",
                parts=(Part("a", "f32", ("tile_n", "tile_m")),),
            ),
            f"PL021: shapes differ: 128x256 at 'mma.acc' of {MMA}, 256x128 at 'act.acc' of {ACT}",
        ),
        (
            channels.fit,
            change(
                EPILOGUE,
                "ports",
                "acc",
                space="shared",
                by="step",
                parts=(Part("a", "f32", ("1",)), Part("b", "f32", ("1",))),
            ),
            f"PL021: parts differ in number: 1 at 'mma.acc' of {MMA}, 2 at 'act.acc' of {ACT}",
        ),
        (
            channels.fit,
            change(MAINLOOP, "ports", "in", stages="3"),
            f"PL021: stage counts differ: 4 at 'load.out' of {LOAD}, 3 at 'mma.in' of {MMA}",
        ),
        (
            channels.fit,
            change(MAINLOOP, "ports", "in", parts=MAINLOOP.ports[0].parts[:1]),
            (
                f"PL021: parts of a stage differ in number: 2 at 'load.out' of {LOAD}, "
                f"1 at 'mma.in' of {MMA}"
            ),
        ),
        (
            parameters.boxes,
            change(LOADER, "ports", "x", box=("tile_m", "tile_k * 2")),
            f"PL027: port 'load.x' of {LOAD} copies rows of 256 bytes, a 128-byte swizzle takes 128",
        ),
        (
            parameters.boxes,
            change(LOADER, "ports", "x", box=("tile_m * 4", "tile_k")),
            f"PL027: port 'load.x' of {LOAD} copies a box of [512, 64], a side is 1 to 256",
        ),
        (
            parameters.boxes,
            change(LOADER, "ports", "x", box=("tile_m", "4")),
            f"PL027: port 'load.x' of {LOAD} copies rows of 8 bytes, a copy moves multiples of 16",
        ),
        (
            parameters.boxes,
            change(LOADER, "ports", "x", box=("tile_k",)),
            f"PL027: port 'load.x' of {LOAD} copies a box of [64] out of 2 dimensions",
        ),
        (
            values.computable,
            change(EPILOGUE, "claims", "staging", amount="depth * 4"),
            (
                f"PL015: bytes of claim 'staging' of {ACT}: 'depth * 4' reads 'depth', "
                "which has no value"
            ),
        ),
        (
            values.computable,
            change(EPILOGUE, "ports", "acc", layout="(k,1):(1,1)"),
            f"PL015: the layout of port 'acc' of {ACT}: 'k' reads 'k', which has no value",
        ),
        (
            values.sizes,
            change(EPILOGUE, "claims", "staging", amount="0 - 64"),
            f"PL020: bytes of claim 'staging' of {ACT}: 0 - 64 is -64, at least 0 can be",
        ),
        (
            values.sizes,
            change(MAINLOOP, "ports", "in", by="", arrivals="1048576"),
            f"PL020: arrivals of port 'in' of {MMA}: 1048576 is 1048576, at most 1048575 can be",
        ),
        (
            values.sizes,
            change(LOADER, "ports", "out", stages="stages - 4"),
            f"PL020: stages of port 'out' of {LOAD}: stages - 4 is 0, at least 1 can be",
        ),
        (
            values.sizes,
            change(EPILOGUE, "claims", "warps", amount="0"),
            f"PL020: warps of claim 'warps' of {ACT}: 0 is 0, at least 1 can be",
        ),
        (
            channels.layouts,
            change(EPILOGUE, "ports", "acc", count="64"),
            (
                f"PL021: the layout (256,128):(1,256) of 'act.acc' of {ACT} has 128 values a thread, "
                "the port 64"
            ),
        ),
        (
            channels.layouts,
            change(EPILOGUE, "ports", "acc", layout="(96,128):(1,96)"),
            (
                f"PL021: the layout (96,128):(1,96) of 'act.acc' of {ACT} is for 96 threads, "
                "role 'math' has 256"
            ),
        ),
        (
            channels.fit,
            change(EPILOGUE, "ports", "acc", shape=("tile_n", "tile_m")),
            f"PL021: shapes differ: 128x256 at 'mma.acc' of {MMA}, 256x128 at 'act.acc' of {ACT}",
        ),
        (
            channels.layouts,
            change(EPILOGUE, "ports", "acc", shape=("tile_m * 2", "tile_n")),
            (
                f"PL021: the layout (256,128):(1,256) of 'act.acc' of {ACT} has 32768 elements in the "
                "256 threads of role 'math', the tile 256x256 has 65536"
            ),
        ),
        (
            rings.arrivers,
            change(LOADER, "ports", "out", by="each_warpgroup"),
            f"PL037: 'each_warpgroup' arrives at 'load.out' of {LOAD}, which is an 'out' port",
        ),
        (
            rings.arrivers,
            change(MAINLOOP, "ports", "in", by="copies"),
            f"PL037: 'copies' arrives at 'mma.in' of {MMA}, which is an 'in' port",
        ),
        (
            rings.arrivers,
            change(LOADER, "ports", "out", proxy="generic"),
            f"PL037: bulk copies fill 'load.out' of {LOAD} through the generic proxy",
        ),
        (
            rings.filled,
            change(LOADER, "ports", "x", box=("tile_m // 2", "tile_k")),
            (
                f"PL036: part 'x' of 'load.out' of {LOAD} has 16384 bytes, its copies deliver 8192: "
                "1 of 64x64 bf16 by 'x'"
            ),
        ),
        (
            rings.filled,
            change(LOADER, "ports", "x", swizzle=64),
            (
                f"PL036: copies by 'load.x' of {LOAD} have a swizzle of 64, part 'x' of 'load.out' has 128"
            ),
        ),
        (
            rings.filled,
            change(LOADER, "ports", "x", element="f16"),
            (
                f"PL036: copies by 'load.x' of {LOAD} have elements of f16, part 'x' of 'load.out' has bf16"
            ),
        ),
        (
            coverage.covered,
            change(
                EPILOGUE, "ports", "out", covers=(Cover("row", "tile_m"), Cover("column", "tile_n"))
            ),
            (
                f"PL038: side 0 of 'act.out' of {ACT}: the last tile passes its end, as m is known at "
                "launch only: say .clipped()"
            ),
        ),
        (
            coverage.covered,
            change(
                EPILOGUE,
                "ports",
                "out",
                covers=(Cover("row", "tile_m // 2", True), Cover("column", "tile_n")),
            ),
            (
                f"PL038: side 0 of 'act.out' of {ACT}: a tile reaches 64 elements, and the rows of tiles "
                "are 128 apart"
            ),
        ),
        (
            coverage.covered,
            change(
                EPILOGUE,
                "ports",
                "out",
                covers=(Cover("row", "tile_m", True), Cover("column", "tile_n // 2")),
            ),
            (
                f"PL038: side 1 of 'act.out' of {ACT}: 16 columns of tiles, 128 elements each, reach "
                "2048 of 4096"
            ),
        ),
        (
            coverage.covered,
            change(
                EPILOGUE,
                "ports",
                "out",
                covers=(Cover("row", "tile_m", True), Cover("column", "tile_n * 2")),
            ),
            (
                f"PL038: side 1 of 'act.out' of {ACT}: 16 columns of tiles, 512 elements each, reach "
                "8192 of 4096: past its end"
            ),
        ),
        (
            coverage.covered,
            change(
                LOADER,
                "ports",
                "x",
                covers=(Cover("row", "tile_m"), Cover("whole", "(k_steps - 1) * tile_k")),
            ),
            (
                f"PL038: side 1 of 'load.x' of {LOAD}: a tile reaches 4032 ((k_steps - 1) * tile_k) of "
                "4096 (hidden) elements"
            ),
        ),
        (
            protocol.plays,
            change(LOADER, "entries", "run", plays=()),
            f"PL039: no step plays ring 'load.out' of {LOAD}",
        ),
        (
            channels.one_owner,
            change(EPILOGUE, "facts", "tile_n", kind="provides", values=(128,)),
            (
                f"PL012: fact 'tile_n' is fixed at both ends of a channel: 256 by {MMA}, 128 by {ACT}"
            ),
        ),
    ],
)
def test_a_contract_that_breaks_a_rule_is_named(toy, rule, contract, message):
    assert found(rule, toy, contract) == [message]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("element", "f16", "part 'x' differs in element type: bf16"),
        ("shape", ("tile_n", "tile_k"), "part 'x' differs in shape: 128x64"),
        ("swizzle", 64, "part 'x' differs in swizzle: 128"),
    ],
)
def test_parts_of_a_stage_that_differ_are_named(toy, field, value, message):
    x, w = MAINLOOP.ports[0].parts
    changed = change(MAINLOOP, "ports", "in", parts=(replace(x, **{field: value}), w))
    shown = "256x64" if field == "shape" else value
    assert found(channels.fit, toy, changed) == [
        f"PL021: {message} at 'load.out' of {LOAD}, {shown} at 'mma.in' of {MMA}"
    ]


@pytest.mark.parametrize(
    ("rule", "old", "new", "messages"),
    [
        (
            roles.steps,
            'steps = ["load.run"]',
            'steps = ["load.walk"]',
            [f"PL016: role 'producer' runs 'load.walk', and {LOAD} has no such step"],
        ),
        (
            roles.steps,
            'steps = ["mma.run", "act.run"]',
            'steps = ["mma.schedule", "act.run"]',
            [f"PL016: role 'math' runs 'mma.schedule', and {MMA} has no such step"],
        ),
        (
            roles.steps,
            'steps = ["load.run"]',
            'steps = ["load.run", "act.run"]',
            [f"PL023: {ACT} runs in role 'producer' and in role 'math'"],
        ),
        (
            roles.steps,
            'steps = ["load.run"]',
            'steps = ["load.run", "load.run"]',
            ["PL023: role 'producer' runs 'load.run' 2 times a tile"],
        ),
        (
            roles.schedule,
            'schedule = "mma.schedule"',
            'schedule = "load.run"',
            [f"PL029: {LOAD} has no schedule 'run'"],
        ),
        (
            roles.placed,
            'steps = ["mma.run", "act.run"]',
            'steps = ["mma.run"]',
            [f"PL016: {ACT} stands in no role"],
        ),
        (
            channels.exist,
            'to = "act.acc"',
            'to = "act.zzz"',
            [f"PL016: a channel needs an 'in' port at 'act.zzz', and {ACT} has none"],
        ),
        (
            channels.exist,
            'to = "act.acc"',
            'to = "act.out"',
            [f"PL016: a channel needs an 'in' port at 'act.out', and {ACT} has none"],
        ),
        (
            channels.once,
            'from = "mma.acc"\nto = "act.acc"',
            'from = "load.out"\nto = "mma.in"',
            [
                f"PL022: port 'load.out' of {LOAD} has 2 channels",
                f"PL022: port 'mma.in' of {MMA} has 2 channels",
                f"PL022: port 'mma.acc' of {MMA} has no channel",
                f"PL022: port 'act.acc' of {ACT} has no channel",
            ],
        ),
        (
            channels.order,
            'steps = ["mma.run", "act.run"]',
            'steps = ["act.run", "mma.run"]',
            ["PL021: 'act.acc' reads registers before 'mma.acc' has written them"],
        ),
        (
            channels.order,
            'steps = ["mma.run", "act.run"]',
            'steps = ["mma.run"]\n[[roles]]\nname = "store"\nsteps = ["act.run"]',
            [],  # the glue hands them over
        ),
        (
            channels.order,
            'steps = ["mma.run", "act.run"]',
            'steps = ["load.run"]',
            [],  # neither end has a role: `placed` says so
        ),
        (
            parameters.bounds,
            '[[roles]]\nname = "producer"',
            '[extents]\nn = { most = 64 }\n\n[[roles]]\nname = "producer"',
            ["PL016: [extents] names 'n', which is no extent of a component"],
        ),
        (
            parameters.connected,
            'x = "load.x"',
            'x = "load.out"',
            [
                "PL016: parameter 'x' names 'load.out', which is no port in global memory",
                f"PL022: port 'load.x' of {LOAD} has no parameter",
            ],
        ),
        (
            parameters.connected,
            'x = "load.x"',
            'x = ["load.x", "load.x", "load.w"]',
            [
                f"PL022: port 'load.x' of {LOAD} has 2 parameters",
                f"PL022: port 'load.w' of {LOAD} has 2 parameters",
            ],
        ),
        (
            parameters.agree,
            'x = "load.x"\nw = "load.w"',
            'x = ["load.x", "load.w"]',
            [f"PL028: parameter 'x' has shape [m, 4096] for {LOAD}, [4096, 4096] for {LOAD}"],
        ),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_named(toy, rule, old, new, messages):
    toy.edit(old, new)
    assert found(rule, toy) == messages


def test_users_of_a_parameter_with_two_element_types_are_named(toy):
    toy.edit('x = "load.x"', 'x = ["load.x", "load.x16"]')
    shape = Port("x16", "global", "in", "f16", ("m", "hidden"))
    assert found(parameters.agree, toy, add(LOADER, "ports", shape)) == [
        f"PL028: parameter 'x' has element type bf16 for {LOAD}, f16 for {LOAD}"
    ]


@pytest.mark.parametrize(
    ("built_for", "target", "allowed"),
    [
        ("sm_90a", "sm_90a", True),
        ("sm_90", "sm_90a", True),
        ("sm_90a", "sm_100a", False),
        ("sm_90", "sm_100a", False),
    ],
)
def test_code_enters_a_kernel_for_its_own_chip(toy, built_for, target, allowed):
    toy.edit('target = "sm_90a"', f'target = "{target}"')
    assert (
        found(objects.target, toy, *(replace(c, target=built_for) for c in ALL.values())) == []
    ) is allowed


def test_a_single_role_may_claim_any_number_of_registers(toy):
    """Its registers stay as launched: setmaxnreg with its steps of 8 is not used."""
    toy.edit('steps = ["load.run"]\n\n[[roles]]\nname = "math"\nsteps = [', 'steps = ["load.run", ')
    changed = [change(ALL[n], "claims", "registers", amount="154") for n in ALL]
    assert found(roles.register_values, toy, *changed) == []


def test_findings_of_all_rules_are_reported_together(toy):
    toy.contracts["epilogue"] = replace(
        change(EPILOGUE, "claims", "registers", amount="16"), target="sm_80"
    )
    assert toy.messages() == [
        f"PL024: {ACT} was built for sm_80, the kernel is for sm_90a",
        f"PL034: {ACT} claims 16 registers a thread: 16 < 24",
    ]


def test_what_is_no_kernel_stops_the_rules_that_would_only_say_so_again(toy):
    toy.contracts["epilogue"] = replace(EPILOGUE, target="sm_80")
    toy.edit('schedule = "mma.schedule"', 'schedule = "load.run"')
    toy.edit('x = "load.x"\n', "")
    assert toy.messages() == [
        f"PL029: {LOAD} has no schedule 'run'",
        f"PL022: port 'load.x' of {LOAD} has no parameter",
    ]


def test_a_value_that_can_not_be_computed_stops_the_other_rules(toy):
    toy.contracts["epilogue"] = change(EPILOGUE, "claims", "registers", amount="a.b")
    toy.edit('from = "mma.acc"', 'from = "mma.acc"\nrounding = "nearest"')
    assert [m[:5] for m in toy.messages()] == ["PL015"]


def test_a_role_without_a_claim_of_warps_has_one(toy):
    toy.contracts["loader"] = drop(LOADER, "claims", "warps")
    assert toy.view().warps("producer") == 1


def test_a_part_that_no_copy_fills_is_named(toy):
    x, w = LOADER.ports[2].parts
    changed = change(LOADER, "ports", "out", parts=(replace(x, copies=()), w))
    assert found(rings.filled, toy, changed) == [
        f"PL036: part 'x' of 'load.out' of {LOAD} is filled by no copy"
    ]


def test_two_copies_may_fill_a_part_together(toy):
    x, w = LOADER.ports[2].parts
    halves = change(LOADER, "ports", "x", box=("tile_m // 2", "tile_k"))
    parts = (replace(x, copies=(Copy("x", "2"),)), w)
    assert found(rings.filled, toy, change(halves, "ports", "out", parts=parts)) == []


def test_a_schedule_without_tiles_covers_nothing(toy):
    changed = change(MAINLOOP, "entries", "schedule", tiles=())
    assert found(coverage.covered, toy, changed)[0] == (
        f"PL038: side 0 of 'load.x' of {LOAD}: it goes by the rows of 'mma.schedule', "
        "which declares no tiles"
    )


def test_a_schedule_over_another_size_is_named(toy):
    tiles = (Tiling("m", "tile_m"), Tiling("column_tiles - 1", "1"))
    changed = change(MAINLOOP, "entries", "schedule", tiles=tiles)
    assert found(coverage.covered, toy, changed) == [
        (
            f"PL038: side 0 of 'load.w' of {LOAD}: 15 columns of tiles, 256 elements each, "
            "reach 3840 of 4096"
        ),
        (
            f"PL038: side 1 of 'act.out' of {ACT}: 15 columns of tiles, 256 elements each, "
            "reach 3840 of 4096"
        ),
    ]


def test_a_layout_of_a_part_is_compared_as_a_map(toy):
    x, w = MAINLOOP.ports[0].parts
    same = replace(x, layout="(tile_m,(8,tile_k/8)):(tile_k,(1,8))")
    assert found(channels.fit, toy, change(MAINLOOP, "ports", "in", parts=(same, w))) == []
    other = replace(x, layout="(tile_m,tile_k):(1,tile_m)")
    assert found(channels.fit, toy, change(MAINLOOP, "ports", "in", parts=(other, w))) == [
        (
            f"PL021: part 'x' differs in layout: (128,64):(64,1) at 'load.out' of {LOAD}, "
            f"(128,64):(1,128) at 'mma.in' of {MMA}"
        )
    ]


@pytest.mark.parametrize(
    ("left", "shown"), [("undefined", "undefined"), ("", "not said"), ("zero", None)]
)
def test_zeros_past_the_end_are_left_by_the_producer(toy, left, shown):
    x, w = LOADER.ports[2].parts
    producer = change(LOADER, "ports", "out", parts=(replace(x, edge=left), w))
    x, w = MAINLOOP.ports[0].parts
    consumer = change(MAINLOOP, "ports", "in", parts=(replace(x, edge="zero"), w))
    wanted = (
        f"PL035: part 'x' of 'mma.in' needs zeros past the tensor's end, and at 'load.out' of {LOAD} "
        f"they are {shown}"
    )
    assert found(channels.edges, toy, producer, consumer) == ([wanted] if shown else [])


def test_a_need_is_met_by_a_promise_of_the_other_end(toy):
    needy = add(EPILOGUE, "promises", Promise("finite", "acc", "needs", "it takes exponents"))
    assert found(channels.promises, toy, needy) == [
        f"PL035: 'act.acc' of {ACT} needs 'finite', which 'mma.acc' of {MMA} does not promise"
    ]
    giver = add(MAINLOOP, "promises", Promise("finite", "acc", "promises", "inputs are"))
    assert found(channels.promises, toy, needy, giver) == []


def test_a_constant_of_a_shared_header_is_the_same_for_all(toy):
    left = add(LOADER, "facts", Fact("most_routes", "agrees", (8,)))
    right = add(EPILOGUE, "facts", Fact("most_routes", "agrees", (16,)))
    assert found(objects.agreed, toy, left, right) == [
        f"PL017: 'most_routes' is 8 in {LOAD}, 16 in {ACT}"
    ]
    assert found(objects.agreed, toy, left, add(EPILOGUE, "facts", left.facts[-1])) == []


def shared(size, *fields):
    return SharedType("Route", size, 4, tuple(Field(*f) for f in fields))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            shared(8, ("expert", 0, 4), ("weight", 4, 2)),
            "field 'weight' has 4 bytes at 4 in the first, 2 bytes at 4 in the second",
        ),
        (shared(8, ("expert", 0, 4)), "field 'weight' is in one of them only"),
        (
            shared(16, ("expert", 0, 4), ("weight", 4, 4)),
            "8 bytes aligned to 4 in the first, 16 bytes aligned to 4 in the second",
        ),
    ],
)
def test_a_type_of_a_shared_header_has_one_layout(toy, other, why):
    whole = shared(8, ("expert", 0, 4), ("weight", 4, 4))
    left, right = add(LOADER, "types", whole), add(EPILOGUE, "types", other)
    assert found(objects.types, toy, left, right) == [
        f"PL018: type 'Route' is not the same in {LOAD} and {ACT}: {why}"
    ]
    assert found(objects.types, toy, left, add(EPILOGUE, "types", whole)) == []


def test_an_unmet_requirement_names_where_its_values_are_fixed(toy):
    """A derived fact leads on to those that it follows from."""
    toy.contracts["mainloop"] = add(
        MAINLOOP, "requires", Requirement("k_steps >= 100", "the pipeline is deep")
    )
    (fault,) = toy.faults()
    assert [(w.instance, w.label) for w in fault.secondary[:1]] == [("load", "k_steps = 64")]
    assert [w.label for w in fault.secondary] == ["k_steps = 64", "hidden = 4096", "tile_k = 64"]


def test_a_consumer_that_holds_its_only_stage_blocks(toy):
    held = (
        play("wait", "in"),
        repeat("k_steps - 1", play("wait", "in"), play("release", "in")),
        play("release", "in"),
    )
    changed = change(MAINLOOP, "entries", "run", plays=held)
    assert found(protocol.pipelines, toy, changed) == []
    toy.contracts["loader"] = change(LOADER, "facts", "stages", values=(1,))
    assert found(protocol.pipelines, toy) == [
        "PL039: roles 'producer' and 'math' wait for each other"
    ]


def test_a_role_that_hands_itself_more_stages_than_there_are_waits_for_itself(toy):
    toy.edit('steps = ["load.run"]\n\n[[roles]]\nname = "math"\nsteps = [', 'steps = ["load.run", ')
    (message,) = found(protocol.pipelines, toy)
    assert message == "PL039: role 'producer' waits for itself"


def test_what_is_by_warpgroups_needs_whole_warpgroups(toy):
    changed = [change(ALL[n], "claims", "warps", amount="6") for n in ("mainloop", "epilogue")]
    changed[1] = change(changed[1], "claims", "store", scope="warpgroup")
    assert found(roles.scopes, toy, *changed) == [
        f"PL037: port 'in' of {MMA} is by warpgroups of 4 warps, its role 'math' has 6",
        f"PL037: claim 'store' of {ACT} is by warpgroups of 4 warps, its role 'math' has 6",
    ]


def test_a_channel_the_wrong_way_is_told_once(toy):
    toy.edit('from = "load.out"\nto = "mma.in"', 'from = "mma.in"\nto = "load.out"')
    (fault,) = toy.faults()
    assert fault.message == "the channel from 'mma.in' to 'load.out' goes the wrong way"
    assert fault.help == 'swap them: from = "load.out", to = "mma.in"'


def test_parts_of_a_stage_that_change_places_are_named(toy):
    w, x = (replace(p, shape=("tile_m", "tile_k")) for p in MAINLOOP.ports[0].parts[::-1])
    assert found(channels.fit, toy, change(MAINLOOP, "ports", "in", parts=(w, x)))[0] == (
        "PL021: parts stand in another order or have other names: "
        f"x at 'load.out' of {LOAD}, w at 'mma.in' of {MMA}"
    )


def test_facts_that_both_ends_have_for_themselves_do_not_clash(toy):
    left = add(LOADER, "facts", Fact("vector", "provides", (8,)))
    right = add(MAINLOOP, "facts", Fact("vector", "provides", (4,)))
    assert found(channels.one_owner, toy, left, right) == []


@pytest.mark.parametrize(
    ("covers", "why"),
    [
        (
            (Cover("row", "tile_m", True), Cover("whole", "hidden")),
            "each element is written by every column of tiles",
        ),
        (
            (Cover("row", "tile_m", True), Cover("row", "tile_m", True)),
            "2 sides go by the rows of tiles, which reaches a diagonal only",
        ),
    ],
)
def test_an_output_is_written_once(toy, covers, why):
    messages = found(coverage.covered, toy, change(EPILOGUE, "ports", "out", covers=covers))
    assert f"PL038: 'act.out' of {ACT}: {why}" in messages


def test_an_input_may_have_a_halo_and_an_output_may_not(toy):
    wide = (Cover("row", "tile_m + 2", True), Cover("whole", "hidden"))
    halo = change(LOADER, "ports", "x", covers=(wide[0], LOADER.ports[0].covers[1]))
    assert found(coverage.covered, toy, halo) == []
    wide = (wide[0], Cover("column", "tile_n"))
    assert found(coverage.covered, toy, change(EPILOGUE, "ports", "out", covers=wide)) == [
        (
            f"PL038: side 0 of 'act.out' of {ACT}: a tile reaches 130 elements, and the rows of tiles "
            "are 128 apart"
        )
    ]


def test_one_tensor_has_one_writer(toy):
    toy.edit('out = "act.out"', 'out = ["act.out", "act.more"]')
    more = replace(EPILOGUE.ports[1], name="more")
    assert found(parameters.writers, toy, add(EPILOGUE, "ports", more)) == [
        f"PL028: parameter 'out' is written by 'act.out' of {ACT} and by 'act.more' of {ACT}"
    ]


def test_a_tensor_is_updated_in_place_only_by_the_tile_that_reads_it(toy):
    toy.edit('out = "act.out"', 'out = ["act.before", "act.out"]')
    before = replace(EPILOGUE.ports[1], name="before", direction="in")
    assert found(parameters.writers, toy, add(EPILOGUE, "ports", before)) == []
    other = replace(before, covers=before.covers[::-1])
    assert found(parameters.writers, toy, add(EPILOGUE, "ports", other)) == [
        (
            f"PL028: parameter 'out' is read by 'act.before' of {ACT} and written by 'act.out' of {ACT}, "
            "and a tile does not reach the same elements of it"
        )
    ]


@pytest.mark.parametrize("by", ["one_thread", "each_warpgroup"])
def test_a_thread_does_not_arrive_for_loads_of_others(toy, by):
    reader = change(MAINLOOP, "ports", "in", by=by, proxy="generic")
    count = 8 if by == "one_thread" else 4
    assert found(rings.ordered, toy, change(reader, "ports", "in", by="each_warp")) == []
    assert found(rings.ordered, toy, reader) == [
        (
            f"PL037: {by.replace('_', ' ')} arrives at 'mma.in' of {MMA} for {count} warps, and nothing "
            "orders their reads before it"
        )
    ]


def test_a_register_claim_that_moves_nothing_is_remarked(toy):
    toy.contracts["loader"] = drop(LOADER, "claims", "registers")
    for name in ("mainloop", "epilogue"):
        toy.contracts[name] = change(ALL[name], "claims", "registers", amount="168")
    assert toy.plan().remarks == (
        "registers do not move between roles, as role 'producer' claims none",
    )


def test_one_thread_does_not_wait_for_the_wgmma_of_other_warpgroups(toy):
    assert found(rings.ordered, toy, change(MAINLOOP, "ports", "in", by="one_thread")) == [
        (
            f"PL037: one thread arrives at 'mma.in' of {MMA} for 2 warpgroups, and nothing orders their "
            "reads before it"
        )
    ]


def test_a_requirement_may_read_the_threads_of_the_role(toy):
    right = add(EPILOGUE, "requires", Requirement("role_threads == 256", "two rows a thread"))
    assert found(objects.requirements, toy, right) == []
    wrong = add(EPILOGUE, "requires", Requirement("role_threads == tile_m", "a row a thread"))
    assert found(objects.requirements, toy, wrong) == [
        f"PL020: {ACT} requires role_threads == tile_m, and role_threads = 256, tile_m = 128"
    ]


def test_stages_of_bulk_copies_begin_at_whole_128_bytes(toy):
    x, w = LOADER.ports[2].parts
    small = replace(x, shape=("3", "tile_k"), swizzle=0, copies=(Copy("x", "1"),))
    changed = change(LOADER, "ports", "x", box=("3", "24"), swizzle=0)
    changed = change(changed, "ports", "out", parts=(replace(small, shape=("3", "24")), w))
    assert found(rings.filled, toy, changed)[0] == (
        f"PL036: part 'x' of 'load.out' of {LOAD} has 144 bytes, and a bulk copy begins at a multiple of "
        "128: the second stage does not"
    )


def test_a_claim_is_not_in_use_during_a_schedule(toy):
    schedule = next(e.name for e in MAINLOOP.entries if e.kind == "schedule")
    claim = Claim("scratch", "shared", "128", during=(schedule,))
    toy.contracts["mainloop"] = add(MAINLOOP, "claims", claim)
    assert toy.messages() == [
        "PL003: mainloop.contract.json: claim 'scratch' lives during 'schedule', which is no step"
    ]
