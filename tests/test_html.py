"""The map as a page: what it names, where it draws it, and that it needs nothing beside itself."""

import re
from html import escape, unescape
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from pipelink.audit import Audited
from pipelink.driver import Product
from pipelink.model import (
    BarrierPlan,
    Call,
    ChannelPlan,
    Choice,
    ColumnsPlan,
    Convert,
    FactValue,
    Hand,
    InstancePlan,
    MbarrierPlan,
    Move,
    PhasePlan,
    Plan,
    Rearrange,
    Region,
    RolePlan,
    RoleSteps,
    Sync,
    TilePlace,
)
from pipelink.report.html import encode_html
from pipelink.resources import template_dir
from pipelink.transfer.records import Access, Conversion, Moves, Permute

OWNERS = {
    "load": ("data-movement", "loaders"),
    "mma": ("matrix", "math"),
    "norm": ("numerics", "math"),
    "scan": ("matrix", "scanners"),
    "out": ("writers", "storers"),
}


def instance(name: str, number: int) -> InstancePlan:
    owner, role = OWNERS[name]
    print_ = f"0x{number:016x}"
    return InstancePlan(name, number, f"{name}_part", owner, "1.0", f"{name}.o", role, print_, {})


def call(name: str, entry: str = "run") -> Call:
    number = list(OWNERS).index(name)
    return Call(name, f"pipelink__{name}_part__{entry}", number, (("tile", "tile"),))


def hand(act, port: str, number: int) -> Hand:
    return Hand(act, port, number, "state", 98304, 3)


def move(direction, what: str, offset: int, conflict: int = 1) -> Move:
    access = Access(0, 0, 0, 16, ())
    made = Moves(direction, "stmatrix.x4", (), (access, access), conflict, 8, 4)
    return Move(what, "mma__acc", TilePlace(offset), made)


CONVERT = Convert(
    "f32 to bf16, rounded nearest",
    "mma__acc",
    "mma__acc__bf16",
    Conversion("f32", "bf16", 32, ("cvt.rn.bf16x2.f32",), True, ()),
)


def phases() -> tuple[PhasePlan, ...]:
    """Three phases: one for each tile with rings and glue, one on other warps, one that ends it."""
    load = RoleSteps("loaders", 40, (), (), (call("load"),), "setmaxnreg 40: the most of load 40")
    math = (
        hand("wait", "in", 1),
        call("mma"),
        hand("release", "in", 1),
        CONVERT,
        move("store", "mma.acc to norm.in", 65536),
        Sync("role", 1, 256, "mma.acc before, norm.run after"),
        move("load", "norm.in to norm.rows", 65536, 2),
        call("norm"),
        Rearrange("norm.y to out.x", "norm__y", "out__x", Permute(())),
    )
    first = (load, RoleSteps("math", 232, (), (), math, "setmaxnreg 232: the most of mma 232"))
    scan = RoleSteps(
        "scanners", None, (), (), (call("scan", "prefix"), call("scan", "fix")), "none"
    )
    last = RoleSteps("storers", 96, (), (), (call("out"),), "setmaxnreg 96: the most of out 96")
    return (
        PhasePlan("tiles", call("mma", "schedule"), first),
        PhasePlan("scan", None, (scan,), fence=True),
        PhasePlan("store", None, (last,)),
    )


EVERY = ("tiles", "scan", "store")
REGIONS = (
    Region("load.out.x", ("load", "mma"), 0, 49152, 1024, ("tiles",), "3 stages of 128x64 bf16, 128-byte swizzle"),
    Region("scan.table", ("scan",), 0, 32768, 128, ("scan",), "claimed as table; on bytes of load.out.x"),
    Region("norm.in.tile", ("mma", "norm"), 65536, 16384, 128, ("tiles",), "64x128 bf16, not swizzled"),
    Region("norm.sums", ("norm",), 65536, 8192, 128, ("tiles",), "claimed as sums; on bytes of norm.in.tile"),
    Region("out.tile", ("norm", "out"), 81920, 16384, 128, EVERY, "64x128 bf16, not swizzled"),
    Region("glue.columns", (), 98352, 8, 8, EVERY, "which columns the glue got"),
)  # fmt: skip

