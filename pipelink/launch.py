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
                    access is "read", "write" or "update"; some have `holds` too, what holds of the
                    values when the kernel starts, which a debug launch checks:
                    {"what": "count", "sizes"}: as many as the sizes' product; every launch checks
                    {"what": "below", "sizes"}: each is at least 0 and less than the sizes' product
                    {"what": "distinct"}: none stands twice
                    {"what": "ascending", "sizes"}: from 0 to the product, none less than the one before
    parameters      the kernel's parameters in order:
                    {"kind": "tensor_map", "argument", "element", "shape", "box", "swizzle"}
                    {"kind": "pointer", "argument"}
                    {"kind": "extent", "name", "bounds": [least, most]}: an int32

Shapes and boxes have the outermost dimension first and are contiguous. An entry of a shape,
and a size, is a number, or the name of an extent, which the arguments' shapes fix at launch and must
agree on.
Other keys inform people; whatever a launch depends on raises the format's number.
"""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import prod
from typing import Any

FORMAT = 2
LARGEST_EXTENT = 2**31 - 1
LARGEST_BLOCK = 1024  # threads
LARGEST_SIDE = 256  # of a tensor map's box, in elements
SWIZZLES = (0, 32, 64, 128)
ACCESSES = ("read", "write", "update")
ELEMENT_BYTES = {
    **dict.fromkeys(("i8", "u8", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("bf16", "f16"), 2),
    **dict.fromkeys(("f32", "i32", "u32"), 4),
    **dict.fromkeys(("f64", "i64", "u64"), 8),
}
# What the array module calls an integer element.
INTEGERS = {"i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RuntimeFault(Exception):
    """Anything that the loader refuses."""


class LoadError(RuntimeFault):
    """The cubin, its metadata or the device does not fit."""


class LaunchError(RuntimeFault):
    """The arguments of a call do not fit the kernel's contract."""


Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Holds:
    """What holds of an argument's values when the kernel starts."""

    what: str
    sizes: Shape


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    element: str
    shape: Shape
    access: str
    alignment: int
    holds: tuple[Holds, ...] = ()


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
    except RecursionError:
        raise LoadError(f"{where}: not JSON: nested too deeply") from None
    if not isinstance(data, dict) or "pipelink" not in data:
        raise LoadError(f"{where}: not launch metadata of pipelink")
    came = data["pipelink"]
    if type(came) is not int or came != FORMAT:
        raise LoadError(
            f"{where}: launch metadata of format {_shown(came)}, this loader reads {FORMAT}"
        )
    try:
        return _metadata(_Value("", data))
    except ValueError as error:
        raise LoadError(f"{where}: {error}") from None


