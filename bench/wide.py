"""Contracts that are large in one thing: many records, long chains, deep nests, huge numbers."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from hostile import (
    CONTRACT,
    TREES,
    Case,
    Random,
    Raw,
    Tree,
    copied,
    encoded,
    expression,
    layout,
    minimal_elf,
    note,
    object_,
    whole,
)

COUNTS = [3, 30, 100, 250, 250, 400, 1_000, 1_000, 4_000, 10_000, 16_000]
BIG = ["4611686018427387904", "1099511627776", "2147483648", "1000003", "100000", "97", "2"]
LONG = "x" * 100_000


def fact(name: str, kind: str, **fields: Any) -> Tree:
    return {"name": name, "kind": kind, **fields}


def port(tree: Tree, space: str) -> Tree:
    """A port of a space; the first one if there is none."""
    found: Tree = next((p for p in tree["ports"] if p["space"] == space), tree["ports"][0])
    return found


def chain(tree: Tree, n: int, rng: Random) -> None:
    """Derived facts that each read the next, or the one before, or in a circle."""
    order = rng.choice([1, -1])
    rows = [fact(f"d{i}", "derives", value=f"d{i - 1} + 1" if i else "1") for i in range(n)]
    if rng.random() < 0.3:
        rows[0]["value"] = f"d{n - 1}"
    tree["facts"] += rows[::order]


def dense(tree: Tree, n: int, rng: Random) -> None:
    """Derived facts that each read a hundred others."""
    n = min(n, 900)
    for i in range(n):
        reads = " + ".join(f"d{j}" for j in range(max(0, i - 100), i)) or "1"
        tree["facts"].insert(0, fact(f"d{i}", "derives", value=reads))


def facts(tree: Tree, n: int, rng: Random) -> None:
    """Facts of one kind: imports that nobody provides, or of names that are nearly alike."""
    kind = rng.choice(["imports", "provides", "chooses", "extent", "agrees", "derives"])
    name = rng.choice(["f", "hiddem", "tile_" * 20 + "n", "tile_", "n" * 1000])
    values = {} if kind in ("imports", "extent", "derives") else {"values": [7]}
    value = {"value": rng.choice(["1", "zz", "m"])} if kind == "derives" else {}
    tree["facts"] += [fact(f"{name}{i}", kind, **values, **value) for i in range(n)]


def halves(tree: Tree, n: int, rng: Random) -> None:
    """As many imports as offers, with names that are nearly alike."""
    pad = "a" * rng.choice([1, 50, 500])
    for i in range(n // 2):
        tree["facts"] += [fact(f"{pad}{i}x", "imports"), fact(f"{pad}{i}", "provides", values=[1])]


def values(tree: Tree, n: int, rng: Random) -> None:
    row = rng.choice(tree["facts"])
    layouts = ["(" + "2," * 90 + "1):(" + "1," * 90 + "1)"] * n
    row["values"] = rng.choice([list(range(n)), ["v" * 300] * n, [True] * n, layouts])
    if row["values"] is layouts:
        row["type"] = "layout"


def requires(tree: Tree, n: int, rng: Random) -> None:
    condition = rng.choice(["0", "1", "hidden == 0", "tile_m + tile_n == 1", "1 / 0", "a" * 1000])
    tree["requires"] += [{"condition": f"{condition}", "why": "w" * rng.choice([1, 500])}] * n


def claims(tree: Tree, n: int, rng: Random) -> None:
    kind = rng.choice(["shared", "barrier", "mbarrier", "stack", "warps"])
    row = {"kind": kind, "amount": rng.choice(["1", "32", *BIG, "hidden"]), "by": "each_warp"}
    row["count"] = rng.choice(["1", "2", *BIG])
    row["scope"] = rng.choice(["role", "warp", "warpgroup"])
    if rng.random() < 0.4:
        row["fixed"] = rng.choice([1, 20, -5, 1 << 62, -(1 << 62)])
    tree["claims"] += [{"name": f"c{i}", **row} for i in range(n)]


def ports(tree: Tree, n: int, rng: Random) -> None:
    row = copied(rng.choice(tree["ports"]))
    if rng.random() < 0.3:
        row["shape"] = ["m"] * 3
    tree["ports"] += [{**row, "name": f"p{i}"} for i in range(n)]


def parts(tree: Tree, n: int, rng: Random) -> None:
    ring = port(tree, "shared")
    row = copied(ring["parts"][0]) if ring["parts"] else {"element": "bf16", "shape": ["1"]}
    if rng.random() < 0.5:
        row["shape"] = ["hidden", "tile_m"]
    ring["parts"] += [{**row, "name": f"q{i}"} for i in range(n)]


def sides(tree: Tree, n: int, rng: Random) -> None:
    """A tensor, box, part or tile of so many dimensions."""
    side = rng.choice(["1", "2", "64", "m", *BIG])
    row = rng.choice([*tree["ports"], *(q for p in tree["ports"] for q in p["parts"])])
    for key in rng.choice([["shape"], ["box"], ["shape", "box"]]):
        row[key] = [side] * n
    if row.get("covers") and rng.random() < 0.7:
        row["covers"] = [rng.choice(row["covers"])] * n


def copies(tree: Tree, n: int, rng: Random) -> None:
    for part in port(tree, "shared")["parts"]:
        part["copies"] = [{"port": "x", "count": rng.choice(["1", *BIG])}] * n


def stages(tree: Tree, n: int, rng: Random) -> None:
    ring = port(tree, "shared")
    ring["stages"] = rng.choice(BIG)
    for part in ring["parts"]:
        part["shape"] = [rng.choice(["1", *BIG]) for _ in part["shape"]]


def operations(tree: Tree, n: int, rng: Random) -> None:
    """What a step does with its ring: long, nested, named, counted high, balanced or not."""
    ring = port(tree, "shared")
    pair = ("acquire", "commit") if ring["direction"] == "out" else ("wait", "release")
    acts = [{"do": do, "on": ring["name"]} for do in pair]
    tree["entries"][0]["plays"] = rng.choice([_flat, _named, _nested, _mixed])(acts, n, rng)


def _flat(acts: list[Tree], n: int, rng: Random) -> list[Tree]:
    return rng.choice([acts * n, acts[:1] * n + acts[1:] * n, [copied(acts[0])] * n])


def _named(acts: list[Tree], n: int, rng: Random) -> list[Tree]:
    do = rng.choice(["maybe", "repeat"])
    body = rng.choice([acts, [], acts[:1]])
    return [{"do": do, "name": f"n{i}", "body": body} for i in range(n)]


def _nested(acts: list[Tree], n: int, rng: Random) -> list[Tree]:
    body = acts
    for depth in range(rng.choice([2, 7, 8, 40])):
        named = {"name": f"n{depth}"} if rng.random() < 0.3 else {"count": rng.choice(BIG)}
        body = [{"do": "repeat", **named, "body": [*body, *acts[: rng.randrange(3)]]}]
    return body * min(n, 300)


def _mixed(acts: list[Tree], n: int, rng: Random) -> list[Tree]:
    counts = [rng.choice(["2", "3", "63", "64", "65", *BIG]) for _ in range(min(n, 2000))]
    return [{"do": "repeat", "count": c, "body": rng.choice([acts, acts * 2])} for c in counts]


def entries(tree: Tree, n: int, rng: Random) -> None:
    row = copied(rng.choice(tree["entries"]))
    if rng.random() < 0.5:
        tree["entries"][0]["arguments"] = [rng.choice(row["arguments"] or ["tile"])] * n
    else:
        tree["entries"] += [{**row, "name": f"e{i}"} for i in range(n)]


def types(tree: Tree, n: int, rng: Random) -> None:
    rows = [{"name": f"f{i}", "offset": i, "size": 1} for i in range(n)]
    few = rng.choice([True, False])
    tree["types"][0]["fields"] += rows if few else []
    tree["types"] += [
        {"name": f"t{i}", "size": 1, "align": 1, "fields": []} for i in range(0 if few else n)
    ]


def promises(tree: Tree, n: int, rng: Random) -> None:
    row = tree["promises"][0] if tree["promises"] else {"port": tree["ports"][0]["name"]}
    row = {**row, "side": rng.choice(["needs", "promises"]), "why": ""}
    tree["promises"] += [{**row, "name": f"{'finite' * 50}{i}"} for i in range(n)]


def texts(tree: Tree, n: int, rng: Random) -> None:
    """One long text that many diagnostics would say."""
    key = rng.choice(["owner", "version", "target", "floating_point"])
    tree[key] = LONG
    tree["requires"] += [{"condition": "0", "why": LONG[: rng.choice([1, 500])]}] * min(n, 1_000)


def modes(tree: Tree, n: int, rng: Random) -> None:
    """A layout of many modes, or of huge or deep ones."""
    size = rng.choice([*BIG, "1", "tile_m"])
    deep = "(" * n + size + ")" * n
    text = rng.choice(
        [f"({','.join([size] * n)}):({','.join(['1'] * n)})", f"{deep}:{deep}", layout(rng)]
    )
    text = rng.choice([text, f"({text.split(':')[0]},1):({text.split(':')[1]},1)"])
    rows = [p for p in tree["ports"] if p["space"] != "global"]
    row = rng.choice([*rows, *(q for p in rows for q in p["parts"]), None])
    if row is None:
        tree["facts"].append(fact("big", "provides", values=[text], type="layout"))
    else:
        row["layout"] = text


def expressions(tree: Tree, n: int, rng: Random) -> None:
    """Many long expressions, no two the same."""
    forms = [
        f"1{'+1' * 490}",
        "min(1," * 120 + "1" + ")" * 120,
        f"({'tile_m<' * 120}1)",
        "1 or " * 190 + "1",
    ]
    form = rng.choice([*forms, expression(rng)])[:1000]
    rows = [f"{form}+{i}" if rng.random() < 0.9 else f"{form} or {i}" for i in range(min(n, 1_000))]
    if rng.random() < 0.5:
        tree["requires"] += [{"condition": text, "why": ""} for text in rows]
    else:
        tree["facts"] += [fact(f"d{i}", "derives", value=text) for i, text in enumerate(rows)]


def depth(tree: Tree, n: int, rng: Random) -> None:
    """JSON of so many levels."""
    inner = Raw('{"do":"maybe","name":"a","body":[' * n + "]}" * n)
    tree["entries"][0]["plays"] = rng.choice([[inner], Raw("[" * n + "]" * n), Raw('{"a":' * n)])


FAMILIES: tuple[Callable[[Tree, int, Random], None], ...] = (
    chain, dense, facts, halves, values, requires, claims, ports, parts, sides, copies, stages, operations,
    entries, types, promises, texts, modes, expressions, depth,
)  # fmt: skip


def notes(rng: Random) -> bytes:
    """An object of many sections or notes, one over the other."""
    good = note(CONTRACT, encoded(TREES["loader.o"]))
    n = rng.choice([1, 100, 5_000, 60_000])
    kind = rng.randrange(4)
    if kind == 0:
        return object_(*[note(rng.choice([2, 9]), b"")] * n, good)
    if kind == 1:
        big = (".note.pipelink", minimal_elf.NOTE, note(9, bytes(900_000)), 0)
        return minimal_elf.repeated(minimal_elf.elf([big, minimal_elf.CODE]), n)
    if kind == 2:
        return minimal_elf.repeated(
            minimal_elf.elf([("x" * 200_000, 1, b"", 0), minimal_elf.CODE]), n
        )
    return minimal_elf.repeated(object_(good), n, rng.choice([0, 64]))


def rings(rng: Random) -> dict[str, Tree]:
    """Both ends of a ring, which play the same, each in loops of its own."""
    trees = {name: copied(TREES[name]) for name in ("loader.o", "mainloop.o")}
    stages_ = rng.choice([1, 5, 97, 1009, 1 << 40])
    factors = rng.sample(["2", "3", "5", "89", "97", "1009", "100003"], rng.randrange(1, 5))
    blocks = rng.choice([1, 2, 40])
    for name, tree in trees.items():
        end = "out" if name == "loader.o" else "in"
        pair = ("acquire", "commit") if end == "out" else ("wait", "release")
        plays: list[Tree] = []
        for block in range(blocks):
            body = [{"do": do, "on": end} for do in pair] * rng.choice([1, 1, 2])
            for factor in rng.sample(factors, len(factors)):
                body = [{"do": "repeat", "count": factor, "body": body}]
            named = {"do": "maybe", "name": f"n{block}", "body": body}
            plays += rng.choice([body, body, [named]])
        tree["entries"][0]["plays"] = plays
    next(f for f in trees["loader.o"]["facts"] if f["name"] == "stages")["values"] = [stages_]
    return trees


def wide_case(rng: Random, number: int) -> Case:
    """The families in turn."""
    turn = number % (len(FAMILIES) + 2)
    if turn == len(FAMILIES):
        return Case("notes", "rich", {"loader.o": notes(rng)})
    if turn > len(FAMILIES):
        both = {name: encoded(tree) for name, tree in rings(rng).items()}
        return Case("rings", "rich", {name: whole(text) for name, text in both.items()}, both)
    name = rng.choice(list(TREES))
    tree = copied(TREES[name])
    if rng.random() < 0.1:
        rng.choice(FAMILIES)(tree, 20, rng)
    FAMILIES[turn](tree, rng.choice(COUNTS), rng)
    text = encoded(tree)
    return Case(FAMILIES[turn].__name__, "rich", {name: whole(text)}, {name: text})
