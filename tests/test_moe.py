"""The mixture-of-experts layer: one owner's constant reaches every consumer without their recompilation,
each kernel is its control, and the loader says what holds of the router's lists.

One tree is built once with the real tools; each change is made in a copy, its build folder included.
"""

import contextlib
import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import COMPILER, ROOT, Called
from test_build import NOTHING, OBJECTS, calls, scons

from bench import campaign, changed_facts
from pipelink.cli import main
from pipelink.launch import (
    Holds,
    LaunchError,
    Metadata,
    Tensor,
    check,
    read_metadata,
    row_major,
    value_fault,
)

MOE = Path("components/moe")
SOURCES = changed_facts.SOURCES
HEADER = "components/ffn/wgmma.cuh"
KERNELS = ("moe_down", "moe_up")
FOLDERS = ("pipelink", "templates", "site_scons")
FILES = (
    *SOURCES,
    HEADER,
    *(str(MOE / f"{kernel}.kernel.toml") for kernel in KERNELS),
    "SConstruct",
    "pyproject.toml",
)

# --- One owner changed, in a tree that is built -------------------------------------------------

# A constant of each owner, and the kernels that hold him, in the order that SCons relinks them.
CHANGES = {
    "stages_3": KERNELS,
    "width_128": KERNELS,
    "up_first": ("moe_up",),
    "vector_8": KERNELS,
}
CASES = {case.name: case for case in changed_facts.CASES}
CODE = "\n__device__ int edited(int x) { return x + 1; }\n"


class Changed(NamedTuple):
    """A copy of the built tree, and what SCons ran in it after the change."""

    tree: Path
    ran: list[str]


Once = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """Makes a folder that all workers of a run share: one makes it, the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def once(name: str, make: Callable[[Path], None]) -> Path:
        folder, begun = shared / f"moe-{name}", shared / f"moe-{name}-begun"
        with locked(shared / f"moe-{name}-lock"):
            if not folder.exists():
                shutil.rmtree(begun, ignore_errors=True)
                begun.mkdir()
                make(begun)
                begun.rename(folder)
        return folder

    return once


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def built(once: Once) -> Path:
    """The four owners and two kernels, nothing else of the case studies."""

    def build(folder: Path) -> None:
        copy_sources(folder / "tree")
        scons(folder / "tree", "-j2")

    return once("built", build) / "tree"


def copy_sources(tree: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


@pytest.fixture(scope="session")
def changed(built: Path, once: Once) -> Callable[[str], Changed]:
    """The tree after a case of the experiment, by its name."""

    def changed(name: str) -> Changed:
        def build(folder: Path) -> None:
            tree = Path(shutil.copytree(built, folder / "tree"))
            source = tree / CASES[name].source
            source.write_text(edited(source.read_text(), CASES[name]))
            (folder / "ran.json").write_text(json.dumps(calls(scons(tree))))

        folder = once(name, build)
        return Changed(folder / "tree", json.loads((folder / "ran.json").read_text()))

    return changed


def edited(text: str, case: changed_facts.Case) -> str:
    assert text.count(case.old) == 1
    return text.replace(case.old, case.new)


def hashes(tree: Path) -> dict[str, str]:
    """The sha256 of each owner's object, by his source."""
    objects = {s: (tree / OBJECTS / s).with_suffix(".o") for s in SOURCES}
    return {s: hashlib.sha256(path.read_bytes()).hexdigest() for s, path in objects.items()}


def compiled(source: str) -> list[str]:
    name = Path(source).stem
    return [f"compile {name}.cu", f"contract {name}.o"]


def made_anew(kernel: str) -> list[str]:
    return [
        f"plan {kernel}.kernel.toml",
        f"render {kernel}.plan.json",
        f"compile {kernel}.glue.cu",
        f"link {kernel}.kernel.toml",
    ]


def facts(tree: Path, kernel: str) -> dict[str, int | str]:
    """Of a kernel's plan, `mma.stages` to its value."""
    plan = json.loads((tree / OBJECTS / kernel / f"{kernel}.plan.json").read_text())
    return {f"{fact['instance']}.{fact['name']}": fact["value"] for fact in plan["facts"]}


def test_the_changes_are_one_of_each_owner() -> None:
    assert {CASES[name].source for name in CHANGES} == set(SOURCES)


@pytest.mark.parametrize(("name", "kernels"), CHANGES.items(), ids=CHANGES)
def test_a_constant_compiles_its_owner_alone(
    changed: Callable[[str], Changed], name: str, kernels: Sequence[str]
) -> None:
    anew = [call for kernel in kernels for call in made_anew(kernel)]
    assert changed(name).ran == [*compiled(CASES[name].source), *anew]


@pytest.mark.parametrize("name", CHANGES)
def test_the_objects_of_the_others_stay_the_same(
    built: Path, changed: Callable[[str], Changed], name: str
) -> None:
    before, after = hashes(built), hashes(changed(name).tree)
    assert [s for s in SOURCES if before[s] != after[s]] == [CASES[name].source]


