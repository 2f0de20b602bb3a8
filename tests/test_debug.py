"""Debug launches: what is said of the values of arrays, and when nothing is launched. No GPU."""

import ctypes
import json
import random
import time
from array import array
from dataclasses import replace
from typing import Any

import pytest
from test_runtime import CUBIN, Driver, Streams, fields

import pipelink
from pipelink import device, runtime
from pipelink.launch import (
    Argument,
    Holds,
    LaunchError,
    LoadError,
    Metadata,
    Tensor,
    _count_fault,
    read_metadata,
    value_fault,
)

TOKENS, TOP_K = 4096, 8
EXTENTS = {"tokens": TOKENS, "routes": 128}
BELOW, DISTINCT = Holds("below", ("tokens", TOP_K)), Holds("distinct", ())
ASCENDING = Holds("ascending", ("routes",))

# --- Values: pure -----------------------------------------------------------------------------


def said(values: list[int], *holds: Holds, name: str = "order", shape: Any = None) -> str | None:
    shape = shape or (len(values),)
    argument = Argument(name, "i32", ("n",), "read", 16, holds)
    return value_fault(argument, shape, EXTENTS, values)


def changed(index: int, value: int, count: int = 129) -> list[int]:
    values = list(range(count))
    values[index] = value
    return values


def test_values_that_hold():
    assert said([0, TOKENS * TOP_K - 1, 5], BELOW, DISTINCT) is None
    assert said([0, 0, 3, 128, 128], ASCENDING) is None
    assert said([-7, -7]) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (70000, "order[17] is 70000, and must be below 32768 (tokens 4096 x 8)"),
        (32768, "order[17] is 32768, and must be below 32768 (tokens 4096 x 8)"),
        (-1, "order[17] is -1, and must be at least 0"),
    ],
)
def test_a_value_that_is_not_below(value, message):
    assert said(changed(17, value), BELOW) == message


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        (("routes",), "128 (routes)"),
        ((128,), "128"),
        ((16, 8), "128 (16 x 8)"),
        (("routes", 1), "128 (routes 128 x 1)"),
    ],
)
def test_how_the_limit_comes_about(sizes, why):
    assert said([128], Holds("below", sizes)) == f"order[0] is 128, and must be below {why}"


def test_a_value_that_stands_twice():
    message = "order[9] is 4, which is order[2] too: values are distinct"
    assert said([0, 1, 4, 3, 8, 5, 6, 7, 2, 4], BELOW, DISTINCT) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (changed(0, 5), "offsets[0] is 5, and must be 0"),
        ([0, 1, 41, 40], "offsets[3] is 40, less than offsets[2], which is 41: values ascend"),
        ([*range(127), 100], "offsets[127] is 100, less than offsets[126]"),
        ([*range(128), 127], "offsets[128] is 127, and must be 128 (routes)"),
        ([5], "offsets[0] is 5, and must be 0"),
        ([0], "offsets[0] is 0, and must be 128 (routes)"),
    ],
)
def test_values_that_do_not_ascend_as_they_must(values, message):
    assert (said(values, ASCENDING, name="offsets") or "").startswith(message)


def test_the_first_condition_that_does_not_hold_is_said():
    assert said([5, 5], DISTINCT, ASCENDING) == (
        "order[1] is 5, which is order[0] too: values are distinct"
    )
    assert said([5, 5], ASCENDING, DISTINCT) == "order[0] is 5, and must be 0"


def test_an_index_has_a_number_for_each_side():
    message = "order[1, 2] is 4, which is order[0, 1] too: values are distinct"
    assert said([0, 4, 1, 2, 3, 4], DISTINCT, shape=(2, 3)) == message


def test_many_values_take_well_under_a_second():
    values = list(range(131072))
    random.Random(1).shuffle(values)
    every = (Holds("below", (131072,)), DISTINCT)
    started = time.perf_counter()
    assert said(values, *every) is None
    assert said(sorted(values), Holds("ascending", (131071,))) is None
    assert time.perf_counter() - started < 1


# --- Launch metadata --------------------------------------------------------------------------

ORDER = {"name": "order", "element": "i32", "shape": ["routes"], "access": "read", "alignment": 16}
OFFSETS = {**ORDER, "name": "offsets", "element": "i64", "shape": [3]}
OUT = {**ORDER, "name": "out", "element": "f32", "shape": ["tokens"], "access": "write"}
SAYS = [{"what": "below", "sizes": ["tokens", 2]}, {"what": "distinct"}]
RISES = [{"what": "ascending", "sizes": ["routes"]}]


def routed(
    order: Any = SAYS, offsets: Any = RISES, element: str = "i32", **changes: Any
) -> dict[str, Any]:
    arguments = [{**ORDER, "element": element, "holds": order}, {**OFFSETS, "holds": offsets}, OUT]
    extent = {"kind": "extent", "name": "routes", "bounds": [1, 2**31 - 1]}
    parameters = [{"kind": "pointer", "argument": a["name"]} for a in arguments]
    data = {"kernel": "moe_up", "arguments": arguments, "parameters": [*parameters, extent]}
    return fields(**data | changes)


