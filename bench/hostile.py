"""The inputs of bench/fuzz.py: each is a case, made from a seed, its kind and its number alone."""

import itertools
import json
import random
import struct
import sys
from collections.abc import Iterator
from copy import deepcopy as copied
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

import contracts  # noqa: E402
import minimal_elf  # noqa: E402
from contracts import ALL, add, encode, places  # noqa: E402
from minimal_elf import CONTRACT, PLACES, note, object_  # noqa: E402

from pipelink.abi import (  # noqa: E402
    NOTE_SYMBOLS,
    Claim,
    Contract,
    Fact,
    Field,
    Operation,
    Promise,
    Record,
    Requirement,
    SharedType,
    Symbol,
    Symbols,
)

Random = random.Random
Tree = dict[str, Any]


class Kernel(NamedTuple):
    """A manifest and its good objects, by the names that it has for them."""

    manifest: bytes
    objects: dict[str, bytes]


class Case(NamedTuple):
    """Objects that take the place of good ones in a kernel. `texts` are the contracts in them, if all
    else in them is as it should be; `name` is what was done."""

    name: str
    kernel: str
    objects: dict[str, bytes]
    texts: dict[str, bytes] | None = None


class Raw(str):
    """JSON as it is."""


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may stand twice."""


# --- good kernels


def extra(tag: str) -> dict[str, tuple[Any, ...]]:
    """Records of every kind; two ends of a channel can't fix facts of one name."""
    return {
        "facts": (
            Fact("routes", "agrees", (8,)),
            Fact(f"fast_{tag}", "provides", (True,), type="bool"),
            Fact(f"mode_{tag}", "chooses", ("relu", "silu"), type="text"),
            Fact(f"kind_{tag}", "provides", ("bf16",), type="element"),
            Fact(f"order_{tag}", "provides", ("((8,4),2):((1,16),8)",), type="layout"),
            Fact("depth", "imports", (1, 2), default=2),
            Fact(f"least_{tag}", "derives", value=f"min(routes, 4) if fast_{tag} else depth * 2"),
        ),
        "requires": (Requirement(f"least_{tag} >= 4 and mode_{tag} != 'tanh'", "routes of four"),),
        "claims": (
            Claim("spare", "shared", f"least_{tag} * 16", 32, scope="warp", during=("run",)),
            Claim("meet", "barrier", "", count="1", scope="warpgroup"),
            *([Claim("pinned", "barrier", "128", fixed=9)] if tag == "loader" else []),
            Claim("gates", "mbarrier", "2", by="each_warp"),
            Claim("doors", "mbarrier", "1", arrivals="depth"),
            Claim("frames", "stack", f"least_{tag}"),
        ),
        "types": (SharedType("Route", 16, 8, (Field("weight", 0, 8), Field("where", 8, 4))),),
    }


def rich(whole: Contract) -> Contract:
    """A contract with a record of every kind, as good as it was."""
    for section, records in extra(whole.component).items():
        whole = add(whole, section, *records)
    port = next(p for p in whole.ports if p.space != "global")
    side = "promises" if port.direction == "out" else "needs"
    if port.space == "shared":
        whole = add(whole, "promises", Promise("finite", port.name, side, "no NaN"))
    first, *others = whole.entries
    plays = first.plays and (*first.plays, Operation("maybe", name="last", body=first.plays))
    return replace(whole, entries=(replace(first, plays=plays), *others))


def kernels() -> dict[str, Kernel]:
    """The toy, the toy with every record, the ffn of format 1, and what is built here."""
    toy = contracts.MANIFEST.encode()
    made = {f"{n}.o": c for n, c in ALL.items()}
    rich_ = {n: rich(c) for n, c in made.items()}
    found = {
        "toy": Kernel(toy, {n: whole(encode(c), c) for n, c in made.items()}),
        "rich": Kernel(toy, {n: whole(encode(c), c) for n, c in rich_.items()}),
    }
    ffn = (ROOT / "components/ffn/ffn.kernel.toml").read_bytes()
    seen = set()
    for folder in (ROOT / "tests/format1", *sorted((ROOT / "build").glob("**/components/ffn"))):
        objects = {f"components/ffn/{p.name}": p.read_bytes() for p in sorted(folder.glob("*.o"))}
        if len(objects) == 3 and (key := tuple(objects.values())) not in seen:
            seen.add(key)
            found[f"ffn{len(seen)}"] = Kernel(ffn, objects)
    return found


def whole(text: bytes, contract: Contract | None = None) -> bytes:
    """An object with a contract's text, and with lines and symbols if the contract is known."""
    if contract is None:
        return object_(note(CONTRACT, text))
    others = [note(PLACES, encode(places(contract))), note(NOTE_SYMBOLS, encode(symbols(contract)))]
    return object_(note(CONTRACT, text), *others)


