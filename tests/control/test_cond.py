"""`cond` and `switch`: values, derivatives and batches as in JAX, their jaxprs, and invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_agree, assert_same
from tests.control.transform_checks import assert_agrees_with_jax, assert_sound, batch_axes_choices, normal
from tests.errors import assert_errors, error_message
from tests.jaxprs import all_equations
from tracefx.control.cond import Cond
from tracefx.core.jaxpr import Jaxpr
from tracefx.passes.dce import dce

lax: Any = fx.lax  # `Any`, since tests also call them with wrong types

X: Final = normal(2)
W: Final = normal(2, 2, seed=1)


def two(lib: Any, np_: Any) -> Any:
    """Two branches without common residuals; one has a product."""

    def f(p: Any, x: Any, w: Any) -> Any:
        return lib.lax.cond(p > 0, lambda x, w: (np_.sin(x) @ w, x * p), lambda x, w: (x @ w.T, x), x, w)

    return f


def three(lib: Any, np_: Any) -> Any:
    """Three branches with pytree operands and results; some results depend on the operands in one branch only."""

    def f(p: Any, x: Any) -> Any:
        branches = [
            lambda d: {"y": d["a"] * p, "z": (np_.exp(d["b"]), None)},
            lambda d: {"y": d["b"], "z": (d["a"], None)},
            lambda d: {"y": np_.ones(2, "float32"), "z": (np_.tanh(d["a"] * d["b"]), None)},
        ]
        return lib.lax.switch(np_.int32(p * 2), branches, {"a": x, "b": x * 2})

    return f


def nested(lib: Any, np_: Any) -> Any:
    def f(p: Any, q: Any, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return lib.lax.cond(q > 0, lambda: np_.sin(x) * q, lambda: x * x)

        return lib.lax.cond(p > 0, inner, lambda x: lib.jit(inner)(x) * p, x)

    return f


# ------------------------------------------------------------------ values and derivatives


def test_all_transformations_agree_with_jax() -> None:
    args = np.float32(0.5), X, W
    assert_agrees_with_jax(two, args, batch_axes_choices(args))


@pytest.mark.parametrize("p", [0.5, -0.5])
def test_both_branches_eagerly(p: float) -> None:
    assert_agrees_with_jax(two, (np.float32(p), X, W), [(0, None, None)], eager=True)


@pytest.mark.parametrize("p", [-3.0, 0.6, 1.2])
def test_switch(p: float) -> None:
    assert_agrees_with_jax(three, (np.float32(p), X), [(0, None), (None, 1)])


def test_nested() -> None:
    assert_agrees_with_jax(nested, (np.float32(0.5), np.float32(-0.5), X), [(0, None, None), (None, 0, 0)], eager=True)


@agrees_with_jax
def test_index_is_clamped(lib: Any, np_: Any) -> Any:
    branches = [lambda x: x, lambda x: x + 1, lambda x: x * 5]
    run = lib.jit(lambda i: lib.lax.switch(i, branches, 3.0))
    indices: list[Any] = [-7, -1, 0, 1, 2, 3, 99]
    results = [lib.lax.switch(i, branches, 3.0) for i in indices] + [run(i) for i in indices]
    batch = lib.vmap(lambda i: lib.lax.switch(i, branches, 3.0))(np_.array(indices))
    small = lib.lax.switch(np.uint8(200), branches, 3.0), lib.lax.switch(np.int8(-3), branches, 3.0)
    return results, batch, small


def test_switch_with_one_or_no_branch() -> None:
    assert_agree(lambda lib, np_: lib.lax.switch(5, [lambda x: x * 2], 3.0))
    assert_agree(
        lambda lib, np_: lib.jit(lambda i: lib.grad(lambda x: lib.lax.switch(i, [lambda x: x * x], x))(3.0))(2)
    )
    for lib in (fx, jax):
        with pytest.raises(ValueError, match="(?i)branch"):
            lib.lax.switch(0, [], 1.0)


@agrees_with_jax
def test_numeric_predicates(lib: Any, np_: Any) -> Any:
    def f(pred: Any) -> Any:
        return lib.lax.cond(pred, lambda x: x + 1.0, lambda x: x * 2.0, 3.0)

    predicates = (True, False, 0, 2, -1, 0.0, 0.5, np.bool_(True), np.int8(0), np.float32(3))
    return [(f(pred), lib.jit(f)(pred)) for pred in predicates]


FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "operands": lambda lax: lax.cond(True, lambda x, y: x + y, lambda x, y: x * y, 2.0, 3.0),
    "no operands": lambda lax: lax.cond(False, lambda: 1.0, lambda: 2.0),
    "operand=": lambda lax: lax.cond(True, lambda x: x[0] + x[1], lambda x: x[0], operand=(2.0, 3.0)),
    "operand=None": lambda lax: lax.cond(True, lambda _: 1, lambda _: 2, operand=None),
    "named functions": lambda lax: lax.cond(False, true_fun=lambda x: x, false_fun=lambda x: x * 2, operand=4.0),
    "two operands": lambda lax: lax.cond(True, 2.0, lambda x: x * 2, (3.0, 1.0), lambda t: t[0] - t[1]),
    "two operands, false": lambda lax: lax.cond(False, 2.0, lambda x: x * 2, (3.0, 1.0), lambda t: t[0] - t[1]),
    "trees": lambda lax: lax.cond(
        True, lambda d: {"b": d["a"], "c": None}, lambda d: {"b": 2.0, "c": None}, {"a": 1.0}
    ),
    "nothing": lambda lax: lax.cond(True, lambda: (), lambda: ()),
    "switch operand=": lambda lax: lax.switch(1, [lambda x: x, lambda x: x * 2], operand=4.0),
}


def test_call_signatures() -> None:
    def calls(lib: Any, np_: Any) -> Any:
        return {name: form(lib.lax) for name, form in FORMS.items()}

    assert_agree(lambda lib, np_: (calls(lib, np_), lib.jit(lambda: calls(lib, np_))()))
    with fx.disable_jit():
        got: Any = fx.tree.map(fnp.asarray, calls(fx, fnp))
    assert_same(got, calls(jax, jnp), JAX_TRANSFORM_TOLERANCE)


@agrees_with_jax
def test_result_and_operand_dtypes(lib: Any, np_: Any) -> Any:
    def f(p: Any, *xs: Any) -> Any:
        return lib.lax.cond(p, lambda *xs: xs, lambda *xs: (*[x + x for x in xs[:-1]], ~xs[-1]), *xs)

    xs = (np.int8(3), np.uint32(4), np.float16(0.5), np_.asarray(1.5, "bfloat16"), np.complex64(1 + 2j), np.bool_(True))
    batch = lib.vmap(f, (0, *(None,) * 6))(np.array([True, False]), *xs)
    return [f(p, *xs) for p in (True, False)], batch


@agrees_with_jax
def test_weakly_typed_results_are_promoted_to_strong_types(lib: Any, np_: Any) -> Any:
    def f(p: Any) -> Any:
        return lib.lax.cond(p, lambda: (1.0, 1.0), lambda: (np_.float32(2), 2.0))

    return f(True), f(False), lib.jit(f)(True), lib.vmap(f)(np.array([True, False]))


def test_integer_operands_do_not_prevent_differentiation() -> None:
    def factory(lib: Any, np_: Any) -> Any:
        return lambda x: lib.lax.cond(x > 0, lambda x, n: (x * n, n + 1), lambda x, n: (x, n), x, np.int32(3))

    assert_agrees_with_jax(factory, (np.float32(0.5),), [(0,)], eager=True)


@pytest.mark.parametrize("p", [True, False])
@agrees_with_jax
def test_closed_over_tracers(lib: Any, np_: Any, p: bool) -> Any:
    """Tracers of each transformation, at each nesting depth."""

    def f(x: Any, y: Any) -> Any:
        return lib.lax.cond(p, lambda z: z * x + y, lambda z: lib.lax.cond(y > 0, lambda: x, lambda: y * y), x + y)

    def g(y: Any) -> Any:
        return lib.grad(lambda x: f(x, y))(y)

    y = np_.asarray([0.5, -1.5], "float32")
    return lib.vmap(g)(y), lib.jit(lib.vmap(g))(y), lib.vmap(lib.grad(g))(y), lib.jvp(lib.vmap(g), (y,), (y,))


@agrees_with_jax
def test_linear_transpose(lib: Any, np_: Any) -> Any:
    def f(p: Any) -> Any:
        def linear(x: Any) -> Any:
            return lib.lax.cond(p, lambda x: (x[::-1] * 2, x), lambda x: (x, np_.zeros(2, "float32")), x)

        return lib.linear_transpose(linear, X)((X, X * 3))

    return [f(p) for p in (True, False)] + [lib.jit(f)(p) for p in (True, False)]


# ------------------------------------------------------------------ platform_dependent


def on_platforms(lib: Any, np_: Any) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.platform_dependent(
            x, x, cpu=lambda x, y: {"a": np_.sin(x) * y}, tpu=lambda x, y: {"a": x}, default=lambda x, y: {"a": y}
        )

    return f


def test_platform_dependent() -> None:
    assert_agrees_with_jax(on_platforms, (X,), [(0,), (1,)], eager=True)
    assert_agree(lambda lib, np_: lib.lax.platform_dependent(X, cpu=lambda x: x * 2))
    assert_agree(lambda lib, np_: lib.jit(lambda x: lib.lax.platform_dependent(x, default=lambda x: x * 2))(X))
    with fx.disable_jit():
        assert_same(on_platforms(fx, fnp)(X), on_platforms(jax, jnp)(X), JAX_TRANSFORM_TOLERANCE)
    assert_sound(on_platforms(fx, fnp), X)

    def loss(x: Any) -> Any:
        return on_platforms(fx, fnp)(x)["a"].sum()

    assert_sound(fx.grad(loss), X)


def test_missing_platforms_and_mismatched_results_are_rejected() -> None:
    for lib in (fx, jax):
        with pytest.raises(NotImplementedError):
            lib.lax.platform_dependent(X, tpu=lambda x: x)
    text = error_message(lambda: lax.platform_dependent(X, cpu=lambda x: x, default=lambda x: x[0]))
    assert text.startswith("platform_dependent: the results must have the same types:")
    assert "f32[2]" in text


# ------------------------------------------------------------------ jaxprs


def conds(jaxpr: Jaxpr) -> list[Cond]:
    """Returns all `cond` primitives of a jaxpr, including those of its sub-jaxprs."""
    return [eqn.prim for eqn in all_equations(jaxpr) if isinstance(eqn.prim, Cond)]


def names(jaxpr: Jaxpr) -> list[str]:
    return [eqn.prim.name for eqn in jaxpr.eqns]


def test_vmap_with_unbatched_predicate_keeps_the_cond() -> None:
    f = two(fx, fnp)
    batch = fx.make_jaxpr(fx.vmap(f, in_axes=(None, 0, None)))(np.float32(1), np.stack([X, X]), W).jaxpr
    assert len(conds(batch)) == 1
    assert "select_n" not in names(batch)
    batch = fx.make_jaxpr(fx.vmap(f, in_axes=(0, None, None)))(np.array([1, 2], np.float32), X, W).jaxpr
    assert not conds(batch)
    assert names(batch).count("select_n") == 7  # Two results and the operands of each branch.


def test_vmap_keeps_results_unbatched_that_no_branch_batches() -> None:
    def f(p: Any, x: Any, y: Any) -> Any:
        return lax.cond(p, lambda: (x + 1, y), lambda: (x * 2, y * 2))

    batch = fx.make_jaxpr(fx.vmap(f, (None, None, 0), out_axes=(None, 0)))(True, X, np.stack([X, X])).jaxpr
    (cond,) = conds(batch)
    assert [a.shape for a in cond.branches[0].out_avals] == [(2,), (2, 2)]


def test_dce_removes_unused_results_and_their_operands() -> None:
    def f(p: Any, x: Any, y: Any) -> Any:
        return lax.cond(p, lambda x, y: (fnp.sin(x), fnp.exp(y)), lambda x, y: (x, fnp.tanh(y)), x, y)[0]

    (cond,) = conds(dce(fx.make_jaxpr(f)(True, X, X).jaxpr))
    assert [names(b) for b in cond.branches] == [[], ["sin"]]
    assert [len(b.invars) for b in cond.branches] == [1, 1]
    unused = fx.make_jaxpr(lambda p, x: (f(p, x, x), x)[1])(True, X).jaxpr
    assert not conds(dce(unused))


def test_branches_share_residual_slots() -> None:
    """Only one branch runs, so residuals of equal types in different branches use the same result."""

    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: fnp.sin(x).sum(), lambda x: fnp.exp(x).sum(), x)

    first, second = conds(dce(fx.make_jaxpr(fx.grad(f, 1))(True, X).jaxpr))
    assert [a.shape for a in first.branches[0].out_avals] in ([(2,)], [(), (2,)])
    for branch in second.branches:
        assert not {"sin", "cos", "exp"} & set(names(branch))


def test_linear_part_does_not_recompute_known_values() -> None:
    _, push = fx.linearize(lambda x: lax.cond(True, lambda x: fnp.sin(x) * 2, lambda x: x, x), X)
    text = str(fx.make_jaxpr(push)(X))
    assert "cond" in text
    assert "sin" not in text
    assert "cos" not in text


def test_equal_jaxprs_compare_equal() -> None:
    first, second = [fx.make_jaxpr(two(fx, fnp))(np.float32(1), X, W).jaxpr for _ in range(2)]
    assert first == second
    assert hash(conds(first)[0]) == hash(conds(second)[0])
    other = fx.make_jaxpr(lambda p, x, w: two(fx, fnp)(p, x, w)[::-1])(np.float32(1), X, W).jaxpr
    assert first != other


def test_branches_are_traced_and_compiled_once() -> None:
    seen = []

    def left(x: Any) -> Any:
        seen.append("left")
        return fnp.sin(x)

    def right(x: Any) -> Any:
        seen.append("right")
        return x

    def f(x: Any) -> Any:
        return lax.cond(x > 0, left, right, x)

    for x in map(np.float32, (0.5, -0.5, 0.25)):
        fx.grad(f)(x)
        f(x)
        fx.vmap(fx.grad(f))(fnp.stack([x, -x]))
        fx.jvp(f, (x,), (x,))
    assert sorted(seen) == ["left", "right"]


def test_with_jit_disabled_only_the_chosen_branch_runs() -> None:
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    def fail(x: Any) -> Any:
        raise AssertionError

    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, note, fail, x)

    with fx.disable_jit():
        assert float(f(True, 2.0)) == 2.0
        assert float(lax.switch(9, [fail, note], 3.0)) == 3.0
        assert_agree(lambda lib, np_: lib.vmap(three(lib, np_))(np.array([0, 1], np.float32), np.stack([X, X])))
    assert seen == [2.0, 3.0]


# ------------------------------------------------------------------ invalid arguments


def left(x: Any) -> Any:
    return {"a": x, "b": (x, x + 1)}


def right(x: Any) -> Any:
    return {"a": x, "b": (fnp.stack([x, x]), fnp.int32(1))}


def test_branches_with_different_result_types_are_rejected() -> None:
    assert error_message(lambda: lax.cond(True, left, right, np.float32(1))) == (
        "cond: the results must have the same types:\n"
        "  leaf      true_fun (left)  false_fun (right)\n"
        "  ['b'][0]  f32[]            f32[2]\n"
        "  ['b'][1]  f32[]            i32[]\n"
        "Convert or broadcast them, so that all functions return the same types."
    )


def test_branches_with_different_result_structures_are_rejected() -> None:
    def wrapped(x: Any) -> Any:
        return [x]

    assert error_message(lambda: lax.switch(0, [left, wrapped], np.float32(1))) == (
        "switch: the results must have the same structure:\n"
        "  branches[1] (wrapped) : a list of length 1\n"
        "  branches[0] (left)    : a dict with the keys 'a', 'b', {'a': *, 'b': (*, *)}"
    )
    text = error_message(lambda: lax.cond(True, lambda x: x, lambda x: [x], np.float32(1)))
    assert f"(<lambda> at {__file__}:" in text, "a lambda is named by its line"


def test_invalid_predicates_are_rejected() -> None:
    assert error_message(lambda: lax.cond("yes", left, left, 1.0)) == (
        "cond: the predicate must be a scalar, got 'yes' of type str"
    )
    assert error_message(lambda: lax.cond(X > 0, left, left, 1.0)) == (
        "cond: the predicate must be a scalar, got one of type bool[2]"
    )
    assert error_message(lambda: lax.cond(1j, left, left, 1.0)) == (
        "cond: the predicate must be a boolean or a real number, got one of type c64[]"
    )
    assert error_message(lambda: lax.switch(1.0, [left], 1.0)) == (
        "switch: the index must be an integer scalar, got one of type f32[]"
    )
    assert error_message(lambda: lax.switch(0, left, 1.0)).startswith(
        "switch takes a sequence of functions, got <function left"
    )
    assert "one of type i32[2]" in error_message(lambda: lax.switch(np.array([0, 1], np.int32), [left], 1.0))
    for lib in (fx, jax):
        with pytest.raises(TypeError):
            lib.lax.cond(None, left, left, 1.0)
        with pytest.raises(TypeError):
            lib.lax.cond(True, left, 1.0)


def test_exception_in_a_branch_restores_the_context() -> None:
    def bad(x: Any) -> Any:
        raise KeyError("mine")

    for run in (
        lambda: lax.cond(True, left, bad, 1.0),
        lambda: fx.vmap(fx.grad(lambda x: lax.cond(x > 0, bad, bad, x)))(X),
    ):
        assert error_message(run, KeyError) == "'mine'"
    assert_same(lax.cond(True, lambda x: x, lambda x: x, 1.0), jnp.asarray(1.0), JAX_TRANSFORM_TOLERANCE)


def test_passing_both_operands_and_operand_is_rejected() -> None:
    for lib in (fx, jax):
        with pytest.raises(TypeError):
            lib.lax.cond(True, left, left, 1.0, operand=2.0)
        with pytest.raises(TypeError):
            lib.lax.switch(0, [left, left], 1.0, operand=2.0)


GUARDS: Final[dict[str, Callable[[Any, Any], Callable[..., Any]]]] = {
    "an operand": lambda lib, np_: lambda x, w: lib.lax.cond(x < 0.1, lambda x: x * 0.1, np_.sqrt, x),
    "a closed-over value": lambda lib, np_: (
        lambda x, w: lib.lax.cond(x < 0.1, lambda: x * 0.1, lambda: np_.sqrt(x) * w)
    ),
    "one that is not batched": lambda lib, np_: (
        lambda x, w: lib.lax.cond(x < 0.1, lambda w: x, lambda w: np_.log(w * x), w)
    ),
    "switch": lambda lib, np_: (
        lambda x, w: lib.lax.switch(
            np_.int32(x * 2), [lambda x: x, lambda x: np_.log(x - 0.5), lambda x: w / (x - 0.6) ** 2], x
        )
    ),
    "nested": lambda lib, np_: (
        lambda x, w: lib.lax.cond(
            x < 0.1, np_.sin, lambda x: lib.lax.cond(w > 5.0, np_.cos, lambda x: np_.sqrt(x) * w, x), x
        )
    ),
    "in a loop": lambda lib, np_: (
        lambda x, w: lib.lax.scan(
            lambda c, y: (lib.lax.cond(c < 0.1, lambda c: 0.0 * w, lambda c: np_.sqrt(c) * y, c), None),
            x,
            np_.ones(3, np_.float32),
        )[0]
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_gradient_of_vmapped_cond_is_finite_where_the_other_branch_has_an_infinite_derivative(name: str) -> None:
    """Batch elements that take one branch are not affected by an infinite derivative of the other branch."""
    x, w = np.array([0.0, 0.25, 0.6, 1.5], np.float32), np.float32(2.0)

    def batched(lib: Any, np_: Any) -> Any:
        f = GUARDS[name](lib, np_)
        return lambda x, w: lib.vmap(f, in_axes=(0, None))(x, w).sum()

    function = batched(fx, fnp)

    def derivatives(lib: Any, np_: Any) -> Any:
        f, both = batched(lib, np_), partial(lib.grad, argnums=(0, 1))
        slopes = [both(f), lib.jit(both(f)), both(lib.jit(f)), both(lib.checkpoint(f)), lib.jit(lib.hessian(f))]
        return [slope(x, w) for slope in slopes]

    assert_agree(derivatives)
    assert all(np.isfinite(np.asarray(g)).all() for g in fx.grad(function, argnums=(0, 1))(x, w))


def test_vmap_does_not_broadcast_unbatched_operands() -> None:
    w = normal(3, 3)
    f = fx.vmap(lambda x: lax.cond(x[0] > 0, lambda x: x @ w, lambda x: x, x))
    text = str(fx.make_jaxpr(f)(normal(5, 3)))
    assert "f32[3,3]" in text
    assert "f32[5,3,3]" not in text


@pytest.mark.parametrize("jitted", [False, True])
@agrees_with_jax
def test_vmap_keeps_an_operand_unbatched_that_every_branch_returns(F: Any, N: Any, jitted: bool) -> Any:
    def f(x: Any, y: Any) -> Any:
        return F.lax.cond(x > 0, lambda x, y: (y, x), lambda x, y: (y, x), x, y)

    mapped = F.vmap(f, in_axes=(0, None), out_axes=(None, 0))
    return (F.jit(mapped) if jitted else mapped)(N.arange(2.0), N.arange(3.0))


def test_errors_name_the_branch_that_is_no_function() -> None:
    untyped: Any = fx.lax
    assert_errors(
        (
            lambda: untyped.cond(True, 1.0, fnp.sin, 2.0),
            TypeError,
            r"^cond: true_fun must be a function, got 1\.0",
        ),
        (lambda: untyped.cond(True, fnp.sin, 2.0), TypeError, r"^cond: false_fun must be a function, got 2\.0"),
        (lambda: untyped.switch(0, [fnp.sin, 3], 2.0), TypeError, r"^switch: branches\[1\] must be a function, got 3"),
        (lambda: untyped.while_loop(1, fnp.sin, 2.0), TypeError, r"^while_loop: cond_fun must be a function, got 1"),
    )
