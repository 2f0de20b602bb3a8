"""Arguments to passes, and exit codes.

0 holds, 1 the input is at fault, 2 usage, 3 the toolchain or PipeLink itself failed; `diff` has codes
of its own from 10 on.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from pipelink.arch import ARCHES
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, ToolError, checkpoint

if TYPE_CHECKING:
    from pipelink.driver import Product, Sources
    from pipelink.model import Kernel

Call = Callable[[argparse.Namespace], int]
FORMATS = ("text", "json", "github", "sarif")


def main(argv: Sequence[str] | None = None) -> int:
    """One call of the command line; returns its exit code."""
    args = _parser().parse_args(argv)
    call: Call = args.call
    try:
        return call(args)
    except InputError as error:
        _report(args, error.diagnostics)
        return 1
    except ToolError as error:
        print(f"pipelink: {error}\n{error.log}".rstrip(), file=sys.stderr)
        return 3
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except OSError as error:
        if error.filename is None:
            raise
        path = str(error.filename)
        message = f"{path} can't be written or read: {(error.strerror or 'error').lower()}"
        _report(args, (Diagnostic("PL001", message, FilePlace(path)),))
        return 1
    except Exception:
        traceback.print_exc()
        print("pipelink: this is a fault of PipeLink itself", file=sys.stderr)
        return 3


def run() -> NoReturn:
    """The program. It ends at once: taking Python and nvJitLink down in order costs 60 ms."""
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _report(args: argparse.Namespace, found: Sequence[Diagnostic]) -> None:
    if not found and getattr(args, "format", "text") == "text":
        return
    from pipelink.report.emit import emit
    from pipelink.report.locate import locator

    locate = locator(getattr(args, "manifest", None), getattr(args, "objects", None))
    emit(getattr(args, "format", "text"), found, locate)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("pipelink", description="A linker for GPU kernel components.")
    calls = parser.add_subparsers(metavar="CALL", required=True)
    _compile_parser(calls)
    _diff_parser(calls)
    for name, call, what in (
        ("contract", _contract, "write the contract of an object"),
        ("inspect", _inspect, "show the contract of an object"),
    ):
        sub = calls.add_parser(name, help=what)
        sub.add_argument("object", type=Path)
        sub.set_defaults(call=call)
        if name == "contract":
            sub.add_argument("-o", "--output", type=Path, required=True)
        else:
            _format(sub, FORMATS[:2])
    sub = _manifest_parser(calls, "plan", _plan, "decide everything, write the plan")
    sub.add_argument(
        "--contracts", action="store_true", help="read X.contract.json in place of X.o"
    )
    _format(sub)
    sub.add_argument("-o", "--output", type=Path, required=True)
    sub = calls.add_parser("render", help="plan to glue")
    sub.add_argument("plan", type=Path)
    sub.add_argument("-o", "--output", type=Path, required=True)
    sub.set_defaults(call=_render)
    sub = _manifest_parser(
        calls, "check", _check, "read, resolve, check, place; nothing is written"
    )
    _format(sub)
    sub = _manifest_parser(calls, "link", _link, "the whole line: objects and manifest to a cubin")
    sub.add_argument("-o", "--output", type=Path, required=True)
    sub.add_argument("--plan", type=Path, help="link by this plan")
    sub.add_argument("--glue", type=Path, help="with --plan: the compiled glue")
    sub.add_argument("--reproduce", type=Path, metavar="TAR", help="write all inputs of this link")
    sub.add_argument("--lineinfo", action="store_true", help="keep source lines for profilers")
    _format(sub)
    for name, call, what in (
        ("verify", _verify, "build the control, compare every instruction"),
        ("map", _map, "show who has which bytes, barriers, warps and registers"),
    ):
        sub = _manifest_parser(calls, name, call, what)
        sub.add_argument("--root", type=Path, default=Path(), help="where the sources are")
        sub.add_argument("--lineinfo", action="store_true", help="with source lines for profilers")
        if name == "verify":
            _format(sub)
    sub.add_argument("--verify", action="store_true", help="build the control too")
    _format(
        sub, (*FORMATS, "html"), "of the map and of diagnostics; html is a page, in a file with -o"
    )
    sub.add_argument("-o", "--output", type=Path, metavar="FILE", help="of --format html")
    sub = calls.add_parser("explain", help="what a diagnostic's code means, with an example")
    which = sub.add_mutually_exclusive_group(required=True)
    which.add_argument("code", nargs="?", metavar="CODE", help="such as PL021")
    which.add_argument("--list", action="store_true", help="all codes")
    sub.set_defaults(call=_explain)
    return parser


def _format(
    parser: argparse.ArgumentParser, forms: Sequence[str] = FORMATS, of: str = "of diagnostics"
) -> None:
    parser.add_argument("--format", choices=forms, default="text", help=of)


def _manifest_parser(
    calls: argparse._SubParsersAction[argparse.ArgumentParser], name: str, call: Call, what: str
) -> argparse.ArgumentParser:
    sub = calls.add_parser(name, help=what)
    sub.add_argument("manifest", type=Path)
    sub.add_argument(
        "--objects",
        type=Path,
        help="folder that object paths start from (the manifest's own if left out)",
    )
    sub.set_defaults(call=call)
    return sub


def _compile_parser(calls: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sub = calls.add_parser("compile", help="one component, with the right flags of nvcc")
    sub.add_argument("source", type=Path)
    sub.add_argument("-o", "--output", type=Path, required=True)
    sub.add_argument("--arch", required=True, metavar="ARCH", help=f"one of {', '.join(ARCHES)}")
    sub.add_argument("-I", dest="include", action="append", default=[], metavar="DIR")
    sub.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]")
    sub.add_argument(
        "--depfile", type=Path, help="write the headers that were read, for make and ninja"
    )
    sub.add_argument("--lineinfo", action="store_true", help="let profilers show source lines")
    sub.add_argument("--glue", action="store_true", help="the source is glue, the output a fatbin")
    sub.add_argument("--ftz", action="store_true", help="flush denormals to zero")
    sub.add_argument("--approximate-div", action="store_true")
    sub.add_argument("--approximate-sqrt", action="store_true")
    sub.add_argument("--no-fma", action="store_true", help="do not contract to fused multiply-add")
    _format(sub)
    sub.set_defaults(call=_compile)


def _diff_parser(calls: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sub = calls.add_parser(
        "diff",
        help="what has changed in a contract, and who has to follow",
        epilog="exit codes: 0 no change, 10 compatible, 11 needs relink, 12 needs consumers to "
        "agree, 13 breaking: the worst of the changes; 1 an input is no component, 2 usage, 3 "
        "PipeLink failed",
    )
    sub.add_argument("old", type=Path, help="an object, or a contract: a name that ends in .json")
    sub.add_argument("new", type=Path, help="another state of the same component")
    sub.add_argument("--format", choices=("text", "json"), default="text")
    sub.set_defaults(call=_diff)


def _compile(args: argparse.Namespace) -> int:
    try:
        _compiled(args)
    except BaseException:
        _remove(args.output, args.source)
        raise
    _report(args, ())
    return 0


def _remove(output: Path, source: Path) -> None:
    """An older output would be taken for the one that could not be made."""
    if output.is_file() and not (source.exists() and source.samefile(output)):
        output.unlink()


def _compiled(args: argparse.Namespace) -> None:
    from pipelink import toolchain
    from pipelink.abi import Build
    from pipelink.floating import FloatingPoint
    from pipelink.prelude import prelude

    if args.arch not in ARCHES:
        from pipelink.manifest import known_targets

        message, help_ = f"unknown target '{args.arch}'", known_targets(args.arch)
        raise InputError(Diagnostic("PL007", message, FilePlace("--arch"), help=help_))
    mode = FloatingPoint(
        args.ftz, not args.approximate_div, not args.approximate_sqrt, not args.no_fma
    )
    if args.glue:
        toolchain.publish(args.output, toolchain.compile_glue(args.source, args.arch, mode))
        return
    build = Build(args.source.as_posix(), tuple(args.include), tuple(args.define))
    options = toolchain.CompileOptions(
        args.arch, tuple(args.include), tuple(args.define), mode, args.lineinfo, args.depfile
    )
    text = prelude(args.arch, mode.text(), build)
    print(
        toolchain.compile_component(
            args.source,
            args.output,
            options,
            text,
            lambda data, unit: _accepted(data, unit, args.source),
        ),
        end="",
        file=sys.stderr,
    )


def _accepted(data: bytes, text: str, source: Path) -> bytes:
    """The note of an object's symbols, if it is a component that keeps to its contract."""
    import msgspec

    from pipelink import abi, contract, slots, toolchain, unit

    component = contract.component_of(data, source)
    read = unit.read_unit(text).named(toolchain.demangled)
    written = source.read_text(encoding="utf-8", errors="replace")
    forgotten = slots.unlisted(component.contract, text, written, str(source))
    checkpoint([*unit.faults(read), *forgotten])
    name = component.contract.component
    symbols = abi.Symbols(name, tuple(read.strong), tuple(read.weak), tuple(read.types))
    return abi.encode_note(abi.NOTE_SYMBOLS, msgspec.json.encode(symbols))


