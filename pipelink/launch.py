"""Launch metadata, and the checks that a call must pass before it is launched.

A kernel reads its arguments with no bounds of its own, so a launch that does not fit the contract
is refused before it happens. All here is pure, on plain values, and needs the standard library
alone: the loader stands apart from the linker.

Launch metadata, format 1, is a JSON object beside the cubin:

    pipelink        1
    kernel, entry   name of the kernel, and of its symbol in the cubin
    arch            "sm_90a"; with `a` only that capability runs it, otherwise newer minors too
    minimum_driver  CUDA version of the oldest driver that loads it: 13000 is 13.0
    cubin_sha256    of the cubin, in hex
    threads, shared_bytes    of a block; the shared bytes are dynamic
    grid            {"kind": "persistent", "blocks_per_sm": n}
    arguments       [{"name", "element", "shape", "access", "alignment"}]: what the caller passes;
                    access is "read", "write" or "update"
    parameters      the kernel's parameters in order:
                    {"kind": "tensor_map", "argument", "element", "shape", "box", "swizzle"}
                    {"kind": "pointer", "argument"}
                    {"kind": "extent", "name"}: an int32

Shapes and boxes have the outermost dimension first and are contiguous. An entry of a shape is a
number, or the name of an extent, which the arguments' shapes fix at launch and must agree on.
Other keys inform people; whatever a launch depends on raises the format's number.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

FORMAT = 1
LARGEST_EXTENT = 2**31 - 1
SWIZZLES = (0, 32, 64, 128)
ACCESSES = ("read", "write", "update")
ELEMENT_BYTES = {
    **dict.fromkeys(("i8", "u8", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("bf16", "f16"), 2),
    **dict.fromkeys(("f32", "i32", "u32"), 4),
    **dict.fromkeys(("f64", "i64", "u64"), 8),
}


class RuntimeFault(Exception):
    """Anything that the loader refuses."""


class LoadError(RuntimeFault):
    """The cubin, its metadata or the device does not fit."""


class LaunchError(RuntimeFault):
    """The arguments of a call do not fit the kernel's contract."""


Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    element: str
    shape: Shape
    access: str
    alignment: int


@dataclass(frozen=True, slots=True)
class TensorMap:
    argument: str
    element: str
    shape: Shape
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True, slots=True)
class Pointer:
    argument: str


@dataclass(frozen=True, slots=True)
class Extent:
    name: str


Parameter = TensorMap | Pointer | Extent


@dataclass(frozen=True, slots=True)
class Metadata:
    kernel: str
    entry: str
    arch: str
    minimum_driver: int
    cubin_sha256: str
    threads: int
    shared_bytes: int
    blocks_per_sm: int
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]


