"""Arrays to records: torch tensors, anything with DLPack, the CUDA array interface."""

import ctypes
import sys
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

from pipelink import device
from pipelink.launch import ELEMENT_BYTES, LaunchError, Tensor, row_major

# DLPack's (code, bits) of an element, and its typestr in the array interface. Neither bf16 nor the
# 8-bit floats have a typestr.
_ELEMENTS: dict[str, tuple[tuple[int, int], str]] = {
    "bf16": ((4, 16), ""),
    "f16": ((2, 16), "<f2"),
    "f32": ((2, 32), "<f4"),
    "f64": ((2, 64), "<f8"),
    "i8": ((0, 8), "|i1"),
    "u8": ((1, 8), "|u1"),
    "i32": ((0, 32), "<i4"),
    "u32": ((1, 32), "<u4"),
    "i64": ((0, 64), "<i8"),
    "u64": ((1, 64), "<u8"),
    "e4m3": ((10, 8), ""),
    "e5m2": ((12, 8), ""),
}
_BY_DLPACK = {row[0]: name for name, row in _ELEMENTS.items()}
_BY_TYPESTR = {row[1]: name for name, row in _ELEMENTS.items() if row[1]}
BY_TORCH = {
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


def describe(value: Any, stream: int) -> Tensor:
    """The record of a torch tensor or of an array that will be used on `stream`."""
    if is_torch(value):
        element = BY_TORCH.get(str(value.dtype), str(value.dtype))
        where = str(value.device)
        # A view into a storage that was resized to nothing still has its offset for an address.
        pointer = value.data_ptr() if value.untyped_storage().nbytes() else 0
        return Tensor(pointer, element, tuple(value.shape), value.stride(), where)
    # The array interface has no bf16, so DLPack is asked first.
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, stream)
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception as error:
        raise LaunchError(f"must have a CUDA array interface, got {_said(error)}") from error
    if isinstance(interface, Mapping):
        return _from_interface(interface, stream)
    kind = type(value).__name__
    raise LaunchError(f"must be a torch tensor or a CUDA array, got {kind}")


def is_torch(value: Any) -> bool:
    # Whoever has a torch tensor has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def current_stream(ordinal: int) -> int:
    """The handle of torch's current stream on a device, where torch is imported."""
    torch = sys.modules["torch"]
    # What torch's own generated code calls; the public way makes an object and takes 10 times as long.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(ordinal) if raw else torch.cuda.current_stream(ordinal).cuda_stream)


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


class _DLManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_DL_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_READ_ONLY, _COPIED = 1, 2  # bits of the flags
# What exporters of DLPack 1 take, those of before it do not.
_ASKED: tuple[dict[str, Any], ...] = (
    {"max_version": (1, 0), "copy": False},
    {"max_version": (1, 0)},
    {},
)
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _from_dlpack(value: Any, stream: int) -> Tensor:
    try:
        kind, ordinal = (int(n) for n in value.__dlpack_device__())
        # DLPack numbers the legacy default stream 1; the producer orders its work before ours.
        capsule = _export(value, {"stream": stream or 1} if kind in _DL_CUDA else {})
    except Exception as error:
        raise LaunchError(f"must be exportable by DLPack, got {_said(error)}") from error
    # The capsule stays unconsumed, so that dropping it frees the view; the caller holds the array.
    view, flags = _view(capsule)
    element = _BY_DLPACK.get((view.code, view.bits) if view.lanes == 1 else (0, 0))
    shape = tuple(view.shape[: view.ndim])
    strides = tuple(view.strides[: view.ndim]) if view.strides else row_major(shape)
    return Tensor(
        view.data + view.byte_offset if view.data else 0,
        element or f"DLPack type ({view.code}, {view.bits}, {view.lanes})",
        shape,
        strides,
        f"cuda:{ordinal}" if kind in _DL_CUDA else "cpu" if kind == 1 else f"DLPack device {kind}",
        not flags & _READ_ONLY,
    )


def _export(value: Any, given: dict[str, Any]) -> Any:
    *newer, oldest = _ASKED
    for asked in newer:
        try:
            return value.__dlpack__(**given, **asked)
        except TypeError:
            continue
    return value.__dlpack__(**given, **oldest)


def _view(capsule: Any) -> tuple[_DLTensor, int]:
    """The array that a capsule shows, and the flags of it."""
    if _is_capsule(capsule, b"dltensor"):
        return _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor")), 0
    if not _is_capsule(capsule, b"dltensor_versioned"):
        raise LaunchError(f"must be exportable by DLPack, got {capsule!r} for a capsule")
    managed = _DLManagedVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
    if managed.major != 1:
        raise LaunchError(f"must be exportable by DLPack 1, got version {managed.major}")
    if managed.flags & _COPIED:  # it would go with the capsule, before the launch has run
        raise LaunchError("must be exportable by DLPack as it is, got a copy")
    return managed.tensor, managed.flags


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _from_interface(interface: Mapping[str, Any], stream: int) -> Tensor:
    pointer, read_only = _entry(interface, "data")
    shape, typestr = _entry(interface, "shape"), _entry(interface, "typestr")
    if interface.get("mask") is not None:
        raise LaunchError("must have no mask, got an array with one")
    element = _BY_TYPESTR.get(typestr, typestr)
    strides = row_major(shape)
    if interface.get("strides") is not None:
        # Bytes that are no whole elements are no contiguous array in any case.
        size = ELEMENT_BYTES.get(element, 1)
        came = _entry(interface, "strides")
        strides = tuple(n // size if n % size == 0 else -1 for n in came)
    ordinal = device.owner(pointer)
    if ordinal is None:
        return Tensor(pointer, element, shape, strides, "memory of no device", not read_only)
    if interface.get("stream") is not None:
        producer = _entry(interface, "stream")
        if producer != (stream or 1):  # it numbers the legacy stream 1 too
            device.follow(ordinal, stream, producer)
    return Tensor(pointer, element, shape, strides, f"cuda:{ordinal}", not read_only)


def _entry(interface: Mapping[str, Any], key: str) -> Any:
    """A value of the interface; what is none of its kind is refused in words."""
    read, wanted = _ENTRIES[key]
    try:
        value = read(interface[key])
        if key == "strides" and len(value) != len(interface["shape"]):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        came = interface.get(key)
        raise LaunchError(
            f"must have a CUDA array interface whose {key} is {wanted}, got {came!r}"
        ) from None
    return value


def _handle(value: Any) -> int:
    number = index(value)
    if not 0 <= number < 1 << 64:
        raise ValueError
    return number


def _data(value: Any) -> tuple[int, bool]:
    pointer, read_only = value
    return _handle(pointer), bool(read_only)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(map(index, value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_ENTRIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "data": (_data, "an address and whether it is read-only"),
    "shape": (_integers, "a tuple of integers"),
    "typestr": (_text, "a text"),
    "strides": (_integers, "a stride for each dimension"),
    "stream": (_handle, "the handle of a stream"),
}
