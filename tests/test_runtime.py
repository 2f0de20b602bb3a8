"""The loader: what it refuses, word by word, and what it hands to the driver. No GPU."""

import ctypes
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import pipelink
from pipelink import arrays, device, runtime
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
        "cubin_sha256": hashlib.sha256(b"cubin").hexdigest(),
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


IMAGE = runtime.Image(metadata(), b"cubin")
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


def test_kernels_that_are_no_variants_of_one_another():
    arguments = changed_argument("element", "f16")
    other = metadata(kernel="other", arguments=arguments, parameters=fields()["parameters"][1:])
    with pytest.raises(LoadError) as caught:
        runtime.Kernel(runtime.Image(other, b"cubin"), IMAGE)
    assert str(caught.value) == (
        "kernels other and ffn are no variants of one another: the first takes (x: f16 [m, 64], "
        "out: bf16 [m, 32]), the second takes (x: bf16 [m, 64], out: bf16 [m, 32])"
    )


def test_load_of_nothing():
    with pytest.raises(LoadError) as caught:
        pipelink.load()
    assert str(caught.value) == "load takes the path of a cubin, or those of variants, got none"


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
    message = "kernel ffn: x must be exportable by DLPack: DLPack only supports native byte order."
    assert uncallable(array, array, stream=0) == message


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


def test_unknown_arch():
    assert unfit((9, 0), 13000, "gfx942") == "kernel ffn: arch 'gfx942' is not a known one"


# --- Cubin and metadata -----------------------------------------------------------------------


def unloadable(folder, text: str | None, cubin: bytes | None = b"cubin") -> str:
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
    (tmp_path / "ffn.cubin").write_bytes(b"cubin")
    (tmp_path / "ffn.json").write_text(json.dumps(fields(manifest="ffn.kernel.toml")))
    assert pipelink.load(str(tmp_path / "ffn.cubin")).metadata == metadata()


def test_missing_cubin(tmp_path):
    assert unloadable(tmp_path, "{}", None) == "ffn.cubin: no such file or directory"


def test_missing_metadata(tmp_path):
    assert unloadable(tmp_path, None) == "ffn.json: no such file or directory"


def test_metadata_that_is_no_json(tmp_path):
    message = "ffn.json: not JSON: Expecting value: line 1 column 1 (char 0)"
    assert unloadable(tmp_path, "kernel") == message


def test_metadata_that_is_no_text(tmp_path):
    (tmp_path / "ffn.json").write_bytes(b"\xff\xfe")
    assert unloadable(tmp_path, None) == "ffn.json: not JSON: not text in UTF-8"


@pytest.mark.parametrize("text", ["[]", '{"kernel": "ffn"}'])
def test_foreign_metadata(tmp_path, text):
    assert unloadable(tmp_path, text) == "ffn.json: not launch metadata of pipelink"


def test_newer_metadata(tmp_path):
    message = "ffn.json: launch metadata of format 3, this loader reads 2"
    assert malformed(tmp_path, pipelink=3) == message


def test_cubin_of_another_link(tmp_path):
    assert unloadable(tmp_path, json.dumps(fields()), b"other") == (
        "ffn.cubin: the cubin's sha256 is d9298a10d1b07358, ffn.json is for 7c9b185f35cce030"
    )


def test_metadata_without_a_key(tmp_path):
    data = fields()
    del data["threads"]
    assert unloadable(tmp_path, json.dumps(data)) == "ffn.json: no key 'threads'"


def test_metadata_with_a_wrong_count(tmp_path):
    message = "ffn.json: expected a count of at least 1, got '384'"
    assert malformed(tmp_path, threads="384") == message


def test_metadata_with_a_wrong_name(tmp_path):
    assert malformed(tmp_path, entry=1) == "ffn.json: expected a name, got 1"


def test_metadata_of_a_wrong_build(tmp_path):
    message = "ffn.json: malformed launch metadata: 'int' object is not iterable"
    assert malformed(tmp_path, arguments=1) == message


