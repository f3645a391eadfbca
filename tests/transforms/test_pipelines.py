"""Transformations as values: composition against nested calls, equality, printing, pickling, handlers."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.subprocesses import output_of
from tracefx.core import as_value
from tracefx.core.handler import ROOT, Eval, NamedAxis
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.pytrees import trees
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.transforms.jit import Jitted


class Weights(NamedTuple):
    scale: object
    shift: object


XS = np.linspace(0.1, 1.2, 6, dtype=np.float32).reshape(2, 3)


def energy(x: Any) -> Any:
    return (fnp.sin(x) * x).sum()


def affine(params: Any, x: Any) -> Any:
    return (params["w"] * x + params["b"]).sum()


@fx.jit(static_argnums=1)
def module_level(x: Any, n: int) -> Any:
    return x * n


PIPELINES: list[tuple[fx.Transform, Callable[[Callable[..., Any]], Callable[..., Any]]]] = [
    (fx.Jit() @ fx.Vmap() @ fx.Grad(), lambda f: fx.jit(fx.vmap(fx.grad(f)))),
    (fx.Vmap() @ fx.Jit() @ fx.Grad(), lambda f: fx.vmap(fx.jit(fx.grad(f)))),
    (fx.Vmap() @ fx.Grad() @ fx.Jit(), lambda f: fx.vmap(fx.grad(fx.jit(f)))),
    (fx.Vmap(out_axes=1) @ fx.JacRev() @ fx.Grad(), lambda f: fx.vmap(fx.jacrev(fx.grad(f)), out_axes=1)),
    (fx.Jit() @ fx.Hessian(), lambda f: fx.jit(fx.hessian(f))),
    (fx.Hessian(), lambda f: fx.jacfwd(fx.jacrev(f))),
    (fx.NamedCall("energy") @ fx.Grad(), lambda f: fx.named_call(fx.grad(f), name="energy")),
    (fx.Vmap(axis_name="i") @ fx.ValueAndGrad(), lambda f: fx.vmap(fx.value_and_grad(f), axis_name="i")),
]


@pytest.mark.parametrize(
    ("pipeline", "nested"), PIPELINES, ids=lambda p: repr(p) if isinstance(p, fx.Transform) else ""
)
def test_composition_equals_nested_calls(
    pipeline: fx.Transform, nested: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    got, want = pipeline(energy)(XS), nested(energy)(XS)
    for g, w in zip(trees.leaves(got), trees.leaves(want), strict=True):
        assert isinstance(g, fx.Array)
        assert isinstance(w, fx.Array)
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)
    assert fx.make_jaxpr(pipeline(energy))(XS) == fx.make_jaxpr(nested(energy))(XS)


def test_leftmost_transform_is_outermost() -> None:
    assert str(fx.make_jaxpr((fx.Jit() @ fx.Grad())(energy))(XS)).count("jit[") == 1
    f = (fx.Vmap(in_axes=1) @ fx.JacFwd())(lambda x: fnp.sin(x))
    assert f(XS).shape == (3, 2, 2)
    g = (fx.JacFwd() @ fx.Vmap(in_axes=1))(lambda x: fnp.sin(x))
    assert g(XS).shape == (3, 2, 2, 3)


def test_jvp_transform_value() -> None:
    y, dy = (fx.Jit() @ fx.Jvp())(energy)((XS,), (np.ones_like(XS),))
    want, dwant = fx.jvp(energy, (XS,), (np.ones_like(XS),))
    assert_near(y, want, ELEMENTARY)
    assert_near(dy, dwant, ELEMENTARY)
    assert len(fx.Jvp(has_aux=True)(lambda x: (x, {"n": 1}))((1.0,), (1.0,))) == 3


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize(
    ("value", "function"),
    [
        (fx.Grad(argnums=(0, 1)), fx.grad(affine, argnums=(0, 1))),
        (fx.ValueAndGrad(argnums=1), fx.value_and_grad(affine, argnums=1)),
        (fx.JacRev(argnums=1), fx.jacrev(affine, argnums=1)),
        (fx.JacFwd(argnums=[1]), fx.jacfwd(affine, argnums=[1])),
        (fx.Vmap(({"w": None, "b": None}, 0)), fx.vmap(affine, ({"w": None, "b": None}, 0))),
        (fx.Vmap([None, 0]), fx.vmap(affine, [None, 0])),
        (fx.Jit(donate_argnames="x", keep_unused=True), fx.jit(affine, donate_argnames="x", keep_unused=True)),
        (fx.Jit(inline=True), fx.jit(affine, inline=True)),
    ],
)
def test_function_form_equals_calling_the_transform(value: fx.Transform, function: Callable[..., Any]) -> None:
    params = {"w": np.float32(2), "b": np.float32(1)}
    got, want = value(affine)(params, XS), function(params, XS)
    assert trees.structure(got) == trees.structure(want)
    for g, w in zip(trees.leaves(got), trees.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)


def test_jit_without_function_returns_the_transform() -> None:
    assert fx.jit(static_argnums=1) == fx.Jit(static_argnums=[1])
    assert isinstance(fx.Jit()(energy), Jitted)


# ------------------------------------------------------------------ laws

PARTS: list[fx.Transform] = [
    fx.Jit(static_argnums=1),
    fx.Grad(argnums=(0, 2)),
    fx.Vmap(in_axes=({"a": None}, 0)),
    fx.Jvp(),
    fx.Vmap(axis_size=3),
    fx.IdentityTransform(),
    fx.Jit() @ fx.Grad(),
]


@pytest.mark.parametrize(("a", "b", "c"), list(itertools.product(PARTS, repeat=3)))
def test_composition_is_associative(a: fx.Transform, b: fx.Transform, c: fx.Transform) -> None:
    left, right = (a @ b) @ c, a @ (b @ c)
    assert left == right
    assert hash(left) == hash(right)
    assert repr(left) == repr(right)
    assert type(left) is type(right)


@pytest.mark.parametrize("a", PARTS)
def test_identity_is_neutral_in_composition(a: fx.Transform) -> None:
    assert fx.IdentityTransform() @ a == a
    assert a @ fx.IdentityTransform() == a


def test_identity_returns_the_function_unchanged() -> None:
    assert fx.IdentityTransform()(energy) is energy


def test_composition_order_matters() -> None:
    assert fx.Jit() @ fx.Grad() != fx.Grad() @ fx.Jit()


# ------------------------------------------------------------------ equality

EQUAL: list[tuple[fx.Transform, fx.Transform]] = [
    (fx.Jit(static_argnums=0), fx.Jit(static_argnums=(0,))),
    (fx.Jit(static_argnums=[2, 1]), fx.Jit(static_argnums=(1, 2, 1))),
    (fx.Jit(static_argnames="n"), fx.Jit(static_argnames=["n"])),
    (fx.Jit(static_argnums=None), fx.Jit()),
    (fx.Grad(), fx.Grad(argnums=0)),
    (fx.Grad([0, 1]), fx.Grad((0, 1))),
    (fx.Vmap([0, None]), fx.Vmap((0, None))),
    (fx.Vmap(({"a": 0, "b": None}, 1)), fx.Vmap(({"b": None, "a": 0}, 1))),
    (fx.Vmap(Weights(0, None)), fx.Vmap(in_axes=Weights(0, None))),
]

DIFFERENT: list[tuple[fx.Transform, fx.Transform]] = [
    (fx.Grad(0), fx.Grad((0,))),
    (fx.Grad((0, 1)), fx.Grad((1, 0))),
    (fx.Grad(), fx.ValueAndGrad()),
    (fx.JacFwd(), fx.JacRev()),
    (fx.Grad(has_aux=True), fx.Grad()),
    (fx.Vmap(axis_name=1), fx.Vmap(axis_name=True)),
    (fx.Vmap(axis_name=1), fx.Vmap(axis_name=1.0)),
    (fx.Vmap(axis_name=0.0), fx.Vmap(axis_name=-0.0)),
    (fx.Vmap((0, None)), fx.Vmap(0)),
    (fx.Vmap((0,)), fx.Vmap(0)),
    (fx.Vmap(Weights(0, None)), fx.Vmap((0, None))),
    (fx.Vmap(out_axes=[0]), fx.Vmap(out_axes=(0,))),
    (fx.Jit(static_argnums=1), fx.Jit(donate_argnums=1)),
    (fx.Jit(), fx.IdentityTransform()),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal_transforms_compare_equal(a: fx.Transform, b: fx.Transform) -> None:
    assert a == b
    assert hash(a) == hash(b)
    assert repr(a) == repr(b)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different_transforms_compare_unequal(a: fx.Transform, b: fx.Transform) -> None:
    assert a != b
    assert len({a, b}) == 2


def test_option_trees_are_copied() -> None:
    axes = {"a": 0}
    transform = fx.Vmap((axes,))
    axes["a"] = 1
    assert transform.in_axes == ({"a": 0},)


def test_transforms_are_immutable() -> None:
    with pytest.raises(AttributeError):
        fx.Jit().inline = True  # type: ignore[misc]  # this is the error


# ------------------------------------------------------------------ printing, pickling, copying

VALUES: list[fx.Transform] = [t for pair in EQUAL + DIFFERENT for t in pair] + [p for p, _ in PIPELINES]


@pytest.mark.parametrize("transform", VALUES, ids=repr)
def test_repr_evaluates_to_the_transform(transform: fx.Transform) -> None:
    assert eval(repr(transform), {**vars(fx), "Weights": Weights}) == transform


def test_repr_omits_default_options() -> None:
    assert repr(fx.Jit() @ fx.Grad(argnums=1) @ fx.Vmap(in_axes=(0, None))) == (
        "Jit() @ Grad(argnums=1) @ Vmap(in_axes=(0, None))"
    )


@pytest.mark.parametrize("transform", VALUES, ids=repr)
def test_pickled_and_copied_transforms_are_equal(transform: fx.Transform) -> None:
    for duplicate in (copy.copy(transform), copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert duplicate == transform
        assert hash(duplicate) == hash(transform)


def test_pipeline_is_unpickled_in_a_new_process() -> None:
    pipeline = fx.Jit() @ fx.Vmap(in_axes=({"w": None, "b": 0}, 0), axis_name="i") @ fx.Grad(argnums=1)
    program = """
