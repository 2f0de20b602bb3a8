"""Each rule: what it finds in a kernel that breaks it, and nothing in one that does not."""

import pytest
from contracts import ALL, add, change, drop
from msgspec.structs import replace

from pipelink.abi import Claim, Part, Port, Requirement
from pipelink.check import FIRST, RULES, channels, objects, parameters, roles, values

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
            channels.fit,
            change(EPILOGUE, "ports", "acc", element="bf16"),
            f"PL021: element types differ: f32 at 'mma.acc' of {MMA}, bf16 at 'act.acc' of {ACT}",
        ),
        (
            channels.fit,
            change(EPILOGUE, "ports", "acc", count="64"),
            f"PL021: elements a thread differ: 128 at 'mma.acc' of {MMA}, 64 at 'act.acc' of {ACT}",
        ),
        (
            channels.fit,
            change(EPILOGUE, "ports", "acc", layout="(256,128):(128,1)"),
            (
                f"PL021: layouts differ: (256,128):(1,256) at 'mma.acc' of {MMA}, "
                f"(256,128):(128,1) at 'act.acc' of {ACT}"
            ),
        ),
        (
            channels.fit,
            change(EPILOGUE, "ports", "acc", space="shared", parts=(Part("a", "f32", ("1",)),)),
            (
                f"PL021: memory spaces differ: register at 'mma.acc' of {MMA}, "
                f"shared at 'act.acc' of {ACT}"
            ),
        ),
        (
            channels.fit,
            change(MAINLOOP, "ports", "in", stages="3"),
            f"PL021: stage counts differ: 4 at 'load.out' of {LOAD}, 3 at 'mma.in' of {MMA}",
        ),
        (
            channels.fit,
            change(MAINLOOP, "ports", "in", parts=LOADER.ports[2].parts[:1]),
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
            change(MAINLOOP, "ports", "in", arrivals="1048576"),
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
            [
                (
                    "PL021: 'mma.acc' hands registers to 'act.acc', and they run in roles "
                    "'math' and 'store'"
                )
            ],
        ),
        (
            channels.order,
            'steps = ["mma.run", "act.run"]',
            'steps = ["load.run"]',
            [],  # neither end has a role: `placed` says so
        ),
        (
            parameters.bounds,
            "[[roles]]\nname = \"producer\"",
            "[extents]\nn = { most = 64 }\n\n[[roles]]\nname = \"producer\"",
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
            [f"PL028: parameter 'x' has shape ['m', 4096] for {LOAD}, [4096, 4096] for {LOAD}"],
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
    toy.edit('x = "load.x"\n', "")
    assert toy.messages() == [
        f"PL024: {ACT} was built for sm_80, the kernel is for sm_90a",
        f"PL034: {ACT} claims 16 registers a thread: 16 < 24",
        f"PL022: port 'load.x' of {LOAD} has no parameter",
    ]


def test_a_value_that_can_not_be_computed_stops_the_other_rules(toy):
    toy.contracts["epilogue"] = change(EPILOGUE, "claims", "registers", amount="a.b")
    toy.edit('x = "load.x"\n', "")
    assert [m[:5] for m in toy.messages()] == ["PL015"]


def test_an_mbarrier_claim_needs_arrivals(toy):
    changed = add(EPILOGUE, "claims", Claim("ready", "mbarrier", "2"))
    assert found(values.computable, toy, changed) == [
        f"PL015: arrivals of claim 'ready' of {ACT}: '' is no expression"
    ]


def test_a_role_without_a_claim_of_warps_has_one(toy):
    toy.contracts["loader"] = drop(LOADER, "claims", "warps")
    assert toy.view().warps("producer") == 1
