"""Launch metadata, and the checks that a call must pass before it is launched.

A kernel reads its arguments with no bounds of its own, so a launch that does not fit the contract
is refused before it happens. All here is pure, on plain values, and needs the standard library
alone: the loader stands apart from the linker.

Launch metadata, format 2, is a JSON object beside the cubin:

    pipelink        2
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
                    {"kind": "extent", "name", "bounds": [least, most]}: an int32

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

FORMAT = 2
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
    bounds: tuple[int, int]


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

    def bounds(self, extent: str) -> tuple[int, int]:
        """Its least and most."""
        for parameter in self.parameters:
            if isinstance(parameter, Extent) and parameter.name == extent:
                return parameter.bounds
        return 1, LARGEST_EXTENT

    def takes(self) -> str:
        """What the contract wants of a caller, in words."""
        return ", ".join(f"{a.name}: {a.element} {text(a.shape)}" for a in self.arguments)


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
            return Extent(_name(data["name"]), _bounds(data["bounds"]))
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


def _bounds(values: Any) -> tuple[int, int]:
    least, most = (_count(n, 1) for n in values)
    if not least <= most <= LARGEST_EXTENT:
        raise ValueError(f"bounds {values!r} are no least and most")
    return least, most


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
    takes = f"it takes ({metadata.takes()})"
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
        raise LaunchError(
            f"kernel {kernel}: missing {', '.join(missing)}, got ({', '.join(values)}), {takes}"
        )
    return {name: values[name] for name in names}


def check(
    variants: Sequence[Metadata], tensors: Mapping[str, Tensor]
) -> tuple[int, dict[str, int]]:
    """Which of the variants takes the tensors, and the launch's extents; what fits none is refused.

    Variants have the same arguments (`same_arguments`); the first whose bounds have the extents is
    taken. Errors speak of the last one, which is the most general.
    """
    metadata = variants[-1]
    for argument in metadata.arguments:
        for rule in _RULES:
            fault = rule(argument, tensors[argument.name])
            if fault:
                raise LaunchError(f"kernel {metadata.kernel}: {argument.name} {fault}")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    extents = _agree(metadata, metadata.arguments, shapes)
    for first, second in combinations(metadata.arguments, 2):
        fault = _apart(first, second, tensors[first.name], tensors[second.name])
        if fault:
            raise LaunchError(f"kernel {metadata.kernel}: {fault}")
    return _choose(variants, extents), extents


def same_arguments(variants: Sequence[Metadata]) -> None:
    """Refuses variants that can't stand in for one another."""
    last = variants[-1]
    for other in variants[:-1]:
        if other.arguments != last.arguments:
            raise LoadError(
                f"kernels {other.kernel} and {last.kernel} are no variants of one another: the first "
                f"takes ({other.takes()}), the second takes ({last.takes()})"
            )


def output_shapes(
    metadata: Metadata, elements: Mapping[str, str], shapes: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[Any, ...]]:
    """The shape of each argument of access `write`, from the elements and shapes of the others.

    Sizes may be symbols that compare as integers do.
    """
    inputs = [a for a in metadata.arguments if a.access != "write"]
    for a in inputs:
        fault = _element(a, elements[a.name]) or _shape_fault(a, shapes[a.name])
        if fault:
            raise LaunchError(f"kernel {metadata.kernel}: {a.name} {fault}")
    extents = _agree(metadata, inputs, shapes)
    return {
        a.name: tuple(n if isinstance(n, int) else extents[n] for n in a.shape)
        for a in metadata.arguments
        if a.access == "write"
    }


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
    return _element(argument, tensor.element)


def _element(argument: Argument, element: str) -> str:
    return "" if element == argument.element else f"must hold {argument.element}, got {element}"


def _same_shape(argument: Argument, tensor: Tensor) -> str:
    return _shape_fault(argument, tensor.shape)


def _shape_fault(argument: Argument, shape: Sequence[Any]) -> str:
    if len(shape) != len(argument.shape):
        wants = f"{len(argument.shape)} dimensions {text(argument.shape)}"
        return f"must have {wants}, got {len(shape)} {text(shape)}"
    for wanted, came in zip(argument.shape, shape, strict=True):
        if isinstance(wanted, int) and wanted != came:
            return f"must have shape {text(argument.shape)}, got {text(shape)}"
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


def _agree(
    metadata: Metadata, arguments: Sequence[Argument], shapes: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    extents: dict[str, Any] = {}
    origin: dict[str, Argument] = {}
    for argument in arguments:
        for name, n in zip(argument.shape, shapes[argument.name], strict=True):
            if not isinstance(name, str):
                continue
            if extents.setdefault(name, n) != n:
                first = origin[name]
                differ = (
                    f"{name} is {extents[name]} by {first.name} {text(first.shape)} "
                    f"and {n} by {argument.name} {text(argument.shape)}"
                )
                raise LaunchError(f"kernel {metadata.kernel}: {differ}")
            origin.setdefault(name, argument)
    return extents


def _choose(variants: Sequence[Metadata], extents: Mapping[str, int]) -> int:
    def has(variant: Metadata, name: str) -> bool:
        least, most = variant.bounds(name)
        return least <= extents[name] <= most

    for number, variant in enumerate(variants):
        if all(has(variant, name) for name in extents):
            return number
    last = variants[-1]
    # Where each extent has a variant but all together have none, any of them may be named.
    lacking = [name for name in extents if not any(has(v, name) for v in variants)]
    name = (lacking or [n for n in extents if not has(last, n)])[0]
    bounds = dict.fromkeys(v.bounds(name) for v in variants)
    wants = " or ".join(f"{least} to {most}" for least, most in bounds)
    source = next(a for a in last.arguments if name in a.shape)
    raise LaunchError(
        f"kernel {last.kernel}: {name} must be {wants}, got {extents[name]} "
        f"by {source.name} {text(source.shape)}"
    )


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


def check_device(
    metadata: Metadata, capability: tuple[int, int], version: int, shared_bytes: int
) -> None:
    """Refuses a device or a driver (a CUDA version as in `minimum_driver`) that cannot run it.

    `shared_bytes` are the most that a block can have on the device.
    """
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
    if metadata.shared_bytes > shared_bytes:
        raise LoadError(
            f"kernel {metadata.kernel}: needs {metadata.shared_bytes} bytes of shared memory a block, "
            f"this device has {shared_bytes}"
        )