PLAN = Plan(
    kernel="three_phases",
    manifest="three.kernel.toml",
    target="sm_100a",
    floating_point="ftz=0 div=1 sqrt=1 fma=1",
    threads=384,
    launch_registers=168,
    shared_bytes=98360,
    shared_limit=232448,
    shared_bound=98360,
    shared_how="first fit",
    stack_bytes=0,
    blocks_per_sm=1,
    facts=(
        FactValue("mma", "tile_m", "provides", 128, "mma", ("mma",), ("load", "out")),
        FactValue("load", "stages", "chooses", 3, "load", ("load",), ("mma",)),
        FactValue("mma", "stages", "imports", 3, "load", ("load", "mma")),
        FactValue("scan", "window", "imports", 7, "scan"),
    ),
    instances=tuple(instance(name, n) for n, name in enumerate(OWNERS)),
    regions=REGIONS,
    mbarriers=(
        MbarrierPlan("load.out.full", ("load", "mma"), 98304, 3, 1, "3 stages, 1 arrivals by load"),
        MbarrierPlan("load.out.empty", ("load", "mma"), 98328, 3, 2, "3 stages, 2 arrivals by mma"),
    ),
    barriers=(
        BarrierPlan(1, 1, "", "tiles.math", 256, "between 'mma.acc' and 'norm.run'"),
        BarrierPlan(1, 2, "scan", "turns", 64, "first free id"),
        BarrierPlan(15, 1, "out", "done", 128, "fixed by its owner"),
    ),
    columns=(
        ColumnsPlan(0, 128, "mma", "sum", "first columns that are free in its phases"),
        ColumnsPlan(0, 64, "scan", "carry", "first columns that are free in its phases"),
    ),
    allocated_columns=128,
    roles=(
        RolePlan("loaders", 0, 4, "in the manifest's order"),
        RolePlan("math", 4, 8, "in the manifest's order"),
        RolePlan("scanners", 0, 2, "on warps of 'loaders', which runs in another phase"),
        RolePlan("storers", 8, 4, "on warps of 'math', which runs in another phase"),
    ),
    phases=phases(),
    states=(),
    channels=(
        ChannelPlan("load.out", "mma.in", "ring", "3 stages of 16384 bytes, filled by bulk copies"),
        ChannelPlan(
            "mma.acc", "norm.rows", "fragment to fragment", "2 stmatrix.x4, 16384 bytes", 2
        ),
        ChannelPlan("norm.y", "out.x", "fragment to tile", "within each thread, 16384 bytes", 1),
        ChannelPlan("norm.y", "scan.x", "fragment to tile", "16384 bytes", 1),
    ),
    parameters=(),
    arguments=(),
    choices=(Choice("load.stages", 3, "the most that fits: 4 need 16384 bytes more"),),
    remarks=("no rule could tell whether scan.window is even",),
)
AUDITED = Audited(registers=168, barriers=4, stack_bytes=0, spill_bytes=0, static_shared_bytes=0)


def page(plan: Plan = PLAN) -> str:
    return encode_html(Product(plan, b"", AUDITED)).decode()


def drawing(text: str, name: str) -> ElementTree.Element:
    """An SVG of the page by its id."""
    start = text.index(f'<svg id="{name}"')
    depth, at = 0, start
    for tag in re.finditer(r"<svg\b|</svg>", text[start:]):
        depth += 1 if tag[0] == "<svg" else -1
        at = start + tag.end()
        if not depth:
            break
    return ElementTree.fromstring(text[start:at])


def boxes(text: str, name: str = "arena") -> list[dict[str, str]]:
    return [e.attrib for e in drawing(text, name).iter("svg") if "data-name" in e.attrib]


# --- What it names ----------------------------------------------------------------------------


def said(plan: Plan) -> set[str]:
    """Every name of a plan."""
    named = (
        *plan.regions,
        *plan.mbarriers,
        *plan.barriers,
        *plan.columns,
        *plan.roles,
        *plan.phases,
    )
    names = {n.name for n in named} | {f.name for f in plan.facts} | {c.fact for c in plan.choices}
    names |= {text for i in plan.instances for text in (i.name, i.owner, i.component, i.object)}
    names |= {end for c in plan.channels for end in (c.producer, c.consumer)}
    return names | {plan.kernel, plan.manifest, plan.target, *plan.remarks}


def visible(text: str) -> str:
    """What a reader sees: neither tags nor hints."""
    body = text[text.index("<body>") : text.index("<script>")]
    return unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<title>.*?</title>", "", body, flags=re.S)))


def test_every_name_of_the_plan_can_be_read():
    seen = visible(page())
    assert {name for name in said(PLAN) if name not in seen} == set()