def test_unknown_grid(tmp_path):
    message = "ffn.json: grid of kind 'cluster', this loader knows 'persistent'"
    assert malformed(tmp_path, grid={"kind": "cluster"}) == message


def test_unknown_parameter_kind(tmp_path):
    message = "ffn.json: parameter of kind 'scalar' is not known to this loader"
    assert malformed(tmp_path, parameters=[{"kind": "scalar"}]) == message


def test_parameter_of_no_argument(tmp_path):
    message = "ffn.json: parameter refers to argument 'y', which is none"
    assert malformed(tmp_path, parameters=[{"kind": "pointer", "argument": "y"}]) == message


def test_parameter_of_no_extent(tmp_path):
    message = "ffn.json: no argument's shape has extent 'n'"
    assert malformed(tmp_path, parameters=[{"kind": "extent", "name": "n", "bounds": [1, 9]}]) == message


def changed_argument(key: str, value: Any) -> list[dict[str, Any]]:
    first, *rest = fields()["arguments"]
    return [{**first, key: value}, *rest]


@pytest.mark.parametrize("bounds", [[0, 4], [5, 4], [1, 2**31]])
def test_bounds_that_are_none(tmp_path, bounds):
    extent = {"kind": "extent", "name": "m", "bounds": bounds}
    said = malformed(tmp_path, parameters=[extent])
    assert said in (
        f"ffn.json: bounds {bounds!r} are no least and most",
        "ffn.json: expected a count of at least 1, got 0",
    )


def test_unknown_element(tmp_path):
    message = "ffn.json: element 'nvfp4' is not known to this loader"
    assert malformed(tmp_path, arguments=changed_argument("element", "nvfp4")) == message


def test_unknown_access(tmp_path):
    message = "ffn.json: access 'accumulate' is not known to this loader"
    assert malformed(tmp_path, arguments=changed_argument("access", "accumulate")) == message


def changed_map(**changes: Any) -> list[dict[str, Any]]:
    return [fields()["parameters"][0] | changes]


@pytest.mark.parametrize(
    "changes", [{"element": "f16"}, {"shape": ["m", 128]}, {"box": [64]}, {"shape": [128, 64]}]
)
def test_tensor_map_that_does_not_fit_its_argument(tmp_path, changes):
    message = "ffn.json: tensor map of x does not fit the argument's shape"
    assert malformed(tmp_path, parameters=changed_map(**changes)) == message


def test_unknown_swizzle(tmp_path):
    message = "ffn.json: tensor map of x has swizzle 48"
    assert malformed(tmp_path, parameters=changed_map(swizzle=48)) == message


# --- The driver -------------------------------------------------------------------------------


class Driver:
    """A driver of one device; it keeps the calls that carry a contract's numbers."""

    def __init__(self, blocks: int = 1, launch: int = 0, limit: int = 0) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}
        self.parameters: list[int] = []
        self.modes: list[Any] = []
        self._blocks, self._launch, self._limit = blocks, launch, limit
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


def launched(
    monkeypatch, fake: Driver, kernel: runtime.Kernel | None = None, stream: Any = 7
) -> Driver:
    for module in (runtime, device):
        monkeypatch.setattr(module, "driver", fake)
    monkeypatch.setattr(runtime, "describe", lambda value, stream: value)
    for cached in (device.start, device.primary, runtime._encode):
        cached.cache_clear()
    try:
        (kernel or runtime.Kernel(IMAGE))(X, out=OUT, stream=stream)
    finally:
        for cached in (device.start, device.primary, runtime._encode):
            cached.cache_clear()
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
    with pytest.raises(LaunchError) as caught:
        kernel(X, OUT, stream=7)
    message = "kernel ffn: it was closed and takes no more calls, got one with (x, out)"
    assert str(caught.value) == message


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
    assert ours == {"pipelink", *(f"pipelink.{n}" for n in ("arrays", "device", "launch", "runtime"))}
    packages = {"msgspec", "jinja2", "rich", "elftools", "simpleeval", "SCons", "torch"}
    assert not packages & modules