def routing(**changes: Any) -> Metadata:
    return read_metadata(json.dumps(routed(**changes)), "moe_up.json")


def test_metadata_says_what_holds():
    order, offsets, out = routing().arguments
    assert order.holds == (Holds("below", ("tokens", 2)), Holds("distinct", ()))
    assert (offsets.holds, out.holds) == ((Holds("ascending", ("routes",)),), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 1}, "arguments[0].holds must be an array, got 1"),
        ({"order": [1]}, "arguments[0].holds[0] must be an object, got 1"),
        (
            {"order": [{"what": "sorted"}]},
            "arguments[0].holds[0].what 'sorted' is not known to this loader",
        ),
        ({"order": [{"what": "below"}]}, "no key 'arguments[0].holds[0].sizes'"),
        (
            {"order": [{"what": "below", "sizes": []}]},
            "arguments[0].holds[0].sizes must be an array of at least one size, got []",
        ),
        (
            {"order": [{"what": "below", "sizes": ["experts"]}]},
            "'experts', which order holds, is an extent of no shape",
        ),
    ],
)
def test_metadata_that_says_it_wrongly(changes, message):
    with pytest.raises(LoadError) as caught:
        routing(**changes)
    assert str(caught.value) == f"moe_up.json: {message}"


def test_metadata_that_says_it_of_no_integers():
    with pytest.raises(LoadError) as caught:
        routing(element="f32")
    said = str(caught.value)
    assert said.startswith(
        "moe_up.json: arguments[0] must be an array of integers that is read, as it has holds, got {"
    )


def test_variants_may_say_different_things_of_values():
    small = [{"kind": "extent", "name": "routes", "bounds": [1, 4]}]
    variants = (
        routing(kernel="small", parameters=small, order=[{"what": "distinct"}]),
        routing(),
    )
    kernel = runtime.Kernel(*(runtime.Image(v, CUBIN) for v in variants))
    assert kernel.variants == variants


# --- The loader -------------------------------------------------------------------------------


class Memory(Streams):
    """A driver of one device with memory, which keeps the order of what is done on a stream."""

    def __init__(self, **held: array) -> None:
        super().__init__(sizes=(8, 8, 8, 4))
        self.held = {0x10000: held["order"], 0x20000: held["offsets"]}
        self.order: list[tuple[Any, ...]] = []
        self.fails: dict[int, int] = {}  # the n-th wait for a stream, and how

    def cuMemcpyDtoHAsync(self, host: int, pointer: int, size: int, stream: int) -> tuple[int]:
        self.order.append(("copy", pointer, size, stream))
        values = self.held[pointer]
        assert size == len(values) * values.itemsize
        ctypes.memmove(host, values.buffer_info()[0], size)
        return (0,)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        self.order.append(("wait", stream))
        return (self.fails.get(sum(o[0] == "wait" for o in self.order), 0),)

    def cuLaunchKernel(self, *given: Any) -> tuple[int]:
        self.order.append(("launch", given[8]))
        return (0,)

    @property
    def launched(self) -> bool:
        return any(step[0] == "launch" for step in self.order)


@pytest.fixture(autouse=True)
def _no_driver_is_remembered():
    yield
    for cached in (device.start, device.primary):
        cached.cache_clear()


GOOD = array("i", [3, 0, 2, 1])


def memory(order: array = GOOD, offsets: tuple[int, ...] = (0, 2, 4)) -> Memory:
    return Memory(order=order, offsets=array("q", offsets))


ARRAYS = (
    Tensor(0x10000, "i32", (4,), (1,), "cuda:0"),
    Tensor(0x20000, "i64", (3,), (1,), "cuda:0"),
    Tensor(0x30000, "f32", (2,), (1,), "cuda:0"),
)


def debugged(monkeypatch, fake: Driver, *variants: Metadata, stream: int = 7) -> Driver:
    for module in (runtime, device):
        monkeypatch.setattr(module, "driver", fake)
    monkeypatch.setattr(runtime, "describe", lambda value, stream: value)
    images = (runtime.Image(v, CUBIN) for v in variants or (routing(),))
    runtime.DebugKernel(*images)(*ARRAYS[:2], out=ARRAYS[2], stream=stream)
    return fake


def refused(monkeypatch, fake: Memory, *variants: Metadata) -> str:
    with pytest.raises(LaunchError) as caught:
        debugged(monkeypatch, fake, *variants)
    assert not fake.launched
    return str(caught.value)


def test_a_debug_launch_waits_reads_launches_and_waits(monkeypatch):
    assert debugged(monkeypatch, memory()).order == [
        ("wait", 7),
        ("copy", 0x10000, 16, 7),
        ("wait", 7),
        ("copy", 0x20000, 24, 7),
        ("wait", 7),
        ("launch", 7),
        ("wait", 7),
    ]