def test_reasons_details_and_conflicts_can_be_read():
    seen = visible(page())
    for reason in [r.reason for r in (*PLAN.regions, *PLAN.mbarriers, *PLAN.barriers)]:
        assert reason in seen
    assert {c.detail for c in PLAN.channels} <= set(re.findall(r"<td>(.*?)</td>", page()))
    assert "2 ways" in seen


def test_the_proof_is_said_where_there_is_one():
    assert "98,360 bytes; no placement ends lower" in visible(page())
    loose = visible(page(replace(PLAN, shared_bound=98000)))
    assert "no placement ends below 98,000 bytes" in loose
    assert "no placement ends lower" not in loose


def test_steps_stand_in_order_with_hints():
    marks = re.findall(r'<span class="mark (\w+) \w+" title="([^"]*)">([^<]*)</span>', page())
    assert " ".join(label for _, _, label in marks) == (
        "load.run wait mma.run release convert store sync load norm.run permute "
        "scan.prefix scan.fix out.run"
    )
    hints = {label: unescape(hint) for _, hint, label in marks}
    assert hints["sync"] == "sync: named barrier 1, 256 threads\nmma.acc before, norm.run after"
    assert "2-way bank conflict\nat byte 65,536" in hints["load"]


def test_registers_follow_the_warps_and_idle_warps_are_named():
    found = re.findall(r'<b>([\w ]+)</b>.*?"regs">(\d+) registers(?: <i>(.*?)</i>)?', page())
    assert found == [
        ("loaders", "40", "from 168"),
        ("math", "232", "from 168"),
        ("scanners", "40", ""),
        ("storers", "96", "from 232"),
    ]
    assert re.findall(r"<span>(warps .*? idle)</span>", page()) == [
        "warps 2–11 idle",
        "warps 0–7 idle",
    ]


def test_an_owner_has_one_colour_everywhere():
    text = page()
    assert '<td class="who o1">matrix</td><td class="mono">mma</td>' in text
    assert '<td class="who o1">matrix</td><td class="mono">scan</td>' in text
    assert 'class="mark call o1" title="call: scan.fix' in text
    assert 'class="box region o1" data-name="scan.table"' in text
    assert '<div class="own o1"><span>scan</span>turns' in text


# --- Where it draws it ------------------------------------------------------------------------


def edges(text: str) -> dict[int, float]:
    """Where the axis has its labels."""
    ticks = drawing(text, "axis").iter("text")
    return {int(t.attrib["data-byte"]): float(t.attrib["y"]) for t in ticks}


def test_each_box_stands_where_its_bytes_are():
    at = edges(page())
    drawn = boxes(page())
    assert {b["data-name"] for b in drawn} == {r.name for r in (*PLAN.regions, *PLAN.mbarriers)}
    for box in drawn:
        start, size = int(box["data-offset"]), int(box["data-bytes"])
        y, height = float(box["y"]), float(box["height"])
        assert y == pytest.approx(at[start], abs=0.02), box
        assert y + height == pytest.approx(at[start + size], abs=0.02), box
        assert height >= 11


def test_large_stretches_are_in_proportion():
    heights = {b["data-name"]: float(b["height"]) for b in boxes(page())}
    assert heights["load.out.x"] / heights["scan.table"] == pytest.approx(1.5, abs=0.01)
    assert heights["norm.in.tile"] / heights["norm.sums"] == pytest.approx(2, abs=0.01)


def percent(box: dict[str, str], key: str) -> float:
    return float(box[key].removesuffix("%"))


def test_each_box_stands_in_its_phases():
    drawn = {b["data-name"]: b for b in boxes(page())}
    tiles, scan = drawn["load.out.x"], drawn["scan.table"]
    assert percent(tiles, "x") == 0
    assert percent(scan, "x") == pytest.approx(percent(tiles, "width"), abs=0.01)
    whole = drawn["out.tile"]
    assert (percent(whole, "x"), percent(whole, "width")) == pytest.approx((0, 100), abs=0.01)
    assert len(boxes(page())) == len(drawn), "phases that follow one another are one box"


def test_bytes_that_go_from_step_to_step_stand_side_by_side():
    drawn = {b["data-name"]: b for b in boxes(page())}
    tile, sums = drawn["norm.in.tile"], drawn["norm.sums"]
    assert percent(sums, "x") == pytest.approx(
        percent(tile, "x") + percent(tile, "width"), abs=0.01
    )
    assert "have the same bytes at different steps" in page()


