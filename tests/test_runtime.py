"""The loader: what it refuses, word by word, and what it hands to the driver. No GPU."""

import ctypes
import hashlib
import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy
import pytest
from contracts import ALL, add, change

import pipelink
from pipelink import arrays, device, driver, runtime
from pipelink.audit import Audited
from pipelink.launch import (
    LaunchError,
    LoadError,
    Metadata,
    Tensor,
    bind,
    check,
    check_device,
    output_shapes,
    read_metadata,
)


def elf(machine: int) -> bytes:
    """As much of an ELF file as tells what it is for."""
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little") + bytes(44)


CUBIN, HOST_OBJECT = elf(190), elf(62)


def fields(**changes: Any) -> dict[str, Any]:
    """Launch metadata of a small kernel, as the linker writes it."""
    x = {"element": "bf16", "shape": ["m", 64]}
    out = {"element": "bf16", "shape": ["m", 32]}
    data = {
        "pipelink": 2,
        "kernel": "ffn",
        "entry": "ffn",
        "arch": "sm_90a",
        "minimum_driver": 13000,
        "cubin_sha256": hashlib.sha256(CUBIN).hexdigest(),
        "threads": 384,
        "shared_bytes": 196736,
        "registers": 168,
        "grid": {"kind": "persistent", "blocks_per_sm": 1},
        "facts": {"load.stages": 4},
        "arguments": [
            {"name": "x", **x, "access": "read", "alignment": 16},
            {"name": "out", **out, "access": "write", "alignment": 16},
        ],
        "parameters": [
            {"kind": "tensor_map", "argument": "x", **x, "box": [128, 64], "swizzle": 128},
            {"kind": "pointer", "argument": "out"},
            {"kind": "extent", "name": "m", "bounds": [1, 2**31 - 1]},
        ],
    }
    return data | changes


def metadata(**changes: Any) -> Metadata:
    return read_metadata(json.dumps(fields(**changes)), "ffn.json")


IMAGE = runtime.Image(metadata(), CUBIN)
X = Tensor(0x10000, "bf16", (8, 64), (64, 1), "cuda:0")
OUT = Tensor(0x20000, "bf16", (8, 32), (32, 1), "cuda:0")


def refused(x: Tensor = X, out: Tensor = OUT) -> str:
    with pytest.raises(LaunchError) as caught:
        check([metadata()], {"x": x, "out": out})
    return str(caught.value)


# --- Arguments against the contract -----------------------------------------------------------


def test_arguments_that_fit_give_the_extents():
    assert check([metadata()], {"x": X, "out": OUT}) == (0, {"m": 8})


def test_wrong_element():
    assert refused(x=replace(X, element="f32")) == "kernel ffn: x must hold bf16, got f32"


def test_wrong_rank():
    x = replace(X, shape=(512,), strides=(1,))
    assert refused(x) == "kernel ffn: x must have 2 dimensions [m, 64], got 1 [512]"


def test_wrong_fixed_extent():
    x = replace(X, shape=(8, 128), strides=(128, 1))
    assert refused(x) == "kernel ffn: x must have shape [m, 64], got [8, 128]"


def test_extents_disagree():
    out = replace(OUT, shape=(4, 32))
    assert refused(out=out) == "kernel ffn: m is 8 by x [m, 64] and 4 by out [m, 32]"


def test_empty_extent():
    x, out = replace(X, shape=(0, 64)), replace(OUT, shape=(0, 32))
    assert refused(x, out) == "kernel ffn: m must be 1 to 2147483647, got 0 by x [m, 64]"


def test_extent_beyond_32_bits():
    x, out = replace(X, shape=(2**31, 64)), replace(OUT, pointer=2**60, shape=(2**31, 32))
    assert refused(x, out) == "kernel ffn: m must be 1 to 2147483647, got 2147483648 by x [m, 64]"


def test_transposed():
    x = replace(X, strides=(1, 8))
    assert refused(x) == "kernel ffn: x must be contiguous with strides [64, 1], got [1, 8]"


def test_stride_of_a_single_row_says_nothing():
    single = replace(X, shape=(1, 64), strides=(999, 1))
    assert check([metadata()], {"x": single, "out": replace(OUT, shape=(1, 32))}) == (0, {"m": 1})


def test_misaligned():
    x = replace(X, pointer=0x10002)
    assert refused(x) == "kernel ffn: x must be aligned to 16 bytes, got address 0x10002"


def test_no_memory():
    message = "kernel ffn: x must be in memory, got address 0 with shape [8, 64]"
    assert refused(x=replace(X, pointer=0)) == message


def test_not_on_a_device():
    x = replace(X, device="cpu")
    assert refused(x) == "kernel ffn: x must be on a CUDA device, got cpu"


def test_on_another_device():
    out = replace(OUT, device="cuda:1")
    assert refused(out=out) == "kernel ffn: out must be on cuda:0 as x is, got cuda:1"


def test_read_only_output():
    out = replace(OUT, writable=False)
    assert (
        refused(out=out) == "kernel ffn: out must be writable (access write), got a read-only array"
    )


def test_read_only_input_fits():
    assert check([metadata()], {"x": replace(X, writable=False), "out": OUT}) == (0, {"m": 8})


def test_output_over_input():
    out = replace(OUT, pointer=X.pointer + 8 * 64 * 2 - 16)
    assert refused(out=out) == "kernel ffn: out (access write) must not overlap x in memory"


def test_output_right_behind_input_fits():
    out = replace(OUT, pointer=X.pointer + 8 * 64 * 2)
    assert check([metadata()], {"x": X, "out": out}) == (0, {"m": 8})


# --- Variants: the first whose bounds have the extents ----------------------------------------


def bounded(kernel: str, least: int, most: int) -> Metadata:
    parameters = [
        *fields()["parameters"][:2],
        {"kind": "extent", "name": "m", "bounds": [least, most]},
    ]
    return metadata(kernel=kernel, parameters=parameters)


SMALL, MIDDLE = bounded("small", 1, 4), bounded("middle", 6, 9)