def _shown(value: Any) -> str:
    # A fault's text stays short, whatever the file holds.
    return reprlib.repr(value)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the metadata, and the key that it stands at, which faults name."""

    key: str
    it: Any

    def wrong(self, wanted: str) -> ValueError:
        return ValueError(f"{self.key} must be {wanted}, got {_shown(self.it)}")

    def of(self, name: str) -> "_Value":
        if not isinstance(self.it, dict):
            raise self.wrong("an object")
        key = f"{self.key}.{name}" if self.key else name
        if name not in self.it:
            raise ValueError(f"no key {key!r}")
        return _Value(key, self.it[name])

    def rows(self) -> list["_Value"]:
        if not isinstance(self.it, list):
            raise self.wrong("an array")
        return [_Value(f"{self.key}[{n}]", value) for n, value in enumerate(self.it)]

    def name(self) -> str:
        if not isinstance(self.it, str) or not self.it.isidentifier():
            raise self.wrong("a name")
        return self.it

    def known(self, *among: str) -> str:
        if not isinstance(self.it, str) or self.it not in among:
            raise ValueError(f"{self.key} {_shown(self.it)} is not known to this loader")
        return self.it

    def matching(self, pattern: re.Pattern[str], wanted: str) -> str:
        if not isinstance(self.it, str) or not pattern.fullmatch(self.it):
            raise self.wrong(wanted)
        return self.it

    def count(self, least: int = 0, most: int | None = None) -> int:
        if type(self.it) is not int or self.it < least or (most is not None and self.it > most):
            wanted = f"of at least {least}" if most is None else f"of {least} to {most}"
            raise self.wrong(f"an integer {wanted}")
        return self.it

    def shape(self) -> Shape:
        return tuple(n.name() if isinstance(n.it, str) else n.count(1) for n in self.rows())


def _metadata(data: _Value) -> Metadata:
    data.of("grid").of("kind").known("persistent")
    metadata = Metadata(
        kernel=data.of("kernel").name(),
        entry=data.of("entry").name(),
        arch=data.of("arch").matching(_ARCH, "an architecture such as 'sm_90a'"),
        minimum_driver=data.of("minimum_driver").count(),
        cubin_sha256=data.of("cubin_sha256").matching(_SHA256, "64 hex digits in lower case"),
        threads=data.of("threads").count(1, LARGEST_BLOCK),
        shared_bytes=data.of("shared_bytes").count(),
        blocks_per_sm=data.of("grid").of("blocks_per_sm").count(1),
        arguments=_arguments(data.of("arguments")),
        parameters=tuple(map(_parameter, data.of("parameters").rows())),
    )
    _refer(metadata)
    return metadata


def _arguments(data: _Value) -> tuple[Argument, ...]:
    arguments: dict[str, Argument] = {}
    for row in data.rows():
        name = row.of("name").name()
        if name in arguments:
            raise ValueError(f"{row.key}.name {name!r} stands twice")
        arguments[name] = Argument(
            name,
            row.of("element").known(*ELEMENT_BYTES),
            row.of("shape").shape(),
            row.of("access").known(*ACCESSES),
            row.of("alignment").count(1),
            _holds(row),
        )
    if not arguments:
        raise data.wrong("an array of at least one argument")
    return tuple(arguments.values())


def _holds(data: _Value) -> tuple[Holds, ...]:
    """Of an argument, of which most say nothing."""
    if "holds" not in data.it:
        return ()
    if data.it["element"] not in INTEGERS or data.it["access"] == "write":
        raise data.wrong("an array of integers that is read, as it has holds")
    return tuple(map(_held, data.of("holds").rows()))


def _held(data: _Value) -> Holds:
    what = data.of("what").known(*_HELD)
    sizes = () if what == "distinct" else data.of("sizes").shape()
    if not sizes and what != "distinct":
        raise data.of("sizes").wrong("an array of at least one size")
    return Holds(what, sizes)


def _parameter(data: _Value) -> Parameter:
    match data.of("kind").known("tensor_map", "pointer", "extent"):
        case "tensor_map":
            swizzle = data.of("swizzle")
            if swizzle.count() not in SWIZZLES:
                raise swizzle.wrong(f"one of {', '.join(map(str, SWIZZLES))}")
            return TensorMap(
                data.of("argument").name(),
                data.of("element").known(*ELEMENT_BYTES),
                data.of("shape").shape(),
                _box(data.of("box")),
                swizzle.count(),
            )
        case "pointer":
            return Pointer(data.of("argument").name())
        case _:
            return Extent(data.of("name").name(), _bounds(data.of("bounds")))


def _box(data: _Value) -> tuple[int, ...]:
    sides = tuple(side.count(1, LARGEST_SIDE) for side in data.rows())
    if not 1 <= len(sides) <= 5:
        raise data.wrong("an array of 1 to 5 sides")
    return sides


def _bounds(data: _Value) -> tuple[int, int]:
    values = [n.count(1, LARGEST_EXTENT) for n in data.rows()]
    if len(values) != 2 or values[0] > values[1]:
        raise data.wrong("a least and a most")
    return values[0], values[1]


def _refer(metadata: Metadata) -> None:
    # A map that saw more of a tensor than its argument's shape would let the kernel read past it.
    arguments = {a.name: a for a in metadata.arguments}
    extents = {n for a in metadata.arguments for n in a.shape if isinstance(n, str)}
    for argument in metadata.arguments:
        for size in (n for held in argument.holds for n in held.sizes):
            if isinstance(size, str) and size not in extents:
                raise ValueError(f"{size!r}, which {argument.name} holds, is an extent of no shape")
    for number, parameter in enumerate(metadata.parameters):
        key = f"parameters[{number}]"
        if isinstance(parameter, Extent):
            if parameter.name not in extents:
                raise ValueError(
                    f"{key}.name {parameter.name!r} is an extent of no argument's shape"
                )
            continue
        of = arguments.get(parameter.argument)
        if of is None:
            raise ValueError(f"{key}.argument {parameter.argument!r} is the name of no argument")
        if isinstance(parameter, TensorMap) and (
            (parameter.element, parameter.shape) != (of.element, of.shape)
            or len(parameter.box) != len(parameter.shape)
        ):
            raise ValueError(f"{key}, a tensor map, does not fit the shape of {of.name}")


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

    Variants have the same arguments (`check_variants`); the first whose bounds have the extents is
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
    chosen = _choose(variants, extents)
    for argument in variants[chosen].arguments:
        fault = _count_fault(argument, shapes[argument.name], extents)
        if fault:
            raise LaunchError(f"kernel {metadata.kernel}: {fault}")
    return chosen, extents


def _count_fault(argument: Argument, shape: Sequence[int], extents: Mapping[str, int]) -> str:
    """What is wrong with the number of an argument's elements."""
    for held in argument.holds:
        if held.what == "count":
            wanted, why = _product(held.sizes, extents)
            if prod(shape) != wanted:
                return f"{argument.name} has {prod(shape)} elements, and must have {wanted}{why}"
    return ""


