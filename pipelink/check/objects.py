"""Rules on what objects are, and what all must agree on: target, floating-point mode, toolchain,
constants and types of shared headers; and what each requires."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pipelink import expression
from pipelink.abi import SharedType, Symbol
from pipelink.arch import links_into
from pipelink.check.values import unlisted
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.model import Instance
from pipelink.resolve import shown
from pipelink.view import View, who


def target(view: View) -> Iterator[Diagnostic]:
    wanted = view.kernel.manifest.target
    for instance in view.kernel.instances:
        built_for = instance.contract.target
        if not links_into(built_for, wanted):
            yield Diagnostic(
                "PL024",
                f"{who(instance)} was built for {built_for}, the kernel is for {wanted}",
                FilePlace(instance.component.path),
                (FilePlace(view.kernel.manifest.path, "target"),),
                help=f"compile it with --arch {wanted}",
            )


def _differ(view: View, code: str, what: str, values: list[str]) -> Iterator[Diagnostic]:
    first = view.kernel.instances[0]
    for instance, value in zip(view.kernel.instances, values, strict=True):
        if value != values[0]:
            yield Diagnostic(
                code,
                f"{who(instance)} was built with {what} {value}, {who(first)} with {values[0]}",
                FilePlace(instance.component.path),
                (FilePlace(first.component.path),),
                help=f"build all components of a kernel with one {what}",
            )


def floating_point(view: View) -> Iterator[Diagnostic]:
    """The link has one floating-point mode; a component of another would silently change."""
    values = [f"'{i.contract.floating_point}'" for i in view.kernel.instances]
    return _differ(view, "PL025", "floating-point mode", values)


def toolchain(view: View) -> Iterator[Diagnostic]:
    """An older major version links silently, with no promise that it works."""
    return _differ(
        view,
        "PL026",
        "CUDA major version",
        [str(i.contract.toolchain[0]) for i in view.kernel.instances],
    )


def requirements(view: View) -> Iterator[Diagnostic]:
    for instance in view.kernel.instances:
        facts = view.known(instance)
        for index, requirement in enumerate(instance.contract.requires):
            place = Place(instance.name, "requires", index)
            try:
                holds = view.value(instance, requirement.condition)
                used = sorted(expression.names(requirement.condition) & facts.keys())
            except expression.ExpressionError as error:
                message = f"a requirement of {who(instance)}: {error}"
                help_ = unlisted(instance, requirement.condition)
                yield Diagnostic("PL015", message, place, help=help_)
                continue
            if not holds:
                values = ", ".join(f"{name} = {shown(facts[name])}" for name in used)
                yield Diagnostic(
                    "PL020",
                    f"{who(instance)} requires {requirement.condition}, and {values}",
                    place,
                    view.causes(instance, requirement.condition),
                    notes=(requirement.why,),
                    help="choose other values for these facts, where their owners leave them to the manifest",
                )


def agreed(view: View) -> Iterator[Diagnostic]:
    """A constant of a shared header: who was built with another one has other code behind it."""
    first: dict[str, tuple[Instance, int]] = {}
    for instance in view.kernel.instances:
        for index, fact in enumerate(instance.contract.facts):
            if fact.kind != "agrees":
                continue
            other, at = first.setdefault(fact.name, (instance, index))
            theirs = other.contract.facts[at]
            if (fact.type, fact.values) == (theirs.type, theirs.values):
                continue
            yield Diagnostic(
                "PL017",
                f"'{fact.name}' is {shown(theirs.values[0])} in {who(other)}, "
                f"{shown(fact.values[0])} in {who(instance)}",
                Place(instance.name, "facts", index),
                (Place(other.name, "facts", at),),
                notes=(
                    "both were compiled with it, and one of the two definitions would win silently",
                ),
                help="build both with the same header and the same -D",
            )


def types(view: View) -> Iterator[Diagnostic]:
    """Two layouts of one struct: each side reads the other's bytes as its own."""
    first: dict[str, tuple[Instance, int]] = {}
    for instance in view.kernel.instances:
        for index, type_ in enumerate(instance.contract.types):
            other, at = first.setdefault(type_.name, (instance, index))
            theirs = other.contract.types[at]
            difference = _difference(theirs, type_)
            if difference:
                yield Diagnostic(
                    "PL018",
                    f"type '{type_.name}' is not the same in {who(other)} and {who(instance)}: {difference}",
                    Place(instance.name, "types", index),
                    (Place(other.name, "types", at),),
                    help="build both with the same header and the same -D",
                )


def _difference(left: SharedType, right: SharedType) -> str:
    """The first member that differs, else the size; empty if the types are the same."""
    fields = [{f.name: f for f in t.fields} for t in (left, right)]
    for name in dict.fromkeys((*fields[0], *fields[1])):
        a, b = (side.get(name) for side in fields)
        if a is None or b is None:
            return f"field '{name}' is in one of them only"
        if a != b:
            return (
                f"field '{name}' has {a.size} bytes at {a.offset} in the first, "
                f"{b.size} bytes at {b.offset} in the second"
            )
    if (left.size, left.align) != (right.size, right.align):
        return (
            f"{left.size} bytes aligned to {left.align} in the first, "
            f"{right.size} bytes aligned to {right.align} in the second"
        )
    return ""


def symbols(view: View) -> Iterator[Diagnostic]:
    """One name, two definitions: the link would take one of them for both owners, without a word."""
    listed = {t.name for i in view.kernel.instances for t in i.contract.types}
    seen: dict[tuple[str, str], tuple[Instance, Symbol]] = {}
    for instance in _one_of_each_object(view):
        found = instance.component.symbols
        if found is None:
            continue
        for kind, own in (("strong", found.strong), ("weak", found.weak), ("type", found.types)):
            for symbol in own:
                first, other = seen.setdefault((kind, symbol.name), (instance, symbol))
                if kind != "strong" and first.contract.toolchain != instance.contract.toolchain:
                    continue  # front ends of two versions write the same body in two ways
                if first is instance or (
                    kind == "type" and (symbol.shown or symbol.name) in listed
                ):
                    continue
                if kind == "strong" or symbol.text != other.text:
                    yield _clash(kind, (first, other), (instance, symbol))


def _one_of_each_object(view: View) -> list[Instance]:
    return list({i.component.path: i for i in reversed(view.kernel.instances)}.values())[::-1]


def _clash(kind: str, left: tuple[Instance, Symbol], right: tuple[Instance, Symbol]) -> Diagnostic:
    (first, a), (second, b) = left, right
    names, called = f"{who(first)} and {who(second)}", a.shown or a.name
    build = "build both with the same header and the same -D"
    if kind == "strong":
        code, message = "PL042", f"function '{called}' is defined by {names}"
        help_ = "give it internal linkage (static, or an unnamed namespace), or a namespace of its owner"
    elif kind == "weak":
        code, message = "PL048", f"'{called}', which is inline, is defined in two ways: in {names}"
        help_ = f"{build}, or give it internal linkage"
    else:
        code, message = (
            "PL018",
            f"type '{called}' is not the same in {names}{_members(a.text, b.text)}",
        )
        help_ = build
    return Diagnostic(code, message, FilePlace(b.place), (FilePlace(a.place),), help=help_)


def _members(left: str, right: str) -> str:
    """The first members that differ."""
    for a, b in itertools.zip_longest(left.split(";"), right.split(";"), fillvalue=""):
        if a.strip() != b.strip() and not left.startswith("#") and not right.startswith("#"):
            return f": '{a.strip() or 'nothing'}' in the first, '{b.strip() or 'nothing'}' in the second"
    return ""
