"""Rules on kernel parameters: global ports and the tensors behind them."""

from __future__ import annotations

from collections.abc import Iterator

from pipelink.abi import ELEMENT_BYTES
from pipelink.check.channels import not_taken
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.view import End, View, who

# cuTensorMapEncodeTiled: the innermost side of a box, in bytes.
COPY_BYTES = 16


def connected(view: View) -> Iterator[Diagnostic]:
    """Every global port belongs to exactly one parameter, and every parameter names global ports."""
    path = view.kernel.manifest.path
    uses = [p for ports in view.kernel.manifest.parameters.values() for p in ports]
    known = {end.name: end for end in view.ports("global")}
    for name, ports in view.kernel.manifest.parameters.items():
        for port in ports:
            end = view.end(port)
            if end and end.port.space == "global" and view.idle(end):
                yield not_taken(end, FilePlace(path, name), f"parameter '{name}'")
            elif port not in known:
                yield Diagnostic(
                    "PL016",
                    f"parameter '{name}' names '{port}', which is no port in global memory",
                    FilePlace(path, name),
                    help=f"ports in global memory: {', '.join(known)}",
                )
    for name, end in known.items():
        if uses.count(name) != 1:
            yield Diagnostic(
                "PL022",
                f"port '{name}' of {who(end.instance)} has "
                f"{f'{uses.count(name)} parameters' if name in uses else 'no parameter'}",
                Place(end.instance.name, "ports", end.index),
                help=f"name it once in [parameters] of {path}",
            )


def bounds(view: View) -> Iterator[Diagnostic]:
    """Only an extent of a component can have bounds; one that no step in use takes is bound in a variant."""
    extents = {
        f.name for i in view.kernel.instances for f in i.contract.facts if f.kind == "extent"
    }
    for name in view.kernel.manifest.extents:
        if name not in extents:
            yield Diagnostic(
                "PL016",
                f"[extents] names '{name}', which is no extent of a component",
                FilePlace(view.kernel.manifest.path, name),
                help=f"extents: {', '.join(sorted(extents)) or 'none'}",
            )


def extents(view: View) -> Iterator[Diagnostic]:
    """What a launch fixes is a side of a tensor that the caller passes: it has a value from nowhere else."""
    ends = list(view.ports("global"))
    sides = {s for end in ends for s in end.port.shape if s in view.extents(end.instance)}
    for instance in view.kernel.instances:
        own = [end for end in ends if end.instance.name == instance.name]
        taken = {s: end.place for end in own for held in end.port.holds for s in held.sizes}
        for index, entry in view.run_entries(instance):
            names = (*entry.arguments, *(t.of for t in entry.tiles))
            taken |= dict.fromkeys(names, Place(instance.name, "entries", index))
        for name in sorted(taken.keys() & view.extents(instance) - sides):
            yield Diagnostic(
                "PL015",
                f"extent '{name}' of {who(instance)} is a side of no tensor of the kernel, so that a launch "
                "has no value for it",
                taken[name],
                help="let a tensor of [parameters] have it as a side",
            )


def agree(view: View) -> Iterator[Diagnostic]:
    """All users of one tensor see the same element type and shape."""
    for name, ports in view.kernel.manifest.parameters.items():
        ends = [e for e in map(view.end, ports) if e is not None]
        for end in ends[1:]:
            first = ends[0]
            for what, left, right in (
                ("element type", first.port.element, end.port.element),
                ("shape", *(_sides(view, e) for e in (first, end))),
            ):
                if left != right:
                    yield Diagnostic(
                        "PL028",
                        f"parameter '{name}' has {what} {left} for {who(first.instance)}, "
                        f"{right} for {who(end.instance)}",
                        Place(end.instance.name, "ports", end.index),
                        (Place(first.instance.name, "ports", first.index),),
                        help="all ports of a parameter are one tensor: name them alike, or apart",
                    )


def _sides(view: View, end: End) -> str:
    return f"[{', '.join(map(str, view.shape(end.instance, end.port.shape)))}]"


