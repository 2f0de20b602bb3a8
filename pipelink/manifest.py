"""TOML to manifest; docs/manifest.md describes the keys."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelink.abi import IDENTIFIER, Value
from pipelink.arch import ARCHES
from pipelink.diagnostics import Diagnostic, FilePlace, checkpoint
from pipelink.extends import Table, read_table
from pipelink.launch import LARGEST_EXTENT
from pipelink.model import ChannelSpec, InstanceSpec, Manifest, PhaseSpec, RoleSpec

_TOP = (
    "extends",
    "kernel",
    "target",
    "schedule",
    "blocks_per_sm",
    "facts",
    "extents",
    "instances",
    "roles",
    "phases",
    "channels",
    "free",
    "parameters",
)
_EXTENT = ("least", "most")
_INSTANCE = ("object", "facts", "imports", "like")
_ROLE = ("name", "steps")
_PHASE = ("name", "schedule", "roles")
_CHANNEL = ("from", "to", "stages", "rounding")
_FREE = ("facts", "most")
ROUNDINGS = ("nearest", "toward_zero")
MOST_COUNT = 32
# The phase of a manifest that has no [[phases]].
ONLY_PHASE = "tiles"
# Names of parameters that a call could not be told apart from its own.
_TAKEN = {
    "stream": "a call passes its stream by this name",
    "self": "a method has it for its object",
}


# Words of CUDA C++ that are identifiers by their letters; and what every program has.
_WORDS = """
main auto bool break case catch char class concept const continue default delete do double else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
nullptr operator private protected public register requires return short signed sizeof static struct
switch template this throw true try typedef typeid typename union unsigned using virtual void volatile
while and or not xor
"""


class _Reader:
    """Collects every fault of one manifest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[Diagnostic] = []

    def fault(
        self,
        message: str,
        key: str = "",
        help_: str = "",
        code: str = "PL005",
        files: Iterable[Path] = (),
    ) -> None:
        """A fault of `key`, in the manifest itself where no other files are named."""
        first, *others = [FilePlace(str(f), key) for f in dict.fromkeys(files or (self.path,))]
        self.faults.append(Diagnostic(code, message, first, tuple(others), help=help_))

    def keys(self, table: Table, known: tuple[str, ...], where: str) -> None:
        for key in table:
            if key not in known:
                help_ = _nearest(key, known, "known keys")
                message = f"unknown key '{key}' in {where}"
                self.fault(message, key, help_, "PL006", (table.files[key],))

    def get(self, table: Table, key: str, kind: type, where: str) -> Any:
        value = table.get(key)
        if value is None:
            self.fault(f"{where} has no '{key}'", key)
            return _empty(kind)
        if not isinstance(value, kind):
            files = (table.files[key],)
            self.fault(f"'{key}' of {where} is no {_KINDS[kind]}", key, files=files)
            return _empty(kind)
        return value

    def tables(self, rows: Any, where: str) -> list[Table]:
        found = rows if isinstance(rows, list) else [rows]
        for row in found:
            if not isinstance(row, Table):
                self.fault(f"{row!r} in {where} is no table")
        return [row for row in found if isinstance(row, Table)]

    def pair(self, text: Any, where: str) -> tuple[str, str]:
        parts = tuple(text.split(".")) if isinstance(text, str) else ()
        if len(parts) != 2 or not all(map(IDENTIFIER.match, parts)):
            self.fault(f"{text!r} in {where} is not of the form 'instance.name'")
            return ("", "")
        return (parts[0], parts[1])


_KINDS: dict[type, str] = {str: "text", Table: "table", list: "array"}


def _empty(kind: type) -> Any:
    return Table({}, {}) if kind is Table else kind()