@pytest.mark.parametrize(
    ("order", "offsets", "message"),
    [
        ((0, 4, 2, 1), (0, 2, 4), "order[1] is 4, and must be below 4 (tokens 2 x 2)"),
        ((0, -1, 2, 1), (0, 2, 4), "order[1] is -1, and must be at least 0"),
        ((0, 1, 2, 1), (0, 2, 4), "order[3] is 1, which is order[1] too: values are distinct"),
        (
            (0, 3, 2, 1),
            (0, 2**40, 4),
            "offsets[2] is 4, less than offsets[1], which is 109951162777",
        ),
        ((0, 3, 2, 1), (0, 2, 3), "offsets[2] is 3, and must be 4 (routes)"),
    ],
)
def test_values_that_do_not_hold_launch_nothing(monkeypatch, order, offsets, message):
    said = refused(monkeypatch, memory(array("i", order), offsets))
    assert said.startswith(f"kernel moe_up: {message}")


def test_each_variant_checks_what_it_says(monkeypatch):
    bounds = [{"kind": "extent", "name": "routes", "bounds": [1, 4]}]
    parameters = [*routed()["parameters"][:3], *bounds]
    small = routing(kernel="small", parameters=parameters, order=[{"what": "below", "sizes": [2]}])
    fake = memory()
    assert refused(monkeypatch, fake, small, routing()) == (
        "kernel small: order[0] is 3, and must be below 2"
    )


def test_a_kernel_without_conditions_is_waited_for_too(monkeypatch):
    fake = debugged(monkeypatch, memory(), routing(order=[], offsets=[]))
    assert fake.order == [("wait", 7), ("launch", 7), ("wait", 7)]


@pytest.mark.parametrize("told", ["captured", "implicit"])
def test_a_debug_launch_is_not_captured(monkeypatch, told):
    fake = memory()
    setattr(fake, told, (7,))
    assert refused(monkeypatch, fake) == (
        "kernel moe_up: a debug launch can't be captured, it waits for its stream"
    )
    assert fake.order == []


@pytest.mark.parametrize(
    ("wait", "launched", "message"),
    [
        (1, False, "work before it on its stream failed: CUDA_ERROR_ILLEGAL_ADDRESS"),
        (2, False, "order can't be read: CUDA_ERROR_ILLEGAL_ADDRESS"),
        (4, True, "it failed: CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_a_fault_is_told_by_the_call_that_it_comes_from(monkeypatch, wait, launched, message):
    fake = memory()
    fake.fails = {wait: 700}
    with pytest.raises(runtime.DriverError) as caught:
        debugged(monkeypatch, fake)
    assert (str(caught.value), fake.launched) == (f"kernel moe_up: {message}", launched)
    assert list(fake.calls)[-1] == "cuCtxPopCurrent"


def test_what_does_not_fit_the_contract_is_refused_first(monkeypatch):
    fake = memory()
    monkeypatch.setattr(f"{__name__}.ARRAYS", (replace(ARRAYS[0], element="i64"), *ARRAYS[1:]))
    assert refused(monkeypatch, fake) == "kernel moe_up: order must hold i32, got i64"
    assert fake.order == []


def test_an_empty_array_is_refused_first(monkeypatch):
    fake = memory()
    monkeypatch.setattr(f"{__name__}.ARRAYS", (*ARRAYS[:2], replace(ARRAYS[2], shape=(0,))))
    assert refused(monkeypatch, fake) == (
        "kernel moe_up: tokens must be 1 to 2147483647, got 0 by out [tokens]"
    )
    assert fake.order == []


def test_a_closed_debug_kernel_takes_no_call():
    kernel = runtime.DebugKernel(runtime.Image(routing(), CUBIN))
    kernel.close()
    with pytest.raises(LaunchError) as caught:
        kernel(*ARRAYS, stream=7)
    assert str(caught.value) == "kernel moe_up: it was closed and takes no more calls"


def test_load_takes_debug(tmp_path):
    for name in ("small", "moe_up"):
        data = routed(kernel=name, order=[])
        if name == "small":
            data["parameters"][-1]["bounds"] = [1, 4]
        (tmp_path / f"{name}.cubin").write_bytes(CUBIN)
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    paths = [tmp_path / f"{name}.cubin" for name in ("small", "moe_up")]
    kernel = pipelink.load(*paths, debug=True)
    assert (type(kernel), len(kernel.variants)) == (runtime.DebugKernel, 2)
    assert type(pipelink.load(*paths)) is runtime.Kernel


def test_a_list_of_another_length_is_refused_at_every_launch():
    argument = Argument("order", "i32", ("routes",), "read", 16, (Holds("count", ("tokens", 2)),))
    assert _count_fault(argument, (16,), {"tokens": 8, "routes": 16}) == ""
    assert _count_fault(argument, (15,), {"tokens": 8, "routes": 15}) == (
        "order has 15 elements, and must have 16 (tokens 8 x 2)"
    )
