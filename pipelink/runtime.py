"""The loader: a linked cubin and its launch metadata become a callable kernel.

    kernel = pipelink.load("ffn.cubin")          # reads ffn.cubin and ffn.json
    kernel(x, w_gate, w_up, out)                 # torch tensors, on torch's current stream
    kernel(x, w_gate, w_up, out, stream=handle)  # any array with DLPack or the CUDA array interface

It stands apart from the linker: it needs cuda-core (for the CUDA bindings) and nothing else of
PipeLink but `launch.py`, and it imports no torch.
"""

import ctypes
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from pipelink.launch import (
    ELEMENT_BYTES,
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
    read_metadata,
    row_major,
    text,
)

__all__ = ["DriverError", "Kernel", "LaunchError", "LoadError", "RuntimeFault", "load"]


class DriverError(RuntimeFault):
    """The CUDA driver refused a call."""


# Element name: type in a tensor map, DLPack (code, bits), array interface typestr. Neither bf16
# nor the 8-bit floats have a typestr.
_MAP = driver.CUtensorMapDataType
_ELEMENTS: dict[str, tuple[Any, tuple[int, int], str]] = {
    "bf16": (_MAP.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (4, 16), ""),
    "f16": (_MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, (2, 16), "<f2"),
    "f32": (_MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, (2, 32), "<f4"),
    "f64": (_MAP.CU_TENSOR_MAP_DATA_TYPE_FLOAT64, (2, 64), "<f8"),
    "i8": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT8, (0, 8), "|i1"),
    "u8": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT8, (1, 8), "|u1"),
    "i32": (_MAP.CU_TENSOR_MAP_DATA_TYPE_INT32, (0, 32), "<i4"),
    "u32": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT32, (1, 32), "<u4"),
    "i64": (_MAP.CU_TENSOR_MAP_DATA_TYPE_INT64, (0, 64), "<i8"),
    "u64": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT64, (1, 64), "<u8"),
    "e4m3": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT8, (10, 8), ""),
    "e5m2": (_MAP.CU_TENSOR_MAP_DATA_TYPE_UINT8, (12, 8), ""),
}
_BY_DLPACK = {row[1]: name for name, row in _ELEMENTS.items()}
_BY_TYPESTR = {row[2]: name for name, row in _ELEMENTS.items() if row[2]}
_BY_TORCH = {
    "torch.bfloat16": "bf16",
    "torch.float16": "f16",
    "torch.float32": "f32",
    "torch.float64": "f64",
    "torch.int8": "i8",
    "torch.uint8": "u8",
    "torch.int32": "i32",
    "torch.uint32": "u32",
    "torch.int64": "i64",
    "torch.uint64": "u64",
    "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
}
_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}

# --- Arrays to records ------------------------------------------------------------------------


def describe(value: Any, stream: int) -> Tensor:
    """The record of a torch tensor or of an array that will be used on `stream`."""
    if _is_torch(value):
        element = _BY_TORCH.get(str(value.dtype), str(value.dtype))
        where = str(value.device)
        return Tensor(value.data_ptr(), element, tuple(value.shape), value.stride(), where)
    # The array interface has no bf16, so DLPack is asked first.
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, stream)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value.__cuda_array_interface__, stream)
    kind = type(value).__name__
    raise LaunchError(f"must be a torch tensor or a CUDA array, got {kind}")


def _is_torch(value: Any) -> bool:
    # Whoever has a torch tensor has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DL_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _from_dlpack(value: Any, stream: int) -> Tensor:
    kind, ordinal = (int(n) for n in value.__dlpack_device__())
    try:
        # DLPack numbers the legacy default stream 1; the producer orders its work before ours.
        capsule = value.__dlpack__(stream=stream or 1) if kind in _DL_CUDA else value.__dlpack__()
    except BufferError as error:
        raise LaunchError(f"must be exportable by DLPack: {error}") from None
    # The capsule stays unconsumed, so that dropping it frees the view; the caller holds the array.
    view = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    element = _BY_DLPACK.get((view.code, view.bits) if view.lanes == 1 else (0, 0))
    shape = tuple(view.shape[: view.ndim])
    strides = tuple(view.strides[: view.ndim]) if view.strides else row_major(shape)
    return Tensor(
        (view.data or 0) + view.byte_offset,
        element or f"DLPack type ({view.code}, {view.bits}, {view.lanes})",
        shape,
        strides,
        f"cuda:{ordinal}" if kind in _DL_CUDA else "cpu" if kind == 1 else f"DLPack device {kind}",
    )


