"""Strategies for programs that match many rewrite rules: small operations, few values, literals like 0, 1 and -1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from typing_extensions import override

from tracefx.control.call import Call
from tracefx.control.cond import INDEX_AVAL, Cond
from tracefx.control.scan import Scan
from tracefx.core import ConcreteArray, DType, Literal, ShapedArray, Value, dtypes
from tracefx.core.effects import Effects, IOEffect
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.ops.elementwise.abs_sign import Abs
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Sub
from tracefx.ops.elementwise.bitwise import And, Not, Or, Xor
from tracefx.ops.elementwise.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.elementwise.complex import Complex, Conj, Imag, Real
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.powers import IntegerPow
from tracefx.ops.elementwise.rounding import Ceil, Floor
from tracefx.ops.elementwise.selection import SelectN, StopGradient
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice
from tracefx.ops.shape.shape import Concatenate, Split, Squeeze
from tracefx.ops.shape.slicing import Pad, Rev, Slice
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, ReduceSum, Reshape, Transpose
from tracefx.testing.strategies import edge_values, scalars

Step: TypeAlias = tuple[Primitive, Sequence[Atom]]

DRAWN_DTYPES: Final = (
    *(dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.uint8, dtypes.bfloat16, dtypes.complex64),
    *(dtypes.float64, dtypes.int4),
)
WEAK: Final = (dtypes.float32, dtypes.int32, dtypes.float64)
SHAPES: Final = ((), (1,), (3,), (2, 3), (1, 3), (0, 3), (2, 1))
UNARY: Final = (Neg(), Not(), Conj(dtypes.complex64), Real(), Imag(), Abs(), Floor(), Ceil(), StopGradient())
BINARY: Final = (Add(), Sub(), Mul(), Div(), Max(), Min(), And(), Or(), Xor(), Eq(), Ne(), Lt(), Le(), Gt(), Ge())


@final
class EffectfulPrimitive(Primitive):
    """A primitive without results, which must neither be removed nor duplicated."""

    __slots__ = ()
    name = "tell"

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({IOEffect()})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return ()


def literals(dtype: DType) -> st.SearchStrategy[Literal]:
    """Literals that rules match, and edge cases."""
    if dtypes.is_bool(dtype):
        vals: list[bool | int | float | complex] = [False, True]
    elif dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        vals = [0, 1, int(info.max), *([-1, int(info.min)] if dtypes.is_signed(dtype) else [])]
    elif dtypes.is_complex(dtype):
        vals = [0j, 1 + 0j, complex(-0.0, -0.0), -1 + 0j, 1j]
    else:
        vals = [0.0, -0.0, 1.0, -1.0, 2.0, float("nan"), float("inf"), -float("inf")]
    weak = st.booleans() if dtype in WEAK else st.just(False)
    return st.builds(lambda val, w: Literal(val, ShapedArray((), dtype, w)), st.sampled_from(vals), weak)


def _types(dtype: DType) -> st.SearchStrategy[ShapedArray]:
    weak = st.sampled_from((False, False, dtype in WEAK))
    return st.builds(lambda shape, w: ShapedArray(shape, dtype, w), st.sampled_from(SHAPES), weak)


def _draw_slice(draw: DrawFn, x: Atom) -> Primitive:
    starts, limits, strides = [], [], []
    for n in x.aval.shape:
        low = draw(st.integers(0, n))
        starts.append(low)
        limits.append(draw(st.integers(low, n)))
        strides.append(draw(st.integers(1, 2)))
    return Slice(tuple(starts), tuple(limits), tuple(strides) if draw(st.booleans()) else None)


def _draw_data_movement(draw: DrawFn, values: Sequence[Atom]) -> Step:
    """Draws an operation that moves the elements of a value; it may not be valid for the value's shape."""
    x = draw(st.sampled_from(values))
    shape, n = x.aval.shape, x.aval.ndim
    axes = tuple(draw(st.permutations(range(n))))
    some = tuple(sorted(draw(st.sets(st.sampled_from(range(n))))) if n else ())
    flat = (x.aval.size,)
    kind = draw(st.sampled_from(("reshape", "transpose", "spread", "slice", "rev", "squeeze", "other")))
    if kind == "reshape":
        return Reshape(draw(st.sampled_from((flat, (*shape, 1), (1, *shape), shape[::-1], shape)))), [x]
    if kind == "transpose":
        return Transpose(axes), [x]
    if kind == "spread":
        before = draw(st.integers(0, 2))
        size = tuple([draw(st.sampled_from((2, 3))) if m == 1 else m for m in shape])
        return BroadcastInDim((*[2] * before, *size), tuple(range(before, before + n))), [x]
    if kind == "slice":
        return _draw_slice(draw, x), [x]
    if kind == "rev":
        return Rev(some), [x]
    if kind == "squeeze":
        return Squeeze(tuple([d for d in range(n) if shape[d] == 1])), [x]
    return _draw_variadic(draw, x, values)


def _draw_variadic(draw: DrawFn, x: Atom, values: Sequence[Atom]) -> Step:
    n, dtype = x.aval.ndim, x.aval.dtype
    alike = [y for y in values if y.aval.dtype == dtype and y.aval.ndim == n]
    kind = draw(st.sampled_from(("concatenate", "pad", "dynamic", "sum", "split")))
    axis = draw(st.integers(0, max(n - 1, 0)))
    if kind == "concatenate":
        return Concatenate(axis), [x, *draw(st.lists(st.sampled_from(alike), max_size=2))]
    if kind == "pad":
        config = [draw(st.sampled_from(((0, 0, 0), (1, 0, 0), (0, 0, 1)))) for _ in range(n)]
        return Pad(tuple(config)), [x, draw(literals(dtype))]
    if kind == "dynamic":
        sizes = tuple([draw(st.integers(0, m)) for m in x.aval.shape])
        starts = [Literal(draw(st.integers(-2, 4)), INDEX_AVAL) for _ in range(n)]
        return DynamicSlice(sizes), [x, *starts]
    if kind == "sum":
        return ReduceSum(()), [x]
    return Split((1, x.aval.shape[axis] - 1) if n else (), axis), [x]