def check_variants(variants: Sequence[Metadata]) -> None:
    """Refuses variants that can't stand in for one another, and one that no call could reach."""
    last = variants[-1]
    for other in variants[:-1]:
        if _passed(other) != _passed(last):
            raise LoadError(
                f"kernels {other.kernel} and {last.kernel} are no variants of one another: the first "
                f"takes ({other.takes()}), the second takes ({last.takes()})"
            )
    for first, second in combinations(variants, 2):
        names = {n for a in last.arguments for n in a.shape if isinstance(n, str)}
        if all(_contains(first.bounds(n), second.bounds(n)) for n in names):
            raise LoadError(
                f"kernel {second.kernel} would never run behind {first.kernel}, which takes all of "
                "its sizes; name the narrower first"
            )


def _passed(variant: Metadata) -> list[Argument]:
    """The arguments as a caller passes them: of their values each variant says what it needs itself."""
    return [replace(argument, holds=()) for argument in variant.arguments]


def _contains(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


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


def _in_memory(argument: Argument, tensor: Tensor) -> str:
    # A tensor keeps its shape when its storage is resized to nothing.
    if tensor.pointer or 0 in tensor.shape:
        return ""
    return f"must be in memory, got address 0 with shape {text(tensor.shape)}"


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
    _in_memory,
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
    name = next((name for name in extents if not any(has(v, name) for v in variants)), "")
    if not name:
        raise LaunchError(f"kernel {last.kernel}: {_together(variants, extents)}")
    source = next(a for a in last.arguments if name in a.shape)
    raise LaunchError(
        f"kernel {last.kernel}: {name} must be {_wants(v.bounds(name) for v in variants)}, got "
        f"{extents[name]} by {source.name} {text(source.shape)}"
    )


def _together(variants: Sequence[Metadata], extents: Mapping[str, int]) -> str:
    """For extents that have a variant each, and none in common."""
    takes = [
        f"{v.kernel} takes " + " with ".join(f"{n} {_wants([v.bounds(n)])}" for n in extents)
        for v in variants
    ]
    came = " with ".join(f"{name} {size}" for name, size in extents.items())
    return f"no variant takes {came}: {', '.join(takes)}"


def _wants(bounds: Iterable[tuple[int, int]]) -> str:
    """Sizes in words; what overlaps or follows on is one range."""
    merged: list[tuple[int, int]] = []
    for least, most in sorted(bounds):
        if merged and least <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(most, merged[-1][1]))
        else:
            merged.append((least, most))
    return " or ".join(f"{a} to {b}" if a < b else str(a) for a, b in merged)


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


