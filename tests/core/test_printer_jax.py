"""The text of jaxprs in JAX's style, compared with JAX."""

# Some functions of jax are unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import jax
import numpy as np
import pytest
from jax import lax

import tracefx as fx
from tests.jaxprs import all_equations
from tests.versions import PRINTS_SHARDINGS_OF_REDUCTIONS
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.ops import casting, structural
from tracefx.ops.contractions import contraction
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    bitwise,
    comparison,
    elementwise,
    powers,
    rounding,
    selection,
    transcendental,
)
from tracefx.ops.reductions import reduction
from tracefx.ops.shape import shape
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber
from tracefx.serialization.digest import executable_key
from tracefx.text.parser import parse_jaxpr

jax.config.update("jax_explicit_x64_dtypes", "allow")

ROOMS: Final = (
    *(arithmetic, structural, bitwise, casting, comparison, contraction, elementwise, abs_sign, powers, reduction),
    *(rounding, selection, shape, transcendental),
)
OURS: Final = SimpleNamespace(**{k: v for room in ROOMS for k, v in vars(room).items() if callable(v)}, jit=fx.jit)
THEIRS: Final = SimpleNamespace(**vars(lax), jit=jax.jit)

X: Final = np.ones((3, 4), np.float32)
N: Final = np.arange(3, dtype=np.int32)
WIDE: Final = 10**6

# Parameters that only JAX's primitives have: shardings, and a field of `reshape` that is always None.
ONLY_JAXS: Final = re.compile(r" ?(?:out_sharding|sharding|dimensions)=None ?")

Library = Any
"""`jax.lax` or tracefx's counterpart. A function for both has no more precise type."""


def twice(lib: Library) -> Callable[..., Any]:
    f = lib.jit(lambda a: lib.sin(lib.cos(a)))
    return lambda x: f(f(x))


def nested(lib: Library) -> Callable[..., Any]:
    def outer(x: Any, y: Any) -> Any:
        p, q = lib.jit(lambda b, a: (lib.mul(a, b), lib.neg(a)))(y, x)
        return lib.add(p, q)

    return lambda x, y: lib.jit(outer)(y, x)


def shared_in_shared(lib: Library) -> Callable[..., Any]:
    inner = lib.jit(lambda x, y: (lib.mul(x, y), lib.neg(x)))

    def outer(x: Any, y: Any) -> Any:
        p, q = inner(y, x)
        return inner(p, q)[0]

    f = lib.jit(outer)
    return lambda x, y: f(f(x, y), y)


def long_body(lib: Library) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        for _ in range(11):
            x = lib.sin(x)
        return x

    return lambda x: lib.jit(f)(x)


def many(lib: Library) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        for _ in range(40):
            x = lib.mul(lib.sin(x), x)
        return x

    return f


def dead(lib: Library) -> Callable[..., Any]:
    def inner(x: Any) -> Any:
        lib.sin(x)
        return x, lib.cos(x)

    def f(x: Any) -> Any:
        lib.exp(x)
        return lib.jit(inner)(x)[0]

    return f


Case = tuple[Callable[[Library], Callable[..., Any]], tuple[Any, ...]]

EXACT: Final[Mapping[str, Case]] = {
    "literals": (lambda lib: lambda x: lib.add(lib.mul(lib.sin(x), 3.0), -1e-30), (X,)),
    "nothing": (lambda lib: lambda: (), ()),
    "identity": (lambda lib: lambda x, y: (y,), (X, N)),
    "constants": (lambda lib: lambda x: lib.mul(x, X), (X,)),
    "select": (lambda lib: lambda x: lib.select(lib.gt(x, lib.neg(x)), x, lib.abs(x)), (X,)),
    "integers": (lambda lib: lambda x: lib.bitwise_and(lib.add(x, 1), 7), (N,)),
    "power": (lambda lib: lambda x: lib.integer_pow(x, 3), (X,)),
    "cast": (lambda lib: lambda x: lib.convert_element_type(x, np.int32), (X,)),
    "transpose": (lambda lib: lambda x: lib.transpose(x, (1, 0)), (X,)),
    "squeeze": (lambda lib: lambda x: lib.squeeze(x, (0,)), (X[:1],)),
    "slice": (lambda lib: lambda x: lib.slice(x, (0, 1), (2, 3)), (X,)),
    "concatenate": (lambda lib: lambda x: lib.concatenate([x, x], 0), (X,)),
    "pad": (lambda lib: lambda x: lib.pad(x, 0.0, ((1, 1, 0), (0, 0, 0))), (X,)),
    "reduce": (lambda lib: lambda x: (lib.reduce_max(x, (0,)), lib.argmax(x, 0, np.int32)), (X,)),
    "dot": (lambda lib: lambda x: lib.dot_general(x, x, (((1,), (1,)), ((), ()))), (X,)),
    "dot with a type": (
        lambda lib: lambda x: lib.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.float32),
        (X,),
    ),
    "clamp": (lambda lib: lambda x: lib.clamp(0.0, x, 1.0), (X,)),
    "a function called twice": (twice, (X,)),
    "functions in functions": (nested, (X, X)),
    "shared in shared": (shared_in_shared, (X, X)),
    "a long body": (long_body, (X,)),
    "many variables": (many, (X,)),
    "dead code": (dead, (X,)),
}


@pytest.mark.parametrize("name", EXACT)
def test_text_matches_jax(name: str) -> None:
    write, args = EXACT[name]
    jax_text = str(jax.make_jaxpr(write(THEIRS))(*args))
    if PRINTS_SHARDINGS_OF_REDUCTIONS:
        jax_text = jax_text.replace(" out_sharding=None]", "]")
    assert fx.make_jaxpr(write(OURS))(*args).text("jax") == jax_text


MODULO: Final[Mapping[str, Case]] = {
    "reshape": (lambda lib: lambda x: lib.reshape(x, (4, 3)), (X,)),
    "sum": (lambda lib: lambda x: lib.reduce_sum(x, (0,)), (X,)),
}


@pytest.mark.parametrize("name", MODULO)
def test_text_matches_jax_except_for_jax_only_parameters(name: str) -> None:
    write, args = MODULO[name]
    text = fx.make_jaxpr(write(OURS))(*args).text("jax", width=WIDE)
    jax_text = jax.make_jaxpr(write(THEIRS))(*args).pretty_print(width=WIDE)
    assert ONLY_JAXS.sub("", text) == ONLY_JAXS.sub("", jax_text)
    assert ONLY_JAXS.search(jax_text)


# ------------------------------------------------------------------ the same programs in tracefx's own style


def vocabulary(jaxpr: Jaxpr) -> dict[str, type[Primitive]]:
    return {eqn.prim.name: type(eqn.prim) for eqn in all_equations(jaxpr)}


@pytest.mark.parametrize("name", [*EXACT, *MODULO])
def test_round_trip_of_programs_in_tracefx_style(name: str) -> None:
    write, args = ({**EXACT, **MODULO})[name]
    jaxpr = fx.make_jaxpr(write(OURS))(*args).jaxpr
    check_jaxpr(jaxpr)
    again = parse_jaxpr(str(jaxpr), vocabulary(jaxpr))
    assert again == jaxpr
    assert executable_key(again) == executable_key(jaxpr) is not None
    for transform in (dce, cse, renumber):
        check_jaxpr(transform(jaxpr))
