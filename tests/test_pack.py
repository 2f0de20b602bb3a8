"""The packer: no overlap, alignment, the same result for any order, least ends, smallest conflicts."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelink.place import pack as packer
from pipelink.place.conflict import conflict
from pipelink.place.pack import Item, pack

ALWAYS = 1


def items_of(most: int, sizes, aligns, moments: int, fixed: bool = False):
    """Lists of items; with `fixed`, some stand one above the other from 0 on."""

    def named(drawn):
        items, at = [], 0
        for number, (size, align, live, fix, gap) in enumerate(drawn):
            place = None
            if fixed and fix:
                place = -(-(at + gap) // align) * align
                at = place + size
            items.append(Item(f"i{number:02}", size, align, live, place))
        return items

    one = st.tuples(
        sizes,
        st.sampled_from(aligns),
        st.integers(1, 2**moments - 1),
        st.sampled_from([True, False, False]),
        st.integers(0, 5),
    )
    return st.lists(one, max_size=most).map(named)


small = items_of(5, st.integers(1, 9), [1, 2, 4, 8], 3, fixed=True)
large = items_of(
    24,
    st.one_of(st.integers(1, 3000), st.integers(1, 16).map(lambda k: k << 10)),
    [8, 128, 1024],
    6,
    True,
)


def least_end(items) -> int:
    """By every order: each packing is first fit under some order."""
    fixed = [i for i in items if i.fixed is not None]
    free = [i for i in items if i.fixed is None]
    best = 10**9
    for order in itertools.permutations(free):
        at = {i: i.fixed for i in fixed}
        for item in order:
            start = 0
            while any(
                o.live & item.live and start < p + o.size and p < start + item.size
                for o, p in at.items()
            ):
                start += item.align
            at[item] = start
        best = min(best, max((p + i.size for i, p in at.items()), default=0))
    return best


def sound(items, packing):
    at = packing.offsets
    assert list(at) == sorted(i.name for i in items)
    for item in items:
        assert at[item.name] >= 0
        assert at[item.name] % item.align == 0
        assert item.fixed in (None, at[item.name])
    for a, b in itertools.combinations(items, 2):
        if a.live & b.live:
            assert at[a.name] + a.size <= at[b.name] or at[b.name] + b.size <= at[a.name], (a, b)
    assert packing.end == max((at[i.name] + i.size for i in items), default=0)
    assert packing.bound <= packing.end


@given(large)
@settings(max_examples=60, deadline=None)
def test_items_that_share_a_moment_do_not_overlap(items):
    packing = pack(items)
    sound(items, packing)


@given(small)
@settings(max_examples=300, deadline=None)
def test_the_end_is_least(items):
    packing = pack(items)
    sound(items, packing)
    assert packing.end == packing.bound == least_end(items)


@given(small, st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_what_can_be_packed_in_a_capacity_is(items, capacity):
    packing, least = pack(items, capacity), least_end(items)
    sound(items, packing)
    assert (packing.end <= capacity) == (least <= capacity)
    assert packing.bound <= least <= packing.end <= 1.02 * least


@given(st.one_of(small, large), st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_items_does_not_matter(items, random):
    mixed = list(items)
    random.shuffle(mixed)
    first, second = pack(items), pack(mixed)
    assert first == second
    assert list(first.offsets.items()) == list(second.offsets.items())


def test_nothing_and_one():
    assert pack([]).end == pack([]).bound == 0
    assert pack([Item("a", 3, 8, ALWAYS)]).offsets == {"a": 0}


def test_items_of_different_moments_share_positions():
    packing = pack([Item("a", 10, 4, 0b01), Item("b", 7, 4, 0b10), Item("c", 5, 4, 0b11)])
    assert (packing.offsets, packing.end) == ({"a": 0, "b": 0, "c": 12}, 17)


def test_equal_items_ascend_by_name():
    packing = pack([Item(name, 4, 4, ALWAYS) for name in "cab"])
    assert packing.offsets == {"a": 0, "b": 4, "c": 8}


def test_free_items_go_around_fixed_ones():
    items = [Item("zero", 1, 1, ALWAYS, 0), Item("five", 2, 1, ALWAYS, 5)]
    items += [Item("pair", 2, 1, ALWAYS), Item("three", 3, 1, ALWAYS), Item("one", 1, 1, ALWAYS)]
    packing = pack(items)
    sound(items, packing)
    assert packing.end == packing.bound == 9


@pytest.mark.parametrize(
    "items",
    [
        [Item("a", 4, 1, 1, 0), Item("b", 4, 1, 3, 3)],
        [Item("a", 4, 4, 1, 2)],
        [Item("a", 4, 4, 1, -4)],
        [Item("a", 4, 4, 1), Item("a", 5, 4, 1)],
        [Item("a", 0, 4, 1)],
        [Item("a", 4, 3, 1)],
        [Item("a", 4, 4, 0)],
    ],
)
def test_what_makes_no_sense_is_refused(items):
    with pytest.raises(ValueError, match="a"):
        pack(items)


def test_fixed_items_of_different_moments_may_overlap():
    assert pack([Item("a", 4, 1, 1, 0), Item("b", 4, 1, 2, 3)]).end == 7


def smallest_conflict(items, capacity):
    """By every set, with the least ends of `least_end`."""
    ranked = sorted(
        (
            (count, -sum(i.size for i in chosen), sorted(i.name for i in chosen))
            for count in range(1, len(items) + 1)
            for chosen in itertools.combinations(items, count)
            if least_end(chosen) > capacity
        ),
    )
    return ranked[0][2] if ranked else []


@given(small, st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_a_conflict_is_the_smallest(items, capacity):
    found = conflict(items, capacity)
    assert [i.name for i in found] == smallest_conflict(items, capacity)


@given(large, st.integers(1 << 10, 80 << 10), st.randoms())
@settings(max_examples=60, deadline=None)
def test_a_conflict_is_minimal(items, capacity, random):
    found = conflict(items, capacity)
    assert (found == ()) == (pack(items, capacity).end <= capacity)
    for gone in found:
        assert pack([i for i in found if i is not gone], capacity).end <= capacity
    mixed = list(items)
    random.shuffle(mixed)
    assert conflict(mixed, capacity) == found


def test_a_conflict_by_sums_is_the_largest_items_of_one_moment():
    items = [Item(f"a{n}", 10 + n, 1, 0b01) for n in range(6)]
    items += [Item(f"b{n}", 16, 1, 0b10) for n in range(6)]
    assert [i.name for i in conflict(items, 40)] == ["b0", "b1", "b2"]
    assert [i.name for i in conflict(items, 16 * 6 - 1)] == [f"b{n}" for n in range(6)]
    assert conflict(items, 16 * 6) == ()


def test_a_conflict_by_alignment():
    """26 of 39, but what lies above `x` starts at 16, what lies above that at 32."""
    items = [Item("x", 9, 16, 1), Item("y", 9, 16, 1), Item("z", 8, 8, 1), Item("small", 1, 1, 1)]
    assert [i.name for i in conflict(items, 39)] == ["x", "y", "z"]
    assert [i.name for i in conflict(items, 24)] == ["x", "y"]
    assert conflict(items, 40) == ()


def test_a_conflict_around_a_fixed_item():
    items = [Item("middle", 2, 1, 1, 4), Item("wide", 5, 1, 1), Item("one", 1, 1, 1)]
    assert [i.name for i in conflict(items, 10)] == ["middle", "wide"]
    assert conflict(items, 11) == ()
    assert [i.name for i in conflict(items, 5)] == ["middle"]


# (size, alignment, moments)
HARD = ((3, 2, 4), (5, 1, 8), (9, 4, 7), (3, 2, 6), (8, 2, 12), (12, 1, 8), (9, 4, 2), (1, 1, 4))


def test_the_solver_finds_what_first_fit_does_not():
    items = [Item(f"i{n}", *row) for n, row in enumerate(HARD)]
    assert packer.end_of(items, packer.in_best_order(items)) == 27
    assert packer.end_of(items, packer._search(items, 25)) == 26
    packing = pack(items)
    sound(items, packing)
    assert (packing.end, packing.bound, packing.how) == (25, 25, "solver")
    assert packing.end == least_end(items)


def test_the_solver_proves_what_sums_do_not():
    """Each moment holds 3, each two of `a`, `b`, `c` share one, and there's no moment for all."""
    items = [Item("a", 2, 1, 0b011), Item("b", 2, 1, 0b110), Item("c", 2, 1, 0b101)]
    assert (pack(items).end, pack(items).bound) == (6, 6)
    assert [i.name for i in conflict(items, 5)] == ["a", "b", "c"]