def _draw_step(draw: DrawFn, values: Sequence[Atom]) -> Step:
    kind = draw(st.sampled_from(("unary", "unary", "binary", "binary", "binary", "convert", "move", "move", "choose")))
    x = draw(st.sampled_from(values))
    if kind == "unary":
        return draw(st.sampled_from((*UNARY, IntegerPow(1)))), [x]
    if kind == "convert":
        dtype = draw(st.sampled_from(DRAWN_DTYPES[:7]))
        return ConvertElementType(dtype, dtype in WEAK and draw(st.booleans())), [x]
    if kind == "move":
        return _draw_data_movement(draw, values)
    alike = [y for y in values if y.aval.dtype == x.aval.dtype]
    y = draw(st.sampled_from([*alike, x]) | literals(x.aval.dtype))
    if kind == "choose":
        masks = [v for v in values if dtypes.is_bool(v.aval.dtype) or dtypes.is_integer(v.aval.dtype)]
        predicate = draw(st.sampled_from(masks) if masks else literals(dtypes.bool_))
        return SelectN(), [predicate if draw(st.booleans()) else draw(literals(dtypes.bool_)), x, y]
    prims: Sequence[Primitive] = (*BINARY, Complex()) if x.aval.dtype == dtypes.float32 else BINARY
    prim = draw(st.sampled_from(prims))
    return prim, [x, y] if draw(st.booleans()) else [y, x]


@st.composite
def peepholes(draw: DrawFn, max_steps: int = 12, effects: bool = False) -> Jaxpr:
    """Draws a straight-line program; `effects` adds effectful equations. Invalid operations are skipped."""
    input_dtypes = draw(st.lists(st.sampled_from(DRAWN_DTYPES), min_size=1, max_size=2))
    avals = [draw(_types(k)) for k in input_dtypes for _ in range(draw(st.integers(1, 2)))]
    inputs = tuple([Var(i, a) for i, a in enumerate(avals)])
    values: list[Atom] = list(inputs)
    eqns: list[Eqn] = []
    count = len(values)
    for _ in range(draw(st.integers(1, max_steps))):
        prim, operands = _draw_step(draw, values)
        try:
            out_avals = prim.abstract_eval(*[x.aval for x in operands])
        except (TypeError, ValueError):
            continue
        if not out_avals or any(a.size > 64 for a in out_avals):
            continue
        outs = tuple([Var(count + i, a) for i, a in enumerate(out_avals)])
        count += len(outs)
        eqns.append(Eqn(prim, tuple(operands), outs))
        values += outs
        if effects and draw(st.integers(0, 3)) == 0:
            eqns.append(Eqn(EffectfulPrimitive(), (draw(st.sampled_from(values)),), ()))
    results = draw(st.lists(st.sampled_from(values), max_size=2)) + values[-1:]
    return Jaxpr((), inputs, tuple(eqns), tuple(results))


@st.composite
def operands(draw: DrawFn, avals: Sequence[ShapedArray]) -> list[Value]:
    """Draws values of the given types, including NaN, infinities and zeros of both signs."""
    values: list[Value] = []
    for a in avals:
        drawn = draw(
            st.lists(st.sampled_from(edge_values(a.dtype)) | scalars(a.dtype), min_size=a.size, max_size=a.size)
        )
        if dtypes.is_inexact(a.dtype):
            wide = np.complex128 if dtypes.is_complex(a.dtype) else np.float64
            with np.errstate(all="ignore"):
                host = np.array(drawn, wide).astype(a.dtype).reshape(a.shape)
        else:
            host = np.array(drawn, object).astype(a.dtype).reshape(a.shape)
        values.append(ConcreteArray(a, host))
    return values


# ------------------------------------------------------------------ programs in bodies

Wrapper: TypeAlias = Callable[[Jaxpr], Jaxpr]


def _single_equation_jaxpr(prim: Primitive, inputs: tuple[Atom, ...], invars: tuple[Var, ...]) -> Jaxpr:
    count = len(invars)
    outs = tuple([Var(count + i, a) for i, a in enumerate(prim.abstract_eval(*[x.aval for x in inputs]))])
    return Jaxpr((), invars, (Eqn(prim, inputs, outs),), outs)


def wrap_in_call(body: Jaxpr) -> Jaxpr:
    return _single_equation_jaxpr(Call("called", body), body.invars, body.invars)


def wrap_in_cond(body: Jaxpr) -> Jaxpr:
    invars = (Var(0, INDEX_AVAL), *[Var(i + 1, v.aval) for i, v in enumerate(body.invars)])
    return _single_equation_jaxpr(Cond((body, body)), invars, invars)


def wrap_in_scan(body: Jaxpr) -> Jaxpr:
    """Wraps the body in a scan in which all inputs are constants."""
    op = Scan(body, length=2, num_carry=0, num_consts=len(body.invars), reverse=False, unroll=1)
    return _single_equation_jaxpr(op, body.invars, body.invars)


WRAPPERS: Final[Sequence[Wrapper]] = (
    wrap_in_call,
    wrap_in_cond,
    wrap_in_scan,
    lambda body: wrap_in_scan(wrap_in_call(body)),
)