def variant(rows: int, *variants: Metadata) -> int:
    x, out = replace(X, shape=(rows, 64)), replace(OUT, shape=(rows, 32))
    return check(variants, {"x": x, "out": out})[0]


def test_the_first_variant_whose_bounds_have_the_extents():
    found = [variant(rows, SMALL, MIDDLE, metadata()) for rows in (1, 4, 5, 6, 9, 10)]
    assert found == [0, 0, 2, 1, 1, 2]


def test_extents_that_no_variant_takes():
    for rows in (5, 10):
        with pytest.raises(LaunchError) as caught:
            variant(rows, SMALL, MIDDLE)
        message = f"kernel middle: m must be 1 to 4 or 6 to 9, got {rows} by x [m, 64]"
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("bounds", "wants"),
    [
        ([(1, 64), (129, 192), (1, 512), (1, 2**31 - 1)], "1 to 2147483647"),
        ([(1, 4), (5, 9), (11, 11)], "1 to 9 or 11"),
    ],
)
def test_bounds_that_follow_on_are_one_range(bounds, wants):
    variants = [bounded(f"v{n}", *pair) for n, pair in enumerate(bounds)]
    with pytest.raises(LaunchError) as caught:
        variant(0, *variants)
    message = f"kernel {variants[-1].kernel}: m must be {wants}, got 0 by x [m, 64]"
    assert str(caught.value) == message


def test_extents_that_no_variant_takes_together():
    def square(kernel: str, least: int, most: int) -> Metadata:
        arguments = [
            {"name": "x", "element": "f32", "shape": ["m", "n"], "access": "read", "alignment": 4}
        ]
        extents = [{"kind": "extent", "name": name, "bounds": [least, most]} for name in ("m", "n")]
        return metadata(kernel=kernel, arguments=arguments, parameters=extents)

    x = Tensor(0x10000, "f32", (3, 7), (7, 1), "cuda:0")
    with pytest.raises(LaunchError) as caught:
        check([square("small", 1, 4), square("large", 5, 9)], {"x": x})
    assert str(caught.value) == (
        "kernel large: no variant takes m 3 with n 7: small takes m 1 to 4 with n 1 to 4, "
        "large takes m 5 to 9 with n 5 to 9"
    )


def loaded_together(*variants: Metadata) -> str:
    with pytest.raises(LoadError) as caught:
        runtime.Kernel(*(runtime.Image(variant, CUBIN) for variant in variants))
    return str(caught.value)


def test_a_variant_behind_a_wider_one():
    assert loaded_together(metadata(), SMALL) == (
        "kernel small would never run behind ffn, which takes all of its sizes; name the narrower first"
    )


def test_a_variant_twice():
    assert loaded_together(SMALL, MIDDLE, SMALL) == (
        "kernel small would never run behind small, which takes all of its sizes; name the narrower first"
    )


def test_variants_that_overlap_can_each_run():
    assert len(runtime.Kernel(*(runtime.Image(v, CUBIN) for v in (SMALL, MIDDLE))).variants) == 2


def test_kernels_that_are_no_variants_of_one_another():
    arguments = changed_argument("element", "f16")
    other = metadata(kernel="other", arguments=arguments, parameters=fields()["parameters"][1:])
    assert loaded_together(other, metadata()) == (
        "kernels other and ffn are no variants of one another: the first takes (x: f16 [m, 64], "
        "out: bf16 [m, 32]), the second takes (x: bf16 [m, 64], out: bf16 [m, 32])"
    )


def test_load_of_nothing():
    with pytest.raises(LoadError) as caught:
        pipelink.load()
    assert str(caught.value) == "load takes the path of a cubin, or those of variants, got none"


@pytest.mark.parametrize("given", [["a.cubin", "b.cubin"], 3, None, b"a.cubin"])
def test_load_of_what_is_no_path(given):
    with pytest.raises(LoadError) as caught:
        pipelink.load(given)
    message = f"load takes paths of cubins, got {given!r}; pass the paths one by one"
    assert str(caught.value) == message


# --- What an operator allocates ---------------------------------------------------------------


def test_outputs_have_the_shapes_of_the_contract():
    shapes = output_shapes(metadata(), {"x": "bf16"}, {"x": (7, 64)})
    assert shapes == {"out": (7, 32)}


@pytest.mark.parametrize(
    ("element", "shape", "message"),
    [
        ("f32", (7, 64), "kernel ffn: x must hold bf16, got f32"),
        ("bf16", (7, 65), "kernel ffn: x must have shape [m, 64], got [7, 65]"),
        ("bf16", (7,), "kernel ffn: x must have 2 dimensions [m, 64], got 1 [7]"),
    ],
)
def test_inputs_that_an_operator_refuses(element, shape, message):
    with pytest.raises(LaunchError) as caught:
        output_shapes(metadata(), {"x": element}, {"x": shape})
    assert str(caught.value) == message


class FakeTensor:
    """As much of a torch tensor as the loader and operators ask for; `storage` is its bytes."""

    def __init__(self, record: Tensor, storage: int = 1024) -> None:
        self.record, self.storage = record, storage
        self.shape, self.dtype, self.is_cuda = record.shape, "torch.bfloat16", True

    @property
    def device(self) -> Any:
        class Device(str):
            index = int(self.record.device.removeprefix("cuda:"))

        return Device(self.record.device)

    def data_ptr(self) -> int:
        return self.record.pointer

    def stride(self) -> tuple[int, ...]:
        return self.record.strides

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: self.storage)

    def new_empty(self, shape: tuple[int, ...], dtype: str) -> "FakeTensor":
        return FakeTensor(replace(OUT, shape=shape))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torch that keeps what is registered: `made` has schema, function and fake of an operator."""
    module: Any = ModuleType("torch")
    for name in arrays.BY_TORCH:
        setattr(module, name.removeprefix("torch."), name)
    module.made, module.Tensor = [], FakeTensor
    module.library = SimpleNamespace(
        define=lambda name, schema: module.made.append(schema),
        impl=lambda name, device, function: module.made.append(function),
        register_fake=lambda name, function: module.made.append(function),
    )
    module._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 7)
    module.ops = SimpleNamespace(mine=SimpleNamespace(op=SimpleNamespace(default="the operator")))
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.delitem(sys.modules, "pipelink.operator", raising=False)
    yield module
    sys.modules.pop("pipelink.operator", None)


class Called:
    """A kernel that keeps the arguments of its calls."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata, self.calls = metadata, []

    def __call__(self, *given: Any) -> None:
        self.calls.append(given)