def symbols(contract: Contract) -> Symbols:
    """A function of its own, an inline one that is the same for all, and a shared type."""
    own = Symbol(f"_Z1{contract.component}", "", "a.cu:1", f"{contract.component}()")
    types = (Symbol("Route", "float weight; int where", "route.cuh:7", "Route"),)
    weak = (Symbol("_Z4fastf", "#77", "fast.cuh:3", "fast(float)"),)
    return Symbols(contract.component, (own,), weak, types)


# --- values

# fmt: off
INTS = [0, -1, 1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 96, 128, 255, 256, 257, 1000, 1024, 4096]
INTS += [sign * (1 << n) + d for n in (20, 31, 32, 40, 62, 63, 64) for sign in (1, -1) for d in (-1, 0)]
INTS += [10**18, 10**30, 10**4000]
NAMES = ["stages", "hidden", "tile_m", "tile_n", "tile_k", "k_steps", "m", "run", "schedule", "in"]
NAMES += ["out", "acc", "x", "w", "tile", "full", "empty", "fence", "threads", "role", "kernel", "int"]
NAMES += ["first_thread", "least_loader", "depth", "fast_mainloop", "routes", "store", "staging"]
NAMES += ["loader", "role_threads", "role_threads"]
TEXTS = ["", " ", "a" * 200, "x" * 20_000, "é", "\u202e", "Ⅷ", "a\nb", "a\n#error", "b\\", "??/", "\x1b[31m"]
TEXTS += ["\0", "__", "a__b", "_a", "1a", "a.b", "*/", "[/b]", "{{ 7 }}", "{% raw %}", "'", '"', "\U0001f600", "]"]
EXPRESSIONS = ["1 //0", "1 % 0", "()", "(1,)", "[]", "f'{m}'", "(m := 1)", "lambda: 1", "m.x", "m[0]", "'a'"]
EXPRESSIONS += ["__import__('os')", "min(1)", "max(1, 2, 3)", "min", "1 << 99", "2 ** 99", "1.5", "1j", "b'a'"]
EXPRESSIONS += ["'a' * 999", "1 < 2 < 3", "not 'a'", "9" * 1000, "0x7f", "1_0", "'''a\n#error'''", "8 # 9"]
EXPRESSIONS += ["[x for x in 1]", "await m", "*m", "m if m", "\\\n1", "(8\n\n)", "-9223372036854775808", "\t1"]
EXPRESSIONS += ["(" * 199 + "1" + ")" * 199, "-" * 900 + "1", "not " * 200 + "1", "1" + "+1" * 500, "１２"]
LAYOUTS = ["(1):(1)", "(32,4):(1,32)", ":", "(1,2)", "((((1))))", "(2,(2,2)):(1,(2,4))", "(0,1):(1,1)", "():()"]
LAYOUTS += ["(-4,1):(1,1)", "(1000000000000000000,1):(1,1)", "(" * 90 + "1" + ")" * 90, "1,2:3,4", "(4/0,1):(1,1)"]
LAYOUTS += ["(a,b):(c,d)", "('a',1):(1,2)", "(256,tile_n/2):(1,256)", "((),):((),)", "(2(3)):(1)", "(1:1):(1:1)"]
WORDS: dict[str, list[str]] = {}  # of each field that has a fixed set of them
for _record in Record.__subclasses__():
    for _name, _type in get_type_hints(_record).items():
        if get_origin(_type) is Literal:
            WORDS.setdefault(_name, []).extend(get_args(_type))
HOSTILE = [None, True, False, 1.5, float("nan"), float("inf"), [], {}, [[]], [None], Raw("1e400"), Raw("-0")]
HOSTILE += [Raw("01"), Raw(""), Raw("[" * 5000), Raw("{" * 99)]
HOSTILE += [Raw('"\\ud800"'), Raw('"\\u0000"'), Raw('{"a":1,"a":2}')]
COMPUTED = {"value", "condition", "amount", "arrivals", "count", "stages", "step", "of", "bytes"}
COMPUTED |= {"shape[]", "box[]"}
# fmt: on
NAMED = {"name", "port", "on", "component", "arguments[]", "during[]"}


