"""Pickling and copying of transformed functions, `PyTreeDef`s and linear maps."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tracefx.core import Array, Literal
from tracefx.testing.laws import IdentityHandler
from tracefx.testing.tolerances import ELEMENTARY


def cube(x: Any) -> Any:
    """The third power."""
    return x**3


@fx.grad
def decorated(x: Any) -> Any:
    return x**2


class Model:
    factor = 3.0

    @fx.named_call
    def scaled(self, x: float) -> float:
        return self.factor * x


TRANSFORMED: Final[dict[str, Callable[[Any], Any]]] = {
    "grad": fx.grad,
    "grad of several": lambda f: fx.grad(f, argnums=(0,)),
    "value_and_grad": fx.value_and_grad,
    "jacfwd": fx.jacfwd,
    "jacrev": fx.jacrev,
    "hessian": fx.hessian,
    "vmap": lambda f: fx.vmap(f, in_axes=None, axis_size=2),
    "named_call": fx.named_call,
    "jit": fx.jit,
    "jit of grad": lambda f: fx.jit(fx.grad(f)),
    "grad of jit": lambda f: fx.grad(fx.jit(f)),
    "checkpoint": fx.checkpoint,
    "checkpoint with a policy": lambda f: fx.checkpoint(f, policy=fx.checkpoint_policies.dots_saveable),
    "a pipeline with checkpoint": fx.Grad() @ fx.Checkpoint(prevent_cse=False),
    "handle": lambda f: fx.handle(f, IdentityHandler),
    "a pipeline": fx.Jit() @ fx.Vmap(in_axes=None, axis_size=2) @ fx.Grad(),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_functions_pickle(name: str) -> None:
    transformed = TRANSFORMED[name](cube)
    again = pickle.loads(pickle.dumps(transformed))
    assert type(again) is type(transformed)
    assert_same(again(2.0), transformed(2.0))
    assert (again.__name__, again.__doc__) == ("cube", "The third power.")


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_functions_copy(name: str) -> None:
    transformed = TRANSFORMED[name](lambda x: x**3)  # a lambda, which cannot be pickled
    for duplicate in (copy.copy, copy.deepcopy):
        assert_same(duplicate({"f": transformed})["f"](2.0), transformed(2.0))


def test_make_jaxpr_functions_pickle() -> None:
    transformed = fx.make_jaxpr(split, static_argnums=1, return_shape=True)
    for again in (pickle.loads(pickle.dumps(transformed)), copy.deepcopy(transformed)):
        assert again(1.0, 2.0) == transformed(1.0, 2.0)
        assert repr(again).startswith("MakeJaxpr(static_argnums=(1,), return_shape=True)(<function split")


def test_decorated_functions_are_pickled_by_reference() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    with pytest.raises((pickle.PicklingError, AttributeError), match="Can't pickle|Can't get"):
        pickle.dumps(fx.grad(lambda x: x))


def test_transformed_functions_behave_as_functions() -> None:
    transformed = fx.grad(cube)
    assert inspect.signature(transformed) == inspect.signature(cube)
    for wrapper in (transformed, fx.jit(cube), fx.custom_jvp(cube), fx.custom_vjp(cube), fx.checkpoint(cube)):
        assert inspect.signature(wrapper, follow_wrapped=False) == inspect.signature(cube)
    assert not hasattr(fx.jit(vars), "__signature__")
    assert "Grad()(<function cube" in repr(transformed)
    untyped: Any = transformed
    with pytest.raises(TypeError, match="unexpected keyword argument 'self'"):
        untyped(2.0, self=3.0)
    assert Model().scaled(2.0) == 6.0
    assert isinstance(vars(Model)["scaled"], type(transformed))
    reference = weakref.ref(fx.grad(lambda x: x))
    assert reference() is None


def test_treedefs_pickle() -> None:
    tree = {"a": (1, [None, 2]), "b": fx.tree.Partial(cube, 3.0)}
    treedef = fx.tree.structure(tree)
    for again in (pickle.loads(pickle.dumps(treedef)), copy.copy(treedef), copy.deepcopy(treedef)):
        assert again == treedef
        assert hash(again) == hash(treedef)
        assert fx.tree.unflatten(again, [5, 6, 7])["a"] == (5, [None, 6])


def test_jax_treedefs_still_pickle() -> None:
    treedef = jax.tree.structure({"a": (1, [None, 2])})
    fx.tree.structure(1)  # registers the pickle support of tracefx
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert jax.tree.unflatten(copy.deepcopy(treedef), [1, 2]) == {"a": (1, [None, 2])}


def split(x: Any, y: Any) -> Any:
    return {"sin": fnp.sin(x) * y, "whole": fnp.sum(x)}


def test_linear_maps_pickle() -> None:
    x, y = fnp.arange(3.0), fnp.asarray(2.0)
    out, pull = fx.vjp(split, x, y)
    _, push = fx.linearize(split, x, y)
    duplicates: tuple[Callable[[Any], Any], ...] = (lambda f: pickle.loads(pickle.dumps(f)), copy.copy, copy.deepcopy)
    for duplicate in duplicates:
        assert_same(duplicate(pull)(out), pull(out))
        assert_same(duplicate(push)(x, y), push(x, y))


def test_unpickled_values_have_the_dtypes_of_others() -> None:
    """NumPy unpickles dtypes as new objects, which are equal to the dtypes of avals and not identical."""
    for x in (fnp.asarray([True, False]), fnp.arange(3.0), fnp.asarray(1.0)):
        again = pickle.loads(pickle.dumps(x))
        assert again.aval.dtype is x.aval.dtype
        assert pickle.loads(pickle.dumps(x.aval)).dtype is x.aval.dtype
        assert_same(fnp.sum(again), fnp.sum(x))
    _, pullback = fx.vjp(lambda x: fnp.sin(x) * 2.0, 1.0)
    assert_same(pickle.loads(pickle.dumps(pullback))(1.0), pullback(1.0))
    x = fnp.array([0.0, 1.0, 2.0])
    program = fx.make_jaxpr(lambda x: x.astype(bool))(x)
    (positive,) = fx.jaxpr_as_fun(pickle.loads(pickle.dumps(program)))(x)
    assert_same(fnp.sum(positive), fnp.sum(x.astype(bool)))
    assert_same(fnp.where(positive, x, -1.0), fnp.where(x.astype(bool), x, -1.0))


def test_linear_maps_pass_through_transformations() -> None:
    x, y = fnp.arange(3.0), fnp.asarray(2.0)
    out, pull = fx.vjp(split, x, y)
    compiled = fx.jit(lambda x, y: fx.vjp(split, x, y)[1])(x, y)
    applied = fx.jit(lambda pull, ct: pull(ct))
    for a, b, c in zip(pull(out), compiled(out), applied(compiled, out), strict=True):
        assert_near(b, a)
        assert_near(c, a)
    push = fx.jit(lambda x, y: fx.linearize(split, x, y)[1])(x, y)
    assert_near(push(x, y)["sin"], fx.jvp(split, (x, y), (x, y))[1]["sin"])
    xs = fnp.arange(6.0).reshape(2, 3)
    pulls = fx.vmap(lambda x: fx.vjp(fnp.sin, x)[1])(xs)
    assert_near(fx.vmap(lambda p, ct: p(ct)[0])(pulls, xs), np.cos(xs) * np.asarray(xs), ELEMENTARY)


def test_linear_map_is_a_pytree_of_residuals() -> None:
    _, pull = fx.vjp(fnp.sin, 1.0)
    (cosine,) = fx.tree.leaves(pull)
    assert isinstance(cosine, Array | Literal)
    assert float(fx.tree.map(lambda c: np.float32(2) * np.asarray(c), pull)(1.0)[0]) == 2 * float(fnp.cos(1.0))
    same = fx.tree.structure(fx.vjp(fnp.sin, 2.0)[1])
    assert same == fx.tree.structure(pull)
    assert same != fx.tree.structure(fx.vjp(fnp.cos, 2.0)[1]) or same != fx.tree.structure(
        fx.vjp(fnp.exp, fnp.ones(2))[1]
    )