def read_metadata(text: str, where: str) -> Metadata:
    """Launch metadata from its JSON text; `where` names it in errors."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise LoadError(f"{where}: not JSON: {error}") from None
    if not isinstance(data, dict) or "pipelink" not in data:
        raise LoadError(f"{where}: not launch metadata of pipelink")
    if data["pipelink"] != FORMAT:
        raise LoadError(
            f"{where}: launch metadata of format {data['pipelink']}, this loader reads {FORMAT}"
        )
    try:
        return _metadata(data)
    except KeyError as error:
        raise LoadError(f"{where}: no key {error}") from None
    except ValueError as error:
        raise LoadError(f"{where}: {error}") from None
    except (AttributeError, TypeError) as error:
        raise LoadError(f"{where}: malformed launch metadata: {error}") from None


def _metadata(data: dict[str, Any]) -> Metadata:
    grid = data["grid"]
    if grid["kind"] != "persistent":
        raise ValueError(f"grid of kind {grid['kind']!r}, this loader knows 'persistent'")
    arguments = tuple(
        Argument(
            _name(a["name"]),
            _known(a["element"]),
            _shape(a["shape"]),
            _access(a["access"]),
            _count(a["alignment"], 1),
        )
        for a in data["arguments"]
    )
    metadata = Metadata(
        kernel=_name(data["kernel"]),
        entry=_name(data["entry"]),
        arch=_name(data["arch"]),
        minimum_driver=_count(data["minimum_driver"]),
        cubin_sha256=_name(data["cubin_sha256"]),
        threads=_count(data["threads"], 1),
        shared_bytes=_count(data["shared_bytes"]),
        blocks_per_sm=_count(grid["blocks_per_sm"], 1),
        arguments=arguments,
        parameters=tuple(_parameter(p) for p in data["parameters"]),
    )
    _refer(metadata)
    return metadata


def _parameter(data: dict[str, Any]) -> Parameter:
    match data["kind"]:
        case "tensor_map":
            if data["swizzle"] not in SWIZZLES:
                raise ValueError(f"tensor map of {data['argument']} has swizzle {data['swizzle']}")
            return TensorMap(
                data["argument"],
                _known(data["element"]),
                _shape(data["shape"]),
                tuple(_count(n, 1) for n in data["box"]),
                data["swizzle"],
            )
        case "pointer":
            return Pointer(data["argument"])
        case "extent":
            return Extent(data["name"])
        case kind:
            raise ValueError(f"parameter of kind {kind!r} is not known to this loader")


def _refer(metadata: Metadata) -> None:
    # A map that saw more of a tensor than its argument's shape would let the kernel read past it.
    arguments = {a.name: a for a in metadata.arguments}
    extents = {n for a in metadata.arguments for n in a.shape if isinstance(n, str)}
    for parameter in metadata.parameters:
        if isinstance(parameter, Extent):
            if parameter.name not in extents:
                raise ValueError(f"no argument's shape has extent {parameter.name!r}")
            continue
        argument = arguments.get(parameter.argument)
        if argument is None:
            raise ValueError(f"parameter refers to argument {parameter.argument!r}, which is none")
        if isinstance(parameter, TensorMap) and (
            (parameter.element, parameter.shape) != (argument.element, argument.shape)
            or len(parameter.box) != len(parameter.shape)
        ):
            raise ValueError(f"tensor map of {argument.name} does not fit the argument's shape")


def _known(element: str) -> str:
    if element not in ELEMENT_BYTES:
        raise ValueError(f"element {element!r} is not known to this loader")
    return element


def _access(value: str) -> str:
    if value not in ACCESSES:
        raise ValueError(f"access {value!r} is not known to this loader")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a name, got {value!r}")
    return value


def _count(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"expected a count of at least {least}, got {value!r}")
    return value


def _shape(values: Sequence[Any]) -> Shape:
    return tuple(n if isinstance(n, str) and n.isidentifier() else _count(n, 1) for n in values)


# --- Checks before a launch: pure, on plain values --------------------------------------------


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a launch needs to know of an array; strides are counted in elements."""

    pointer: int
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str  # "cuda:0"; anything else is no CUDA device
    writable: bool = True