def operator_of(torch: Any, kernel: Any) -> tuple[str, Any, Any]:
    """Schema, function and fake of the kernel as an operator."""
    made = importlib.import_module("pipelink.operator").torch_operator(kernel, "mine::op")
    assert made == "the operator"
    schema, function, fake = torch.made
    return schema, function, fake


def accesses(**access: str) -> Metadata:
    """A kernel of arguments [m, 64] with these accesses."""
    one = {"element": "bf16", "shape": ["m", 64], "alignment": 16}
    arguments = [{"name": name, "access": a, **one} for name, a in access.items()]
    return metadata(arguments=arguments, parameters=[])


def test_an_operator_returns_what_the_contract_writes(torch):
    kernel = Called(accesses(x="read", a="write", b="write"))
    schema, function, fake = operator_of(torch, kernel)
    assert schema == "(Tensor x) -> (Tensor, Tensor)"
    x = FakeTensor(X)
    a, b = function(x)
    assert kernel.calls == [(x, a, b)]
    assert [t.shape for t in fake(x)] == [(8, 64), (8, 64)]


def test_an_operator_that_only_updates_returns_nothing(torch):
    kernel = Called(accesses(x="read", y="update"))
    schema, function, fake = operator_of(torch, kernel)
    assert schema == "(Tensor x, Tensor(b!) y) -> ()"
    x, y = FakeTensor(X), FakeTensor(X)
    assert (function(x, y), fake(x, y)) == (None, None)
    assert kernel.calls == [(x, y)]


def test_an_operator_without_an_input(torch):
    with pytest.raises(LoadError) as caught:
        operator_of(torch, Called(accesses(a="write", b="write")))
    assert str(caught.value) == (
        "kernel ffn: it only writes (a, b), an operator needs an input that says on which device"
    )


def test_an_operator_of_a_debug_kernel_launches_by_it(monkeypatch, torch):
    fake = Driver()
    for module in (runtime, device):
        monkeypatch.setattr(module, "driver", fake)
    monkeypatch.setattr(device, "captured", lambda *asked, **more: False)
    function = operator_of(torch, runtime.DebugKernel(IMAGE))[1]
    for _ in range(2):
        function(FakeTensor(X))
    order = list(fake.calls)
    assert order.index("cuStreamSynchronize") < order.index("launch")
    assert fake.calls["cuStreamSynchronize"] == (7,)


def test_a_tensor_that_is_read_and_written_is_updated(torch, toy):
    """From the ports of the contract to the operator's schema."""
    old = msgspec.structs.replace(ALL["epilogue"].ports[1], name="residual", direction="in")
    epilogue = add(ALL["epilogue"], "ports", old)
    arguments = ("tile", "acc", "out", "residual", "m")
    toy.contracts["epilogue"] = change(epilogue, "entries", "run", arguments=arguments)
    toy.edit('out = "act.out"', 'out = ["act.residual", "act.out"]')
    product = driver.Product(toy.plan(), CUBIN, Audited(168, 1, 0, 0, 0))
    linked = read_metadata(driver.metadata(product).decode(), "toy.json")
    assert [(a.name, a.access) for a in linked.arguments] == [
        ("x", "read"),
        ("w", "read"),
        ("out", "update"),
    ]
    schema = operator_of(torch, Called(linked))[0]
    assert schema == "(Tensor x, Tensor w, Tensor(c!) out) -> ()"


# --- The call ---------------------------------------------------------------------------------


TAKES = "it takes (x: bf16 [m, 64], out: bf16 [m, 32])"


def misbound(*given: Any, **named: Any) -> str:
    with pytest.raises(LaunchError) as caught:
        bind(metadata(), given, named)
    return str(caught.value)


def test_arguments_by_position_and_keyword():
    assert list(bind(metadata(), ["a"], {"out": "b"}).items()) == [("x", "a"), ("out", "b")]


def test_missing_argument():
    assert misbound(1) == f"kernel ffn: missing out, got (x), {TAKES}"


def test_extra_argument():
    assert misbound(1, 2, 3) == f"kernel ffn: got 3 arguments, {TAKES}"


def test_unknown_argument():
    assert misbound(1, y=2) == f"kernel ffn: there is no argument y, {TAKES}"


def test_argument_given_twice():
    assert misbound(1, 2, x=3) == "kernel ffn: argument x is given twice"


def uncallable(*given: Any, **named: Any) -> str:
    with pytest.raises(LaunchError) as caught:
        runtime.Kernel(IMAGE)(*given, **named)
    return str(caught.value)


def test_no_array():
    message = "kernel ffn: x must be a torch tensor or a CUDA array, got int"
    assert uncallable(1, 2, stream=0) == message


def test_host_array():
    x = numpy.zeros((8, 64), numpy.float16)
    message = "kernel ffn: x must be on a CUDA device, got cpu"
    assert uncallable(x, x, stream=0) == message


def test_no_stream_to_launch_on():
    message = "kernel ffn: no torch tensor is among the arguments, pass stream="
    assert uncallable(1, 2) == message


def test_stream_of_a_wrong_kind():
    message = "kernel ffn: stream must be a CUDA stream, got 'fast'"
    assert uncallable(1, 2, stream="fast") == message


class Broken:
    def __cuda_stream__(self) -> Any:
        raise RuntimeError("gone")

    def __repr__(self) -> str:
        return "a broken one"


@pytest.mark.parametrize("stream", [True, False, 1.0, Broken()])
def test_stream_that_is_no_handle(stream):
    message = f"kernel ffn: stream must be a CUDA stream, got {stream!r}"
    assert uncallable(1, 2, stream=stream) == message


