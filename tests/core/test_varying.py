"""Varying mesh axes (vma) in types: comparison, printing, parsing, serialization, inference."""

from __future__ import annotations

import pickle
import re
from typing import Final

import numpy as np
import pytest

import tracefx as fx
from tracefx import lax
from tracefx.control.call import Call
from tracefx.core import ShapedArray, accepts
from tracefx.core.avals import join_vma, without_vma
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.errors import JaxprTypeError, ParseError
from tracefx.interpreters.stage import stage
from tracefx.ops.collectives.collective import PSum
from tracefx.ops.collectives.pvary import PVary
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.transcendental import Sin
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import erase_vma
from tracefx.passes.varying import TYPES, infer_types
from tracefx.programs import deserialize, parse_jaxpr, serialize

F32: Final = np.dtype("float32")
REPLICATED: Final = ShapedArray((3,), F32)
X: Final = ShapedArray((3,), F32, vma=frozenset(["x"]))
XY: Final = ShapedArray((3,), F32, vma=frozenset(["x", "y"]))
PROGRAM: Final = """
{ lambda ; a:f32[3]{V:x} b:f32[3]. let
    c:f32[3]{V:x} = mul a b
    d:f32[3]{V:(x,y)} = pvary[axes=('y',)] c
    e:f32[3]{V:y} = psum[axes=('x',) axis_sizes=(2,)] d
    f:f32[3]{V:y} = jit[name='f' jaxpr={ lambda ; a:f32[3]{V:y}. let b:f32[3]{V:y} = sin a in (b,) }] e
  in (f, 1.0:f32[]*) }
"""


def test_types_are_compared_with_their_varying_axes() -> None:
    assert ShapedArray((3,), F32, False, frozenset(["x"])) == X
    assert len({REPLICATED, X, XY, X.with_vma(frozenset(["y"]))}) == 4
    assert pickle.loads(pickle.dumps(XY)) == XY
    assert X.with_vma(X.vma) is X
    assert join_vma([REPLICATED, X, XY]) == {"x", "y"}
    assert without_vma([X, XY]) == (REPLICATED, REPLICATED)


def test_derived_types_keep_the_varying_axes() -> None:
    weak = ShapedArray((3,), np.dtype("int32"), True, X.vma)
    for aval in (weak.strong(), weak.tangent(), weak.update(shape=()), weak.with_axis(2, 0), weak.without_axis(0)):
        assert aval.vma == X.vma


def test_printed_types() -> None:
    assert [str(a) for a in (REPLICATED, X, XY)] == ["f32[3]", "f32[3]{V:x}", "f32[3]{V:(x,y)}"]
    assert repr(ShapedArray((), F32, True, frozenset(["a b", "y"]))) == "f32[]{V:('a b',y)}*"


@pytest.mark.parametrize("vma", [[], ["x"], ["x", "y"], ["a b"], ["a", "it's", "é"]])
def test_types_in_text_and_bytes(vma: list[str]) -> None:
    x = Var(0, ShapedArray((), F32, True, frozenset(vma)))
    jaxpr = Jaxpr((), (x,), (), (x,))
    assert parse_jaxpr(str(jaxpr)) == jaxpr
    assert deserialize(serialize(ClosedJaxpr(jaxpr, ()))).jaxpr == jaxpr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[]{x}", "expected 'V' for varying mesh axes, found 'x'"),
        ("f32[]{V:}", "expected the name of a mesh axis, found '}'"),
        ("f32[]{V:(x y)}", "expected ',' or ')' after a mesh axis, found 'y'"),
        ("f32[]{V:b'x'}", "b'x' is not the name of a mesh axis"),
        ("f32[]{V:x", "expected '}' after the mesh axes, found '.'"),
    ],
)
def test_invalid_types_in_text(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_jaxpr(f"{{ lambda ; a:{text}. let in (a,) }}")


def test_program_round_trip() -> None:
    jaxpr = parse_jaxpr(PROGRAM)
    check_jaxpr(jaxpr)
    assert parse_jaxpr(str(jaxpr)) == jaxpr
    assert deserialize(serialize(ClosedJaxpr(jaxpr, ()))).jaxpr == jaxpr


def test_accepted_types() -> None:
    assert accepts((X, REPLICATED), (X, REPLICATED))
    assert accepts((XY, X), (X, REPLICATED))
    assert not accepts((X,), (XY,))
    assert not accepts((X,), (X, X))
    assert not accepts((X,), (X.update(shape=(2,)),))


def test_inferred_types() -> None:
    assert infer_types(Sin(), [REPLICATED]) == [REPLICATED]
    assert infer_types(Sin(), [X]) == [X]
    assert infer_types(Mul(), [X, X.with_vma(frozenset(["y"]))]) == [XY]
    assert infer_types(PSum(("x",), (2,)), [XY]) == [X.with_vma(frozenset(["y"]))]
    assert infer_types(PVary(("x", "y")), [REPLICATED]) == [XY]


def test_bodies_have_the_types_of_the_operands() -> None:
    def loop(x: fx.Array, y: fx.Array) -> list[fx.Array]:
        (carry, total), _ = lax.scan(lambda c, _: ((fx.jit(lax.sin)(c[0]), c[1] + c[0]), None), (x, y), None, length=2)
        chosen = lax.cond(total[0] > 0, lambda: y, lambda: carry)
        return [*lax.while_loop(lambda c: c[0][0] < 3, lambda c: (c[0] + 1, c[1]), (total, y)), chosen]

    jaxpr, _ = stage(loop, [X, REPLICATED])
    check_jaxpr(jaxpr)
    assert jaxpr.out_avals == (X, X, X)
    (scan,) = [eqn.prim for eqn in jaxpr.eqns if eqn.prim.name == "scan"]
    assert str(scan).count("f32[3]{V:x}") == 6
    assert TYPES.retype(jaxpr, [X, REPLICATED]) is jaxpr
    wider = TYPES.retype(jaxpr, [XY, REPLICATED])
    check_jaxpr(wider)
    assert wider.out_avals == (XY, XY, XY)
    assert TYPES.retype(wider, [X, REPLICATED]).out_avals == (X, X, X)
    assert "{V:" not in str(erase_vma(jaxpr))


def test_operands_may_vary_over_fewer_axes_than_the_inputs_of_a_body() -> None:
    body, _ = stage(lambda x: [lax.sin(x)], [X])
    assert infer_types(Call("f", body), [REPLICATED]) == (X,)
    with pytest.raises(TypeError, match=r"jit of f takes \(f32\[3\]\{V:x\}\), got \(f32\[3\]\{V:\(x,y\)\}\)"):
        Call("f", body).abstract_eval(XY)


def test_check_rejects_results_that_vary_over_more_axes_than_declared() -> None:
    x, y = Var(0, X), Var(1, REPLICATED)
    with pytest.raises(JaxprTypeError, match=r"sin gives f32\[3\]\{V:x\}, but variable b is f32\[3\]"):
        check_jaxpr(Jaxpr((), (x,), (Eqn(Sin(), (x,), (y,)),), (y,)))
    check_jaxpr(Jaxpr((), (x,), (Eqn(Sin(), (x,), (Var(1, XY),)),), (Var(1, XY),)))
