"""The slots that code asks for, against those of its contract."""

from contracts import LOADER, add, drop

from pipelink import slots
from pipelink.abi import Claim, fnv1a

SOURCE = '''\
constexpr auto stages = pl::chooses<"stages", 4>();
constexpr auto ready = pl::claims_mbarriers<"ready">(2_n, pl::each_warp);
constexpr auto out = pl::ring_out<"out">()(stages, pl::by_copies, x_tile);
'''


def found(contract, *asked):
    unit = "".join(f"return pipelink_bind(self, {fnv1a(a.encode())}UL);\n" for a in asked)
    return [
        (d.message, d.primary.file) for d in slots.unlisted(contract, unit, SOURCE, "loader.cu")
    ]


def test_what_is_listed_may_be_asked_for():
    asked = ("stages", "out.x", "out.full", "out.empty", "role.first_thread", "role.threads")
    assert found(LOADER, *asked) == []


def test_an_item_that_is_used_and_not_listed_is_named_with_its_line():
    assert found(drop(LOADER, "facts", "stages"), "stages") == [
        ("item 'stages' is used and not listed in the contract", "loader.cu:1")
    ]
    assert found(LOADER, "ready") == [
        ("item 'ready' is used and not listed in the contract", "loader.cu:2")
    ]
    listed = add(LOADER, "claims", Claim("ready", "mbarrier", "2", by="each_warp"))
    assert found(listed, "ready") == []


def test_a_ring_that_is_not_listed_is_known_by_its_barriers():
    assert found(drop(LOADER, "ports", "out"), "out.full", "out.x") == [
        ("item 'out' is used and not listed in the contract", "loader.cu:3")
    ]


def test_a_region_is_asked_for_through_temporaries():
    unit = f"return ((__T1 = self) , (pipelink_region(__T1, {fnv1a(b'ready')}UL, __T2)));"
    (fault,) = slots.unlisted(LOADER, unit, SOURCE, "loader.cu")
    assert fault.code == "PL051"