def _nearest(name: str, known: Iterable[str], what: str) -> str:
    """Help for a name that is none of the known ones."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean '{close[0]}'?" if close else f"{what}: {', '.join(names)}"


def known_targets(target: str) -> str:
    """Help for a target that is none: they are few, so all are listed."""
    listed = f"known targets: {', '.join(ARCHES)}"
    close = difflib.get_close_matches(target, ARCHES, 1)
    return f"did you mean '{close[0]}'? {listed}" if close else listed


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file; all its faults at once. One that it extends is held to be whole too,
    so that a fault is reported in the file that has it."""
    table, files = read_table(path)
    base = read_manifest(files[1]) if len(files) > 1 else None
    reader = _Reader(path)
    reader.keys(table, _TOP, "the manifest")
    instances = reader.get(table, "instances", Table, "the manifest")
    free = _table_of(reader, table, "free", _FREE)
    if table.get("instances") == {}:
        reader.fault("[instances] is empty", "instances", "a kernel is made of instances")
    manifest = Manifest(
        path=path.as_posix(),
        kernel=_name(reader, table, base),
        target=_target(reader, reader.get(table, "target", str, "the manifest")),
        files=tuple(f.as_posix() for f in files),
        facts=_facts(reader, table.get("facts", {}), "[facts]"),
        extents=_extents(reader, table.get("extents", Table({}, {}))),
        instances=tuple(_instances(reader, instances, base)),
        phases=tuple(_phases(reader, table)),
        channels=tuple(_channels(reader, table.get("channels", []))),
        blocks_per_sm=_count(reader, table, "blocks_per_sm", "the manifest"),
        free=_facts_named(reader, _texts(reader, free, "facts", "[free]")),
        most=_texts(reader, free, "most", "[free]"),
        parameters=_parameters(reader, reader.get(table, "parameters", Table, "the manifest")),
    )
    _references(reader, manifest, tuple(instances))
    checkpoint(reader.faults)
    return manifest


def _name(reader: _Reader, table: Table, base: Manifest | None) -> str:
    """The kernel's name, which a manifest that extends another one does not take from there."""
    if base is not None and table.files["kernel"] != reader.path:
        help_ = f"give it a name of its own, '{base.kernel}' is the kernel of {base.path}"
        reader.fault("a manifest that extends another one has no 'kernel'", "kernel", help_)
    name = _identifier(reader, reader.get(table, "kernel", str, "the manifest"), "kernel")
    if name in _WORDS.split() or name.startswith("pipelink"):
        reader.fault(f"'{name}' can't be the name of a function of the glue", "kernel", "rename it")
    return name


def _identifier(reader: _Reader, name: str, key: str) -> str:
    if name and not IDENTIFIER.match(name):
        reader.fault(f"'{name}' is no name of a {key}: letters, digits and '_' only", key)
    return name


def _target(reader: _Reader, target: str) -> str:
    if target and target not in ARCHES:
        reader.fault(f"unknown target '{target}'", "target", known_targets(target), "PL007")
    return target


def _facts(reader: _Reader, table: Any, where: str) -> dict[str, Value]:
    if not isinstance(table, dict):
        reader.fault(f"{where} is no table")
        return {}
    for name, value in table.items():
        if not isinstance(value, bool | int | str):
            reader.fault(f"'{name}' in {where} is no integer, truth or text", name)
        elif isinstance(value, int) and abs(value) >= 1 << 63:
            reader.fault(f"'{name}' in {where} has more than 64 bits", name)
    return {name: value for name, value in table.items() if isinstance(value, bool | int | str)}


def _extents(reader: _Reader, table: Any) -> dict[str, tuple[int, int]]:
    """The bounds of each extent that has any: (least, most)."""
    if not isinstance(table, Table):
        reader.fault("[extents] is no table", "extents")
        return {}
    bounds = {}
    for name, body in table.items():
        where = f"'{name}' in [extents]"
        if not isinstance(body, Table):
            reader.fault(f"{where} is no table", name)
            continue
        reader.keys(body, _EXTENT, where)
        least, most = _bound(reader, body, "least", where), _bound(reader, body, "most", where)
        if least is None or most is None:
            continue
        if not 1 <= least <= most <= LARGEST_EXTENT:
            # One that the manifest sets may not fit one that it inherits: its own file first.
            message = (
                f"{where} is {least} to {most}, bounds are 1 <= least <= most <= {LARGEST_EXTENT}"
            )
            files = sorted(body.files.values(), key=lambda file: file != reader.path)
            reader.fault(message, name, files=files)
            continue
        bounds[name] = (least, most)
    return bounds


def _bound(reader: _Reader, body: Table, key: str, where: str) -> int | None:
    value = body.get(key, {"least": 1, "most": LARGEST_EXTENT}[key])
    if type(value) is int:
        return value
    reader.fault(f"'{key}' of {where} is no integer", key, files=(body.files[key],))
    return None