def expression(rng: Random, depth: int = 0) -> str:
    """Of the language, mostly."""
    if depth > 5 or rng.random() < 0.3:
        return str(rng.choice(INTS[:30])) if rng.random() < 0.5 else rng.choice(NAMES)
    a, b, c = (expression(rng, depth + 1) for _ in range(3))
    signs = ["+", "-", "*", "//", "%", "<", "<=", "==", "!=", "and", "or"]
    forms = [
        f"({a} {rng.choice(signs)} {b})",
        f"({a} if {b} else {c})",
        f"min({a}, {b})",
        f"max({a}, {b})",
    ]
    return rng.choice([*forms, *forms, f"not ({a})", f"-({a})", rng.choice(EXPRESSIONS)])


def layout(rng: Random) -> str:
    sizes = [
        str(rng.choice([*INTS[2:20], 1 << 40, "tile_n/2", "m"])) for _ in range(rng.randrange(1, 9))
    ]
    strides = [str(rng.choice(INTS)) for _ in sizes]
    return f"({','.join(sizes)}):({','.join(strides)})"


def like(rng: Random, label: str, value: Any) -> Any:
    """Another value of the type that a field has."""
    if label in WORDS and isinstance(value, str):
        return rng.choice(WORDS[label] if rng.random() < 0.9 else TEXTS)
    if label == "layout":
        return rng.choice(LAYOUTS) if rng.random() < 0.5 else layout(rng)
    if label in COMPUTED:
        plain = str(rng.choice(INTS))
        return rng.choice([expression(rng), plain, rng.choice(NAMES), rng.choice(EXPRESSIONS)])
    if label in NAMED:
        return rng.choice(NAMES if rng.random() < 0.8 else TEXTS)
    if isinstance(value, str):
        return rng.choice([*TEXTS, *LAYOUTS, *NAMES])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(INTS)
    if isinstance(value, list):
        return rng.choice([[], value[:1], value[::-1], value * 2, value[1:]])
    if isinstance(value, dict):
        return copied(rng.choice(SPLICES.get(label, HOSTILE)))
    return rng.choice([None, 1, "1", True, rng.choice(INTS), rng.choice(NAMES)])


TREES: dict[str, Tree] = {f"{n}.o": json.loads(encode(rich(c))) for n, c in ALL.items()}


def nodes(tree: Any, label: str = "") -> Iterator[tuple[Any, Any, str]]:
    """(container, key, name of the field) of every value."""
    rows = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in rows:
        name = key if isinstance(key, str) else f"{label}[]"
        yield tree, key, name
        yield from nodes(value, name)


SPLICES: dict[str, list[Any]] = {}
for _box, _key, _label in itertools.chain.from_iterable(map(nodes, TREES.values())):
    SPLICES.setdefault(_label, []).append(_box[_key])


def change(rng: Random, box: Any, key: Any, label: str) -> None:
    """One change in a tree."""
    roll = rng.random()
    if roll < 0.5:
        box[key] = like(rng, label, box[key])
    elif roll < 0.8:
        box[key] = copied(rng.choice(SPLICES.get(label, [None])))
    elif roll < 0.85:
        del box[key]
    elif roll < 0.93 and isinstance(box, list):
        more = [copied(box[key]) for _ in range(rng.choice([1, 1, 2, 9]))]
        for n, item in enumerate(more):
            if isinstance(item, dict) and "name" in item and rng.random() < 0.8:
                item["name"] = f"{item['name']}{n}"
        box[key:key] = more
    elif roll < 0.95:
        box[key] = copied(rng.choice(HOSTILE))
    elif isinstance(box, dict):
        name = rng.choice([key, "unknown", "", "__class__", rng.choice(list(SPLICES))])
        box[key] = Pairs([(name, box[key]), (key, like(rng, label, box[key]))])
    else:
        box[key] = [box[key]]


def json_text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict | Pairs):
        rows = value.items() if isinstance(value, dict) else value
        return f"{{{','.join(f'{json.dumps(k)}:{json_text(v)}' for k, v in rows)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, int) and abs(value) > 1 << 70:
        return "1" + "0" * 4000
    return json.dumps(value, ensure_ascii=False)


def contract_case(rng: Random, number: int) -> Case:
    """A few changes anywhere in a contract; now and then the same in all contracts of the kernel."""
    name = rng.choice(list(TREES))
    tree = copied(TREES[name])
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 6])):
        change(rng, *rng.choice([node for node in nodes(tree) if not isinstance(node[0], Pairs)]))
    texts = {name: encoded(tree)}
    if rng.random() < 0.02:
        key = rng.choice(["target", "floating_point", "toolchain", "owner", "version"])
        value = like(rng, key, TREES[name][key])
        texts = {n: encoded({**t, key: value}) for n, t in TREES.items()}
    return Case("contract", "rich", {n: whole(t) for n, t in texts.items()}, texts)


