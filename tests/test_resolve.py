"""Facts: who provides what to whom; expressions and layouts over them."""

import pytest
from contracts import add, change, contract, drop

from pipelink import abi, expression, layout
from pipelink.abi import Fact
from pipelink.diagnostics import Place
from pipelink.resolve import resolve


def test_imports_derived_and_chosen_facts_get_values(toy):
    facts, _ = resolve(toy.kernel())
    assert facts["load"] == {
        "stages": 4,
        "tile_k": 64,
        "hidden": 4096,
        "tile_m": 128,
        "tile_n": 256,
        "k_steps": 64,
        "column_tiles": 16,
    }


def test_the_listing_names_the_provider_of_each_fact(toy):
    _, listing = resolve(toy.kernel())
    found = {(f.instance, f.name): f.provider for f in listing}
    assert found["mma", "stages"] == "load"
    assert found["load", "hidden"] == "kernel"
    assert found["load", "k_steps"] == "load"


def test_the_manifest_chooses_among_the_values_of_the_contract(toy):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 2 }')
    assert resolve(toy.kernel())[0]["mma"]["stages"] == 2


def test_a_value_outside_of_the_set_is_refused(toy):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 9 }')
    (fault,) = toy.faults()
    assert fault.message == "'stages' = 9, and instance 'load' (loader of data) supports 2, 3, 4, 5"
    assert fault.help == "the nearest supported value is 5"


def test_an_imported_value_outside_of_the_set_is_refused(toy):
    toy.contracts["loader"] = change(toy.contracts["loader"], "facts", "tile_k", values=(32,))
    assert toy.messages() == [
        "PL013: 'tile_k' = 32, and instance 'mma' (mainloop of matrix) supports 64"
    ]


def test_a_fact_that_is_not_left_to_the_manifest_is_refused(toy):
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { tile_k = 64 }')
    (fault,) = toy.faults()
    assert (
        fault.message
        == "the manifest sets 'tile_k' of instance 'load', which loader does not leave to it"
    )
    assert fault.help == "facts to set: stages"


def test_a_kernel_fact_that_nobody_imports_is_refused(toy):
    toy.edit("hidden = 4096", "hidden = 4096\nhiden = 4096")
    (fault,) = toy.faults()
    assert fault.message == "[facts] sets 'hiden', which nobody imports"
    assert fault.help == "did you mean 'hidden'?"


def test_a_fact_of_the_kernel_and_of_an_instance_has_two_owners(toy):
    toy.edit("hidden = 4096", "hidden = 4096\ntile_k = 64")
    assert toy.messages() == ["PL012: fact 'tile_k' is fixed by the kernel and by instance 'load'"]


def test_an_import_that_nobody_provides_is_refused(toy):
    toy.contracts["loader"] = drop(toy.contracts["loader"], "facts", "k_steps")
    assert toy.messages() == [
        "PL011: nobody provides 'k_steps', which mainloop of matrix (instance 'mma') imports"
    ]


def two_providers(toy):
    """'act' imports 'depth', which 'load' and 'mma' provide; 'mma' is nearer."""
    for name, kind, values in (
        ("loader", "provides", (1,)),
        ("mainloop", "provides", (2,)),
        ("epilogue", "imports", ()),
    ):
        toy.contracts[name] = add(toy.contracts[name], "facts", Fact("depth", kind, values))


def test_the_nearest_provider_wins(toy):
    two_providers(toy)
    assert resolve(toy.kernel())[0]["act"]["depth"] == 2


def test_the_manifest_wires_an_import_to_another_provider(toy):
    two_providers(toy)
    toy.edit('object = "epilogue.o"', 'object = "epilogue.o"\nimports = { depth = "load" }')
    assert resolve(toy.kernel())[0]["act"]["depth"] == 1


def test_wiring_to_an_instance_that_does_not_provide_is_refused(toy):
    toy.edit('object = "epilogue.o"', 'object = "epilogue.o"\nimports = { tile_n = "load" }')
    assert toy.messages() == [
        "PL011: instance 'act' takes 'tile_n' from 'load', which does not provide it"
    ]


def test_wiring_what_is_not_imported_is_refused(toy):
    toy.edit('object = "epilogue.o"', 'object = "epilogue.o"\nimports = { stages = "load" }')
    assert toy.messages() == ["PL016: instance 'act' does not import 'stages'"]