import pickle
p, f = pickle.loads(bytes.fromhex(input()))
import numpy as np
import tracefx as fx
assert p == fx.Jit() @ fx.Vmap(in_axes=({"b": 0, "w": None}, 0), axis_name="i") @ fx.Grad(1)
assert hash(p) == hash(fx.Jit() @ fx.Vmap(in_axes=({"b": 0, "w": None}, 0), axis_name="i") @ fx.Grad(1))
one = np.float32(1)
print(p(lambda d, x: d["w"] * d["b"] * x * x)({"w": 2 * one, "b": np.array([1, 2], "f")}, np.array([3, 4], "f")))
print(f(np.array([1, 4], "f")))
"""
    pickled = pickle.dumps((pipeline, fx.jit(fnp.sqrt))).hex()
    assert output_of(program, input=pickled) == "[12. 32.]\n[1. 2.]\n"


def test_decorated_function_is_pickled_by_reference() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.deepcopy(module_level) is module_level


def test_undecorated_jitted_function_is_pickled_with_options() -> None:
    restored = pickle.loads(pickle.dumps(fx.jit(energy, keep_unused=True)))
    np.testing.assert_array_equal(restored(XS), fx.jit(energy)(XS))
    assert repr(restored) == repr(fx.jit(energy))
    assert pickle.dumps(restored) == pickle.dumps(fx.jit(energy, keep_unused=True))


def test_a_local_function_cannot_be_pickled() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="local|lambda"):
        pickle.dumps(fx.jit(lambda x: x))


# ------------------------------------------------------------------ handlers


def test_vmap_handler() -> None:
    handler = fx.Vmap(axis_size=3, axis_name="i").over(ROOT)
    assert isinstance(handler, Batch)
    assert handler.inner is ROOT
    assert (handler.axis.size, handler.axis.name) == (3, "i")


def test_jvp_handler() -> None:
    handler = fx.Jvp().over(ROOT)
    assert isinstance(handler, JVP)
    assert handler.inner is ROOT


def test_composition_stacks_handlers() -> None:
    composed = (
        fx.Vmap(axis_size=3, axis_name="i") @ fx.IdentityTransform() @ (fx.Vmap(axis_size=2, axis_name="j") @ fx.Jvp())
    )
    assert isinstance(composed, fx.HandlerTransform)
    assert [type(h) for h in composed.over(ROOT).chain()] == [JVP, Batch, Batch, Eval]
    assert composed.over(ROOT).axes == {"i": NamedAxis(3), "j": NamedAxis(2)}
    assert fx.IdentityTransform().over(ROOT) is ROOT


def test_running_under_the_handler_equals_the_transform() -> None:
    handler = fx.Vmap(axis_size=2).over(ROOT)
    with fx.handling(handler):
        out = fnp.sin(handler.wrap(as_value(XS), 0)).sum()
    value, dim = handler.unwrap(out)
    assert dim == 0
    assert_near(np.asarray(value), fx.vmap(lambda x: fnp.sin(x).sum())(XS), ELEMENTARY)


@pytest.mark.parametrize(
    "transform", [fx.Jit(), fx.Grad(), fx.Jit() @ fx.Vmap(axis_size=3), fx.Vmap(axis_size=3) @ fx.Grad()]
)
def test_transforms_without_handler_raise(transform: fx.Transform) -> None:
    assert not hasattr(transform, "over")


def test_vmap_handler_needs_axis_size() -> None:
    with pytest.raises(ValueError, match="pass axis_size"):
        fx.Vmap().over(ROOT)


# ------------------------------------------------------------------ bad input

untyped: Any = fx  # untyped, because the calls below are type errors on purpose


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: untyped.Jit(static_argnums="x"), "jit: static_argnums must be an integer"),
        (lambda: untyped.Jit(static_argnums=True), "jit: static_argnums must be an integer"),
        (lambda: untyped.Jit(static_argnums=1.5), "jit: static_argnums must be an integer"),
        (lambda: untyped.Jit(donate_argnums=(0, None)), "jit: donate_argnums must be an integer"),
        (lambda: untyped.Jit(static_argnames=(1,)), "jit: static_argnames must be a string"),
        (lambda: untyped.Jit(static_argnames=1), r"jit: static_argnames must be a string .*, got \(1,\)"),
        (lambda: untyped.Checkpoint(static_argnums="x"), "checkpoint: static_argnums must be an integer"),
        (lambda: untyped.Checkpoint(static_argnames=(1,)), "checkpoint: static_argnames must be a string"),
        (lambda: untyped.Pmap(donate_argnums=1.5), "pmap: donate_argnums must be an integer"),
        (lambda: untyped.Jit(inline=1), "jit: inline must be True or False, got 1"),
        (lambda: untyped.Grad("x"), "grad: argnums must be an integer"),
        (lambda: untyped.Grad((0, 1.0)), "grad: argnums must be an integer"),
        (lambda: untyped.Grad(has_aux="yes"), "grad: has_aux must be True or False, got 'yes'"),
        (lambda: untyped.Hessian(argnums=None), "hessian: argnums must be an integer"),
        (lambda: untyped.Vmap("x"), "vmap: in_axes must consist of integers and None, got 'x'"),
        (lambda: untyped.Vmap(({"a": 1.0},)), "vmap: in_axes must consist of integers and None, got 1.0"),
        (lambda: untyped.Vmap(out_axes=True), "vmap: out_axes must consist of integers and None, got True"),
        (lambda: untyped.Vmap(axis_name=[]), r"vmap: axis_name must be hashable, got \[\]"),
        (lambda: untyped.Vmap(axis_size=-1), "vmap: axis_size must be a non-negative integer"),
        (lambda: untyped.Vmap(axis_size=True), "vmap: axis_size must be a non-negative integer"),
        (lambda: untyped.NamedCall(3), "named_call: name must be a string or None, got 3"),
        (lambda: untyped.Jit() @ energy, "unsupported operand"),
        (lambda: untyped.Jit()(3), "jit takes a function, got 3"),
        (lambda: (untyped.Jit() @ untyped.Vmap())(None), "vmap takes a function, got None"),
        (lambda: untyped.Hessian()(3), "hessian takes a function, got 3"),
        (lambda: untyped.Jvp()(3), "jvp takes a function, got 3"),
        (lambda: untyped.NamedCall()(3), "named_call takes a function, got 3"),
        (lambda: untyped.make_jaxpr(energy, static_argnums="x"), "make_jaxpr: static_argnums must be an integer"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_axis_names_may_be_any_hashable() -> None:
    names: list[Hashable] = ["i", 3, ("a", 1), frozenset({1}), None]
    for name in names:
        assert fx.Vmap(axis_name=name).axis_name == name