def bind(metadata: Metadata, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The call's values by argument name, in the contract's order."""
    kernel, names = metadata.kernel, [a.name for a in metadata.arguments]
    takes = f"it takes ({', '.join(names)})"
    if len(given) > len(names):
        raise LaunchError(f"kernel {kernel}: got {len(given)} arguments, {takes}")
    values = dict(zip(names, given, strict=False))
    for name, value in named.items():
        if name not in names:
            raise LaunchError(f"kernel {kernel}: there is no argument {name}, {takes}")
        if name in values:
            raise LaunchError(f"kernel {kernel}: argument {name} is given twice")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise LaunchError(f"kernel {kernel}: missing {', '.join(missing)}, {takes}")
    return {name: values[name] for name in names}


def check(metadata: Metadata, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The extents of a launch that fits the contract; any other is refused."""
    for argument in metadata.arguments:
        for rule in _RULES:
            fault = rule(argument, tensors[argument.name])
            if fault:
                raise LaunchError(f"kernel {metadata.kernel}: {argument.name} {fault}")
    extents = _agree(metadata, tensors)
    for first, second in combinations(metadata.arguments, 2):
        fault = _apart(first, second, tensors[first.name], tensors[second.name])
        if fault:
            raise LaunchError(f"kernel {metadata.kernel}: {fault}")
    return extents


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous array."""
    strides, size = [0] * len(shape), 1
    for i in reversed(range(len(shape))):
        strides[i], size = size, size * shape[i]
    return tuple(strides)


def text(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _on_cuda(argument: Argument, tensor: Tensor) -> str:
    if tensor.device.startswith("cuda:"):
        return ""
    return f"must be on a CUDA device, got {tensor.device}"


def _same_element(argument: Argument, tensor: Tensor) -> str:
    if tensor.element == argument.element:
        return ""
    return f"must hold {argument.element}, got {tensor.element}"


def _same_shape(argument: Argument, tensor: Tensor) -> str:
    if len(tensor.shape) != len(argument.shape):
        wants = f"{len(argument.shape)} dimensions {text(argument.shape)}"
        return f"must have {wants}, got {len(tensor.shape)} {text(tensor.shape)}"
    for wanted, came in zip(argument.shape, tensor.shape, strict=True):
        if isinstance(wanted, int) and wanted != came:
            return f"must have shape {text(argument.shape)}, got {text(tensor.shape)}"
    return ""


def _contiguous(argument: Argument, tensor: Tensor) -> str:
    # A dimension of extent 1 is never stepped over, so its stride says nothing.
    wanted = row_major(tensor.shape)
    rows = zip(tensor.shape, wanted, tensor.strides, strict=True)
    if 0 in tensor.shape or all(n == 1 or w == came for n, w, came in rows):
        return ""
    return f"must be contiguous with strides {text(wanted)}, got {text(tensor.strides)}"


def _aligned(argument: Argument, tensor: Tensor) -> str:
    if tensor.pointer % argument.alignment == 0:
        return ""
    return f"must be aligned to {argument.alignment} bytes, got address {tensor.pointer:#x}"


def _writable(argument: Argument, tensor: Tensor) -> str:
    if tensor.writable or argument.access == "read":
        return ""
    return f"must be writable (access {argument.access}), got a read-only array"


_RULES: tuple[Callable[[Argument, Tensor], str], ...] = (
    _on_cuda,
    _same_element,
    _same_shape,
    _contiguous,
    _aligned,
    _writable,
)


def _agree(metadata: Metadata, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    extents: dict[str, int] = {}
    origin: dict[str, Argument] = {}
    for argument in metadata.arguments:
        for name, n in zip(argument.shape, tensors[argument.name].shape, strict=True):
            if not isinstance(name, str):
                continue
            here = f"{argument.name} {text(argument.shape)}"
            if not 1 <= n <= LARGEST_EXTENT:
                wants = f"{name} must be 1 to {LARGEST_EXTENT}"
                raise LaunchError(f"kernel {metadata.kernel}: {wants}, got {n} by {here}")
            if extents.setdefault(name, n) != n:
                there = f"{origin[name].name} {text(origin[name].shape)}"
                differ = f"{name} is {extents[name]} by {there} and {n} by {here}"
                raise LaunchError(f"kernel {metadata.kernel}: {differ}")
            origin.setdefault(name, argument)
    return extents


def _apart(first: Argument, second: Argument, a: Tensor, b: Tensor) -> str:
    if a.device != b.device:
        return f"{second.name} must be on {a.device} as {first.name} is, got {b.device}"
    if first.access == second.access == "read":
        return ""
    if a.pointer < b.pointer + _bytes(b) and b.pointer < a.pointer + _bytes(a):
        return f"{second.name} (access {second.access}) must not overlap {first.name} in memory"
    return ""


def _bytes(tensor: Tensor) -> int:
    size = ELEMENT_BYTES[tensor.element]
    for n in tensor.shape:
        size *= n
    return size


def check_device(metadata: Metadata, capability: tuple[int, int], version: int) -> None:
    """Refuses a device or a driver (a CUDA version as in `minimum_driver`) that cannot run it."""
    if version < metadata.minimum_driver:
        needed, came = (f"{v // 1000}.{v % 1000 // 10}" for v in (metadata.minimum_driver, version))
        raise LoadError(
            f"kernel {metadata.kernel}: needs a driver for CUDA {needed}, this one is for {came}"
        )
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", metadata.arch)
    if match is None:
        raise LoadError(f"kernel {metadata.kernel}: arch {metadata.arch!r} is not a known one")
    major, minor = int(match[1]), int(match[2])
    exact = match[3] == "a"
    if capability[0] != major or capability[1] < minor or (exact and capability[1] != minor):
        needed, came = f"{major}.{minor}", f"{capability[0]}.{capability[1]}"
        raise LoadError(
            f"kernel {metadata.kernel}: {metadata.arch} needs a device of capability {needed}, "
            f"this one has {came}"
        )