def test_two_providers_at_one_distance_are_refused(toy):
    for name, kind, values in (
        ("loader", "provides", (1,)),
        ("mainloop", "imports", ()),
        ("epilogue", "provides", (2,)),
    ):
        toy.contracts[name] = add(toy.contracts[name], "facts", Fact("depth", kind, values))
    (fault,) = toy.faults()
    assert fault.message == (
        "'depth', which mainloop of matrix (instance 'mma') imports, is provided by 'load' and 'act'"
    )
    assert fault.help == 'name one: [instances.mma] imports = { depth = "load" }'


def test_facts_that_need_each_other_are_refused(toy):
    toy.contracts["loader"] = add(
        toy.contracts["loader"],
        "facts",
        Fact("a", "derives", value="b + 1"),
        Fact("b", "derives", value="a + 1"),
    )
    assert toy.messages() == ["PL014: these facts need each other: load.a, load.b"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "depth * 2",
            "PL016: fact 'k_steps' of instance 'load' reads 'depth', which its contract does not name",
        ),
        (
            "m // 2",
            (
                "PL015: fact 'k_steps' of instance 'load' reads extent 'm', which has no value before "
                "the launch"
            ),
        ),
        (
            "hidden // (tile_k - 64)",
            "PL015: fact 'k_steps': 'hidden // (tile_k - 64)' divides by zero",
        ),
        ("hidden //", "PL015: fact 'k_steps': 'hidden //' is no expression"),
    ],
)
def test_a_derived_fact_without_a_value_is_refused(toy, value, message):
    toy.contracts["loader"] = change(toy.contracts["loader"], "facts", "k_steps", value=value)
    assert toy.messages() == [message]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("a", 6),
        ("-a // 4", -1),
        ("-a % 4", -2),
        ("a // -4", -1),
        ("2 and 3", 1),
        ("0 or 0", 0),
        ("not a", 0),
        ("a if b else 1 // 0", 6),
        ("0 and 1 // 0", 0),
        ("min(a, b) + max(a, b)", 10),
        ("mode == 'fast'", 1),
        ("mode != 'fast'", 0),
        ("True", 1),
        ("a % 4 == 2", 1),
        ("a < b", 0),
        ("2 <= b and b <= 4", 1),
        ("a == 1 or b == 4", 1),
        ("(a + b) * 2 - 1", 19),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_an_expression_has_a_value(text, value):
    assert expression.evaluate(text, {"a": 6, "b": 4, "mode": "fast"}) == value


BEYOND = (
    "is more than integers, texts, facts, + - * // %, comparisons, and, or, not, if else, "
    "min and max of two"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2 ** 9", f"'2 ** 9' {BEYOND}"),
        ("1 << 9999", f"'1 << 9999' {BEYOND}"),
        ("a / 2", f"'a / 2' {BEYOND}"),
        ("a.real", f"'a.real' {BEYOND}"),
        ("a.__class__", f"'a.__class__' {BEYOND}"),
        ("print(1)", f"'print(1)' {BEYOND}"),
        ("'a' * 999999999", "''a' * 999999999' can't be computed: the text 'a' is no number"),
        ("'a' == 1", "''a' == 1' can't be computed: it compares a text with a number"),
        ("1 if 'a' else 2", "'1 if 'a' else 2' can't be computed: the text 'a' is no number"),
        ("a and 'a'", "'a and 'a'' can't be computed: the text 'a' is no number"),
        ("min", f"'min' {BEYOND}"),
        ("min(1)", f"'min(1)' {BEYOND}"),
        ("min(1, 2, key=3)", f"'min(1, 2, key=3)' {BEYOND}"),
        ("min(*a, 1)", f"'min(*a, 1)' {BEYOND}"),
        (
            "9223372036854775807 + 1",
            "'9223372036854775807 + 1' can't be computed: it passes 64 bits",
        ),
        ("[1] * 999999999", f"'[1] * 999999999' {BEYOND}"),
        ("1.5", f"'1.5' {BEYOND}"),
        ("lambda: 1", f"'lambda: 1' {BEYOND}"),
        ("f'{a}'", f"'f'{{a}}'' {BEYOND}"),
        ("a[0]", f"'a[0]' {BEYOND}"),
        ("", "'' is no expression"),
        ("²", "'²' is no expression"),
        ("a\0", "'a\0' is no expression"),
        ("1and 2", "'1and 2' is no expression"),
        ("a; a", "'a; a' is no expression"),
        ("b", "'b' reads 'b', which has no value"),
        ("a % 0", "'a % 0' divides by zero"),
        ("9223372036854775808", "'9223372036854775808' is no 64-bit integer"),
        ("9" * 1000, f"'{'9' * 77}...' is no 64-bit integer"),
        ("(" * 1000, f"'{'(' * 77}...' is no expression"),
        ("-" * 1000 + "1", f"'{'-' * 77}...' is nested too deeply"),
        ("(" * 5000, "an expression of 5000 characters, 1024 at most"),
    ],
)
def test_an_expression_that_does_not_compute_is_refused(text, why):
    with pytest.raises(expression.ExpressionError) as caught:
        expression.evaluate(text, {"a": 6})
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("(8,4):(4,1)", "(8,4):(4,1)"),
        ("((4,8),(2,n/8)):((2,16),(1,8*n))", "((4,8),(2,32)):((2,16),(1,2048))"),
        ("(n // 2, 4):(1 , n)", "(128,4):(1,256)"),
        ("( (2,2) , n ):((1,2),4)", "((2,2),256):((1,2),4)"),
        ("", ""),
    ],
)
def test_a_layout_gets_its_numbers(text, result):
    assert layout.concrete(text, {"n": 256}) == result