def lines_case(rng: Random, number: int) -> Case:
    """Lines that are none, and symbols, beside a contract that has a fault to be told of or is good."""
    name = rng.choice(list(TREES))
    contract = ALL[name.removesuffix(".o")]
    kind, record = rng.choice([(PLACES, places(contract)), (NOTE_SYMBOLS, symbols(contract))])
    tree = json.loads(encode(record))
    for _ in range(rng.choice([1, 2, 5])):
        box, key, _ = rng.choice(list(nodes(tree)))
        if isinstance(box[key], str) and rng.random() < 0.8:
            line = rng.choice([*INTS[:60], "9" * 900, "9" * 5000, "x", "", "²", "٣"])
            file = rng.choice(["a.cu", "/dev/zero", "/proc/self/mem", ".", "", "\0", *TEXTS])
            box[key] = f"{file}:{line}"
        elif isinstance(box[key], list) and rng.random() < 0.5:
            box[key] = box[key] * rng.choice([2, 100, 5000])
        else:
            box[key] = copied(rng.choice(HOSTILE))
    text = encode(contract)
    if rng.random() < 0.8:
        text = text.replace(b'"count":"1"', b'"count":"0"').replace(b'"imports"', b'"extent"', 1)
    return Case(
        "lines", "toy", {name: object_(note(CONTRACT, text), note(kind, encoded(tree)[: 2 << 20]))}
    )


def encoded(tree: Any) -> bytes:
    return json_text(tree).encode("utf-8", "surrogatepass")


def damaged(rng: Random, data: bytes) -> bytes:
    """Bytes changed, cut, moved, or with a number in the place of one."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        if not changed:
            break
        at, size = rng.randrange(len(changed)), rng.choice([1, 2, 4, 8, 64, 1000])
        roll = rng.randrange(7)
        if roll == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif roll == 1:
            changed[at:] = b""
        elif roll == 2:
            changed[at:at] = rng.randbytes(size)
        elif roll == 3:
            other = rng.randrange(len(changed))
            changed[at : at + size] = changed[other : other + size]
        elif roll == 4:
            del changed[at : at + size]
        else:
            number = rng.choice(
                [0, 1, 2, 7, 0x7F, 0xFF, *(1 << n for n in (16, 20, 31, 40, 63)), (1 << 32) - 1]
            )
            width = rng.choice([1, 2, 4, 8])
            place = hot(rng, bytes(changed)) if roll == 5 else at
            changed[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


def hot(rng: Random, data: bytes) -> int:
    """A field of the ELF header, the section table or a note's header."""
    table = int.from_bytes(data[40:48], "little")
    notes = [at for at in (data.find(b"PipeLink"), data.rfind(b"PipeLink")) if at >= 12]
    spots = [
        rng.randrange(64),
        table + 4 * rng.randrange(16 * 40),
        *(at - 4 * rng.randrange(4) for at in notes),
    ]
    return min(rng.choice(spots), len(data))


def object_case(rng: Random, number: int, kernels_: dict[str, Kernel]) -> Case:
    """A good object, damaged."""
    kernel = rng.choice(list(kernels_))
    name = rng.choice(list(kernels_[kernel].objects))
    return Case("object", kernel, {name: damaged(rng, kernels_[kernel].objects[name])})


def random_case(rng: Random, number: int) -> Case:
    """Random bytes: alone, after a magic, as an ELF file's sections, as notes, as a note's text."""
    data = rng.randbytes(rng.choice([0, 1, 16, 64, 200, 1000, 5000]))
    head = minimal_elf.elf([minimal_elf.CODE])[:64]
    sections = [
        (".note.pipelink", rng.choice([7, 7, 7, 1, 8, 2, 3, 11]), data, rng.choice([0, 0, 0x800]))
    ]
    lengths = struct.pack("<III", 9, rng.choice([0, 8, len(data)]), rng.randrange(1 << 12))
    kinds = [
        data,
        rng.choice([b"\x7fELF", b"\x7fELF\2\1\1", b"\x7fELF\1\2\1", b"!<arch>\n"]) + data,
        head + data,
        head[:40]
        + struct.pack("<Q", rng.choice([0, 64, 100]))
        + head[48:60]
        + b"\xff\xff"
        + head[62:]
        + data,
        minimal_elf.elf([*sections, *([minimal_elf.CODE] if rng.random() < 0.5 else [])]),
        object_(lengths + b"PipeLink\0\0\0\0" + data),
        object_(note(rng.choice([CONTRACT, PLACES]), data)),
        object_(note(CONTRACT, data.decode("latin1").encode())),
    ]
    return Case("random", "toy", {"loader.o": kinds[number % len(kinds)]})
