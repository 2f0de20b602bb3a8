"""Placement: memory, registers and barriers as pure functions, and what does not fit, in words."""

import pytest
from contracts import ALL, add, change, drop, play
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipelink.abi import Claim, Copy
from pipelink.arch import ARCHES
from pipelink.place.registers import RoleNeed, excess, largest_fitting, launch_registers, pool

H = ARCHES["sm_90a"]
ACT = "epilogue of activation (instance 'act')"
MMA = "mainloop of matrix (instance 'mma')"


@pytest.mark.parametrize(
    ("threads", "registers"),
    [(128, 256), (256, 256), (384, 168), (512, 128), (640, 96), (1024, 64)],
)
def test_registers_a_thread_at_launch(threads, registers):
    assert launch_registers(H, threads) == registers


@pytest.mark.parametrize(
    ("roles", "over", "offer"),
    [
        ((("p", 256, 24), ("c", 256, 240)), 2048, {"p": 0, "c": 232}),
        ((("p", 128, 48), ("c", 256, 232)), 1024, {"p": 40, "c": 224}),
        ((("p", 128, 40), ("c", 256, 232)), 0, {"p": 40, "c": 232}),
        ((("p", 128, 24), ("c", 256, 240)), 0, {"p": 24, "c": 240}),
    ],
)
def test_roles_share_the_pool_of_the_launch(roles, over, offer):
    wanted = [RoleNeed(*r) for r in roles]
    assert excess(H, wanted) == over
    assert {name: largest_fitting(H, wanted, name) for name in offer} == offer


def test_the_pool_is_less_than_the_register_file():
    assert pool(H, 384) == 64_512


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(3, 32)), min_size=2, max_size=4))
def test_an_offer_fits_and_the_next_step_does_not(rows):
    wanted = [RoleNeed(str(n), 128 * w, 8 * r) for n, (w, r) in enumerate(rows)]
    if sum(r.threads for r in wanted) > 1024 or excess(H, wanted) <= 0:
        return
    for role in wanted:
        fitting = largest_fitting(H, wanted, role.name)
        others = [r for r in wanted if r is not role]
        if fitting:
            assert excess(H, [*others, RoleNeed(role.name, role.threads, fitting)]) <= 0
        assert excess(H, [*others, RoleNeed(role.name, role.threads, max(fitting, 16) + 8)]) > 0


def test_a_swizzled_tile_comes_after_no_gap(toy):
    regions = {r.name: (r.offset, r.align) for r in toy.plan().regions}
    assert regions == {
        "load.out.w": (0, 1024),
        "load.out.x": (131_072, 1024),
        "act.staging": (196_608, 128),
    }


def test_mbarriers_follow_the_regions(toy):
    plan = toy.plan()
    rows = {m.name: (m.offset, m.count, m.arrivals) for m in plan.mbarriers}
    assert rows == {"load.out.empty": (197_608, 4, 2), "load.out.full": (197_640, 4, 1)}
    assert plan.shared_bytes == 197_672


def test_both_ends_of_a_ring_are_bound_to_the_same_bytes(toy):
    load, mma, _ = toy.plan().instances
    for slot in ("x", "w", "full", "empty"):
        assert load.bindings[f"out.{slot}"] == mma.bindings[f"in.{slot}"]


def test_roles_get_warps_in_the_order_of_the_manifest(toy):
    plan = toy.plan()
    rows = [(r.name, r.first_warp, r.warps) for r in plan.roles]
    assert rows == [("producer", 0, 4), ("math", 4, 8)]
    (phase,) = plan.phases
    assert [(r.role, r.registers) for r in phase.roles] == [("producer", 40), ("math", 232)]
    assert [i.bindings["role.first_thread"] for i in plan.instances] == [0, 128, 128]


def test_the_order_of_instances_does_not_move_anything(toy):
    first = toy.plan()
    load, act = (
        '[instances.load]\nobject = "loader.o"\n',
        '[instances.act]\nobject = "epilogue.o"\n',
    )
    toy.edit(load, "")
    toy.edit(act, act + "\n" + load)
    second = toy.plan()
    assert (second.regions, second.mbarriers, second.barriers) == (
        first.regions,
        first.mbarriers,
        first.barriers,
    )