def test_a_region_that_pauses_is_drawn_twice():
    paused = replace(PLAN.regions[4], phases=("tiles", "store"))
    plan = replace(PLAN, regions=(*PLAN.regions[:4], paused, PLAN.regions[5]))
    assert [b["data-name"] for b in boxes(page(plan))].count("out.tile") == 2


def test_a_stage_has_a_line():
    inside = drawing(page(), "arena").iter("svg")
    ring = next(e for e in inside if e.attrib.get("data-name") == "load.out.x")
    lines = [float(e.attrib["y1"]) for e in ring.iter("line")]
    height = float(ring.attrib["height"])
    assert lines == pytest.approx([height / 3, 2 * height / 3], abs=0.02)


def test_the_axis_is_broken_where_little_is_used():
    assert "the axis is broken" in page()
    full = page(replace(PLAN, shared_limit=101376))
    assert "the axis is broken" not in full
    assert edges(full)[98304] / 400 == pytest.approx(98304 / 101376, abs=0.001)


def test_many_small_regions_stay_apart():
    many = tuple(
        MbarrierPlan(f"x{n}.full", ("load",), 98304 + 8 * n, 1, 1, "one") for n in range(60)
    )
    plan = replace(PLAN, mbarriers=many, regions=PLAN.regions[:5], shared_bytes=98304 + 480)
    heights = [float(b["height"]) for b in boxes(page(plan)) if "mbarrier" in b["class"]]
    assert len(heights) == 60
    assert min(heights) >= 3.9


def test_tensor_memory_has_a_lane_for_each_phase_that_needs_one():
    drawn = boxes(page(), "columns")
    assert [(b["data-name"], b["width"], b["y"]) for b in drawn] == [
        ("mma.sum", "25.0%", "0"),
        ("scan.carry", "12.5%", "34"),
    ]


def test_a_kernel_without_memory_or_channels():
    plan = replace(PLAN, regions=(), mbarriers=(), shared_bytes=0, shared_bound=0, channels=())
    assert "The kernel uses no shared memory." in page(plan)


# --- That it stands alone ---------------------------------------------------------------------

HOSTILE = "<script>alert('x')</script>\"&{{ 7 * 7 }}"


def test_names_are_text():
    plan = replace(
        PLAN,
        kernel=HOSTILE,
        manifest=HOSTILE,
        instances=(replace(PLAN.instances[0], owner=HOSTILE, version=HOSTILE), *PLAN.instances[1:]),
        regions=(replace(PLAN.regions[0], name=HOSTILE, reason=HOSTILE), *PLAN.regions[1:]),
        remarks=(HOSTILE,),
    )
    text = page(plan)
    assert "<script>alert" not in text
    assert text.count("<script>") == 1
    assert escape(HOSTILE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
    assert HOSTILE in {b["data-name"] for b in boxes(text)}


def test_nothing_is_fetched():
    for word in ("http", "src=", "@import", "url(//", "<link", "<iframe"):
        assert word not in page()
    assert set(re.findall(r"url\((.)", page())) == {"#"}


def test_the_same_plan_gives_the_same_bytes():
    assert page() == page()


OWN = re.compile(r"--(o\d): (#\w{6})")


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1])
def test_owners_stand_out_in_both_schemes(scheme):
    css = (template_dir() / "map.css").read_text()
    assert css in page()
    part = css.split("@media (prefers-color-scheme: dark)")[scheme]
    paper = luminance(re.search(r"--paper: (#\w{6})", part)[1])
    colours = dict(OWN.findall(part))
    assert len(colours) == 8
    for name, colour in colours.items():
        low, high = sorted((paper, luminance(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3, name


def test_the_call_writes_a_page(objects, call, tmp_path):
    manifest, target = "components/ffn/ffn.kernel.toml", tmp_path / "ffn.html"
    argv = ("map", manifest, "--objects", objects, "--format", "html")
    assert call(*argv, "-o", target) == (0, "", "")
    text = target.read_text()
    assert {b["data-name"] for b in boxes(text)} >= {"load.out.x", "load.out.w", "load.out.full"}
    assert call(*argv).out == text


def test_a_file_is_for_a_page_alone(toy, call):
    toy.objects()
    done = call("map", "toy.kernel.toml", "-o", "x")
    assert done == (2, "", "pipelink map: -o goes with --format html\n")


def test_what_is_wrong_is_said_as_text(toy, call):
    toy.edit('steps = ["load.run"]', 'steps = ["loader.run"]')
    toy.objects()
    done = call("map", "toy.kernel.toml", "--format", "html", "-o", "x.html")
    assert done.code == 1
    assert done.err.startswith("error[PL005]")