@pytest.mark.parametrize("stream", [-1, 2**64])
def test_stream_beyond_64_bits(stream):
    message = f"kernel ffn: stream must be a handle of 64 bits, got {stream}"
    assert uncallable(1, 2, stream=stream) == message


def test_an_argument_named_self_can_be_passed_by_keyword():
    arguments = [{**changed_argument("access", "update")[0], "name": "self"}]
    kernel = runtime.Kernel(runtime.Image(metadata(arguments=arguments, parameters=[]), CUBIN))
    with pytest.raises(LaunchError) as caught:
        kernel(self=1, stream=0)
    message = "kernel ffn: self must be a torch tensor or a CUDA array, got int"
    assert str(caught.value) == message


def test_a_kernel_shows_what_it_takes():
    shown = str(runtime.Kernel(IMAGE))
    assert shown == "ffn(x: bf16 [m, 64], out: bf16 [m, 32]) for sm_90a"


# --- Arrays to records ------------------------------------------------------------------------


def test_record_from_dlpack():
    array = numpy.zeros((4, 6), numpy.float32)[:, 1:3]
    record = Tensor(array.ctypes.data, "f32", (4, 2), (6, 1), "cpu")
    assert arrays.describe(array, 0) == record


def test_record_of_a_type_without_a_name():
    assert arrays.describe(numpy.zeros(2, numpy.complex64), 0).element == "DLPack type (5, 64, 1)"


def test_array_that_dlpack_cannot_export():
    array = numpy.zeros((8, 64), numpy.dtype(">f4"))
    assert uncallable(array, array, stream=0) == (
        "kernel ffn: x must be exportable by DLPack, got BufferError: DLPack only supports native byte "
        "order."
    )


class Exporter:
    """A CUDA array by DLPack; `takes` are the keywords of its `__dlpack__`."""

    def __init__(self, array: numpy.ndarray, *takes: str, **changes: int) -> None:
        self.array, self.takes, self.changes, self.given = array, takes, changes, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self, **given: Any) -> Any:
        self.given.append(given)
        if not set(given) <= {"stream", *self.takes}:
            raise TypeError("unexpected keyword argument")
        version = given.get("max_version")
        capsule = self.array.__dlpack__(**({"max_version": version} if version else {}))
        if version:
            pointer = arrays._capsule_pointer(capsule, b"dltensor_versioned")
            managed = arrays._DLManagedVersioned.from_address(pointer)
            for name, value in self.changes.items():
                setattr(managed, name, value)
        return capsule


def read_only(dtype: Any = numpy.float16) -> numpy.ndarray:
    array = numpy.zeros((8, 64), dtype)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("takes", "asked"),
    [
        (("max_version", "copy"), [{"max_version": (1, 0), "copy": False}]),
        (
            ("max_version",),
            [{"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}],
        ),
    ],
)
def test_record_of_a_read_only_array_from_dlpack(takes, asked):
    exporter = Exporter(read_only(), *takes)
    record = Tensor(exporter.array.ctypes.data, "f16", (8, 64), (64, 1), "cuda:1", writable=False)
    assert arrays.describe(exporter, 0) == record
    assert exporter.given == [{"stream": 1, **more} for more in asked]


def test_record_from_an_exporter_before_dlpack_1():
    exporter = Exporter(numpy.zeros((8, 64), numpy.float16))
    record = Tensor(exporter.array.ctypes.data, "f16", (8, 64), (64, 1), "cuda:1")
    assert arrays.describe(exporter, 9) == record
    assert exporter.given[-1] == {"stream": 9}


def test_read_only_array_of_the_host():
    message = "kernel ffn: x must be on a CUDA device, got cpu"
    assert uncallable(read_only(), read_only(), stream=0) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"major": 2}, "must be exportable by DLPack 1, got version 2"),
        ({"flags": 2}, "must be exportable by DLPack as it is, got a copy"),
    ],
)
def test_array_that_dlpack_exports_otherwise(changes, message):
    exporter = Exporter(numpy.zeros((8, 64), numpy.float16), "max_version", "copy", **changes)
    assert uncallable(exporter, exporter, stream=0) == f"kernel ffn: x {message}"
    exporter.changes = {"major": 1}


@pytest.mark.parametrize(
    ("device", "export", "said"),
    [
        (lambda: (2, 0), lambda **given: {}["x"], "KeyError: 'x'"),
        (lambda: None, None, "TypeError: 'NoneType' object is not iterable"),
        (lambda: 1 / 0, None, "ZeroDivisionError: division by zero"),
        (lambda: (2, 0), lambda **given: 3, "3 for a capsule"),
    ],
)
def test_exporter_that_raises(device, export, said):
    array = SimpleNamespace(__dlpack_device__=device, __dlpack__=export)
    message = f"kernel ffn: x must be exportable by DLPack, got {said}"
    assert uncallable(array, array, stream=0) == message


def test_torch_tensor_whose_storage_was_resized_to_nothing(torch):
    x = FakeTensor(replace(X, pointer=0x80), storage=0)
    message = "kernel ffn: x must be in memory, got address 0 with shape [8, 64]"
    assert uncallable(x, FakeTensor(OUT)) == message


def interface(**changes: Any) -> SimpleNamespace:
    entries = {"shape": (8, 64), "typestr": "<f2", "data": (0x10000, True), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=entries | changes)


def test_record_from_the_array_interface(monkeypatch):
    monkeypatch.setattr(device, "owner", lambda pointer: 1)
    record = Tensor(0x10000, "f16", (8, 64), (64, 1), "cuda:1", writable=False)
    assert arrays.describe(interface(), 0) == record


def test_strides_of_the_array_interface_are_bytes(monkeypatch):
    monkeypatch.setattr(device, "owner", lambda pointer: 0)
    assert arrays.describe(interface(strides=(256, 2)), 0).strides == (128, 1)


def test_array_interface_over_host_memory(monkeypatch):
    monkeypatch.setattr(device, "owner", lambda pointer: None)
    message = "kernel ffn: x must be on a CUDA device, got memory of no device"
    assert uncallable(interface(), interface(), stream=0) == message