# --- The values of arrays, which a debug launch checks ------------------------------------------


def value_fault(
    argument: Argument, shape: Sequence[int], extents: Mapping[str, int], values: Sequence[int]
) -> str | None:
    """What does not hold of an argument's values, which stand row by row; None where all holds."""
    strides = row_major(shape)

    def at(index: int) -> str:
        places = [index // by % side for by, side in zip(strides, shape, strict=True)]
        return f"{argument.name}{text(places)}"

    for held in argument.holds:
        fault = _HELD[held.what](values, at, *_product(held.sizes, extents))
        if fault:
            return fault
    return None


def _product(sizes: Shape, extents: Mapping[str, int]) -> tuple[int, str]:
    """The product of sizes, and how it comes about, where that says more than the number."""
    product = prod(n if isinstance(n, int) else extents[n] for n in sizes)
    if len(sizes) == 1:
        return product, "" if isinstance(sizes[0], int) else f" ({sizes[0]})"
    factors = (str(n) if isinstance(n, int) else f"{n} {extents[n]}" for n in sizes)
    return product, f" ({' x '.join(factors)})"


_At = Callable[[int], str]


def _below(values: Sequence[int], at: _At, limit: int, why: str) -> str:
    for index, value in enumerate(values):
        if not 0 <= value < limit:
            wanted = "at least 0" if value < 0 else f"below {limit}{why}"
            return f"{at(index)} is {value}, and must be {wanted}"
    return ""


def _distinct(values: Sequence[int], at: _At, limit: int, why: str) -> str:
    seen: dict[int, int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault(value, index)
        if first != index:
            return f"{at(index)} is {value}, which is {at(first)} too: values are distinct"
    return ""


def _ascending(values: Sequence[int], at: _At, end: int, why: str) -> str:
    if values[0] != 0:
        return f"{at(0)} is {values[0]}, and must be 0"
    for index, (before, value) in enumerate(pairwise(values), 1):
        if value < before:
            last = at(index - 1)
            return f"{at(index)} is {value}, less than {last}, which is {before}: values ascend"
    if values[-1] != end:
        return f"{at(len(values) - 1)} is {values[-1]}, and must be {end}{why}"
    return ""


def _count(values: Sequence[int], at: _At, limit: int, why: str) -> str:
    return ""  # `check` has counted them


_HELD: dict[str, Callable[[Sequence[int], _At, int, str], str]] = {
    "count": _count,
    "below": _below,
    "distinct": _distinct,
    "ascending": _ascending,
}


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
    match = _ARCH.fullmatch(metadata.arch)
    assert match is not None, "the metadata's reader has seen that it is one"
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


# Bytes of a parameter.
_PASSED: dict[type[Parameter], int] = {TensorMap: 128, Pointer: 8, Extent: 4}


def check_parameters(metadata: Metadata, sizes: Sequence[int]) -> None:
    """Refuses a cubin whose entry takes other parameters, by their bytes, than a launch would pass."""
    passed = [_PASSED[type(parameter)] for parameter in metadata.parameters]
    if list(sizes) != passed:
        raise LoadError(
            f"kernel {metadata.kernel}: the metadata has parameters of {text(passed)} bytes, entry "
            f"{metadata.entry} of the cubin takes {text(sizes)}"
        )
