"""Rules on what objects are: target, floating-point mode, toolchain, requirements."""

from __future__ import annotations

from collections.abc import Iterator

from pipelink import expression
from pipelink.arch import links_into
from pipelink.diagnostics import Diagnostic, FilePlace, Place
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
        facts = view.facts[instance.name]
        for index, requirement in enumerate(instance.contract.requires):
            place = Place(instance.name, "requires", index)
            try:
                holds = view.value(instance, requirement.condition)
                used = sorted(expression.names(requirement.condition) & facts.keys())
            except expression.ExpressionError as error:
                yield Diagnostic("PL015", f"a requirement of {who(instance)}: {error}", place)
                continue
            if not holds:
                values = ", ".join(f"{name} = {facts[name]}" for name in used)
                yield Diagnostic(
                    "PL020",
                    f"{who(instance)} requires {requirement.condition}, and {values}",
                    place,
                    notes=(requirement.why,),
                )
