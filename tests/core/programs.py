"""Artificial primitives, small jaxprs and a strategy for jaxprs, for tests of the core."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, final

import numpy as np
from attrs import evolve, field, frozen
from hypothesis import strategies as st
from typing_extensions import override

from tests.primitives import SameTypes
from tracefx.core import DType, Literal, ShapedArray, dtypes
from tracefx.core.effects import Effect, Effects
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive

F32: Final = np.dtype("float32")
I32: Final = np.dtype("int32")
VECTOR: Final = ShapedArray((3,), F32)
SCALAR: Final = ShapedArray((), F32)
WEAK: Final = ShapedArray((), F32, weak_type=True)


@final
@frozen
class Printing(Effect):
    @override
    def __str__(self) -> str:
        return "printing"


class Mode(Enum):
    CLIP = "clip"
    FILL = 2


@frozen
class Dims:
    lhs: tuple[int, ...]
    rhs: tuple[int, ...] = ()
    _mode: Mode | None = None


class Window(NamedTuple):
    low: int
    high: int


@final
class Sin(Primitive):
    __slots__ = ()
    name = "sin"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        (x,) = avals
        if not dtypes.is_float(x.dtype):
            raise TypeError(f"sin needs floats, got {x}")
        return [x]


@final
class Add(Primitive):
    __slots__ = ()
    name = "add"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        x, y = avals
        return [y if x.weak_type and not x.shape else x]


@final
@frozen(eq=False)
class Scale(SameTypes):
    name = "scale"
    factor: object


@final
@frozen(eq=False)
class Split(Primitive):
    """A primitive with one input and any number of outputs."""

    name = "split"
    n: int

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return list(avals) * self.n


@final
@frozen(eq=False)
class Many(SameTypes):
    """A primitive with a parameter of every kind."""

    name = "many"
    dims: Dims | None = None
    mode: Mode = Mode.CLIP
    window: Window | None = field(default=None, metadata={"hide_default": True})
    windows: tuple[Window | Dims, ...] = field(default=(), metadata={"hide_default": True})
    dtype: DType | None = field(default=None, metadata={"jax": "new_dtype"})
    text: str = field(default="", metadata={"jax": False})
    things: object = field(default=None, metadata={"hide_default": True})
    label: str = field(default="", eq=False, repr=False, metadata={"erased": True})


@final
@frozen(eq=False)
class Call(Primitive, HasSubjaxprs):
    name = "jit"
    label: str = field(metadata={"erased": True, "jax": "name"})
    jaxpr: Jaxpr

    @property
    @override
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if self.jaxpr.in_avals != avals:
            raise TypeError("other types than the body's")
        return self.jaxpr.out_avals

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return (self.jaxpr,)

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Call:
        (jaxpr,) = jaxprs
        return evolve(self, jaxpr=jaxpr)


@final
@frozen(eq=False)
class Switch(Primitive, HasSubjaxprs):
    name = "cond"
    branches: tuple[Jaxpr, ...]

    @property
    @override
    def effects(self) -> Effects:
        return frozenset().union(*[b.effects for b in self.branches])

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.branches[0].out_avals

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return self.branches

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Switch:
        return evolve(self, branches=jaxprs)


@final
@frozen(eq=False)
class Log(Primitive):
    """A primitive with an effect and no output."""

    name = "log to file"
    message: str

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({Printing()})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return []


@final
@frozen(eq=False)
class Custom(SameTypes):
    """A primitive with a callable parameter."""

    name = "custom"
    rule: Callable[[], object]


VOCABULARY: Final[Mapping[str, type[Primitive]]] = {
    kind.name: kind for kind in (Sin, Add, Scale, Split, Many, Call, Switch, Log, Custom)
}


class Program:
    """Builds a jaxpr equation by equation."""

    def __init__(self, *avals: ShapedArray, consts: Sequence[ShapedArray] = ()) -> None:
        self.constvars = tuple([Var(i, a) for i, a in enumerate(consts)])
        self.invars = tuple([Var(len(consts) + i, a) for i, a in enumerate(avals)])
        self.eqns: list[Eqn] = []
        self.count = len(consts) + len(avals)

    def __call__(self, prim: Primitive, *inputs: Atom) -> tuple[Var, ...]:
        avals = prim.abstract_eval(*[x.aval for x in inputs])
        outs = tuple([Var(self.count + i, a) for i, a in enumerate(avals)])
        self.count += len(outs)
        self.eqns.append(Eqn(prim, inputs, outs))
        return outs

    def returns(self, *outs: Atom) -> Jaxpr:
        return Jaxpr(self.constvars, self.invars, tuple(self.eqns), outs)


def chain(n: int, prim: Primitive | None = None) -> Jaxpr:
    """Returns a jaxpr of `n` equations, each applied to the result of the previous one."""
    p = Program(VECTOR)
    (x,) = p.invars
    for _ in range(n):
        (x,) = p(prim or Sin(), x)
    return p.returns(x)


# ------------------------------------------------------------------ generated programs

FLOATS: Final = st.floats(width=64) | st.integers(0, 2**64 - 1).map(
    lambda bits: float(struct.unpack("<d", struct.pack("<Q", bits))[0])
)
NUMBERS: Final = st.booleans() | st.integers() | FLOATS | st.builds(complex, FLOATS, FLOATS)
PLAIN: Final = st.none() | NUMBERS | st.text(max_size=5) | st.binary(max_size=5) | st.sampled_from(dtypes.ALL_DTYPES)
VALUES: Final = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(st.integers(), max_size=2), max_leaves=6
)
INTS: Final = st.lists(st.integers(-3, 3), max_size=3).map(tuple)
DIMS: Final = st.builds(Dims, INTS, INTS, st.none() | st.sampled_from(Mode))
WINDOWS: Final = st.builds(Window, st.integers(), st.integers())
MANY: Final = st.builds(
    Many,
    dims=st.none() | DIMS,
    mode=st.sampled_from(Mode),
    window=st.none() | WINDOWS,
    windows=st.lists(WINDOWS | DIMS, max_size=2).map(tuple),
    dtype=st.none() | st.sampled_from(dtypes.ALL_DTYPES),
    text=st.text(max_size=8),
    things=VALUES,
)
LITERALS: Final = st.builds(Literal, st.floats(width=32), st.sampled_from([WEAK, SCALAR])) | st.builds(
    Literal, st.integers(-128, 127), st.builds(ShapedArray, st.just(()), st.just(np.dtype("int8")), st.booleans())
)


@st.composite
def programs(draw: st.DrawFn, depth: int = 2) -> Jaxpr:
    """Draws well-typed jaxprs on vectors, with sub-jaxprs, some of them shared."""
    p = Program(*[VECTOR] * draw(st.integers(1, 3)), consts=[SCALAR] * draw(st.integers(0, 2 if depth == 2 else 0)))
    vectors: list[Atom] = list(p.invars)
    body = draw(programs(depth=depth - 1)) if depth and draw(st.booleans()) else None
    for _ in range(draw(st.integers(0, 5))):
        x, y = draw(st.sampled_from(vectors)), draw(st.sampled_from(vectors))
        match draw(st.integers(0, 6)):
            case 0:
                vectors += p(Sin(), x)
            case 1:
                vectors += p(Add(), x, y)
            case 2:
                vectors += p(Scale(draw(VALUES)), x)
            case 3:
                vectors += p(Split(draw(st.integers(0, 3))), x)
            case 4:
                vectors += p(draw(MANY), x)
            case 5:
                p(Log(draw(st.text(max_size=4))), draw(LITERALS))
            case _ if body is not None:
                call: Primitive = Switch((body, body)) if draw(st.booleans()) else Call(draw(st.text(max_size=3)), body)
                outs = p(call, *[draw(st.sampled_from(vectors)) for _ in body.invars])
                vectors += [v for v in outs if v.aval == VECTOR]
            case _:
                p(Add(), x, draw(LITERALS))
    return p.returns(*draw(st.lists(st.sampled_from(vectors) | LITERALS, max_size=3)))


@st.composite
def permuted_programs(draw: st.DrawFn) -> Jaxpr:
    """Draws jaxprs whose variables are not numbered in order."""
    jaxpr = draw(programs(depth=0))
    order = draw(st.permutations(range(jaxpr.var_count)))

    def new(v: Var) -> Var:
        return Var(order[v.index], v.aval)

    def atom(x: Atom) -> Atom:
        return new(x) if isinstance(x, Var) else x

    eqns = [Eqn(e.prim, tuple(map(atom, e.inputs)), tuple(map(new, e.outs))) for e in jaxpr.eqns]
    invars = tuple(map(new, jaxpr.constvars)), tuple(map(new, jaxpr.invars))
    return Jaxpr(*invars, tuple(eqns), tuple(map(atom, jaxpr.outs)))


def nested_calls(body: Jaxpr, depth: int = 60) -> Jaxpr:
    """Returns programs nested in each other, each of which calls the next twice: `2**depth` bodies if not shared."""
    for _ in range(depth):
        p = Program(VECTOR)
        (x,) = p(Call("f", body), *p(Call("f", body), *p.invars))
        body = p.returns(x)
    return body