def writers(view: View) -> Iterator[Diagnostic]:
    """One port writes a tensor; one that reads it too reaches in each tile what is written there."""
    for name, ports in view.kernel.manifest.parameters.items():
        ends = [e for e in map(view.end, ports) if e is not None]
        outs = [e for e in ends if e.port.direction == "out"]
        for end in outs[1:]:
            yield Diagnostic(
                "PL028",
                f"parameter '{name}' is written by '{outs[0].name}' of {who(outs[0].instance)} and by "
                f"'{end.name}' of {who(end.instance)}",
                end.place,
                (outs[0].place,),
                notes=("nothing orders the two",),
                help="give each a tensor of its own",
            )
        for end in (e for e in ends if outs and e.port.direction == "in"):
            if outs[0].port.adds:
                yield Diagnostic(
                    "PL028",
                    f"parameter '{name}' is read by '{end.name}' of {who(end.instance)} and added to by "
                    f"'{outs[0].name}' of {who(outs[0].instance)}",
                    end.place,
                    (outs[0].place,),
                    notes=("one tile would read what another one is adding to",),
                    help="give them two tensors",
                )
            elif _reach(view, end) != _reach(view, outs[0]) or not end.port.covers:
                yield Diagnostic(
                    "PL028",
                    f"parameter '{name}' is read by '{end.name}' of {who(end.instance)} and written by "
                    f"'{outs[0].name}' of {who(outs[0].instance)}, and a tile does not reach the same "
                    "elements of it",
                    end.place,
                    (outs[0].place,),
                    notes=("one tile would overwrite what another one still reads",),
                    help="give them two tensors, or let both cover the same",
                )


BLOCKS = "a phase begins when the block's own threads have ended the one before: others may still be in it"


def phases(view: View) -> Iterator[Diagnostic]:
    """A tensor is not written in one phase and read in another: a block ends a phase when its own
    threads have, whatever the others do."""
    for name, ports in view.kernel.manifest.parameters.items():
        ends = [e for e in map(view.end, ports) if e is not None]
        for out in (e for e in ends if e.out):
            for end in (e for e in ends if not e.out):
                if view.phases_of(out) == view.phases_of(end):
                    continue
                yield Diagnostic(
                    "PL028",
                    f"parameter '{name}' is written by '{out.name}' of {who(out.instance)} and read by "
                    f"'{end.name}' of {who(end.instance)} in another phase",
                    end.place,
                    (out.place,),
                    notes=(BLOCKS,),
                    help="make them two kernels, or hand it on in shared memory",
                )


def bulk(view: View) -> Iterator[Diagnostic]:
    """Bulk copies and the async proxy, on a target that has them."""
    if view.arch.bulk_tensor_copy:
        return
    for end in view.ports("global", "shared"):
        what = "is read by bulk copies" if end.port.box else "is filled by bulk copies"
        if end.port.space == "shared" and end.port.by != "copies":
            what = "goes through the async proxy"
            if end.port.proxy != "async":
                continue
        elif end.port.space == "global" and not end.port.box:
            continue
        yield Diagnostic(
            "PL027",
            f"port '{end.name}' of {who(end.instance)} {what}, which {view.arch.name} does not have",
            end.place,
            (FilePlace(view.kernel.manifest.path, "target"),),
            help="give it ordinary loads and stores, or link for a target from sm_90a on",
        )


def _reach(view: View, end: End) -> list[tuple[str, int | str]]:
    covers = end.port.covers
    steps = view.shape(end.instance, tuple(c.step for c in covers))
    return [(cover.along, step) for cover, step in zip(covers, steps, strict=True)]


def boxes(view: View) -> Iterator[Diagnostic]:
    """A bulk copy moves at most 256 elements a dimension, and a row fits the swizzle."""
    limit = view.arch.box_size
    for end in view.ports("global"):
        if not end.port.box:
            continue
        box = [view.value(end.instance, s) for s in end.port.box]
        place, causes = end.place, view.causes(end.instance, *end.port.box)
        if max(box) > limit or min(box) < 1:
            yield Diagnostic(
                "PL027",
                f"port '{end.name}' of {who(end.instance)} copies a box of {box}, a side is 1 to {limit}",
                place,
                causes,
            )
        if len(box) != len(end.port.shape):
            yield Diagnostic(
                "PL027",
                f"port '{end.name}' of {who(end.instance)} copies a box of {box} out of "
                f"{len(end.port.shape)} dimensions",
                place,
                causes,
            )
        row = box[-1] * ELEMENT_BYTES[end.port.element]
        if row % COPY_BYTES:
            yield Diagnostic(
                "PL027",
                f"port '{end.name}' of {who(end.instance)} copies rows of {row} bytes, a copy moves "
                f"multiples of {COPY_BYTES}",
                place,
                causes,
            )
        if end.port.swizzle and row > end.port.swizzle:
            yield Diagnostic(
                "PL027",
                f"port '{end.name}' of {who(end.instance)} copies rows of {row} bytes, "
                f"a {end.port.swizzle}-byte swizzle takes {end.port.swizzle}",
                place,
                causes,
                help=f"a box of {end.port.swizzle // ELEMENT_BYTES[end.port.element]} columns",
            )