NO_DATA = "data is an address and whether it is read-only"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, f"must have a CUDA array interface whose {NO_DATA}, got None"),
        ({"data": 16}, f"must have a CUDA array interface whose {NO_DATA}, got 16"),
        ({"data": (-1, 0)}, f"must have a CUDA array interface whose {NO_DATA}, got (-1, 0)"),
        (
            {"shape": (8, 0.5)},
            "must have a CUDA array interface whose shape is a tuple of integers, got (8, 0.5)",
        ),
        ({"typestr": None}, "must have a CUDA array interface whose typestr is a text, got None"),
        (
            {"strides": (2,)},
            "must have a CUDA array interface whose strides is a stride for each dimension, got (2,)",
        ),
        (
            {"stream": "x"},
            "must have a CUDA array interface whose stream is the handle of a stream, got 'x'",
        ),
        ({"mask": 1}, "must have no mask, got an array with one"),
    ],
)
def test_array_interface_that_is_none(monkeypatch, changes, message):
    monkeypatch.setattr(device, "owner", lambda pointer: 0)
    array = interface(**changes)
    assert uncallable(array, array, stream=0) == f"kernel ffn: x {message}"


def test_array_interface_without_a_key():
    array = interface()
    del array.__cuda_array_interface__["typestr"]
    message = "kernel ffn: x must have a CUDA array interface whose typestr is a text, got None"
    assert uncallable(array, array, stream=0) == message


def test_array_interface_that_raises():
    class Raises:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("needs no gradient")

    message = "kernel ffn: x must have a CUDA array interface, got RuntimeError: needs no gradient"
    assert uncallable(Raises(), Raises(), stream=0) == message


def test_the_producer_stream_is_waited_for(monkeypatch):
    waits: list[tuple[int, int, int]] = []
    monkeypatch.setattr(device, "owner", lambda pointer: 0)
    monkeypatch.setattr(device, "follow", lambda *call: waits.append(call))
    for producer in (None, 1, 7):
        arrays.describe(interface(stream=producer), 0)
    assert waits == [(0, 0, 7)]


# --- The device -------------------------------------------------------------------------------


def unfit(capability: tuple[int, int], version: int, arch: str = "sm_90a") -> str:
    with pytest.raises(LoadError) as caught:
        check_device(metadata(arch=arch), capability, version, 232448)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arch", "capability"),
    [("sm_90a", (9, 0)), ("sm_80", (8, 6)), ("sm_100f", (10, 3)), ("sm_120a", (12, 0))],
)
def test_device_that_fits(arch, capability):
    check_device(metadata(arch=arch), capability, 13000, 232448)


def test_older_driver():
    message = "kernel ffn: needs a driver for CUDA 13.0, this one is for 12.8"
    assert unfit((9, 0), 12080) == message


def test_other_device():
    message = "kernel ffn: sm_90a needs a device of capability 9.0, this one has 10.0"
    assert unfit((10, 0), 13000) == message


def test_newer_minor_device_for_an_exact_arch():
    message = "kernel ffn: sm_100a needs a device of capability 10.0, this one has 10.3"
    assert unfit((10, 3), 13000, "sm_100a") == message


def test_older_minor_device():
    message = "kernel ffn: sm_86 needs a device of capability 8.6, this one has 8.0"
    assert unfit((8, 0), 13000, "sm_86") == message


def test_too_much_shared_memory_for_the_device():
    with pytest.raises(LoadError) as caught:
        check_device(metadata(), (9, 0), 13000, 101376)
    assert str(caught.value) == (
        "kernel ffn: needs 196736 bytes of shared memory a block, this device has 101376"
    )


# --- Cubin and metadata -----------------------------------------------------------------------


def unloadable(folder, text: str | None, cubin: bytes | None = CUBIN) -> str:
    if cubin is not None:
        (folder / "ffn.cubin").write_bytes(cubin)
    if text is not None:
        (folder / "ffn.json").write_text(text)
    with pytest.raises(LoadError) as caught:
        pipelink.load(folder / "ffn.cubin")
    return str(caught.value).replace(f"{folder}/", "")


def malformed(folder, **changes: Any) -> str:
    return unloadable(folder, json.dumps(fields(**changes)))


def test_load(tmp_path):
    (tmp_path / "ffn.cubin").write_bytes(CUBIN)
    (tmp_path / "ffn.json").write_text(json.dumps(fields(manifest="ffn.kernel.toml")))
    assert pipelink.load(str(tmp_path / "ffn.cubin")).metadata == metadata()


@pytest.mark.parametrize("output", ["toy.json", "toy", ".cubin"])
def test_a_link_writes_a_cubin_and_its_metadata_beside_it(toy, call, output):
    """Under another name one would take the place of the other."""
    toy.objects()
    said = f"pipelink link: -o must end in .cubin, got {output}\n"
    assert call("link", "toy.kernel.toml", "-o", output) == (2, "", said)
    assert not Path(output).exists()


def test_missing_cubin(tmp_path):
    assert unloadable(tmp_path, "{}", None) == "ffn.cubin: no such file or directory"


