"""`checkpoint`: agreement with JAX for every policy, the saved residuals, and the memory that it saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name as jax_checkpoint_name

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_agree, assert_near, assert_same
from tests.control.transform_checks import assert_agrees_with_jax, batch_axes_choices, normal
from tests.jaxprs import primitive_names
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.core.handler import current
from tracefx.core.jaxpr import Atom
from tracefx.passes.dce import dce
from tracefx.transforms.checkpointing import checkpoint_name

lax: Any = fx.lax  # `Any`, since tests also call it with wrong types

X: Final = normal(3, 2)
W: Final = normal(2, 2, seed=1)

POLICIES: Final[dict[str, Callable[[Any], Any]]] = {
    "none": lambda p: None,
    "everything_saveable": lambda p: p.everything_saveable,
    "nothing_saveable": lambda p: p.nothing_saveable,
    "dots_saveable": lambda p: p.dots_saveable,
    "dots_with_no_batch_dims_saveable": lambda p: p.dots_with_no_batch_dims_saveable,
    "save_only_these_names": lambda p: p.save_only_these_names("sine"),
    "save_any_names_but_these": lambda p: p.save_any_names_but_these("sine"),
    "save_anything_except_these_names": lambda p: p.save_anything_except_these_names("sine"),
    "save_from_both_policies": lambda p: p.save_from_both_policies(p.dots_saveable, p.save_only_these_names("sine")),
}


def name(lib: Any) -> Any:
    return checkpoint_name if lib is fx else jax_checkpoint_name


def layer(lib: Any, np_: Any, w: Any, x: Any) -> Any:
    return np_.tanh(name(lib)(np_.sin(x @ w), "sine") @ w)


def layers(lib: Any, np_: Any, **options: Any) -> Any:
    """Two checkpointed layers in sequence, inside another checkpoint."""
    one = lib.checkpoint(lambda w, x: layer(lib, np_, w, x), **options)
    return lambda w, x: lib.checkpoint(lambda w, x: one(w, one(w, x)), **options)(w, x)


def test_all_transformations_agree_with_jax() -> None:
    assert_agrees_with_jax(layers, (W, X), batch_axes_choices((W, X)), second=False)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_policies_agree_with_jax(policy: str) -> None:
    def factory(lib: Any, np_: Any) -> Any:
        return layers(lib, np_, policy=POLICIES[policy](lib.checkpoint_policies))

    assert_agrees_with_jax(
        factory, (W, X), eager=policy == "dots_saveable", second=policy in ("none", "save_only_these_names")
    )


def test_policy_callable_gets_primitive_and_avals() -> None:
    seen = set()

    def policy(prim: Any, *avals: Any) -> bool:
        seen.add((prim.name, *[str(a) for a in avals]))
        return bool(prim.name == "sin")

    f = fx.checkpoint(lambda x: fnp.exp(fnp.sin(x)).sum(), policy=policy)
    assert_same(fx.grad(f)(X), jax.grad(lambda x: jnp.exp(jnp.sin(x)).sum())(X), JAX_TRANSFORM_TOLERANCE)
    assert ("sin", "f32[3,2]") in seen


# ------------------------------------------------------------------ saved residuals


def residuals(f: Callable[..., Any], *args: Any) -> list[tuple[int, ...]]:
    """Returns the shapes of the residuals, without the arguments, that the forward pass saves for the backward pass."""
    jaxpr = dce(fx.make_jaxpr(fx.grad(f))(*args).jaxpr)
    backward_indices = [
        i for i, eqn in enumerate(jaxpr.eqns) if isinstance(eqn.prim, CheckpointPrimitive) and eqn.prim.differentiated
    ]
    producers: dict[Atom, int] = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.outs}
    read = {
        a
        for i in backward_indices
        for a in jaxpr.eqns[i].inputs
        if a in producers and producers[a] < backward_indices[0]
    }
    cotangents = {v for v in read if jaxpr.eqns[producers[v]].prim.name == "broadcast_in_dim"}
    return sorted([a.aval.shape for a in read - cotangents])


KEPT: Final = {
    "none": 0,
    "nothing_saveable": 0,
    "dots_saveable": 2,
    "dots_with_no_batch_dims_saveable": 2,
    "save_only_these_names": 1,
    "save_any_names_but_these": 0,
}


@pytest.mark.parametrize("policy", list(KEPT))
def test_only_residuals_allowed_by_the_policy_are_saved(policy: str) -> None:
    f = fx.checkpoint(lambda w, x: layer(fx, fnp, w, x).sum(), policy=POLICIES[policy](fx.checkpoint_policies))
    assert residuals(f, W, X) == [(3, 2)] * KEPT[policy]


def test_dots_policies_distinguish_batch_dimensions() -> None:
    def f(policy: Any) -> Any:
        return fx.checkpoint(
            lambda x, y: fnp.sin(lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))))).sum(), policy=policy
        )

    x, y = normal(2, 3, 4), normal(2, 4, 5)
    assert residuals(f(fx.checkpoint_policies.dots_saveable), x, y) == [(2, 3, 5)]
    assert residuals(f(fx.checkpoint_policies.dots_with_no_batch_dims_saveable), x, y) == []


def test_unsaved_values_are_recomputed_once_and_saved_ones_are_not() -> None:
    def count(policy: str) -> int:
        f = fx.checkpoint(
            lambda x: fnp.exp(checkpoint_name(fnp.sin(x), "sine")).sum(),
            policy=POLICIES[policy](fx.checkpoint_policies),
        )
        return primitive_names(dce(fx.make_jaxpr(fx.value_and_grad(f))(X).jaxpr)).count("sin")

    assert count("none") == 2
    assert count("save_only_these_names") == 1
    assert count("everything_saveable") == 1


# ------------------------------------------------------------------ loops and branches


def in_scan(lib: Any, np_: Any, **options: Any) -> Any:
    f = lib.checkpoint(lambda w, x: layer(lib, np_, w, x), **options)
    return lambda w, x: lib.lax.scan(lambda c, _: (f(w, c), c), x, None, length=3)


def around_scan(lib: Any, np_: Any, **options: Any) -> Any:
    def f(w: Any, x: Any) -> Any:
        return lib.lax.scan(lambda c, _: (layer(lib, np_, w, c), c), x, None, length=3)

    return lib.checkpoint(f, **options)


def around_cond(lib: Any, np_: Any, **options: Any) -> Any:
    def f(w: Any, x: Any) -> Any:
        return lib.lax.cond(x[0, 0] > 0, lambda: layer(lib, np_, w, x), lambda: name(lib)(x @ w, "sine") ** 2)

    return lib.checkpoint(f, **options)


@pytest.mark.parametrize("policy", ["none", "dots_saveable", "save_only_these_names"])
@pytest.mark.parametrize("checkpointed", [in_scan, around_scan, around_cond])
def test_checkpoint_with_loops_and_branches(checkpointed: Any, policy: str) -> None:
    def factory(lib: Any, np_: Any) -> Any:
        return checkpointed(lib, np_, policy=POLICIES[policy](lib.checkpoint_policies))

    assert_agrees_with_jax(factory, (W, X), [(0, None)] if policy == "dots_saveable" else (), second=False)


IN_BRANCHES: Final = {"none": 0, "nothing_saveable": 0, "dots_saveable": 3, "save_only_these_names": 1}
"""Number of residuals per policy: the maximum over the branches, which share residuals of equal types."""


@pytest.mark.parametrize("policy", list(IN_BRANCHES))
@pytest.mark.parametrize("which", [0, 1, 2])
def test_policies_apply_inside_branches(policy: str, which: int) -> None:
    def branches(w: Any, x: Any) -> Any:
        def one_dot(x: Any) -> Any:
            return fnp.sin(fx.checkpoint_name(fnp.tanh(x @ w), "sine")).sum()

        def three_dots(x: Any) -> Any:
            return fnp.cos(fnp.sin(fnp.exp(fnp.sin(x @ w) @ w) @ w)).sum()

        index = fnp.round(w[0, 0] * 0.0 + which).astype("int32")
        return lax.switch(index, [one_dot, three_dots, lambda x: (x * x * x).sum()], x)

    plain = fx.grad(branches, (0, 1))(W, X)
    f = fx.checkpoint(branches, policy=POLICIES[policy](fx.checkpoint_policies))
    assert residuals(f, W, X) == [X.shape] * IN_BRANCHES[policy]
    for got in (fx.grad(f, (0, 1))(W, X), fx.jit(fx.grad(f, (0, 1)))(W, X)):
        assert_near(got, plain)


def test_bounded_while_loop_inside_checkpoint() -> None:
    def f(wrap: Any) -> Any:
        def g(w: Any) -> Any:
            return lax.while_loop(
                lambda x: fnp.sum(x * x) < 9, lambda x: x * 1.5 + x @ w, fnp.asarray(X[0]), max_steps=4
            )

        return fx.jit(fx.grad(lambda w: wrap(g)(w).sum()))(W)

    assert_same(f(fx.checkpoint), f(lambda g: g), JAX_TRANSFORM_TOLERANCE)


# ------------------------------------------------------------------ arguments


def test_static_arguments_pytrees_and_keywords() -> None:
    def case(lib: Any, np_: Any) -> Any:
        def f(x: Any, how: Any, d: Any) -> Any:
            return {"y": np_.sin(x) if how == "sin" else x, "n": (d["a"] * 2, None)}

        g = lib.checkpoint(f, static_argnums=(1,))
        pairs = lib.grad(lambda x: np_.sum(g(x, "sin", {"a": 1})["y"]))(X), g(X, "id", {"a": np.int32(1)})
        h = lib.checkpoint(lambda x, *, k: x * k)
        return pairs, h(2.0, k=3.0), lib.grad(lambda x: h(x, k=x))(2.0), lib.jit(lib.grad(lambda x: h(x, k=x)))(2.0)

    assert_agree(case)
    g = fx.checkpoint(lambda x, how: fnp.sin(x) if how == "sin" else x, static_argnames="how")
    assert float(g(0.5, how="other")) == 0.5


def test_checkpoint_as_decorator() -> None:
    @fx.checkpoint(policy=fx.checkpoint_policies.dots_saveable)
    def f(x: Any) -> Any:
        return x * x

    assert float(fx.grad(f)(3.0)) == 6.0
    assert f.__name__ == "f"
    assert fx.remat is fx.checkpoint


@agrees_with_jax
def test_closed_over_tracers(lib: Any, np_: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return lib.checkpoint(lambda z: np_.sin(z * x) * y)(x + y)

    def g(y: Any) -> Any:
        return lib.grad(lambda x: f(x, y))(y)

    y = np_.asarray([0.5, -1.5], "float32")
    return lib.vmap(g)(y), lib.vmap(lib.grad(g))(y), lib.jit(lib.vmap(lib.grad(g)))(y)


def test_function_is_traced_once() -> None:
    seen = []

    @fx.checkpoint
    def f(x: Any) -> Any:
        seen.append(x)
        return fnp.sin(x) * x

    for _ in range(3):
        f(2.0)
        fx.grad(f)(2.0)
        fx.vmap(fx.grad(f))(fnp.asarray([1.0, 2.0]))
        fx.grad(lambda x: f(f(x)))(2.0)
    assert len(seen) <= 2  # The weakly typed Python number, then the array that the first call returns.


def test_with_jit_disabled_checkpoint_calls_the_function_directly() -> None:
    seen: list[str] = []

    @fx.checkpoint
    def f(x: Any) -> Any:
        seen.append(type(x).__name__)
        return x * x

    with fx.disable_jit():
        assert float(f(3.0)) == 9.0
        assert float(fx.grad(f)(3.0)) == 6.0
    assert seen == ["float", "JVPTracer"]


def test_exception_inside_restores_the_context() -> None:
    before = current()

    @fx.checkpoint
    def bad(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fx.grad(bad)(1.0)
    assert current() is before


# ------------------------------------------------------------------ memory


def temporary_bytes(f: Callable[..., Any], *args: Any) -> int:
    """Returns the bytes of temporary memory of the compiled gradient (without its arguments and results)."""
    analysis = fx.jit(fx.grad(f)).lower(*args).compile().memory_analysis()
    return int(analysis.temp_bytes)


STEPS: Final = 1024
WIDE: Final = np.eye(16, dtype=np.float32)


def chain(length: int = STEPS, **options: Any) -> Any:
    def f(w: Any) -> Any:
        h = fnp.ones((16, 16), np.float32)
        return lax.scan(lambda h, _: (fnp.tanh(fnp.sin(h @ w)), None), h, None, length=length, **options)[0].sum()

    return f


def bounded(length: int = STEPS) -> Any:
    def f(w: Any) -> Any:
        h = fnp.ones((16, 16), np.float32)

        def step(c: Any) -> Any:
            return c[0] + 1, fnp.tanh(fnp.sin(c[1] @ w))

        return lax.while_loop(lambda c: c[0] < length - 1, step, (0, h), max_steps=length)[1].sum()

    return f


def test_memory_of_long_scans() -> None:
    """A step saves about two carries: 1024 of them without checkpoints, 32 + 32 or 5 levels of 4 with them."""
    plain, tree = temporary_bytes(chain(), WIDE), temporary_bytes(chain(checkpoint="binomial"), WIDE)
    assert plain > STEPS * WIDE.nbytes
    assert temporary_bytes(chain(checkpoint=32), WIDE) < plain / 8
    assert tree < plain / 20
    assert temporary_bytes(chain(4 * STEPS, checkpoint="binomial"), WIDE) < 1.5 * tree


def test_memory_of_bounded_loops() -> None:
    short = temporary_bytes(bounded(), WIDE)
    assert short < 2 * STEPS * WIDE.nbytes / 8
    assert temporary_bytes(bounded(4 * STEPS), WIDE) < 2.5 * short  # memory grows with the square root of the length


def test_memory_of_checkpointed_steps() -> None:
    def f(wrap: Any) -> Any:
        def step(h: Any, w: Any) -> Any:
            for _ in range(8):
                h = fnp.tanh(h @ w)
            return h

        one = wrap(step)

        def g(w: Any) -> Any:
            return lax.scan(lambda h, _: (one(h, w), None), fnp.ones((16, 16), np.float32), None, length=64)[0].sum()

        return g

    assert temporary_bytes(f(fx.checkpoint), WIDE) < temporary_bytes(f(lambda g: g), WIDE) / 4


@pytest.mark.parametrize(
    "flags", [(True, False), (False, True), (False, {"a": False}), (True, {"a": False}), [True, True]]
)
@pytest.mark.parametrize("jitted", [False, True])
@agrees_with_jax
def test_prevent_cse_of_each_argument(F: Any, N: Any, flags: Any, jitted: bool) -> Any:
    f = F.grad(F.checkpoint(lambda x, y: N.sin(x) * y["a"], prevent_cse=flags))
    return (F.jit(f) if jitted else f)(1.0, {"a": 2.0})


@pytest.mark.parametrize(
    ("flags", "error"), [((True,), ValueError), ((True, False, True), ValueError), (3, TypeError), (None, TypeError)]
)
def test_invalid_prevent_cse_is_rejected(flags: Any, error: type[Exception]) -> None:
    for F in (fx, jax):
        with pytest.raises(error):
            F.grad(F.checkpoint(lambda x, y: x * y, prevent_cse=flags))(1.0, 2.0)


def test_static_arguments_need_not_be_hashable() -> None:
    def results(lib: Any) -> list[float]:
        power = lib.checkpoint(lambda x, n, scales: scales[0] * x ** n["n"], static_argnums=(1, 2))
        exponents = {"n": 2}
        first = lib.grad(power)(3.0, exponents, [2.0])
        exponents["n"] = 3
        second = lib.grad(power)(3.0, exponents, [2.0])
        third = lib.jit(lambda x, y: lib.grad(power)(x, {"n": 2}, [y]))(3.0, 5.0)
        return [float(first), float(second), float(third)]

    assert results(fx) == [12.0, 54.0, 30.0]
    assert results(jax)[::2] == [12.0, 30.0]