@pytest.mark.parametrize(
    ("name", "kernel", "old", "new"),
    [
        ("stages_3", "moe_up", 4, {"gather.stages": 3, "weights.stages": 3, "mma.stages": 3}),
        ("stages_3", "moe_down", 4, {"rows.stages": 3, "weights.stages": 3, "mma.stages": 3}),
        ("width_128", "moe_up", 256, {"weights.tile_n": 128, "mma.tile_n": 128, "act.tile_n": 128}),
        ("width_128", "moe_up", 128, {"act.tile_columns": 64, "store.tile_columns": 64}),
        ("width_128", "moe_down", 256, {"mma.tile_n": 128, "combine.tile_columns": 128}),
        (
            "up_first",
            "moe_up",
            "gate_first",
            {"act.pairing": "up_first", "weights.pairing": "up_first", "mma.pairing": "up_first"},
        ),
    ],
)
def test_a_changed_fact_reaches_every_consumer(
    built: Path,
    changed: Callable[[str], Changed],
    name: str,
    kernel: str,
    old: int | str,
    new: dict[str, int | str],
) -> None:
    before, after = facts(built, kernel), facts(changed(name).tree, kernel)
    assert {fact: before[fact] for fact in new} == dict.fromkeys(new, old)
    assert {fact: after[fact] for fact in new} == new


def test_nothing_is_left_to_do_after_a_change(changed: Callable[[str], Changed]) -> None:
    assert scons(changed("stages_3").tree) == NOTHING


def test_code_of_one_owner_is_relinked_without_a_plan(built: Path, tmp_path: Path) -> None:
    tree = Path(shutil.copytree(built, tmp_path / "tree"))
    (source,) = (s for s in SOURCES if s.endswith("gather.cu"))
    with (tree / source).open("a") as file:
        file.write(CODE)
    links = [f"link {kernel}.kernel.toml" for kernel in KERNELS]
    assert calls(scons(tree)) == [*compiled(source), *links]
    before, after = hashes(built), hashes(tree)
    assert [s for s in SOURCES if before[s] != after[s]] == [source]
    assert scons(tree) == NOTHING


# --- Each kernel and its control ----------------------------------------------------------------


def read_by_objects() -> list[Path]:
    """All that an object depends on; a stale one would make tests pass on yesterday's code."""
    headers = sorted((ROOT / "pipelink/include").rglob("*.cuh"))
    modules = [ROOT / "pipelink" / f"{name}.py" for name in COMPILER]
    return [
        *(ROOT / s for s in SOURCES),
        ROOT / HEADER,
        *headers,
        *modules,
        ROOT / "pyproject.toml",
    ]


@pytest.fixture(scope="session")
def owners() -> Path:
    """The four owners' objects, compiled once for each content of sources and headers."""
    read = b"\0".join(path.read_bytes() for path in read_by_objects())
    folder = ROOT / "build" / "test-objects" / f"moe-{hashlib.sha256(read).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"), contextlib.chdir(ROOT):
        for source in SOURCES:
            made = (folder / source).with_suffix(".o")
            if not made.exists():
                made.parent.mkdir(parents=True, exist_ok=True)
                assert main(["compile", source, "-o", str(made), "--arch", "sm_90a"]) == 0
    return folder


