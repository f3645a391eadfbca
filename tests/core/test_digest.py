"""The executable key: equal for equal programs in any process, different for different programs."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core.programs import (
    SCALAR,
    VALUES,
    VECTOR,
    VOCABULARY,
    WEAK,
    Add,
    Call,
    Custom,
    Dims,
    Many,
    Mode,
    Program,
    Scale,
    Sin,
    Split,
    Switch,
    Window,
    chain,
    nested_calls,
    programs,
)
from tests.subprocesses import output_of
from tracefx.core import Literal, ShapedArray
from tracefx.core.jaxpr import Eqn, Jaxpr, Var, subjaxprs_postorder
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import renumber
from tracefx.serialization.digest import executable_key
from tracefx.source_location import SourceLocation
from tracefx.text.parser import parse_jaxpr

NAN: Final = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def program_with(prim: Primitive) -> Jaxpr:
    p = Program(VECTOR)
    return p.returns(*p(prim, *p.invars))


def key(jaxpr: Jaxpr) -> bytes:
    digest = executable_key(jaxpr)
    assert digest is not None
    assert len(digest) == 20
    return digest


# ------------------------------------------------------------------ programs


@given(programs())
def test_a_copy_has_the_same_key(jaxpr: Jaxpr) -> None:
    copy = parse_jaxpr(str(jaxpr), VOCABULARY)
    assert copy is not jaxpr
    assert key(copy) == key(jaxpr)


@given(programs(depth=1), programs(depth=1))
def test_different_programs_have_different_keys(one: Jaxpr, other: Jaxpr) -> None:
    if one == other:
        assert key(one) == key(other)
    elif "label=" not in str(one):  # labels are part of equality, but not of the key
        assert key(one) != key(other)


@given(VALUES, VALUES)
def test_keys_agree_with_equality_of_parameters(x: object, y: object) -> None:
    assert (Scale(x) == Scale(y)) == (key(program_with(Scale(x))) == key(program_with(Scale(y))))


DIFFERENT: Final[tuple[object, ...]] = (
    *(0, 0.0, -0.0, 0j, complex(0, -0.0), complex(-0.0, 0), False, None, "", b"", (), frozenset[int]()),
    *(1, 1.0, True, 1 + 0j, "1", b"1", (1,), (1.0,), (True,), ((1,),), frozenset({1})),
    *(math.nan, -math.nan, NAN, math.inf, -1, 255, 256, -128, -129, 2**63, 2**64, -(2**64), 2**4096),
    *((1, 2), (12,), ("ab", "c"), ("a", "bc"), ("abc",), ((), ()), ((),), (((),),), ("a\0", "b"), ("a", "\0b")),
    *(np.dtype("float32"), "float32", np.dtype("int32"), np.dtype("bfloat16"), np.dtype([("float0", np.void, 0)])),
    *(Mode.CLIP, Mode.FILL, "clip", 2, Window(1, 2), Dims((1,)), Dims((), (1,)), Dims((1,), (), Mode.CLIP)),
    *(VECTOR, SCALAR, WEAK, Literal(0.0, SCALAR), Literal(0.0, WEAK), Literal(-0.0, WEAK), Sin(), Scale(1), Scale(1.0)),
    *(chain(0), chain(1), (chain(0), chain(1)), (chain(1), chain(0))),
)


def test_different_parameters_have_different_keys() -> None:
    keys = [key(program_with(Scale(value))) for value in DIFFERENT]
    collisions = [
        (DIFFERENT[i], DIFFERENT[j]) for i, j in itertools.combinations(range(len(keys)), 2) if keys[i] == keys[j]
    ]
    assert collisions == []


def test_variable_numbers_locations_and_labels_are_not_in_the_key() -> None:
    jaxpr = chain(3)
    shifted = Jaxpr(
        (),
        tuple([Var(v.index + 10, v.aval) for v in jaxpr.invars]),
        tuple(
            [
                Eqn(e.prim, (Var(i + 10, VECTOR),), (Var(i + 11, VECTOR),), SourceLocation("file.py", i, "f"))
                for i, e in enumerate(jaxpr.eqns)
            ]
        ),
        (Var(13, VECTOR),),
    )
    assert key(shifted) == key(jaxpr) == key(renumber(shifted))
    assert key(program_with(Call("f", chain(2)))) == key(program_with(Call("g", chain(2))))
    assert key(program_with(Many(label="f"))) == key(program_with(Many(label="g")))


def test_any_semantic_change_changes_the_key() -> None:
    p = Program(VECTOR, VECTOR, consts=[SCALAR])
    x, y = p.invars
    (b,) = p(Add(), x, y)
    base = p.returns(b)
    weak = evolve(base, constvars=(Var(0, WEAK),))
    literal = Literal(2.0, SCALAR)
    others = [
        weak,
        base.closed(),
        evolve(base, outs=(b, b)),
        evolve(base, outs=(x,)),
        evolve(base, outs=()),
        evolve(base, outs=(literal,)),
        evolve(base, outs=(Literal(2.0, WEAK),)),
        evolve(base, outs=(Literal(2, ShapedArray((), np.dtype("int32"))),)),
        evolve(base, eqns=(Eqn(Add(), (y, x), (b,)),)),
        evolve(base, eqns=(Eqn(Add(), (x, x), (b,)),)),
        evolve(base, eqns=(Eqn(Add(), (x, literal), (b,)),)),
        evolve(base, eqns=(Eqn(Sin(), (x, y), (b,)),)),
        evolve(base, eqns=(Eqn(Add(), (x, y), (Var(3, SCALAR),)),)),
        evolve(base, eqns=base.eqns * 2),
        evolve(base, invars=(x, y, Var(9, VECTOR))),
        program_with(Call("f", chain(1))),
        program_with(Call("f", chain(2))),
        program_with(Switch((chain(1), chain(2)))),
        program_with(Switch((chain(2), chain(1)))),
        program_with(Split(2)),
    ]
    keys = {key(j) for j in (base, *others)}
    assert len(keys) == len(others) + 1


# ------------------------------------------------------------------ programs without a key


def test_callables_have_no_key() -> None:
    jaxpr = program_with(Custom(lambda: None))
    assert executable_key(jaxpr) is None
    assert executable_key(program_with(Call("f", jaxpr))) is None
    assert executable_key(program_with(Scale((1, len)))) is None


@pytest.mark.parametrize("value", [object(), np.float32(1), int, (1.5).__add__], ids=lambda v: type(v).__name__)
def test_objects_compared_by_identity_have_no_key(value: object) -> None:
    assert executable_key(program_with(Scale(value))) is None


def test_local_classes_have_no_key() -> None:
    class Local(Primitive):
        name = "local"

    assert executable_key(Jaxpr((), (), (Eqn(Local(), (), ()),), ())) is None


# ------------------------------------------------------------------ other processes, and large programs

SCRIPT: Final = """
import sys
from tests.core.programs import VOCABULARY
from tracefx.serialization.digest import executable_key
from tracefx.text.parser import parse_jaxpr
print(executable_key(parse_jaxpr(sys.stdin.read(), VOCABULARY)).hex())
"""


@pytest.mark.parametrize("seed", ["0", "1234"])
def test_the_key_is_the_same_in_another_process(seed: str) -> None:
    p = Program(VECTOR, consts=[SCALAR])
    body = chain(2)
    (x,) = p(Call("f", body), *p(Call("g", body), *p.invars))
    plain = [v for v in DIFFERENT if not (isinstance(v, (Dims, Window)) or type(v) is Mode)]
    (x,) = p(Scale((frozenset({"a", "b", "c"}), *plain)), x)
    (x,) = p(Many(dims=Dims((1,), mode=Mode.FILL), window=Window(0, 1), dtype=np.dtype("int8")), x)
    jaxpr = p.returns(x, Literal(math.nan, WEAK))
    assert output_of(SCRIPT, input=str(jaxpr), PYTHONHASHSEED=seed) == key(jaxpr).hex() + "\n"


@given(st.frozensets(st.text(max_size=3), max_size=5))
def test_key_is_independent_of_set_order(values: frozenset[str]) -> None:
    assert key(program_with(Scale(values))) == key(program_with(Scale(frozenset(sorted(values)))))


def test_long_program() -> None:
    assert key(chain(5000)) != key(chain(4999))


def test_shared_sub_jaxpr_is_visited_once() -> None:
    body = nested_calls(chain(1))
    assert key(body) == key(parse_jaxpr(str(body), VOCABULARY))


def test_sub_jaxprs_precede_their_programs() -> None:
    inner = chain(1)

    def calling(*bodies: Jaxpr) -> Jaxpr:
        p = Program(VECTOR)
        xs: list[Var] = list(p.invars)
        for body in bodies:
            xs = list(p(Call("f", body), *xs))
        return p.returns(*xs)

    middle = calling(inner)
    for outer in (calling(inner, middle), calling(middle, inner)):
        bodies = subjaxprs_postorder(outer)
        assert [id(each) for each in bodies] == [id(inner), id(middle)]