def _from_interface(interface: Mapping[str, Any], stream: int) -> Tensor:
    pointer, read_only = interface["data"]
    shape = tuple(interface["shape"])
    element = _BY_TYPESTR.get(interface["typestr"], interface["typestr"])
    strides = row_major(shape)
    if interface.get("strides") is not None:
        # Bytes that are no whole elements are no contiguous array in any case.
        size = ELEMENT_BYTES.get(element, 1)
        strides = tuple(n // size if n % size == 0 else -1 for n in interface["strides"])
    ordinal = _owner(pointer)
    if ordinal is None:
        return Tensor(pointer, element, shape, strides, "memory of no device", not read_only)
    if interface.get("stream") not in (None, stream or 1):  # it numbers the legacy stream 1 too
        _follow(ordinal, stream, interface["stream"])
    return Tensor(pointer, element, shape, strides, f"cuda:{ordinal}", not read_only)


# --- The driver -------------------------------------------------------------------------------


def _call(what: str, result: tuple[Any, ...]) -> Any:
    if int(result[0]):
        raise DriverError(f"{what}: {driver.CUresult(int(result[0])).name}")
    return result[1] if len(result) == 2 else result[1:]


@lru_cache(maxsize=1)
def _start() -> int:
    """The driver's CUDA version, once it is initialised."""
    try:
        _call("the CUDA driver does not start", driver.cuInit(0))
    except RuntimeError as error:  # the bindings found no driver library
        raise LoadError("there is no CUDA driver on this machine") from error
    return int(_call("the CUDA driver has no version", driver.cuDriverGetVersion()))


def _owner(pointer: int) -> int | None:
    """The device whose memory it is."""
    _start()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = driver.cuPointerGetAttribute(attribute, pointer)
    return None if int(status) else int(ordinal)


@lru_cache(maxsize=64)
def _primary(ordinal: int) -> Any:
    """The context that torch, CuPy and the CUDA runtime share; it is never given back."""
    handle = _call(f"there is no device {ordinal}", driver.cuDeviceGet(ordinal))
    retained = driver.cuDevicePrimaryCtxRetain(handle)
    return _call(f"device {ordinal} has no context", retained)


@contextmanager
def _current(context: Any) -> Iterator[None]:
    _call("the context cannot be used", driver.cuCtxPushCurrent(context))
    try:
        yield
    finally:
        driver.cuCtxPopCurrent()


def _follow(ordinal: int, stream: int, producer: int) -> None:
    """Orders what comes on `stream` after what is on `producer`."""
    with _current(_primary(ordinal)):
        flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        event = _call("no event to order two streams by", driver.cuEventCreate(flags))
        try:
            _call(f"stream {producer:#x}", driver.cuEventRecord(event, producer))
            _call(f"stream {stream:#x}", driver.cuStreamWaitEvent(stream, event, 0))
        finally:
            driver.cuEventDestroy(event)


@lru_cache(maxsize=1024)
def _encode(pointer: int, shape: tuple[int, ...], of: TensorMap) -> Any:
    # A map is a plain value of address and shape, and a launch copies it: it may outlive the
    # array, and is right again for the next array at that address.
    size, element = ELEMENT_BYTES[of.element], _ELEMENTS[of.element][0]
    inner, box = shape[::-1], of.box[::-1]
    strides = [n * size for n in row_major(shape)][-2::-1]
    result = driver.cuTensorMapEncodeTiled(
        element,
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
    return _call(f"the driver refuses the tensor map of {of.argument} {text(shape)}", result)


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: Any
    function: Any
    blocks: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A linked kernel; it is loaded on a device at the first launch there, and stays."""

    metadata: Metadata
    cubin: bytes = field(repr=False)
    _loaded: dict[str, _Loaded] = field(default_factory=dict, repr=False)

    def __call__(self, *given: Any, stream: Any = None, **named: Any) -> None:
        """Launches on `stream`, or on torch's current stream if an argument is torch's."""
        name = self.metadata.kernel
        values = bind(self.metadata, given, named)
        handle = _stream(name, list(values.values()), stream)
        tensors: dict[str, Tensor] = {}
        for argument, value in values.items():
            try:
                tensors[argument] = describe(value, handle)
            except LaunchError as error:
                raise LaunchError(f"kernel {name}: {argument} {error}") from None
        extents = check(self.metadata, tensors)
        self._launch(tensors, extents, handle)

    def __str__(self) -> str:
        takes = (f"{a.name}: {a.element} {text(a.shape)}" for a in self.metadata.arguments)
        return f"{self.metadata.kernel}({', '.join(takes)}) for {self.metadata.arch}"

    def _launch(self, tensors: Mapping[str, Tensor], extents: dict[str, int], stream: int) -> None:
        metadata = self.metadata
        device = next(iter(tensors.values())).device
        loaded = self._loaded.get(device) or self._load(device)
        held = [_value(p, tensors, extents) for p in metadata.parameters]
        pointers = (ctypes.c_void_p * len(held))(*(address for address, _ in held))
        grid, block = (loaded.blocks, 1, 1), (metadata.threads, 1, 1)
        rest = (metadata.shared_bytes, stream, ctypes.addressof(pointers), 0)
        with _current(loaded.context):
            launched = driver.cuLaunchKernel(loaded.function, *grid, *block, *rest)
            _call(f"kernel {metadata.kernel}: the driver refuses the launch", launched)

    def _load(self, device: str) -> _Loaded:
        version = _start()
        ordinal = int(device.removeprefix("cuda:"))
        major, minor, processors = _device(ordinal)
        check_device(self.metadata, (major, minor), version)
        context = _primary(ordinal)
        with _current(context):
            function = _function(self.metadata, self.cubin)
        loaded = _Loaded(context, function, processors * self.metadata.blocks_per_sm)
        self._loaded[device] = loaded
        return loaded


def _device(ordinal: int) -> tuple[int, ...]:
    """Its capability, major and minor, and how many multiprocessors it has."""
    handle = _call(f"there is no device {ordinal}", driver.cuDeviceGet(ordinal))
    kind = driver.CUdevice_attribute
    attributes = (
        kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    )
    values = (driver.cuDeviceGetAttribute(a, handle) for a in attributes)
    return tuple(int(_call(f"device {ordinal} has no limits", value)) for value in values)


def _function(metadata: Metadata, cubin: bytes) -> Any:
    name, shared = metadata.kernel, metadata.shared_bytes
    module = _call(f"kernel {name}: the driver refuses the cubin", driver.cuModuleLoadData(cubin))
    found = driver.cuModuleGetFunction(module, metadata.entry.encode())
    function = _call(f"kernel {name}: no entry {metadata.entry}", found)
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    raised = driver.cuFuncSetAttribute(function, limit, shared)
    _call(f"kernel {name}: the device has no {shared} bytes of shared memory a block", raised)
    fits = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, metadata.threads, shared)
    blocks = int(_call(f"kernel {name}: no occupancy", fits))
    if blocks < metadata.blocks_per_sm:
        needs = f"blocks_per_sm {metadata.blocks_per_sm}"
        raise LoadError(f"kernel {name}: the grid needs {needs}, the device fits {blocks}")
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


def _stream(kernel: str, values: Sequence[Any], stream: Any) -> int:
    if stream is None:
        for value in values:
            if _is_torch(value) and value.is_cuda:
                return int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
        if any(_is_torch(value) for value in values):
            return 0  # a tensor on no CUDA device, which the checks refuse by name
        raise LaunchError(f"kernel {kernel}: no torch tensor is among the arguments, pass stream=")
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    handle = getattr(stream, "cuda_stream", stream)
    if not isinstance(handle, int):
        raise LaunchError(f"kernel {kernel}: stream must be a CUDA stream, got {stream!r}")
    return handle


def load(path: str | Path) -> Kernel:
    """The kernel of a cubin; its launch metadata is read from the `.json` beside it."""
    path = Path(path)
    beside = path.with_suffix(".json")
    try:
        cubin = path.read_bytes()
        written = beside.read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise LoadError(f"{beside}: not JSON: not text in UTF-8") from None
    metadata = read_metadata(written, str(beside))
    came = hashlib.sha256(cubin).hexdigest()
    if came != metadata.cubin_sha256:
        raise LoadError(
            f"{path}: the cubin's sha256 is {came[:16]}, {beside.name} is for "
            f"{metadata.cubin_sha256[:16]}"
        )
    return Kernel(metadata, cubin)