def _contract(args: argparse.Namespace) -> int:
    from pipelink import contract, toolchain

    toolchain.publish(args.output, contract.contract_text(args.object))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from pipelink import diff
    from pipelink.report.difference import as_json, as_text

    changes = diff.compare(diff.read(args.old), diff.read(args.new))
    print(as_json(changes) if args.format == "json" else as_text(changes))
    return max((change.level for change in changes), default=0)


def _inspect(args: argparse.Namespace) -> int:
    from pipelink import contract

    if args.format == "json":
        print(contract.contract_text(args.object).decode())
    else:
        from pipelink.report.text import print_contract

        print_contract(contract.read_object(args.object).contract)
    return 0


def _sources(args: argparse.Namespace, *, contracts: bool = False) -> Sources:
    from pipelink.driver import Sources

    if args.objects is None:
        args.objects = args.manifest.parent
    return Sources(args.objects, contracts)


def _kernel(args: argparse.Namespace, *, contracts: bool = False) -> tuple[Kernel, Sources]:
    from pipelink import driver

    sources = _sources(args, contracts=contracts)
    return driver.read(args.manifest, sources), sources


def _plan(args: argparse.Namespace) -> int:
    from pipelink import driver, toolchain

    kernel, _ = _kernel(args, contracts=args.contracts)
    toolchain.publish(args.output, driver.encode_plan(driver.plan(kernel)))
    _report(args, ())
    return 0


