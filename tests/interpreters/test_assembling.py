"""Accumulation of cotangents of slices of one array into the cotangent of the array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.primitives import Tangents, Values
from tracefx.core import NDArray, ShapedArray
from tracefx.core.handler import bind, bind1
from tracefx.core.primitive import Differentiable, ExtractsWindow, Primitive
from tracefx.ops.shape.shape import Concatenate
from tracefx.ops.shape.slicing import Pad
from tracefx.ops.structural import instantiate

TABLE = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)


WINDOWS: dict[str, Callable[[Any], list[Any]]] = {
    "side by side": lambda x: [x[:2], x[2:3], x[3:]],
    "in any order": lambda x: [x[4:], x[:1], x[1:4]],
    "with gaps": lambda x: [x[1:2], x[4:5]],
    "that overlap": lambda x: [x[1:], x[:-1], x[2:4]],
    "twice the same": lambda x: [x[0], x[0], x[5]],
    "along the last axis": lambda x: [x[:, :16], x[:, 32:], x[:, 16:32]],
    "narrow": lambda x: [x[:, 0], x[:, 1], x[:, 63]],
    "along both axes": lambda x: [x[:3, :32], x[3:, 32:], x[:, 2:40], x[1:2]],
    "without elements": lambda x: [x[2:2], x[:, 3:3], x[4:]],
    "beside the whole": lambda x: [x, x[:2], x[2:], x.T],
    "all rows": lambda x: [x[i] for i in range(6)],
    "each a few": lambda x: [x.reshape(-1)[i : i + 20] for i in range(0, 380, 30)],
    "with strides": lambda x: [x[::2], x[1::2], x[:3]],
    "many narrow": lambda x: [x[:, i] for i in range(0, 64, 2)],
    "of a vector": lambda x: [x[0][:32], x[0][32:]],
}


def energy(numpy: Any, windows: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    """Returns a function of the windows whose gradient is different for each window and couples the first and last."""

    def function(x: Any) -> Any:
        parts = windows(x)
        first = sum((k * numpy.sum(numpy.sin(w)) for k, w in enumerate(parts, 1)), 0.0)
        return first + numpy.sum(parts[0] ** 2) * numpy.sum(parts[-1] ** 3)

    return function


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_agree_with_jax(name: str) -> None:
    function, jax_function = [energy(numpy, WINDOWS[name]) for numpy in (fnp, jnp)]
    expected = jax.jit(jax.grad(jax_function))(TABLE)
    assert_near(fx.grad(function)(TABLE), expected)
    assert_near(fx.jit(fx.grad(function))(TABLE), expected)
    batch = np.stack([TABLE, -TABLE[::-1]])
    assert_near(fx.jit(fx.vmap(fx.grad(function)))(batch), [fx.grad(function)(x) for x in batch])


@pytest.mark.parametrize("name", ["that overlap", "beside the whole", "along both axes"])
def test_hessian_vector_products_agree_with_jax(name: str) -> None:
    def hessian_vector_product(core: Any, numpy: Any) -> Any:
        gradient = core.grad(energy(numpy, WINDOWS[name]))
        return core.jit(lambda x: core.jvp(gradient, (x,), (x,))[1])(TABLE)

    assert_near(hessian_vector_product(fx, fnp), hessian_vector_product(jax, jnp))


def accumulation_primitives(windows: Callable[[Any], list[Any]], x: Any) -> list[type]:
    program = fx.make_jaxpr(fx.grad(lambda x: sum((fnp.sum(w) for w in windows(x)), 0.0)))(x)
    return [type(eqn.prim) for eqn in program.jaxpr.eqns if type(eqn.prim) in (Pad, Concatenate)]


def test_adjacent_slices_are_concatenated() -> None:
    assert accumulation_primitives(WINDOWS["side by side"], TABLE) == [Concatenate]
    assert accumulation_primitives(WINDOWS["in any order"], TABLE) == [Concatenate]
    assert accumulation_primitives(WINDOWS["all rows"], TABLE) == [Concatenate]
    assert accumulation_primitives(WINDOWS["with gaps"], TABLE) == [Concatenate, Pad]
    assert accumulation_primitives(lambda x: [x[1:], x[:-1]], TABLE) == [Pad, Pad]


def test_narrow_slices_are_padded_and_added_in_blocks() -> None:
    assert accumulation_primitives(WINDOWS["narrow"], TABLE) == [Pad] * 3
    assert accumulation_primitives(lambda x: [x[:, 1], x[:, 3]], TABLE) == [Pad] * 2
    assert accumulation_primitives(lambda x: list(x), np.ones((8, 16), np.float32)) == [Concatenate]
    assert accumulation_primitives(lambda x: list(x), np.ones((20, 16), np.float32)) == [Pad] * 20 + [Concatenate]
    narrow = accumulation_primitives(lambda x: [x[:, i] for i in range(40)], TABLE[:, :40])
    assert narrow == [Pad] * 40 + [Concatenate]


def test_concatenation_has_the_source_location_of_a_slice() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        low, high = y[:3], y[3:]
        return fnp.sum(low) * fnp.sum(high)

    program = fx.make_jaxpr(fx.grad(f))(TABLE)
    (concatenation,) = [eqn for eqn in program.jaxpr.eqns if type(eqn.prim) is Concatenate]
    (first_slice, _) = [eqn for eqn in program.jaxpr.eqns if eqn.prim.name == "slice"]
    assert str(concatenation.source) == str(first_slice.source) != str(program.jaxpr.eqns[0].source)


@frozen(eq=False)
class FirstRows(Primitive, Differentiable, ExtractsWindow):
    """A user-defined primitive that returns the first rows of a matrix."""

    name = "first_rows"
    count: int

    @property
    @override
    def window(self) -> tuple[Sequence[int], Sequence[int]]:
        return (0, 0), (self.count, 64)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [aval.update(shape=(self.count, 64)) for aval in avals]

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [x[: self.count] for x in args]

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        return bind(self, *primals), bind(self, *[instantiate(t) for t in tangents])


def test_windows_of_user_defined_primitives() -> None:
    def windows(x: Any) -> list[Any]:
        return [bind1(FirstRows(2), x), x[2:]]

    assert accumulation_primitives(windows, TABLE) == [Concatenate]
    assert_near(fx.grad(energy(fnp, windows))(TABLE), fx.grad(energy(fnp, lambda x: [x[:2], x[2:]]))(TABLE))