def test_roles_that_pass_the_pool_are_offered_what_fits(toy):
    toy.contracts["loader"] = change(ALL["loader"], "claims", "registers", amount="48")
    (fault,) = toy.faults()
    assert fault.message == (
        "the roles claim 65536 registers, the pool has 64512: 128 x 48 (producer) + 256 x 232 (math)"
    )
    assert fault.notes == ("a launch of 384 threads has 168 each",)
    assert fault.help == "what fits: 40 (producer) and 232 (math), or 48 (producer) and 224 (math)"


def plays_once(contract, ring, *operations):
    """One role that fills more stages than there are before it reads one would wait for itself."""
    return change(contract, "entries", "run", plays=tuple(play(o, ring) for o in operations))


def test_a_role_above_the_launch_is_refused_where_registers_do_not_move(toy):
    toy.edit('steps = ["load.run"]\n\n[[roles]]\nname = "math"\nsteps = [', 'steps = ["load.run", ')
    for name in ALL:
        changed = change(ALL[name], "claims", "registers", amount="154")
        changed = change(changed, "claims", "warps", amount="16")
        ports = [
            replace(p, layout="(512,tile_n/4):(1,512)") if p.space == "register" else p
            for p in changed.ports
        ]
        toy.contracts[name] = replace(changed, ports=tuple(ports))
    toy.contracts["loader"] = plays_once(toy.contracts["loader"], "out", "acquire", "commit")
    toy.contracts["mainloop"] = plays_once(toy.contracts["mainloop"], "in", "wait", "release")
    (fault,) = toy.faults()
    assert fault.message == (
        "role 'producer' needs 154 registers a thread by loader of data (instance 'load'), "
        "a launch of 512 threads has 128"
    )
    assert fault.notes == ("154 x 512 = 78848, of 65536",)


def test_too_many_threads_are_refused(toy):
    for name in ("mainloop", "epilogue"):
        changed = change(ALL[name], "claims", "warps", amount="32")
        toy.contracts[name] = change(changed, "ports", "acc", layout="(1024,tile_n/8):(1,1024)")
    (fault,) = toy.faults()
    assert fault.message == (
        "the roles have 1152 threads (producer 128, math 1024), a block of sm_90a has 1 to 1024"
    )


def test_too_much_shared_memory_names_the_largest_and_what_fits(toy):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 5 }')
    (fault,) = toy.faults()
    assert (
        fault.message
        == "the kernel needs 246840 bytes of shared memory, a block of sm_90a has 232448"
    )
    assert fault.notes == (
        "these 2 alone need 245760",
        "load.out.w: 163840 bytes, 5 stages of 256x64 bf16, 128-byte swizzle",
        "load.out.x: 81920 bytes, 5 stages of 128x64 bf16, 128-byte swizzle",
    )
    assert fault.help == "at most 4 stages of 'load.out' fit beside the rest"


def test_the_stages_that_are_offered_fit_to_the_last_byte(toy):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "staging", amount="35776")
    five = 'object = "loader.o"\nfacts = { stages = 5 }'
    toy.edit('object = "loader.o"', five)
    assert toy.faults()[0].help == "at most 4 stages of 'load.out' fit beside the rest"
    toy.edit(five, 'object = "loader.o"')
    assert toy.plan().shared_bytes == 232_448


def test_a_ring_of_which_no_stage_fits_is_said_so(toy):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "staging", amount="200000")
    (fault,) = toy.faults()
    assert fault.help == "claim 164224 bytes less: act.staging has the most"


def test_a_ring_of_which_not_even_one_stage_fits_is_said_so(toy):
    toy.contracts["mainloop"] = change(ALL["mainloop"], "facts", "tile_m", values=(2048,))
    layout = "(256,tile_n*8):(1,256)"
    for name in ("mainloop", "epilogue"):
        toy.contracts[name] = change(toy.contracts[name], "ports", "acc", layout=layout)
    toy.contracts["loader"] = change(ALL["loader"], "ports", "x", box=("256", "tile_k"))
    x, w = toy.contracts["loader"].ports[2].parts
    parts = (replace(x, copies=(Copy("x", "8"),)), w)
    toy.contracts["loader"] = change(toy.contracts["loader"], "ports", "out", parts=parts)
    (fault,) = toy.faults()
    assert fault.help == "no stage of 'load.out' fits beside the rest; choose smaller tiles"


def test_two_owners_of_one_barrier_are_named_with_both_places(toy):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "store", fixed=1)
    toy.contracts["mainloop"] = add(
        ALL["mainloop"], "claims", Claim("order", "barrier", "256", fixed=1)
    )
    (fault,) = toy.faults()
    assert fault.message == f"barrier 1 is fixed by {ACT} and by {MMA}"
    assert [(w.instance, w.section, w.index) for w in (fault.primary, *fault.secondary)] == [
        ("mma", "claims", 2),
        ("act", "claims", 3),
    ]
    assert fault.help == "leave one of the ids to the link"


