"""The loader: linked cubins and their launch metadata become a callable kernel.

    kernel = pipelink.load("ffn.cubin")          # reads ffn.cubin and ffn.json
    kernel(x, w_gate, w_up, out)                 # torch tensors, on torch's current stream
    kernel(x, w_gate, w_up, out, stream=handle)  # any array with DLPack or the CUDA array interface

It stands apart from the linker: it needs cuda-core (for the CUDA bindings) and nothing else of
PipeLink but `launch.py`, `device.py` and `arrays.py`, and it imports no torch.
"""

import ctypes
import hashlib
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from pipelink import device
from pipelink.arrays import current_stream, describe, is_torch
from pipelink.device import DriverError, call
from pipelink.launch import (
    ELEMENT_BYTES,
    INTEGERS,
    LaunchError,
    LoadError,
    Metadata,
    Parameter,
    Pointer,
    RuntimeFault,
    Tensor,
    TensorMap,
    bind,
    check,
    check_device,
    check_parameters,
    check_variants,
    read_metadata,
    row_major,
    text,
    value_fault,
)

__all__ = ["DriverError", "Kernel", "LaunchError", "LoadError", "RuntimeFault", "load"]

# Launches kept ready; a kernel that sees ever new addresses forgets the oldest.
PREPARED = 1024

_MAP = driver.CUtensorMapDataType
_ELEMENTS = {
    "bf16": _MAP.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "f16": _MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "f32": _MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    "f64": _MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    "i32": _MAP.CU_TENSOR_MAP_DATA_TYPE_INT32,
    "u32": _MAP.CU_TENSOR_MAP_DATA_TYPE_UINT32,
    "i64": _MAP.CU_TENSOR_MAP_DATA_TYPE_INT64,
    "u64": _MAP.CU_TENSOR_MAP_DATA_TYPE_UINT64,
    # A copy moves bytes as they are.
    **dict.fromkeys(("i8", "u8", "e4m3", "e5m2"), _MAP.CU_TENSOR_MAP_DATA_TYPE_UINT8),
}
_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
# How an ELF file begins, and the machine of one for GPUs, which stands at bytes 18 and 19.
_ELF, _EM_CUDA = b"\x7fELF", 190