def _instances(reader: _Reader, table: Table, base: Manifest | None) -> Iterable[InstanceSpec]:
    inherited = [i.name for i in base.instances] if base else []
    for name, body in table.items():
        where = f"[instances.{name}]"
        _identifier(reader, name, "instance")
        if name == "kernel":
            reader.fault(
                "an instance can't be named 'kernel', which the kernel's facts go by", name
            )
        if not isinstance(body, Table):
            reader.fault(f"{where} is no table", name)
            continue
        reader.keys(body, _INSTANCE, where)
        if "like" in body:
            yield from _alike(reader, table, name, body)
            continue
        if base and name not in inherited and "object" not in body:
            message = f"{where} has no 'object', and {base.path} has no instance '{name}'"
            reader.fault(message, name, _nearest(name, inherited, "its instances"))
            continue
        yield InstanceSpec(
            name,
            reader.get(body, "object", str, where),
            _facts(reader, body.get("facts", {}), f"facts of {where}"),
            _imports(reader, body.get("imports", {}), where),
        )


def _alike(reader: _Reader, table: Table, name: str, body: Table) -> Iterable[InstanceSpec]:
    """A second instance of an object: its facts stand once, with the first."""
    where, like = f"[instances.{name}]", reader.get(body, "like", str, f"[instances.{name}]")
    for key in (k for k in ("object", "facts") if k in body):
        help_ = f"say it in [instances.{like}], or leave out 'like'"
        reader.fault(
            f"{where} has '{key}', and is like '{like}'", key, help_, files=(body.files[key],)
        )
    if not isinstance(body["like"], str):
        return  # that has been said
    others = [n for n, b in table.items() if isinstance(b, Table) and "like" not in b]
    if like not in others:
        help_ = _nearest(like, others, "instances")
        reader.fault(
            f"{where} is like '{like}', which is no instance with an object", "like", help_
        )
        return
    first = table[like]
    yield InstanceSpec(
        name,
        reader.get(first, "object", str, f"[instances.{like}]"),
        _facts(reader, first.get("facts", {}), f"facts of [instances.{like}]"),
        _imports(reader, body.get("imports", {}), where),
        like,
    )


def _imports(reader: _Reader, table: Any, where: str) -> dict[str, str]:
    if not isinstance(table, dict):
        reader.fault(f"imports of {where} is no table")
        return {}
    for name, value in table.items():
        if not isinstance(value, str):
            reader.fault(f"'{name}' in imports of {where} is no name of an instance", name)
    return {name: value for name, value in table.items() if isinstance(value, str)}


def _phases(reader: _Reader, table: Table) -> Iterable[PhaseSpec]:
    """A manifest has [[phases]], or [[roles]] and a schedule, which are its only phase."""
    if "phases" not in table:
        roles = tuple(_roles(reader, reader.get(table, "roles", list, "the manifest")))
        schedule = reader.pair(reader.get(table, "schedule", str, "the manifest"), "schedule")
        yield PhaseSpec(ONLY_PHASE, roles, schedule)
        return
    for key in ("roles", "schedule"):
        if key in table:
            help_ = f"write each phase's own {key} in [[phases]]"
            files = (table.files[key],)
            reader.fault(
                f"a manifest with [[phases]] has no '{key}' beside", key, help_, files=files
            )
    seen = set()
    for row in reader.tables(reader.get(table, "phases", list, "the manifest"), "[[phases]]"):
        reader.keys(row, _PHASE, "[[phases]]")
        name = _identifier(reader, reader.get(row, "name", str, "[[phases]]"), "phase")
        if name in seen:
            reader.fault(f"phase '{name}' stands twice", "phases")
        seen.add(name)
        where = f"phase '{name}'"
        own = reader.pair(row["schedule"], where) if "schedule" in row else None
        roles = tuple(_roles_of(reader, reader.get(row, "roles", Table, where), where))
        yield PhaseSpec(name, roles, own)


def _roles_of(reader: _Reader, table: Table, where: str) -> Iterable[RoleSpec]:
    """The roles of a phase: a table of names to steps."""
    if not table:
        reader.fault(f"{where} has no role", "phases")
    for name, steps in table.items():
        _identifier(reader, name, "role")
        if not isinstance(steps, list) or not steps:
            reader.fault(f"role '{name}' of {where} is no array of steps", name)
            continue
        yield RoleSpec(name, tuple(reader.pair(step, f"role '{name}'") for step in steps))