def test_missing_metadata(tmp_path):
    assert unloadable(tmp_path, None) == (
        "ffn.json: no such file; it is the launch metadata of ffn.cubin, which `pipelink link` writes "
        "beside it"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ffn.json", b"{}", "not a linked cubin; pass the .cubin that it lies beside"),
        ("ffn.cubin", b"cubin", "not a linked cubin"),
        (
            "loader.o",
            HOST_OBJECT,
            "not a linked cubin but an object; `pipelink link` makes one of it",
        ),
        (".", None, "is a directory"),
        ("ffn\0.cubin", None, "embedded null byte"),
    ],
)
def test_load_of_what_is_no_cubin(tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(LoadError) as caught:
        pipelink.load(name)
    assert str(caught.value) == f"{name}: {message}"


def test_metadata_that_is_no_json(tmp_path):
    message = "ffn.json: not JSON: Expecting value: line 1 column 1 (char 0)"
    assert unloadable(tmp_path, "kernel") == message


def test_metadata_that_is_no_text(tmp_path):
    (tmp_path / "ffn.json").write_bytes(b"\xff\xfe")
    assert unloadable(tmp_path, None) == "ffn.json: not JSON: not text in UTF-8"


def test_metadata_that_is_nested_too_deeply(tmp_path):
    text = "[" * 100_000 + "]" * 100_000
    assert unloadable(tmp_path, text) == "ffn.json: not JSON: nested too deeply"


@pytest.mark.parametrize("text", ["[]", '{"kernel": "ffn"}'])
def test_foreign_metadata(tmp_path, text):
    assert unloadable(tmp_path, text) == "ffn.json: not launch metadata of pipelink"


@pytest.mark.parametrize("number", [3, 2.0, "2", None])
def test_metadata_of_another_format(tmp_path, number):
    message = f"ffn.json: launch metadata of format {number!r}, this loader reads 2"
    assert malformed(tmp_path, pipelink=number) == message


def test_cubin_of_another_link(tmp_path):
    other = CUBIN + b"other"
    came, wanted = (hashlib.sha256(data).hexdigest()[:16] for data in (other, CUBIN))
    assert unloadable(tmp_path, json.dumps(fields()), other) == (
        f"ffn.cubin: the cubin's sha256 is {came}, ffn.json is for {wanted}"
    )


def test_metadata_without_a_key(tmp_path):
    data = fields()
    del data["threads"]
    assert unloadable(tmp_path, json.dumps(data)) == "ffn.json: no key 'threads'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": "384"}, "threads must be an integer of 1 to 1024, got '384'"),
        ({"threads": 384.0}, "threads must be an integer of 1 to 1024, got 384.0"),
        ({"threads": 1025}, "threads must be an integer of 1 to 1024, got 1025"),
        ({"threads": True}, "threads must be an integer of 1 to 1024, got True"),
        ({"shared_bytes": -1}, "shared_bytes must be an integer of at least 0, got -1"),
        ({"entry": 1}, "entry must be a name, got 1"),
        ({"kernel": ""}, "kernel must be a name, got ''"),
        ({"arch": "gfx942"}, "arch must be an architecture such as 'sm_90a', got 'gfx942'"),
        ({"arch": 90}, "arch must be an architecture such as 'sm_90a', got 90"),
        ({"cubin_sha256": "AB"}, "cubin_sha256 must be 64 hex digits in lower case, got 'AB'"),
        ({"grid": 1}, "grid must be an object, got 1"),
        ({"grid": {"kind": "cluster"}}, "grid.kind 'cluster' is not known to this loader"),
        ({"grid": {"kind": "persistent"}}, "no key 'grid.blocks_per_sm'"),
        ({"arguments": 1}, "arguments must be an array, got 1"),
        ({"arguments": []}, "arguments must be an array of at least one argument, got []"),
        ({"arguments": [1]}, "arguments[0] must be an object, got 1"),
        ({"parameters": {}}, "parameters must be an array, got {}"),
    ],
)
def test_metadata_with_a_wrong_value(tmp_path, changes, message):
    assert malformed(tmp_path, **changes) == f"ffn.json: {message}"


def test_a_hash_in_upper_case(tmp_path):
    upper = hashlib.sha256(CUBIN).hexdigest().upper()
    said = malformed(tmp_path, cubin_sha256=upper)
    assert said.startswith("ffn.json: cubin_sha256 must be 64 hex digits in lower case, got '")


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"kind": "scalar"}, "parameters[0].kind 'scalar' is not known to this loader"),
        ({"kind": ["pointer"]}, "parameters[0].kind ['pointer'] is not known to this loader"),
        (
            {"kind": "pointer", "argument": "y"},
            "parameters[0].argument 'y' is the name of no argument",
        ),
        (
            {"kind": "extent", "name": "n", "bounds": [1, 9]},
            "parameters[0].name 'n' is an extent of no argument's shape",
        ),
        (
            {"kind": "extent", "name": "m", "bounds": [5, 4]},
            "parameters[0].bounds must be a least and a most, got [5, 4]",
        ),
        (
            {"kind": "extent", "name": "m", "bounds": [4]},
            "parameters[0].bounds must be a least and a most, got [4]",
        ),
        (
            {"kind": "extent", "name": "m", "bounds": [0, 4]},
            "parameters[0].bounds[0] must be an integer of 1 to 2147483647, got 0",
        ),
        (
            {"kind": "extent", "name": "m", "bounds": [1, 2**31]},
            "parameters[0].bounds[1] must be an integer of 1 to 2147483647, got 2147483648",
        ),
    ],
)
def test_metadata_with_a_wrong_parameter(tmp_path, parameter, message):
    assert malformed(tmp_path, parameters=[parameter]) == f"ffn.json: {message}"


def changed_argument(key: str, value: Any) -> list[dict[str, Any]]:
    first, *rest = fields()["arguments"]
    return [{**first, key: value}, *rest]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("element", "nvfp4", "arguments[0].element 'nvfp4' is not known to this loader"),
        ("access", "accumulate", "arguments[0].access 'accumulate' is not known to this loader"),
        ("shape", ["m", 0], "arguments[0].shape[1] must be an integer of at least 1, got 0"),
        ("shape", ["m-1"], "arguments[0].shape[0] must be a name, got 'm-1'"),
        ("alignment", 16.0, "arguments[0].alignment must be an integer of at least 1, got 16.0"),
        ("name", "out", "arguments[1].name 'out' stands twice"),
    ],
)
def test_metadata_with_a_wrong_argument(tmp_path, key, value, message):
    arguments = changed_argument(key, value)
    assert malformed(tmp_path, arguments=arguments) == f"ffn.json: {message}"


def changed_map(**changes: Any) -> list[dict[str, Any]]:
    return [fields()["parameters"][0] | changes]