@pytest.mark.parametrize("kernel", ["moe_up", "moe_down", "moe_down_fast", "moe_sum"])
def test_each_kernel_is_its_control(
    owners: Path, call: Callable[..., Called], monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    monkeypatch.chdir(ROOT)
    done = call("verify", MOE / f"{kernel}.kernel.toml", "--objects", owners)
    said = rf"{kernel}: 0 of [1-9]\d\d+ instructions differ from the control\n"
    assert re.fullmatch(said, done.out), done
    assert (done.code, done.err) == (0, "")


# --- What the launch metadata says of the router's lists ------------------------------------------

TOKENS, TOP_K, EXPERTS = 16, 8, 128
ROUTES = TOKENS * TOP_K
EXTENTS = {"tokens": TOKENS, "routes": ROUTES}
LISTS = {"order": list(range(ROUTES))[::-1], "offsets": list(range(EXPERTS + 1))}


@pytest.fixture(scope="session")
def moe_up(built: Path) -> Metadata:
    path = built / OBJECTS / "moe_up/moe_up.json"
    return read_metadata(path.read_text(), path.name)


def fault_of(metadata: Metadata, name: str, changes: dict[int, int]) -> str | None:
    """What is said of a list that is right but for some values."""
    (argument,) = (a for a in metadata.arguments if a.name == name)
    values = [changes.get(index, value) for index, value in enumerate(LISTS[name])]
    return value_fault(argument, (len(values),), EXTENTS, values)


def tensors(metadata: Metadata, extents: dict[str, int]) -> dict[str, Tensor]:
    """Arguments of the contract's shapes, far from one another in memory."""
    made = {}
    for number, argument in enumerate(metadata.arguments, 1):
        shape = tuple(n if isinstance(n, int) else extents[n] for n in argument.shape)
        strides = row_major(shape)
        made[argument.name] = Tensor(number << 40, argument.element, shape, strides, "cuda:0")
    return made


def refused(metadata: Metadata, given: dict[str, Tensor]) -> str:
    with pytest.raises(LaunchError) as caught:
        check([metadata], given)
    return str(caught.value)


def test_the_metadata_says_what_holds_of_each_list(moe_up: Metadata) -> None:
    assert {a.name: a.holds for a in moe_up.arguments} == {
        "x": (),
        "order": (
            Holds("count", ("tokens", TOP_K)),
            Holds("below", ("tokens", TOP_K)),
            Holds("distinct", ()),
        ),
        "offsets": (Holds("ascending", ("routes",)),),
        "w": (),
        "h": (),
    }


@pytest.mark.parametrize("name", LISTS)
def test_right_lists_are_taken(moe_up: Metadata, name: str) -> None:
    assert fault_of(moe_up, name, {}) is None


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("order", 17, 128, "order[17] is 128, and must be below 128 (tokens 16 x 8)"),
        ("order", 0, -1, "order[0] is -1, and must be at least 0"),
        ("order", 127, 127, "order[127] is 127, which is order[0] too: values are distinct"),
        ("offsets", 0, 1, "offsets[0] is 1, and must be 0"),
        (
            "offsets",
            5,
            3,
            "offsets[5] is 3, less than offsets[4], which is 4: values ascend",
        ),
        (
            "offsets",
            5,
            7,
            "offsets[6] is 6, less than offsets[5], which is 7: values ascend",
        ),
        ("offsets", 128, 127, "offsets[128] is 127, and must be 128 (routes)"),
    ],
)
def test_a_wrong_list_is_refused(
    moe_up: Metadata, name: str, index: int, value: int, message: str
) -> None:
    assert fault_of(moe_up, name, {index: value}) == message


def test_experts_without_a_token_are_taken(moe_up: Metadata) -> None:
    """Every route goes to the last expert."""
    assert fault_of(moe_up, "offsets", dict.fromkeys(range(EXPERTS), 0)) is None


def test_arguments_of_the_contract_fit(moe_up: Metadata) -> None:
    assert check([moe_up], tensors(moe_up, EXTENTS)) == (0, EXTENTS)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("offsets", (130,), "offsets must have shape [129], got [130]"),
        ("offsets", (128,), "offsets must have shape [129], got [128]"),
        (
            "w",
            (127, 1536, 2048),
            "w must have shape [128, 1536, 2048], got [127, 1536, 2048]",
        ),
        ("order", (120,), "routes is 120 by order [routes] and 128 by h [routes, 768]"),
    ],
)
def test_another_count_is_refused(
    moe_up: Metadata, name: str, shape: tuple[int, ...], message: str
) -> None:
    given = tensors(moe_up, EXTENTS)
    given[name] = replace(given[name], shape=shape, strides=row_major(shape))
    assert refused(moe_up, given) == f"kernel moe_up: {message}"


@pytest.mark.parametrize("routes", [0, ROUTES])
def test_zero_tokens_are_refused(moe_up: Metadata, routes: int) -> None:
    given = tensors(moe_up, {"tokens": 0, "routes": routes})
    message = "kernel moe_up: tokens must be 1 to 4194304, got 0 by x [tokens, 2048]"
    assert refused(moe_up, given) == message


# --- The experiments, which must not rot ----------------------------------------------------------

MUTANTS = tuple(campaign.mutants())


@pytest.mark.parametrize("case", changed_facts.CASES, ids=lambda case: case.name)
def test_a_case_changes_one_place(case: changed_facts.Case) -> None:
    assert case.source in SOURCES
    assert (ROOT / case.source).read_text().count(case.old) == 1
    assert (case.new == case.old) == (case.name == "nothing")


def test_the_campaign_has_mutants_of_different_names() -> None:
    assert len(MUTANTS) >= 90
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("owner", campaign.SOURCES)
def test_the_campaign_has_every_fact_that_an_owner_chooses(owner: str) -> None:
    text = (ROOT / "components" / campaign.SOURCES[owner]).read_text()
    mutated = {mutant.fact for mutant in MUTANTS if mutant.component == owner}
    assert mutated == set(re.findall(r'pl::chooses<"(\w+)"', text))
    counts = [len(campaign.values(owner, fact)) for fact in mutated]
    assert sum(count >= 3 for count in counts) >= 3


@pytest.mark.parametrize(
    ("kernel", "owner"), [(k, o) for k in campaign.KERNELS for o in campaign.KERNELS[k]]
)
def test_every_fact_of_a_kernel_has_values(kernel: str, owner: str) -> None:
    for fact in campaign.KERNELS[kernel][owner]:
        assert all(campaign.values(owner, fact)), fact