@dataclass(frozen=True)
class Image:
    """A cubin and what a launch of it needs to know."""

    metadata: Metadata
    cubin: bytes


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An image on one device. The context is the one that torch, CuPy and the runtime share."""

    context: Any
    module: Any
    function: Any
    blocks: int


@dataclass(frozen=True, slots=True)
class _Fit:
    """Arguments that passed the checks, and the number of the variant that takes them."""

    tensors: dict[str, Tensor]
    variant: int
    extents: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Launch:
    """All of a launch but its stream. The driver copies the values that `held` keeps in memory."""

    ordinal: int
    context: Any
    before: tuple[Any, ...]  # function, grid, block, shared bytes
    pointers: int
    held: Any


class Kernel:
    """A linked kernel, or variants of one; loaded on a device at the first launch there.

    It may be called from several threads. `close` unloads it; no call, and no CUDA graph that holds
    one, may run after that, and no capture while it closes.
    """

    def __init__(self, *images: Image) -> None:
        self._images = images
        self._loaded: dict[tuple[int, int], _Loaded] = {}
        self._launches: dict[tuple[Any, ...], _Launch] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.variants: tuple[Metadata, ...] = tuple(image.metadata for image in images)
        check_variants(self.variants)
        # The arguments of a call that needs no `bind`. None has as many once it is closed: so all
        # calls come to hear that, and those before it pay nothing.
        self._takes = len(self.metadata.arguments)

    @property
    def metadata(self) -> Metadata:
        """Of the last variant, which is the most general."""
        return self.variants[-1]

    def __call__(self, /, *given: Any, stream: Any = None, **named: Any) -> None:
        """Launches on `stream`, or on torch's current stream if an argument is torch's."""
        values = given
        if named or len(given) != self._takes:
            self._check_open()
            values = tuple(bind(self.metadata, given, named).values())
        # What was launched before needs no second check: a key is all that the checks look at.
        torch = sys.modules.get("torch")
        looked_at = []
        for t in values:
            if torch is None or not isinstance(t, torch.Tensor):
                return self._run(
                    self._prepare(values, _stream(self, values, stream)), values, stream
                )
            looked_at.append((t.data_ptr(), t.shape, t.stride(), t.dtype, t.device))
        key = tuple(looked_at)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._prepare(values, 0)
            self._keep(key, launch)
        if stream is None:
            return self._start(launch, current_stream(launch.ordinal))
        return self._run(launch, values, stream)

    def close(self) -> None:
        """Waits for the devices that it is loaded on, and unloads it from each.

        What a device refuses is raised at the end, and tried again by the next `close`.
        """
        faults = []
        with self._lock:
            self._closed, self._takes = True, -1
            self._launches.clear()
            for (number, ordinal), loaded in list(self._loaded.items()):
                try:
                    _unload(loaded)
                    del self._loaded[number, ordinal]
                except DriverError as error:
                    faults.append(f"cuda:{ordinal}: {error}")
        if faults:
            what = "; ".join(dict.fromkeys(faults))
            raise DriverError(f"kernel {self.metadata.kernel}: {what}")

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except DriverError as fault:
            if error is None:
                raise
            error.add_note(str(fault))  # what ended the block is what its user must see

    def __str__(self) -> str:
        return f"{self.metadata.kernel}({self.metadata.takes()}) for {self.metadata.arch}"

    def _check_open(self) -> None:
        if self._closed:
            raise LaunchError(
                f"kernel {self.metadata.kernel}: it was closed and takes no more calls"
            )

    def _prepare(self, values: Sequence[Any], stream: int) -> _Launch:
        return self._ready(self._fit(values, stream))

    def _fit(self, values: Sequence[Any], stream: int) -> _Fit:
        metadata = self.metadata
        tensors: dict[str, Tensor] = {}
        for argument, value in zip(metadata.arguments, values, strict=True):
            try:
                tensors[argument.name] = describe(value, stream)
            except LaunchError as error:
                said = f"kernel {metadata.kernel}: {argument.name} {error}"
                raise LaunchError(said) from error.__cause__
        return _Fit(tensors, *check(self.variants, tensors))

    def _ready(self, fit: _Fit) -> _Launch:
        ordinal = int(next(iter(fit.tensors.values())).device.removeprefix("cuda:"))
        loaded = self._on(fit.variant, ordinal)
        chosen = self.variants[fit.variant]
        held = [_value(p, fit.tensors, fit.extents) for p in chosen.parameters]
        pointers = (ctypes.c_void_p * len(held))(*(address for address, _ in held))
        return _Launch(
            ordinal,
            loaded.context,
            (loaded.function, loaded.blocks, 1, 1, chosen.threads, 1, 1, chosen.shared_bytes),
            ctypes.addressof(pointers),
            (pointers, held),
        )

    def _keep(self, key: tuple[Any, ...], launch: _Launch) -> None:
        with self._lock:
            if self._closed:
                return
            while len(self._launches) >= PREPARED:
                del self._launches[next(iter(self._launches))]
            self._launches[key] = launch

    def _run(self, launch: _Launch, values: Sequence[Any], stream: Any) -> None:
        self._start(launch, _stream(self, values, stream, launch.ordinal))

    def _start(self, launch: _Launch, stream: int) -> None:
        # device.current, without what a context manager costs on each launch.
        pushed = driver.cuCtxPushCurrent(launch.context)
        if pushed[0]:
            call("the context cannot be used", pushed)
        try:
            launched = driver.cuLaunchKernel(*launch.before, stream, launch.pointers, 0)
        finally:
            driver.cuCtxPopCurrent()
        if launched[0]:
            call(f"kernel {self.metadata.kernel}: the driver refuses the launch", launched)

    def _on(self, number: int, ordinal: int) -> _Loaded:
        with self._lock:
            self._check_open()
            loaded = self._loaded.get((number, ordinal))
            if loaded is None:
                loaded = self._loaded[number, ordinal] = _load(self._images[number], ordinal)
            return loaded


class DebugKernel(Kernel):
    """A kernel of which every call waits for its stream, checks what the contract says of the values
    of arrays, and waits again, so that a fault is raised by the call that it comes from."""

    def __call__(self, /, *given: Any, stream: Any = None, **named: Any) -> None:
        self._check_open()
        values = tuple(bind(self.metadata, given, named).values())
        fit = self._fit(values, _stream(self, values, stream))
        launch = self._ready(fit)
        handle = _stream(self, values, stream, launch.ordinal)
        what = f"kernel {self.variants[fit.variant].kernel}"
        with device.current(launch.context), device.outside_capture():
            if device.captured(handle, beside_another=True):
                said = "a debug launch can't be captured, it waits for its stream"
                raise LaunchError(f"{what}: {said}")
            device.wait(f"{what}: work before it on its stream failed", handle)
            self._check_values(what, fit, handle)
            self._start(launch, handle)
            device.wait(f"{what}: it failed", handle)

    def _check_values(self, what: str, fit: _Fit, stream: int) -> None:
        for argument in self.variants[fit.variant].arguments:
            if not argument.holds:
                continue
            tensor = fit.tensors[argument.name]
            values = device.integers(
                f"{what}: {argument.name} can't be read",
                INTEGERS[argument.element],
                prod(tensor.shape),
                tensor.pointer,
                stream,
            )
            fault = value_fault(argument, tensor.shape, fit.extents, values)
            if fault:
                raise LaunchError(f"{what}: {fault}")


def _load(image: Image, ordinal: int) -> _Loaded:
    version = device.start()
    major, minor, processors, largest = device.limits(ordinal)
    check_device(image.metadata, (major, minor), version, largest)
    context = device.primary(ordinal)
    with device.current(context), device.outside_capture():
        module, function = _function(image)
    return _Loaded(context, module, function, processors * image.metadata.blocks_per_sm)


def _unload(loaded: _Loaded) -> None:
    with device.current(loaded.context):
        call("work on the device failed", driver.cuCtxSynchronize())
        call("the kernel can't be unloaded", driver.cuModuleUnload(loaded.module))


def _function(image: Image) -> tuple[Any, Any]:
    what = f"kernel {image.metadata.kernel}: the driver refuses the cubin"
    module = call(what, driver.cuModuleLoadData(image.cubin))
    try:
        return module, _entry(image.metadata, module)
    except RuntimeFault:
        driver.cuModuleUnload(module)
        raise


def _entry(metadata: Metadata, module: Any) -> Any:
    """The entry of a loaded module, fit to be launched as the metadata says."""
    name, shared = metadata.kernel, metadata.shared_bytes
    found = driver.cuModuleGetFunction(module, metadata.entry.encode())
    function = call(f"kernel {name}: no entry {metadata.entry}", found)
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    have = call(f"kernel {name}: no limits", driver.cuFuncGetAttribute(limit, function))
    if int(have) < shared:
        raised = driver.cuFuncSetAttribute(function, limit, shared)
        call(f"kernel {name}: the device has no {shared} bytes of shared memory a block", raised)
    fits = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, metadata.threads, shared)
    blocks = int(call(f"kernel {name}: no occupancy", fits))
    if blocks < metadata.blocks_per_sm:
        needs = f"blocks_per_sm {metadata.blocks_per_sm}"
        raise LoadError(f"kernel {name}: the grid needs {needs}, the device fits {blocks}")
    check_parameters(metadata, device.parameter_sizes(function))
    return function


def _value(
    parameter: Parameter, tensors: Mapping[str, Tensor], extents: Mapping[str, int]
) -> tuple[int, Any]:
    """Where a parameter's value lies, and the object that keeps it there."""
    if isinstance(parameter, TensorMap):
        tensor = tensors[parameter.argument]
        encoded = _encode(tensor.pointer, tensor.shape, parameter)
        return encoded.getPtr(), encoded
    value = (
        ctypes.c_void_p(tensors[parameter.argument].pointer)
        if isinstance(parameter, Pointer)
        else ctypes.c_int32(extents[parameter.name])
    )
    return ctypes.addressof(value), value