def _render(args: argparse.Namespace) -> int:
    from pipelink import driver, toolchain

    toolchain.publish(args.output, driver.render_glue(driver.read_plan(args.plan)).encode())
    return 0


def _check(args: argparse.Namespace) -> int:
    from pipelink import driver

    kernel, _ = _kernel(args)
    plan = driver.plan(kernel)
    _report(args, ())
    if args.format == "text":
        print(
            f"{plan.kernel}: {len(plan.instances)} instances, {plan.threads} threads, "
            f"{plan.shared_bytes} bytes of shared memory; everything agrees"
        )
        for remark in plan.remarks:
            print(f"  = note: {remark}")
    return 0


def _link(args: argparse.Namespace) -> int:
    from pipelink import driver

    if (args.plan is None) != (args.glue is None) or (args.plan and args.reproduce):
        print("pipelink link: --plan and --glue go together, without --reproduce", file=sys.stderr)
        return 2
    if args.output.suffix != ".cubin":  # what is written beside it takes its name without that
        print(f"pipelink link: -o must end in .cubin, got {args.output}", file=sys.stderr)
        return 2
    if args.plan:
        sources = _sources(args)
        plan = driver.read_plan(args.plan)
        product = driver.link(plan, sources, driver.read_file(args.glue), lineinfo=args.lineinfo)
        driver.write_product(product, args.output, {})
        _report(args, ())
        return 0
    kernel, sources = _kernel(args)
    product, glue = driver.build(kernel, sources, args.output, lineinfo=args.lineinfo)
    extra = {".plan.json": driver.encode_plan(product.plan), ".glue.cu": product.glue.encode()}
    driver.write_product(product, args.output, extra)
    if args.reproduce:
        from pipelink import reproduce, toolchain

        toolchain.publish(args.reproduce, reproduce.archive(kernel, product, sources, glue))
    _report(args, ())
    return 0


def _built(args: argparse.Namespace) -> tuple[Kernel, Product]:
    """The kernel linked in a scratch folder: reading calls leave nothing behind."""
    from pipelink import driver, toolchain

    kernel, sources = _kernel(args)
    with toolchain.scratch(sources.objects / kernel.manifest.kernel) as folder:
        output = folder / f"{kernel.manifest.kernel}.cubin"
        product, _ = driver.build(kernel, sources, output, lineinfo=args.lineinfo)
    return kernel, product


def _compared(args: argparse.Namespace, kernel: Kernel, product: Product):  # type: ignore[no-untyped-def]
    from pipelink import verify

    output = args.objects / f"{kernel.manifest.kernel}.cubin"
    return verify.verify(kernel, product, output, args.root, lineinfo=args.lineinfo)


def _verify(args: argparse.Namespace) -> int:
    from pipelink.report.identity import as_json, as_text

    kernel, product = _built(args)
    comparison = _compared(args, kernel, product)
    said = as_json(product, comparison) if args.format == "json" else as_text(product, comparison)
    print(said, file=_beside_log(args))
    return 1 if comparison.differences else 0


def _beside_log(args: argparse.Namespace) -> TextIO:
    """Where a call says what it found: a SARIF log stands alone on standard output."""
    if args.format != "sarif":
        return sys.stdout
    _report(args, ())
    return sys.stderr


def _map(args: argparse.Namespace) -> int:
    if args.format == "html":
        return _page(args)
    if args.output:
        print("pipelink map: -o goes with --format html", file=sys.stderr)
        return 2
    kernel, product = _built(args)
    if args.format == "json":
        from pipelink.report.map import encode_map

        print(encode_map(product).decode(), end="")
        return 0
    from pipelink.report.text import print_map

    comparison = _compared(args, kernel, product) if args.verify else None
    print_map(product, comparison, _beside_log(args))
    return 0


def _page(args: argparse.Namespace) -> int:
    """The map as HTML; what is wrong is said as text."""
    args.format = "text"
    kernel, product = _built(args)
    from pipelink import toolchain
    from pipelink.report.html import encode_html

    page = encode_html(product, _compared(args, kernel, product) if args.verify else None)
    if args.output:
        toolchain.publish(args.output, page)
    else:
        print(page.decode(), end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from pipelink import explain

    if args.list:
        print(explain.listing(), end="")
        return 0
    page = explain.explanation(args.code.upper())
    if not page:
        print(f"pipelink: {explain.unknown(args.code.upper())}", file=sys.stderr)
        return 1
    print(page, end="")
    return 0
