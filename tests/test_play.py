"""Pipelines played together: what hangs, is overwritten, or is released unfilled, in words."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelink.check import play as playing
from pipelink.check.play import Op, Ring, Role, Trouble, play


def acquire(ring):
    return Op("acquire", ring, place=f"acquire {ring}")


def commit(ring):
    return Op("commit", ring, place=f"commit {ring}")


def wait(ring, end="mma"):
    return Op("wait", ring, end, place=f"wait {ring}")


def release(ring, end="mma"):
    return Op("release", ring, end, place=f"release {ring}")


def fill(ring):
    return acquire(ring), commit(ring)


def take(ring, end="mma"):
    return wait(ring, end), release(ring, end)


def repeat(count, *body):
    if isinstance(count, str):
        return Op("repeat", name=count, body=body)
    return Op("repeat", count=count, body=body)


def maybe(name, *body):
    return Op("maybe", name=name, body=body)


def ring(name, stages, *ends):
    return Ring(name, stages, ends or ("mma",))


def roles(**ops):
    return [Role(name, tuple(own)) for name, own in ops.items()]


def ffn(steps, stages):
    """The main loop of components/ffn: a stage is released when the next one has come."""
    producer = [repeat(steps, *fill("a"))]
    math = [wait("a"), repeat(steps - 1, *take("a")), release("a")]
    return [ring("a", stages)], roles(producer=producer, math=math)


def plain(producer, math, stages=4):
    return play([ring("a", stages)], roles(producer=producer, math=math))


# What is right


@pytest.mark.parametrize(("steps", "stages"), [(1, 1), (1, 2), (1, 4), (80, 2), (80, 4)])
def test_a_consumer_that_holds_a_stage_while_it_waits_for_the_next(steps, stages):
    assert play(*ffn(steps, stages)) == []


def test_no_trips():
    assert plain([repeat(0, *fill("a"))], [repeat(0, *take("a"))]) == []


def test_two_rings_of_which_one_is_filled_first_if_all_fills_fit():
    producer = [repeat(4, *fill("a")), repeat(4, *fill("b"))]
    math = [repeat(4, *take("a"), *take("b"))]
    assert play([ring("a", 4), ring("b", 2)], roles(producer=producer, math=math)) == []


def test_two_consumers_at_their_own_pace():
    own = {
        "producer": [repeat(80, *fill("a"))],
        "math": [repeat(80, *take("a"))],
        "sums": [repeat(40, *2 * [wait("a", "sum")], *2 * [release("a", "sum")])],
    }
    assert play([ring("a", 4, "mma", "sum")], roles(**own)) == []


def test_a_decision_of_both_sides():
    assert plain([maybe("early", *fill("a"))], [maybe("early", *take("a"))]) == []


def test_a_count_of_both_sides():
    assert plain([repeat("tokens", *fill("a"))], [repeat("tokens", *take("a"))]) == []


def test_a_producer_that_acquires_a_stage_ahead():
    assert plain([repeat(9, commit("a"), acquire("a"))], [repeat(9, *take("a"))]) == []


@pytest.mark.parametrize("count", [8_000, 8_001, 1_000_000])
def test_counts_of_any_size(count):
    assert play(*ffn(count, 4)) == []


def test_loops_cut_in_other_ways_on_each_side():
    producer = [repeat(1000, repeat(12, *fill("a")))]
    math = [repeat(12, repeat(500, *take("a"), *take("a")))]
    assert plain(producer, math) == []


# Deadlocks


def test_one_stage_is_too_few_for_a_consumer_that_holds_one():
    assert play(*ffn(80, 1)) == [
        Trouble(
            "deadlock",
            "roles 'producer' and 'math' wait for each other",
            (
                (
                    "role 'producer' waits to fill stage 0 of 'a' again (its 2nd acquire, in the 1st "
                    "tile); 'mma' of role 'math' frees it by its 1st release"
                ),
                (
                    "role 'math' waits for stage 0 of 'a' (its 2nd wait, in the 1st tile); "
                    "role 'producer' fills it by its 2nd commit"
                ),
            ),
            ("acquire a", "wait a"),
        )
    ]


def test_two_rings_each_right_alone():
    producer = [repeat(8, *fill("a")), repeat(8, *fill("b"))]
    math = [repeat(8, wait("a"), wait("b"), release("a"), release("b"))]
    assert play([ring("a", 4), ring("b", 2)], roles(producer=producer, math=math)) == [
        Trouble(
            "deadlock",
            "roles 'producer' and 'math' wait for each other",
            (
                (
                    "role 'producer' waits to fill stage 0 of 'a' again (its 5th acquire, in the 1st "
                    "tile); 'mma' of role 'math' frees it by its 1st release"
                ),
                (
                    "role 'math' waits for stage 0 of 'b' (its 1st wait, in the 1st tile); "
                    "role 'producer' fills it by its 1st commit"
                ),
            ),
            ("acquire a", "wait b"),
        )
    ]


def test_three_roles_in_a_circle_and_one_that_waits_on_it():
    own = {
        "last": take("a", "store"),
        "first": [*take("c"), *fill("a")],
        "second": [*take("a"), *fill("b")],
        "third": [*take("b"), *fill("c")],
    }
    rings = [ring("a", 2, "mma", "store"), ring("b", 2), ring("c", 2)]
    (trouble,) = play(rings, roles(**own))
    assert trouble.message == "roles 'first', 'third' and 'second' wait for each other"
    assert len(trouble.trace) == 4


def test_a_role_that_waits_for_itself():
    (trouble,) = play([ring("a", 1)], roles(math=[*fill("a"), *fill("a"), *take("a"), *take("a")]))
    assert trouble.message == "role 'math' waits for itself"


def test_a_stage_that_two_consumers_hold():
    own = {
        "producer": [repeat(2, *fill("a"))],
        "math": [wait("a"), *take("a"), release("a")],
        "sums": [wait("a", "sum"), *take("a", "sum"), release("a", "sum")],
    }
    (trouble,) = play([ring("a", 1, "mma", "sum")], roles(**own))
    assert trouble.trace[0] == (
        "role 'producer' waits to fill stage 0 of 'a' again (its 2nd acquire, in the 1st tile); "
        "'mma' of role 'math' frees it by its 1st release and "
        "'sum' of role 'sums' frees it by its 1st release"
    )


def test_a_deadlock_that_only_some_counts_have():
    producer = [repeat("tokens", *fill("a")), *fill("b")]
    math = [wait("b"), repeat("tokens", *take("a")), release("b")]
    (trouble,) = play([ring("a", 4), ring("b", 4)], roles(producer=producer, math=math))
    assert trouble.message == "roles 'producer' and 'math' wait for each other"
    assert trouble.trace[0] == "with 'tokens' = 5"


def test_a_deadlock_after_many_steps_has_the_numbers_of_the_run():
    producer = [repeat(8000, *fill("a")), repeat(3, *fill("a")), *fill("b")]
    math = [repeat(8000, *take("a")), *take("b"), repeat(3, *take("a"))]
    (trouble,) = play([ring("a", 2), ring("b", 2)], roles(producer=producer, math=math))
    assert trouble.trace[0] == (
        "role 'producer' waits to fill stage 0 of 'a' again (its 8003rd acquire, in the 1st tile); "
        "'mma' of role 'math' frees it by its 8001st release"
    )


# Imbalances


def test_stages_left_over_by_each_tile():
    assert plain([repeat(5, *fill("a"))], [repeat(4, *take("a"))]) == [
        Trouble(
            "unbalanced",
            "role 'producer' fills 5 stages of 'a' a tile, 'mma' of role 'math' waits for 4 and "
            "releases 4",
            ("stages of one tile are taken for those of another",),
            ("acquire a", "commit a", "wait a", "release a"),
        )
    ]


def test_a_last_stage_waited_for_without_a_trip():
    (trouble,) = play(*ffn(0, 4))
    assert trouble.message == (
        "role 'producer' fills 0 stages of 'a' a tile, 'mma' of role 'math' waits for 1 and releases 1"
    )


def test_a_consumer_that_never_releases():
    own = {
        "producer": [repeat(80, *fill("a"))],
        "math": [repeat(80, *take("a"))],
        "sums": [repeat(80, wait("a", "sum"))],
    }
    assert play([ring("a", 4, "mma", "sum")], roles(**own)) == [
        Trouble(
            "unbalanced",
            "role 'producer' fills 80 stages of 'a' a tile, 'sum' of role 'sums' waits for 80 and "
            "releases 0",
            ("all 4 stages are held in the end, and none can be filled",),
            ("acquire a", "commit a", "wait a"),
        )
    ]


def test_an_early_exit_of_one_side():
    (trouble,) = plain([maybe("early", *fill("a"))], take("a"))
    assert trouble.message == (
        "role 'producer' fills 0 stages of 'a' a tile, 'mma' of role 'math' waits for 1 and releases 1"
    )
    assert trouble.trace[0] == "with 'early' = false"


def test_decisions_of_two_names_are_not_one():
    (trouble,) = plain([maybe("early", *fill("a"))], [maybe("last", *take("a"))])
    assert trouble.kind == "unbalanced"
    assert trouble.trace[0] == "with 'early' = false and 'last' = true"


def test_a_count_of_the_run_against_one_of_the_link():
    (trouble,) = plain([repeat("tokens", *fill("a"))], [repeat(4, *take("a"))])
    assert trouble.trace[0] == "with 'tokens' = 0"


# Races


def test_a_commit_without_an_acquire():
    assert plain([commit("a")], take("a")) == [
        Trouble(
            "overwritten",
            "role 'producer' fills stage 0 of 'a', which 'mma' of role 'math' has not released",
            (
                "role 'producer' is at its 5th commit, in the 5th tile, after 0 acquires",
                "'mma' of role 'math' has done 0 waits and 0 releases",
            ),
            ("commit a", "release a"),
        )
    ]


def test_one_acquire_for_two_commits():
    (trouble,) = plain(
        [repeat(4, acquire("a"), commit("a"), commit("a"))], [repeat(8, *take("a"))], 3
    )
    assert trouble.message == (
        "role 'producer' fills stage 0 of 'a', which 'mma' of role 'math' has not released"
    )
    assert trouble.trace[0] == (
        "role 'producer' is at its 4th commit, in the 1st tile, after 2 acquires"
    )


def test_a_commit_without_an_acquire_that_another_ring_makes_safe():
    producer = [repeat(8, commit("a"), wait("done", "load"), release("done", "load"))]
    math = [repeat(8, *take("a"), *fill("done"))]
    rings = [ring("a", 1), ring("done", 1, "load")]
    assert play(rings, roles(producer=producer, math=math)) == []


def test_a_race_between_tiles_of_different_decisions():
    tokens = [wait("done", "load"), release("done", "load")]
    both = [maybe("x", maybe("y", *tokens)), maybe("y", commit("a"), *tokens)]
    producer = [*both, maybe("x", *tokens, commit("a"), commit("a"))]
    both = [maybe("x", maybe("y", *fill("done"))), maybe("y", *take("a"), *fill("done"))]
    math = [*both, maybe("x", *fill("done"), *take("a"), *take("a"))]
    rings = [ring("a", 2), ring("done", 2, "load")]
    (trouble,) = play(rings, roles(producer=producer, math=math))
    assert trouble.kind == "overwritten"
    assert trouble.trace[0] == "with 'x' = false, true and 'y' = true, false"


def test_a_release_without_a_wait():
    unbalanced, unfilled = plain(fill("a"), [release("a")])
    assert unbalanced.kind == "unbalanced"
    assert unfilled == Trouble(
        "unfilled",
        "'mma' of role 'math' releases stage 0 of 'a' without a wait for it",
        (
            "at its 1st release, in the 1st tile, 'mma' of role 'math' has done 0 waits and 0 releases",
        ),
        ("release a",),
    )


def test_a_release_before_the_wait():
    (trouble,) = plain(fill("a"), [release("a"), wait("a")])
    assert trouble.kind == "unfilled"


def test_one_release_too_many():
    (trouble,) = plain(fill("a"), [*take("a"), release("a")])
    assert trouble.message == "'mma' of role 'math' releases stage 1 of 'a' without a wait for it"


def test_troubles_of_several_rings_are_told_together():
    own = {"producer": [commit("a"), commit("b")], "math": [*take("a"), *take("b")]}
    rings = [ring("a", 2), ring("b", 2)]
    assert [t.message for t in play(rings, roles(**own))] == [
        "role 'producer' fills stage 0 of 'a', which 'mma' of role 'math' has not released",
        "role 'producer' fills stage 0 of 'b', which 'mma' of role 'math' has not released",
    ]


# Bounds, and what is passed over


def test_more_combinations_than_are_played():
    names = [f"n{i}" for i in range(4)]
    producer = [repeat(name, *fill("a")) for name in names]
    math = [repeat(name, *take("a")) for name in names]
    assert plain(producer, math, stages=2) == [
        Trouble("unplayed", "64 of 625 combinations of named counts and decisions were played")
    ]


def test_more_acts_than_are_played(monkeypatch):
    monkeypatch.setattr(playing, "MOST_ACTS", 20)
    assert play(*ffn(80, 4)) == [Trouble("unplayed", "the play was broken off after 20 acts")]


def test_operations_on_rings_that_are_not_given_are_passed_over():
    _, own = ffn(80, 1)
    assert play([], own) == []


def test_a_ring_of_which_an_end_plays_nothing_is_passed_over():
    assert plain([repeat(80, *fill("a"))], []) == []


def test_a_loop_of_nothing():
    assert plain([maybe("early"), *fill("a")], [repeat("tokens"), *take("a")]) == []


# Properties


@st.composite
def well_formed(draw):
    """A producer, and a consumer that holds some stages while it waits for the next; the fills of
    a tile cut into loops in any way."""
    parts = draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
    total = sum(parts)
    hold = draw(st.integers(0, min(total - 1, 5)))
    stages = draw(st.integers(hold + 1, 8))
    producer = [repeat(n, *fill("a")) for n in parts]
    steady = repeat(total - hold, *take("a"))
    return [ring("a", stages)], roles(
        producer=producer, math=[*hold * [wait("a")], steady, *hold * [release("a")]]
    )


@given(well_formed())
def test_a_pair_with_equal_counts_and_a_stage_more_than_it_holds(kernel):
    assert play(*kernel) == []


class Mbarrier:
    def __init__(self, arrivals):
        self.arrivals = self.pending = arrivals
        self.phase = 0

    def arrive(self):
        self.pending -= 1
        if not self.pending:
            self.phase, self.pending = self.phase + 1, self.arrivals

    def test(self, parity):
        return self.phase % 2 != parity % 2


def unrolled(ops):
    for op in ops:
        for _ in range(op.count or 1):
            yield from unrolled(op.body) if op.do == "repeat" else [op]


def race(kernel, own, lazy):
    """What goes wrong first, with each mbarrier as PTX has it and every act done one by one."""
    full = [Mbarrier(1) for _ in range(kernel.stages)]
    empty = [Mbarrier(len(kernel.consumers)) for _ in range(kernel.stages)]
    unread = [set() for _ in range(kernel.stages)]
    done = dict.fromkeys(
        itertools.product(("commit", "wait", "release"), ("", *kernel.consumers)), 0
    )
    left = [[*unrolled(role.ops)] * (2 * kernel.stages + 2) for role in own]
    order = sorted(range(len(own)), key=lambda n: n == lazy)

    def passes(op):
        turn, stage = divmod(done["wait" if op.do == "wait" else "commit", op.end], kernel.stages)
        if op.do == "acquire":
            return empty[stage].test(turn + 1)
        return op.do != "wait" or full[stage].test(turn)

    while able := [n for n in order if left[n] and passes(left[n][0])]:
        op = left[able[0]].pop(0)
        stage = done.get((op.do, op.end), 0) % kernel.stages
        if op.do == "commit":
            if unread[stage]:
                return "overwritten"
            unread[stage] = set(kernel.consumers)
            full[stage].arrive()
        if op.do == "release":
            if done["release", op.end] == done["wait", op.end]:
                return "unfilled"
            unread[stage].discard(op.end)
            empty[stage].arrive()
        if op.do != "acquire":
            done[op.do, op.end] += 1
    return "deadlock" if any(left) else None


def side(*acts):
    loop = st.builds(
        lambda n, body: repeat(n, *body), st.integers(1, 20), st.lists(*acts, max_size=3)
    )
    return st.lists(st.one_of(*acts, loop), max_size=4)


def any_kernel():
    fills = side(st.sampled_from([acquire("a"), commit("a")]))
    own = [fills, *(side(st.sampled_from(take("a", end))) for end in ("mma", "sum"))]
    return st.tuples(st.integers(1, 4), st.tuples(*own), st.sampled_from([1, 2]))


@given(any_kernel())
def test_a_play_ends_as_the_mbarriers_do(drawn):
    stages, ops, consumers = drawn
    kernel = ring("a", stages, *("mma", "sum")[:consumers])
    own = roles(**dict(zip(("producer", "math", "sums")[: consumers + 1], ops, strict=False)))
    assume(all(any(unrolled(role.ops)) for role in own))
    expected = {race(kernel, own, lazy) for lazy in range(len(own))} - {None}
    found = {trouble.kind for trouble in play([kernel], own)}
    # An unbalanced ring may hang, or be left with stages that nobody takes.
    if "unbalanced" in found:
        expected = expected - {"deadlock"} | {"unbalanced"}
    assert found == expected