@lru_cache(maxsize=4096)
def _encode(pointer: int, shape: tuple[int, ...], of: TensorMap) -> Any:
    # A map is a plain value of address and shape, and a launch copies it: it may outlive the
    # array, and is right again for the next array at that address.
    size = ELEMENT_BYTES[of.element]
    inner, box = shape[::-1], of.box[::-1]
    strides = [n * size for n in row_major(shape)][-2::-1]
    result = driver.cuTensorMapEncodeTiled(
        _ELEMENTS[of.element],
        len(inner),
        pointer,
        [driver.cuuint64_t(n) for n in inner],
        [driver.cuuint64_t(n) for n in strides],
        [driver.cuuint32_t(n) for n in box],
        [driver.cuuint32_t(1) for _ in box],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _SWIZZLES[of.swizzle],
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return call(f"the driver refuses the tensor map of {of.argument} {text(shape)}", result)


def _stream(kernel: Kernel, values: Sequence[Any], stream: Any, ordinal: int | None = None) -> int:
    """The handle to launch on; `ordinal` is the arguments' device, where it is known."""
    name = kernel.metadata.kernel
    if stream is None:
        for value in values:
            if is_torch(value) and value.is_cuda:
                return current_stream(value.device.index)
        if any(is_torch(value) for value in values):
            return 0  # a tensor on no CUDA device, which the checks refuse by name
        raise LaunchError(f"kernel {name}: no torch tensor is among the arguments, pass stream=")
    try:
        if hasattr(stream, "__cuda_stream__"):
            handle = stream.__cuda_stream__()[1]
        else:
            handle = getattr(stream, "cuda_stream", stream)
    except Exception as error:
        raise LaunchError(f"kernel {name}: stream must be a CUDA stream, got {stream!r}") from error
    if not isinstance(handle, int) or isinstance(handle, bool):
        raise LaunchError(f"kernel {name}: stream must be a CUDA stream, got {stream!r}")
    if not 0 <= handle < 1 << 64:
        raise LaunchError(f"kernel {name}: stream must be a handle of 64 bits, got {handle}")
    index = getattr(getattr(stream, "device", None), "index", None)
    if isinstance(index, int) and ordinal not in (None, index):
        first = kernel.metadata.arguments[0].name
        raise LaunchError(
            f"kernel {name}: stream must be on cuda:{ordinal} as {first} is, got cuda:{index}"
        )
    return handle


def load(*paths: str | Path, debug: bool = False) -> Kernel:
    """The kernel of a cubin; its launch metadata is read from the `.json` beside it.

    Several paths are variants with the same arguments: a call runs the first whose bounds have its
    extents, so the most general stands last. `debug`: every call checks the values that the contract
    says something of, and waits until the kernel is done.
    """
    if not paths:
        raise LoadError("load takes the path of a cubin, or those of variants, got none")
    kind = DebugKernel if debug else Kernel
    return kind(*map(_image, paths))


def _image(given: str | Path) -> Image:
    try:
        path = Path(given)
    except TypeError:
        raise LoadError(
            f"load takes paths of cubins, got {given!r}; pass the paths one by one"
        ) from None
    cubin = _linked(path)
    beside = path.with_suffix(".json")
    if not beside.exists():
        raise LoadError(
            f"{beside}: no such file; it is the launch metadata of {path.name}, which `pipelink link` "
            "writes beside it"
        )
    try:
        written = _read(beside).decode()
    except UnicodeDecodeError:
        raise LoadError(f"{beside}: not JSON: not text in UTF-8") from None
    metadata = read_metadata(written, str(beside))
    came = hashlib.sha256(cubin).hexdigest()
    if came != metadata.cubin_sha256:
        raise LoadError(
            f"{path}: the cubin's sha256 is {came[:16]}, {beside.name} is for "
            f"{metadata.cubin_sha256[:16]}"
        )
    return Image(metadata, cubin)


def _linked(path: Path) -> bytes:
    """The content of a cubin; what else may lie beside one is refused."""
    if path.suffix == ".json":
        raise LoadError(f"{path}: not a linked cubin; pass the .cubin that it lies beside")
    data = _read(path)
    if data[:4] != _ELF:
        raise LoadError(f"{path}: not a linked cubin")
    if int.from_bytes(data[18:20], "little") != _EM_CUDA:
        raise LoadError(
            f"{path}: not a linked cubin but an object; `pipelink link` makes one of it"
        )
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a zero byte is no OSError
        said = getattr(error, "strerror", None) or str(error)
        raise LoadError(f"{path}: {said.lower()}") from None