@pytest.mark.parametrize(
    ("fixed", "count", "why"),
    [
        (0, "1", "0: 0 is __syncthreads()"),
        (18, "1", "18: 18 > 15"),
        (8, "11", "8 + 10 = 18: 18 > 15"),
    ],
)
def test_a_barrier_id_that_a_block_does_not_have_is_named(toy, fixed, count, why):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "store", fixed=fixed, count=count)
    assert toy.messages() == [f"PL032: barrier 'store' of {ACT} is fixed to {why}"]


def test_a_barrier_for_each_warpgroup_has_as_many_ids_and_128_threads(toy):
    toy.contracts["epilogue"] = change(
        ALL["epilogue"], "claims", "store", amount="", scope="warpgroup"
    )
    plan = toy.plan()
    assert [(b.id, b.count, b.threads) for b in plan.barriers] == [(1, 2, 128)]
    assert plan.instances[2].bindings["store.threads"] == 128


def test_shared_memory_for_each_warp_is_claimed_as_often(toy):
    toy.contracts["epilogue"] = change(ALL["epilogue"], "claims", "staging", scope="warp")
    (staging,) = (r for r in toy.plan().regions if r.name == "act.staging")
    assert (staging.bytes, staging.reason) == (
        8 * 1024,
        "claimed as 1000, 8 times: one a warp",
    )


@pytest.mark.parametrize(
    ("by", "arrivals"),
    [("each_warp", 8), ("each_warpgroup", 2), ("each_thread", 256)],
)
def test_arrivals_follow_from_who_arrives_and_the_role(toy, by, arrivals):
    """Two groups of consumers that release a stage are two arrivals."""
    toy.contracts["mainloop"] = change(ALL["mainloop"], "ports", "in", by=by)
    rows = {m.name: m.arrivals for m in toy.plan().mbarriers}
    assert rows == {"load.out.empty": arrivals, "load.out.full": 1}


@pytest.mark.parametrize(("proxy", "fence"), [("async", 1), ("generic", 0), ("", 1)])
def test_a_writer_by_stores_has_a_fence_for_a_reader_through_the_async_proxy(toy, proxy, fence):
    parts = tuple(replace(p, copies=()) for p in ALL["loader"].ports[2].parts)
    toy.contracts["loader"] = change(
        ALL["loader"], "ports", "out", by="each_warp", proxy="generic", parts=parts
    )
    toy.contracts["mainloop"] = change(ALL["mainloop"], "ports", "in", by="each_warp", proxy=proxy)
    plan = toy.plan()
    assert plan.instances[0].bindings["out.fence"] == fence
    how = "a fence to the async proxy" if fence else "no fence"
    assert plan.channels[0].detail == (
        f"4 stages of 49152 bytes, filled by stores, each warp arrives, {how}"
    )


def test_barriers_beyond_the_last_id_are_named_with_those_that_need_them(toy):
    extra = [Claim(f"b{n:02}", "barrier", "256") for n in range(16)]
    toy.contracts["epilogue"] = add(ALL["epilogue"], "claims", *extra)
    (fault,) = toy.faults()
    assert fault.message == (
        "16 named barriers are needed at once, a block of sm_90a has 15 beside __syncthreads()"
    )
    assert fault.notes == tuple(f"act.b{n:02}: 1 for 256 threads" for n in range(16))
    assert fault.help == "claim 1 fewer"


def test_every_misfit_is_reported_at_once(toy):
    toy.contracts["loader"] = change(ALL["loader"], "claims", "registers", amount="48")
    changed = change(ALL["epilogue"], "claims", "store", fixed=18)
    toy.contracts["epilogue"] = change(changed, "claims", "staging", amount="100000")
    assert [m[:5] for m in toy.messages()] == ["PL031", "PL030", "PL032"]


def test_without_a_claim_in_each_role_no_registers_move(toy):
    for name in ("mainloop", "epilogue"):
        toy.contracts[name] = change(ALL[name], "claims", "registers", amount="168")
    toy.contracts["loader"] = drop(ALL["loader"], "claims", "registers")
    (phase,) = toy.plan().phases
    assert [r.registers for r in phase.roles] == [None, None]