def test_a_layout_over_an_unknown_fact_is_refused():
    with pytest.raises(expression.ExpressionError, match=r"^'k' reads 'k', which has no value$"):
        layout.concrete("(8,k):(k,1)", {})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("((32,8),1):((1,32),7)", "(256,1):(1,0)"),
        ("((4,8,4),(2,2)):((128,1,16),(64,8))", "((4,(8,4)),(2,2)):((128,(1,16)),(64,8))"),
        ("(n,2):(1,n)", "(256,2):(1,256)"),
    ],
)
def test_layouts_of_one_map_are_the_same(left, right):
    assert layout.parse(left, {"n": 256}) == layout.parse(right, {"n": 256})


@pytest.mark.parametrize("other", ["(256,2):(2,1)", "(256,2):(1,512)", "(128,2):(1,256)"])
def test_layouts_of_other_maps_differ(other):
    assert layout.parse("(256,2):(1,256)", {}) != layout.parse(other, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(256,1:(1,0)", "'(256,1:(1,0)' is no layout"),
        ("(256,1)", "'(256,1)' is not of the form shape:stride"),
        ("256:1", "'256:1' has not two modes, thread and value"),
        ("(256,(2,2)):(1,256)", "shape and stride of '(256,(2,2)):(1,256)' are nested differently"),
        ("(256,0):(1,1)", "'(256,0):(1,1)' has a mode of size 0"),
    ],
)
def test_what_is_no_layout_is_refused_in_words(text, why):
    with pytest.raises(expression.ExpressionError) as error:
        layout.fragment(text, {})
    assert str(error.value) == why


def test_a_row_major_tile_has_the_layout_that_cute_writes():
    assert layout.row_major([64, 8]) == layout.parse("(64,8):(8,1)", {})
    assert str(layout.row_major([64, 8])) == "(64,8):(8,1)"


# Facts of every type


TYPED = (
    Fact("mode", "chooses", ("fast", "exact"), type="text"),
    Fact("causal", "provides", (True,), type="bool"),
    Fact("kind", "provides", ("bf16",), type="element"),
    Fact("order", "provides", ("(8,4):(4,1)",), type="layout"),
)


def typed(toy, *imports):
    toy.contracts["loader"] = add(toy.contracts["loader"], "facts", *TYPED)
    toy.contracts["mainloop"] = add(toy.contracts["mainloop"], "facts", *imports)


def test_facts_of_every_type_reach_their_consumers(toy):
    typed(
        toy,
        Fact("mode", "imports", ("exact", "fast"), type="text"),
        Fact("causal", "imports", type="bool"),
        Fact("kind", "imports", ("f16", "bf16"), type="element"),
        Fact("order", "imports", type="layout"),
        Fact("exact", "derives", value="mode == 'exact' and causal"),
    )
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { mode = "exact" }')
    facts = resolve(toy.kernel())[0]["mma"]
    assert (facts["mode"], facts["causal"], facts["kind"]) == ("exact", True, "bf16")
    assert (facts["order"], facts["exact"]) == ("(8,4):(4,1)", True)