@pytest.mark.parametrize(
    "changes", [{"element": "f16"}, {"shape": ["m", 128]}, {"box": [64]}, {"shape": [128, 64]}]
)
def test_tensor_map_that_does_not_fit_its_argument(tmp_path, changes):
    message = "ffn.json: parameters[0], a tensor map, does not fit the shape of x"
    assert malformed(tmp_path, parameters=changed_map(**changes)) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swizzle": 48}, "swizzle must be one of 0, 32, 64, 128, got 48"),
        ({"swizzle": 0.0}, "swizzle must be an integer of at least 0, got 0.0"),
        ({"box": [257, 64]}, "box[0] must be an integer of 1 to 256, got 257"),
        ({"box": []}, "box must be an array of 1 to 5 sides, got []"),
    ],
)
def test_metadata_with_a_wrong_tensor_map(tmp_path, changes, message):
    said = malformed(tmp_path, parameters=changed_map(**changes))
    assert said == f"ffn.json: parameters[0].{message}"


# --- The driver -------------------------------------------------------------------------------


class Driver:
    """A driver of one device; it keeps the calls that carry a contract's numbers."""

    def __init__(
        self,
        blocks: int = 1,
        launch: int = 0,
        limit: int = 0,
        sizes: tuple[int, ...] = (128, 8, 4),
    ) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}
        self.parameters: list[int] = []
        self.modes: list[Any] = []
        self._blocks, self._launch, self._limit, self._sizes = blocks, launch, limit, sizes
        self._real = runtime.driver
        self._map = ctypes.create_string_buffer(b"map", 128)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cuuint"):
            return getattr(self._real, name)

        def call(*given: Any) -> tuple[Any, ...]:
            self.calls[name] = given
            return (0, 1)

        return call

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return (0, 13000)

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[int, int]:
        names = {"MAJOR": 9, "MINOR": 0, "COUNT": 132, "OPTIN": 232448}
        return (0, names[attribute.name.rsplit("_", 1)[1]])

    def cuFuncGetAttribute(self, *given: Any) -> tuple[int, int]:
        return (0, self._limit)

    def cuFuncGetParamInfo(self, function: Any, index: int) -> tuple[int, Any, Any]:
        return (0, 0, self._sizes[index]) if index < len(self._sizes) else (1, None, None)

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[int, int]:
        self.calls["cuThreadExchangeStreamCaptureMode"] = (mode,)
        self.modes.append(mode)
        return (0, 1)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *given: Any) -> tuple[int, int]:
        return (0, self._blocks)

    def cuTensorMapEncodeTiled(self, *given: Any) -> tuple[int, Any]:
        self.calls["map"] = given
        return (0, SimpleNamespace(getPtr=lambda: ctypes.addressof(self._map)))

    def cuLaunchKernel(self, *given: Any) -> tuple[int]:
        self.calls["launch"] = given
        places = (ctypes.c_void_p * 3).from_address(given[9])
        self.parameters = [
            *ctypes.string_at(places[0], 3),
            ctypes.c_uint64.from_address(places[1]).value,
            ctypes.c_int32.from_address(places[2]).value,
        ]
        return (self._launch,)


@pytest.fixture(autouse=True)
def _no_driver_is_remembered():
    yield
    for cached in (device.start, device.primary, runtime._encode):
        cached.cache_clear()


def launched(
    monkeypatch, fake: Driver, kernel: runtime.Kernel | None = None, stream: Any = 7
) -> Driver:
    for module in (runtime, device):
        monkeypatch.setattr(module, "driver", fake)
    monkeypatch.setattr(runtime, "describe", lambda value, stream: value)
    (kernel or runtime.Kernel(IMAGE))(X, out=OUT, stream=stream)
    return fake


def test_a_launch_has_the_grid_of_the_contract(monkeypatch):
    call = launched(monkeypatch, Driver()).calls["launch"]
    assert call[1:9] == (132, 1, 1, 384, 1, 1, 196736, 7)


def test_a_launch_has_the_parameters_in_order(monkeypatch):
    assert launched(monkeypatch, Driver()).parameters == [*b"map", OUT.pointer, 8]


def test_a_launch_raises_the_limit_of_shared_memory(monkeypatch):
    assert launched(monkeypatch, Driver()).calls["cuFuncSetAttribute"][2] == 196736


def test_a_tensor_map_has_the_innermost_dimension_first(monkeypatch):
    kind, rank, address, extents, strides, box, *_ = launched(monkeypatch, Driver()).calls["map"]
    assert (kind.name, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 2, X.pointer)
    assert [[int(n) for n in row] for row in (extents, strides, box)] == [[64, 8], [128], [64, 128]]


def test_a_grid_that_does_not_fit_the_device(monkeypatch):
    with pytest.raises(LoadError) as caught:
        launched(monkeypatch, Driver(blocks=0))
    message = "kernel ffn: the grid needs blocks_per_sm 1, the device fits 0"
    assert str(caught.value) == message


def test_a_limit_that_is_high_enough_stays(monkeypatch):
    assert "cuFuncSetAttribute" not in launched(monkeypatch, Driver(limit=196737)).calls


def test_code_is_loaded_outside_of_a_capture(monkeypatch):
    fake = launched(monkeypatch, Driver())
    relaxed = fake.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    order = list(fake.calls)
    assert order.index("cuThreadExchangeStreamCaptureMode") < order.index("cuModuleLoadData")
    assert fake.modes == [relaxed, 1]


def test_a_closed_kernel_takes_no_call(monkeypatch):
    kernel = runtime.Kernel(IMAGE)
    fake = launched(monkeypatch, Driver(), kernel)
    with kernel:
        pass
    assert list(fake.calls)[-2:] == ["cuCtxSynchronize", "cuModuleUnload"]
    message = "kernel ffn: it was closed and takes no more calls"
    for given, named in (((X, OUT), {"stream": 7}), ((1, 2), {}), ((), {"y": 1})):
        with pytest.raises(LaunchError) as caught:
            kernel(*given, **named)
        assert str(caught.value) == message
    kernel.close()


def test_a_closed_kernel_takes_no_call_that_it_had_prepared(monkeypatch, torch):
    kernel, tensors = runtime.Kernel(IMAGE), [FakeTensor(X), FakeTensor(OUT)]
    for module in (runtime, device):
        monkeypatch.setattr(module, "driver", Driver())
    for _ in range(2):
        kernel(*tensors)
    kernel.close()
    with pytest.raises(LaunchError) as caught:
        kernel(*tensors)
    assert str(caught.value) == "kernel ffn: it was closed and takes no more calls"