def _roles(reader: _Reader, rows: list[Any]) -> Iterable[RoleSpec]:
    seen = set()
    for row in reader.tables(rows, "[[roles]]"):
        reader.keys(row, _ROLE, "[[roles]]")
        name = _identifier(reader, reader.get(row, "name", str, "[[roles]]"), "role")
        if name in seen:
            reader.fault(f"role '{name}' stands twice", "roles")
        seen.add(name)
        steps = reader.get(row, "steps", list, f"role '{name}'")
        if row.get("steps") == []:
            reader.fault(f"role '{name}' has no step", "steps")
        yield RoleSpec(name, tuple(reader.pair(step, f"role '{name}'") for step in steps))


def _channels(reader: _Reader, rows: Any) -> Iterable[ChannelSpec]:
    """`to` may name several ports, which all take what the one hands over."""
    for row in reader.tables(rows, "[[channels]]"):
        reader.keys(row, _CHANNEL, "[[channels]]")
        source = reader.get(row, "from", str, "[[channels]]")
        several = isinstance(row.get("to"), list)
        targets = row["to"] if several else [reader.get(row, "to", str, "[[channels]]")]
        stages = _count(reader, row, "stages", "[[channels]]")
        rounding = row.get("rounding", "")
        if rounding not in ("", *ROUNDINGS):
            help_ = f"roundings: {', '.join(ROUNDINGS)}"
            reader.fault(f"unknown rounding {rounding!r} in [[channels]]", "rounding", help_)
        for end in (source, *targets):
            reader.pair(end, "[[channels]]")
        for target in targets:
            yield ChannelSpec(source, str(target), stages, str(rounding))


def _count(reader: _Reader, table: Table, key: str, where: str) -> int:
    """A whole number from 1 on; 1 if it is left out."""
    value = table.get(key, 1)
    if type(value) is int and 1 <= value <= MOST_COUNT:
        return value
    files = (table.files[key],)
    reader.fault(f"'{key}' of {where} is no number from 1 to {MOST_COUNT}", key, files=files)
    return 1


def _table_of(reader: _Reader, table: Table, key: str, known: tuple[str, ...]) -> Table:
    found = table.get(key, Table({}, {}))
    if not isinstance(found, Table):
        reader.fault(f"[{key}] is no table", key)
        return Table({}, {})
    reader.keys(found, known, f"[{key}]")
    return found


def _texts(reader: _Reader, table: Table, key: str, where: str) -> tuple[str, ...]:
    rows = table.get(key, [])
    if isinstance(rows, list) and all(isinstance(row, str) for row in rows):
        return tuple(rows)
    reader.fault(f"'{key}' of {where} is no array of texts", key, files=(table.files[key],))
    return ()


def _facts_named(reader: _Reader, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if all(reader.pair(name, "'facts' of [free]")))


def _parameters(reader: _Reader, table: Table) -> dict[str, tuple[str, ...]]:
    result = {}
    for name, ports in table.items():
        _identifier(reader, name, "parameter")
        if name in _TAKEN or keyword.iskeyword(name):
            help_ = f"rename it: {_TAKEN.get(name, 'Python has the word for itself')}"
            reader.fault(f"parameter '{name}' can't be passed by keyword", name, help_)
        rows = [ports] if isinstance(ports, str) else ports
        if not isinstance(rows, list):
            reader.fault(f"parameter '{name}' is no port and no array of ports", name)
            continue
        if not rows:
            reader.fault(f"parameter '{name}' names no port", name)
        for port in rows:
            reader.pair(port, f"parameter '{name}'")
        result[name] = tuple(map(str, rows))
    return result


def _references(reader: _Reader, manifest: Manifest, known: tuple[str, ...]) -> None:
    """Every instance that the manifest speaks of is one of its instances."""
    if not known:  # which is a fault of its own, told once
        return
    uses = [(instance, f"role '{r.name}'") for r in manifest.roles for instance, _ in r.steps]
    uses += [
        (end.split(".")[0], "[[channels]]") for channel in manifest.channels for end in channel.ends
    ]
    uses += [
        (p.split(".")[0], f"parameter '{n}'")
        for n, ports in manifest.parameters.items()
        for p in ports
    ]
    uses += [(instance, "schedule") for instance, _ in manifest.schedules]
    uses += [(fact.split(".")[0], "[free]") for fact in manifest.free]
    for name, where in uses:
        if name and name not in known:
            help_ = _nearest(name, sorted(known), "instances")
            reader.fault(f"{where} names instance '{name}', which does not exist", name, help_)