def test_a_text_is_bound_by_its_hash_and_a_truth_by_a_bit(toy):
    typed(toy, Fact("mode", "imports", type="text"), Fact("causal", "imports", type="bool"))
    bindings = toy.plan().instances[1].bindings
    assert bindings["mode"] == int.from_bytes(
        abi.fnv1a(b"fast").to_bytes(8, "little"), "little", signed=True
    )
    assert bindings["causal"] == 1


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        (
            Fact("mode", "imports"),
            (
                "PL019: 'mode' is a text by instance 'load', and instance 'mma' (mainloop of matrix) "
                "imports an int"
            ),
        ),
        (
            Fact("causal", "imports"),
            (
                "PL019: 'causal' is a bool by instance 'load', and instance 'mma' (mainloop of matrix) "
                "imports an int"
            ),
        ),
        (
            Fact("kind", "imports", type="layout"),
            (
                "PL019: 'kind' is an element by instance 'load', and instance 'mma' "
                "(mainloop of matrix) imports a layout"
            ),
        ),
        (
            Fact("mode", "imports", ("slow",), type="text"),
            "PL013: 'mode' = \"fast\", and instance 'mma' (mainloop of matrix) supports \"slow\"",
        ),
    ],
)
def test_a_fact_of_another_type_or_set_is_refused(toy, fact, message):
    typed(toy, fact)
    assert toy.messages() == [message]


def test_one_is_not_true(toy):
    """A choice of truths takes no integer from the manifest."""
    toy.contracts["loader"] = add(
        toy.contracts["loader"], "facts", Fact("causal", "chooses", (False, True), type="bool")
    )
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { causal = 1 }')
    assert toy.messages() == [
        "PL013: 'causal' = 1, and instance 'load' (loader of data) supports false, true"
    ]


def test_a_default_is_taken_only_where_nobody_provides(toy):
    for name in ("mainloop", "epilogue"):
        toy.contracts[name] = add(
            toy.contracts[name], "facts", Fact("raster", "imports", default=16)
        )
    assert resolve(toy.kernel())[0]["mma"]["raster"] == 16
    toy.contracts["loader"] = add(
        toy.contracts["loader"], "facts", Fact("raster", "provides", (8,))
    )
    facts, listing = resolve(toy.kernel())
    assert (facts["mma"]["raster"], facts["act"]["raster"]) == (8, 8)
    found = {(f.instance, f.name): f for f in listing}
    assert found["act", "raster"].path == ("load", "mma", "act")
    assert found["load", "raster"].consumers == ("mma", "act")


def test_an_import_of_almost_the_provided_name_is_told_so(toy):
    toy.contracts["loader"] = change(toy.contracts["loader"], "facts", "stages", name="stage")
    toy.contracts["loader"] = change(toy.contracts["loader"], "ports", "out", stages="stage")
    (fault,) = toy.faults()
    assert fault.message == (
        "nobody provides 'stages', which mainloop of matrix (instance 'mma') imports"
    )
    assert fault.secondary == (Place("load", "facts", 0, "provides 'stage'"),)
    assert fault.help == (
        "did you mean 'stage'? Otherwise add an instance that provides 'stages', "
        "or set it in [facts] of toy.kernel.toml"
    )


def test_a_fact_of_an_instance_that_has_nothing_to_do_with_it_is_refused(toy):
    """Neither a channel nor a role leads there: that it has a fact of this name is chance."""
    toy.contracts["other"] = contract("other", "somebody", facts=(Fact("depth", "provides", (2,)),))
    toy.contracts["loader"] = add(toy.contracts["loader"], "facts", Fact("depth", "imports"))
    toy.edit(
        '[[roles]]\nname = "producer"',
        '[instances.far]\nobject = "other.o"\n\n[[roles]]\nname = "producer"',
    )
    (fault,) = toy.faults()
    assert fault.message == (
        "'depth', which loader of data (instance 'load') imports, is provided by 'far' only, "
        "which is not connected with it"
    )
    assert fault.help == 'if that is meant: [instances.load] imports = { depth = "far" }'