class TwoDevices(Driver):
    """Work on the first one fails while `failing`."""

    failing = True

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return (0, ordinal)

    def cuDevicePrimaryCtxRetain(self, handle: int) -> tuple[int, str]:
        return (0, f"context {handle}")

    def cuCtxPushCurrent(self, context: str) -> tuple[int]:
        self.context = context
        return (0,)

    def cuCtxSynchronize(self) -> tuple[int]:
        return (700 if self.failing and self.context == "context 0" else 0,)

    def cuModuleUnload(self, module: Any) -> tuple[int]:
        self.calls.setdefault("unloaded", ())
        self.calls["unloaded"] += (self.context,)
        return (0,)


def on_two_devices(monkeypatch) -> tuple[runtime.Kernel, TwoDevices]:
    kernel, fake = runtime.Kernel(IMAGE), TwoDevices()
    launched(monkeypatch, fake, kernel)
    kernel(replace(X, device="cuda:1"), replace(OUT, device="cuda:1"), stream=7)
    return kernel, fake


FAILED = "kernel ffn: cuda:0: work on the device failed: CUDA_ERROR_ILLEGAL_ADDRESS"


def test_closing_goes_on_where_a_device_fails(monkeypatch):
    kernel, fake = on_two_devices(monkeypatch)
    with pytest.raises(runtime.DriverError) as caught:
        kernel.close()
    assert (str(caught.value), fake.calls["unloaded"]) == (FAILED, ("context 1",))
    fake.failing = False
    kernel.close()
    assert fake.calls["unloaded"] == ("context 1", "context 0")


def test_the_end_of_a_with_raises_what_a_device_refuses(monkeypatch):
    kernel, _ = on_two_devices(monkeypatch)
    with pytest.raises(runtime.DriverError) as caught, kernel:
        pass
    assert str(caught.value) == FAILED


def test_the_end_of_a_with_hides_no_exception(monkeypatch):
    kernel, _ = on_two_devices(monkeypatch)
    with pytest.raises(KeyError) as caught, kernel:
        raise KeyError("mine")
    assert caught.value.__notes__ == [FAILED]


def test_the_context_is_given_back_where_the_binding_raises(monkeypatch):
    class Raises(Driver):
        def cuLaunchKernel(self, *given: Any) -> tuple[int]:
            self.calls.clear()
            raise OverflowError("too large")

    fake = Raises()
    with pytest.raises(OverflowError):
        launched(monkeypatch, fake)
    assert list(fake.calls) == ["cuCtxPopCurrent"]


def test_a_cubin_that_takes_other_parameters(monkeypatch):
    for sizes, shown in (((128, 8), "[128, 8]"), ((128, 8, 8), "[128, 8, 8]"), ((), "[]")):
        fake = Driver(sizes=sizes)
        with pytest.raises(LoadError) as caught:
            launched(monkeypatch, fake)
        assert str(caught.value) == (
            "kernel ffn: the metadata has parameters of [128, 8, 4] bytes, entry ffn of the cubin takes "
            f"{shown}"
        )
        assert "cuModuleUnload" in fake.calls


class Streams(Driver):
    """The streams of `captured` are captured; another one can't be asked."""

    captured: tuple[int, ...] = ()
    implicit: tuple[int, ...] = ()

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, Any]:
        return (906, None) if stream in self.implicit else (0, int(stream in self.captured))


def followed(monkeypatch, fake: Streams) -> Streams:
    monkeypatch.setattr(device, "driver", fake)
    monkeypatch.setattr(device, "owner", lambda pointer: 0)
    arrays.describe(interface(stream=5), 9)
    return fake


@pytest.mark.parametrize("captured", [(), (5, 9)])
def test_a_producer_stream_is_followed_into_its_own_graph(monkeypatch, captured):
    fake = Streams()
    fake.captured = captured
    assert followed(monkeypatch, fake).calls["cuStreamWaitEvent"][0] == 9


@pytest.mark.parametrize(
    ("captured", "implicit", "message"),
    [
        ((9,), (), "0x5 is not captured, 0x9 is"),
        ((9,), (5,), "0x5 is not captured, 0x9 is"),
        ((5,), (), "0x5 is captured, 0x9 is not"),
    ],
)
def test_a_producer_stream_of_another_graph(monkeypatch, captured, implicit, message):
    fake = Streams()
    fake.captured, fake.implicit = captured, implicit
    with pytest.raises(LaunchError) as caught:
        followed(monkeypatch, fake)
    wanted = "must come by a stream that is captured if the launch's is"
    assert str(caught.value) == f"{wanted}: {message}"
    assert "cuEventRecord" not in fake.calls


def test_a_stream_on_another_device(monkeypatch):
    class Stream:
        cuda_stream, device = 7, SimpleNamespace(index=1)

    with pytest.raises(LaunchError) as caught:
        launched(monkeypatch, Driver(), stream=Stream())
    assert str(caught.value) == "kernel ffn: stream must be on cuda:0 as x is, got cuda:1"


def test_a_launch_that_the_driver_refuses(monkeypatch):
    with pytest.raises(runtime.DriverError) as caught:
        launched(monkeypatch, Driver(launch=1))
    message = "kernel ffn: the driver refuses the launch: CUDA_ERROR_INVALID_VALUE"
    assert str(caught.value) == message


# --- What it needs ----------------------------------------------------------------------------


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_the_package_alone_imports_nothing_of_the_build_or_the_device():
    modules = imported_by("import pipelink")
    assert {name for name in modules if name.startswith("pipelink")} == {"pipelink"}
    assert "cuda" not in modules


def test_the_loader_imports_nothing_of_the_build():
    modules = imported_by("import pipelink; pipelink.load")
    ours = {name for name in modules if name.startswith("pipelink")}
    assert ours == {
        "pipelink",
        *(f"pipelink.{n}" for n in ("arrays", "device", "launch", "runtime")),
    }
    packages = {"msgspec", "jinja2", "rich", "elftools", "simpleeval", "SCons", "torch"}
    assert not packages & modules
