"""Probabilistic programs: drawing, tracing and conditioning in loops, branches and batches; and log densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.stats as jst
import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors, untyped
from tracefx import lax, random, tree
from tracefx.extend import Array
from tracefx.handlers import (
    Bernoulli,
    Categorical,
    Distribution,
    Exponential,
    Normal,
    Site,
    Uniform,
    UnseededError,
    around,
    bounds,
    condition,
    count,
    laplacian,
    log_density,
    observe,
    reap,
    replay,
    sample,
    seed,
    sow,
    substitute,
    trace,
)

XS = np.array([1.0, 2.0, 3.0], np.float32)


def model(x: Any, y: Any = None) -> Array:
    w = sample("w", Normal(0.0, 1.0))
    b = sample("b", Normal(fnp.zeros(2), 1.0))
    return sample("y", Normal(x * w + b.sum(), 0.5), obs=y)


def walk(start: Any) -> Any:
    def step(x: Array, _: None) -> tuple[Array, Array]:
        x = x + sample("step", Normal(x, 1.0))
        return x, x

    return lax.scan(step, fnp.asarray(start), None, length=4)


def numbers(sites: dict[str, Site]) -> dict[str, tuple[Array, Array]]:
    return {name: (site.value, site.log_prob) for name, site in sites.items()}


# ------------------------------------------------------------------ keys


def test_seed_accepts_keys_and_integers() -> None:
    key = random.key(7)
    for other in (7, np.int32(7), random.PRNGKey(7), random.key_data(key)):
        assert seed(model, other)(1.0) == seed(model, key)(1.0)
    for wrong in (1.0, True, np.zeros(2, np.float32), np.zeros(3, np.uint32)):
        with pytest.raises(TypeError, match="seed takes a random key, got"):
            seed(model, wrong)


# ------------------------------------------------------------------ distributions


def sample_of(distribution: Distribution, key: int = 0) -> Array:
    return seed(lambda: sample("x", distribution), key)()


CASES: list[tuple[Distribution, Callable[[Any], Any], float, float]] = [
    (Normal(fnp.full(20000, 2.0), 3.0), lambda x: jst.norm.logpdf(x, 2.0, 3.0), 2.0, 9.0),
    (Uniform(fnp.full(20000, -1.0), 3.0), lambda x: jst.uniform.logpdf(x, -1.0, 4.0), 1.0, 16 / 12),
    (Exponential(fnp.full(20000, 2.0)), lambda x: jst.expon.logpdf(x, scale=0.5), 0.5, 0.25),
    (Bernoulli.of(fnp.full(20000, 0.3)), lambda x: jst.bernoulli.logpmf(x, 0.3), 0.3, 0.21),
    (
        Categorical(fnp.log(fnp.broadcast_to(fnp.array([0.2, 0.3, 0.5]), (20000, 3)))),
        lambda x: np.log(np.array([0.2, 0.3, 0.5]))[np.asarray(x)],
        1.3,
        0.61,
    ),
]


@pytest.mark.parametrize(("distribution", "log_prob", "mean", "variance"), CASES)
def test_moments_and_densities_of_draws(
    distribution: Distribution, log_prob: Callable[[Any], Any], mean: float, variance: float
) -> None:
    x = np.asarray(sample_of(distribution))
    assert x.shape == (20000,)
    assert x.dtype == distribution.dtype
    error = 5 * np.sqrt(variance / len(x))
    assert abs(x.mean() - mean) < error
    # Five standard errors: an exponential's fourth central moment is 9, and 5 * sqrt((9 - 1) / 20000) is 0.1.
    assert abs(x.var() - variance) < 0.1 * variance
    assert_near(distribution.log_prob(fnp.asarray(x)), log_prob(x))


def test_density_outside_the_support() -> None:
    x = fnp.array([-1.0, 2.0])
    np.testing.assert_array_equal(Uniform(0.0, 1.0).log_prob(x), [-np.inf, -np.inf])
    assert Exponential(1.0).log_prob(x)[0] == -np.inf
    assert Categorical(fnp.zeros(2)).log_prob(fnp.asarray(5)) == -np.inf


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats(dtype: str) -> None:
    x = sample_of(Normal(fnp.zeros(1000, dtype), 1))
    assert str(x.dtype) == dtype
    assert abs(float(x.astype("float32").std()) - 1) < 5 / np.sqrt(2 * 1000)  # five standard errors


def test_integer_fields_draw_floats() -> None:
    assert sample_of(Normal(0, 1)).dtype == np.float32


# ------------------------------------------------------------------ composition


def test_compiled_and_traced_draws_are_the_same() -> None:
    want = seed(model, 0)(XS)
    for f in (fx.jit(seed(model, 0)), seed(fx.jit(model), 0)):
        assert_near(f(XS), want)
    assert_near(trace(seed(model, 0))(XS)[0], want)
    assert (np.asarray(seed(model, 1)(XS)) != np.asarray(want)).all()
    _, inside = seed(trace(model), 0)(XS)
    _, outside = trace(seed(model, 0))(XS)
    _, compiled = fx.jit(trace(seed(fx.jit(model), 0)))(XS)
    assert list(outside) == ["w", "b", "y"]
    for sites in (outside, compiled):
        assert_near(numbers(sites), numbers(inside))
    normal = jst.norm.logpdf(np.asarray(inside["b"].value))
    assert_near(inside["b"].log_prob, normal)
    assert isinstance(inside["y"].distribution, Normal)
    assert_near(inside["y"].distribution.loc, XS * inside["w"].value + np.sum(inside["b"].value))


def test_seed_under_vmap_over_keys() -> None:
    keys = fnp.arange(3)
    many = fx.vmap(lambda key: seed(model, key)(XS))(keys)
    assert_near(many, np.stack([seed(model, i)(XS) for i in range(3)]))


@pytest.mark.parametrize("f", [fx.vmap(model), fx.vmap(fx.jit(model)), fx.jit(fx.vmap(model))])
def test_batch_elements_draw_independently(f: Callable[..., Any]) -> None:
    _, sites = trace(seed(f, 0))(XS)
    assert {name: s.value.shape for name, s in sites.items()} == {"w": (3,), "b": (3, 2), "y": (3,)}
    assert len(set(np.asarray(sites["w"].value).tolist())) == 3
    _, inside = seed(fx.vmap(trace(model)), 0)(XS)
    assert_near(numbers(sites), numbers(inside))
    shared = fx.vmap(seed(lambda x: x + sample("z", Normal()), 0))(np.zeros(3, np.float32))
    assert len(set(np.asarray(shared).tolist())) == 1


def test_densities_of_batched_distributions() -> None:
    """A batched scalar field must not be broadcast along the axis of draws."""

    _, sites = trace(seed(fx.vmap(lambda m: sample("v", Normal(fnp.full(3, 1.0) * m, m))), 0))(XS)
    values = np.asarray(sites["v"].value)
    assert_near(sites["v"].log_prob, jst.norm.logpdf(values, XS[:, None], XS[:, None]))


def test_draws_under_nested_vmap() -> None:
    f = fx.vmap(fx.vmap(lambda x: sample("z", Normal(x, 1.0))))
    x = np.zeros((2, 3), np.float32)
    _, sites = trace(seed(f, 0))(x)
    assert len(set(np.asarray(sites["z"].value).ravel().tolist())) == 6
    assert_near(condition(f, {"z": fnp.ones((2, 3))})(x), np.ones((2, 3)))


def test_scan_steps_draw_independently() -> None:
    for f in (seed(walk, 0), fx.jit(seed(walk, 0)), seed(fx.jit(walk), 0)):
        end, sites = trace(f)(0.0)
        steps = np.asarray(sites["step"].value)
        assert steps.shape == (4,)
        assert len(set(steps.tolist())) == 4
        assert_near(end[1], np.cumsum(steps))
        before = np.concatenate([[0.0], np.cumsum(steps)[:-1]])
        assert_near(sites["step"].log_prob, jst.norm.logpdf(steps, before))
    ends = seed(fx.vmap(walk), 0)(XS)[1]
    assert len({*(np.asarray(ends) - XS[:, None]).ravel().tolist()}) == 12


def test_draws_in_while_loops() -> None:
    def f() -> Array:
        return lax.while_loop(lambda x: x < 3.0, lambda x: x + sample("s", Uniform(0.0, 1.0)), fnp.asarray(0.0))

    assert 3.0 <= float(seed(f, 0)()) < 4.0
    assert float(fx.jit(seed(f, 0))()) == float(seed(f, 0)()) != float(seed(f, 1)())
    with pytest.raises(ValueError, match=r"vmap of while_loop: .* effects \(Sample 's'\)"):
        seed(fx.vmap(lambda x: f() + x), 0)(XS)
    with pytest.raises(ValueError, match=r"trace: the site 's' is in a while_loop at .*use scan or fori_loop"):
        trace(seed(f, 0))()


def branches(x: Any) -> Array:
    def no() -> Array:
        return sample("a", Uniform(0.0, 1.0)) + sample("b", Normal(5.0, 1.0))

    return lax.cond(x > 0, lambda: sample("a", Normal(0.0, 1.0)), no)


def test_sites_in_branches() -> None:
    for x in (1.0, -1.0):
        assert_near(fx.jit(seed(branches, 0))(x), seed(branches, 0)(x))
        with pytest.raises(ValueError, match=r"the site 'b' at .* is in one branch of cond but not in branch 1"):
            trace(seed(branches, 0))(x)
        out, sites = trace(seed(branches, 0), missing=-1.0)(x)
        assert sites["a"].distribution is None
        assert isinstance(sites["b"].distribution, Normal)
        if x > 0:
            assert (float(sites["b"].value), float(sites["b"].log_prob)) == (-1.0, 0.0)
        else:
            assert_near(out, sites["a"].value + sites["b"].value)
        density = log_density(branches)({"a": 0.5, "b": 4.0}, x)
        assert_near(density, jst.norm.logpdf(0.5) if x > 0 else 0.0 + jst.norm.logpdf(4.0, 5.0))
    assert_near(fx.vmap(seed(branches, 0))(np.array([1.0, -1.0], np.float32))[0], seed(branches, 0)(1.0))
    with pytest.raises(ValueError, match=r"effects \(Sample 'a', Sample 'b'\)"):
        seed(fx.vmap(branches), 0)(XS)
    with pytest.raises(ValueError, match=r"collect inside vmap, vmap\(trace\(f\)\)"):
        trace(fx.vmap(seed(branches, 0)), missing=0.0)(XS)


def test_derivatives_of_draws() -> None:
    def f(m: Any) -> Array:
        return sample("x", Normal(m, 2.0 * m)) ** 2

    x = float(seed(lambda m: sample("x", Normal(m, 2.0 * m)), 0)(3.0))
    z = (x - 3.0) / 6.0
    want = 2 * x * (1 + 2 * z)
    for g in (
        fx.grad(seed(f, 0)),
        seed(fx.grad(f), 0),
        fx.jit(seed(fx.jit(fx.grad(fx.jit(f))), 0)),
        seed(fx.grad(fx.checkpoint(f)), 0),
    ):
        assert_near(g(3.0), want)
    assert float(condition(fx.grad(f), {"x": 1.0})(3.0)) == 0.0
    assert float(condition(fx.grad(seed(f, 0)), {"x": 1.0})(3.0)) == 0.0
    assert_near(seed(fx.vmap(fx.grad(f)), 0)(XS), seed(fx.grad(lambda m: fx.vmap(f)(m).sum()), 0)(XS))


@pytest.mark.parametrize("distribution", [Uniform, Exponential, Normal])
def test_derivatives_commute_with_seed(distribution: type[Distribution]) -> None:
    def f(a: Any) -> Array:
        return sample("x", distribution(*([a] if distribution is Exponential else [a, a * a + 1]))).sum()

    x = np.array([0.5, 2.0], np.float32)
    assert_near(seed(fx.grad(f), 0)(x), fx.grad(seed(f, 0))(x))


def test_derivatives_of_draws_in_a_scan() -> None:
    def f(x: Any) -> Any:
        return walk(x)[0]

    assert_near(seed(fx.grad(f), 0)(2.0), fx.grad(seed(f, 0))(2.0))
    assert float(fx.grad(condition(f, {"step": XS[[0, 1, 2, 0]]}))(2.0)) == 1.0


def test_seed_of_grad_needs_a_reparametrized_distribution() -> None:
    @tree.register_dataclass
    @frozen
    class Odd(Distribution):
        at: Any

        @override
        def sample(self, key: Array) -> Array:
            return fnp.asarray(self.at) * 1.0

        @override
        def log_prob(self, x: Array) -> Array:
            return fnp.zeros_like(x)

    def f(x: Any) -> Array:
        return sample("odd", Odd(x))

    assert float(fx.grad(seed(f, 0))(2.0)) == 1.0
    with pytest.raises(
        TypeError, match=r"Odd does not define how its draws depend on its fields.*grad\(seed\(f, key\)\)"
    ):
        seed(fx.grad(f), 0)(2.0)


def test_draw_of_an_undeclared_type_is_refused() -> None:
    @tree.register_dataclass
    @frozen
    class Wrong(Distribution):
        at: Any

        @override
        def sample(self, key: Array) -> Array:
            return fnp.zeros(3)

        @override
        def log_prob(self, x: Array) -> Array:
            return x

    with pytest.raises(TypeError, match=r"a draw of Wrong is f32\[3\], but its shape and dtype say f32\[\]"):
        sample_of(Wrong(1.0))


def test_composition_with_other_handlers() -> None:
    def f() -> Array:
        return sow(sample("x", Normal()), name="seen") + 1

    out, seen = reap(seed(f, 0))()
    assert_near(out, seen["seen"] + 1)
    (_, seen), sites = trace(reap(seed(f, 0)))()
    assert_near(sites["x"].value, seen["seen"])


def test_draws_in_a_function_with_a_custom_rule() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return x * sample("x", Normal())

    f.defjvps(lambda t, ans, x: 7.0 * t)
    for g in (seed(f, 0), fx.jit(seed(f, 0)), seed(fx.jit(f), 0)):
        assert_near(trace(g)(2.0)[0], 2.0 * trace(g)(2.0)[1]["x"].value)
    assert float(seed(fx.grad(f), 0)(2.0)) == 7.0
    assert float(condition(f, {"x": 4.0})(2.0)) == 8.0
    with pytest.raises(UnseededError):  # the custom rule calls the function without a seed
        fx.grad(seed(f, 0))(2.0)


# ------------------------------------------------------------------ conditioning


def test_condition_composes_in_any_order() -> None:
    conditions = {"w": 2.0}
    for f in (
        condition(seed(model, 0), conditions),
        fx.jit(condition(seed(fx.jit(model), 0), conditions)),
        condition(fx.jit(seed(model, 0)), conditions),
    ):
        _, sites = trace(f)(XS)
        assert sites["w"].observed
        assert not sites["b"].observed
        assert float(sites["w"].value) == 2.0
        assert_near(sites["w"].log_prob, jst.norm.logpdf(2.0))
    _, sites = trace(seed(substitute(model, conditions), 0))(XS)
    assert not sites["w"].observed
    assert float(sites["w"].value) == 2.0
    twice = condition(condition(model, {"w": 1.0, "b": fnp.zeros(2), "y": XS}), {"w": 5.0})
    assert float(trace(twice)(XS)[1]["w"].value) == 5.0
    values = fnp.array([1.0, 2.0])
    each = fx.vmap(lambda w: condition(seed(model, 0), {"w": w})(XS))(values)
    assert_near(each, np.stack([condition(seed(model, 0), {"w": w})(XS) for w in (1.0, 2.0)]))


def test_condition_overrides_observations() -> None:
    out = condition(model, {"w": 1.0, "b": fnp.zeros(2), "y": fnp.zeros(3)})(XS, XS)
    assert_near(out, np.zeros(3))


def test_condition_sites_in_scans() -> None:
    steps = fnp.array([1.0, -2.0, 3.0, 0.5])
    assert_near(condition(walk, {"step": steps})(0.0)[1], np.cumsum(steps))
    batch = fnp.stack([steps, steps, steps], axis=1)
    assert_near(condition(fx.vmap(walk), {"step": batch})(XS)[0], XS + np.sum(steps))
    with pytest.raises(TypeError, match=r"a scan of 4 steps, so its value must have 4 elements along axis 0"):
        condition(walk, {"step": fnp.ones(3)})(0.0)

    def nested(x: Any) -> Any:
        return lax.scan(lambda c, _: walk(c), x, None, length=2)

    assert_near(condition(nested, {"step": fnp.ones((2, 4))})(0.0)[0], 8.0)
    with pytest.raises(TypeError, match=r"4 elements along axis 1.* in one step of the scan around it"):
        condition(nested, {"step": fnp.ones((2, 3))})(0.0)


def test_replay() -> None:
    _, sites = seed(trace(model), 0)(XS)
    del sites["b"]
    _, replayed = seed(trace(replay(model, {**sites, "other": sites["w"]})), 5)(XS)
    assert_near(replayed["w"].value, sites["w"].value)
    assert (np.asarray(replayed["b"].value) != 0).all()
    _, seen = seed(trace(replay(model, sites)), 5)(XS, 2 * XS)
    assert_near(seen["y"].value, 2 * XS)
    _, steps = trace(seed(walk, 0))(0.0)
    assert_near(replay(walk, steps)(0.0), seed(walk, 0)(0.0))
    with pytest.raises(TypeError, match="those of a trace"):
        replay(model, {"w": 1.0})  # type: ignore[dict-item]  # the error that is tested


def test_traces_are_pytrees() -> None:
    _, sites = fx.jit(trace(seed(model, 0)))(XS)
    assert isinstance(sites["w"], Site)
    assert len(tree.leaves(sites)) == 3 * 4


# ------------------------------------------------------------------ errors


def test_unseeded_programs_are_refused() -> None:
    for f in (model, fx.jit(model), fx.vmap(model), fx.grad(lambda x: model(x).sum())):
        with pytest.raises(UnseededError, match=r"sample of 'w' at .*seed\(f, key\).*condition\(f, \{'w': \.\.\.\}\)"):
            f(XS)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"condition: nothing is sampled under 'q'; .* sites are 'b', 'w', 'y'"):
        condition(seed(model, 0), {"q": 1.0})(XS)
    with pytest.raises(TypeError, match=r"the value of 'w', sampled at .*, is f32\[3\], but the value is f32\[\]"):
        condition(seed(model, 0), {"w": XS})(XS)
    assert_errors(
        (lambda: untyped(condition)(model, 3), TypeError, r"must be a dict by name"),
        (lambda: observe("y", Normal(fnp.zeros(3)), 1.0), TypeError, r"obs is f32\[\], but the value is f32\[3\]"),
        (lambda: observe("y", Bernoulli(0.0), 1.0), TypeError, r"obs is f32\[\].*, but the value is i32\[\]"),
        (lambda: untyped(sample)(3, Normal()), TypeError, "the name must be a string"),
        (lambda: untyped(sample)("x", 3), TypeError, "must inherit from Distribution"),
    )
    with pytest.raises(ValueError, match=r"sample of 'x': the fields .* don't fit each other"):
        sample("x", Normal(fnp.zeros(2), fnp.zeros(3)))

    with pytest.raises(ValueError, match=r"two sites have the name 'a', one at .* and one at"):
        trace(seed(lambda: sample("a", Normal()) + sample("a", Normal()), 0))()


# ------------------------------------------------------------------ densities


def test_log_density_and_its_gradient() -> None:
    values: dict[str, Any] = {"w": 0.5, "b": fnp.array([1.0, -0.5])}

    def want(values: Any) -> Any:
        loc = XS * values["w"] + values["b"].sum()
        normal = jst.norm.logpdf
        return normal(values["w"]) + normal(values["b"]).sum() + normal(2 * XS, loc, 0.5).sum()

    density = log_density(model)
    for f in (density, fx.jit(density), log_density(fx.jit(model))):
        assert_near(f(values, XS, 2 * XS), want(tree.map(np.asarray, values)))
    jax_gradient = jax.grad(want)(tree.map(np.asarray, values))
    for g in (fx.grad(density), fx.jit(fx.grad(density)), fx.grad(fx.jit(density))):
        assert_near(g(values, XS, 2 * XS), jax_gradient)
    batch = tree.map(lambda x: fnp.stack([fnp.asarray(x)] * 2), values)
    assert_near(
        fx.vmap(density, in_axes=(0, None, None))(batch, XS, 2 * XS), np.stack([want(tree.map(np.asarray, values))] * 2)
    )
    with pytest.raises(UnseededError, match="'b'"):
        density({"w": 1.0}, XS, XS)
    with pytest.raises(ValueError, match="log_density|nothing is sampled under 'v'"):
        density({**values, "v": 1.0}, XS, XS)


def test_log_density_of_a_program_without_sites() -> None:
    assert float(log_density(lambda: 3.0)({})) == 0.0


def test_unused_draws_stay_in_programs() -> None:
    def f() -> float:
        sample("unused", Normal())
        return 1.0

    assert "sample[" in str(fx.make_jaxpr(f)())
    assert list(trace(fx.jit(seed(f, 0)))()[1]) == ["unused"]


# ------------------------------------------------------------------ draws in unbatched programs and other handlers


def repeat_three_times(f: Callable[[Array], Array]) -> Array:
    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0] + 1, f(state[1])

    return lax.while_loop(lambda state: state[0] < 3, step, (fnp.asarray(0), fnp.asarray(0.0)))[1]


UNBATCHED: list[Callable[[Any], Any]] = [
    lambda x: fx.jit(lambda: sample("z", Normal()))() + 0 * x,
    lambda x: fx.checkpoint(lambda: sample("z", Normal()))() + 0 * x,
    lambda x: lax.cond(True, lambda: sample("z", Normal()), lambda: fnp.asarray(0.0)) + 0 * x,
    lambda x: lax.scan(lambda c, _: (c + sample("z", Normal()), None), fnp.asarray(0.0), None, length=2)[0] + 0 * x,
    lambda x: repeat_three_times(lambda y: y + sample("z", Normal())) + 0 * x,
]


@pytest.mark.parametrize("f", UNBATCHED)
def test_unbatched_bodies_draw_independently_per_batch_element(f: Callable[[Any], Any]) -> None:
    for g in (seed(fx.vmap(f), 0), fx.jit(seed(fx.vmap(fx.jit(f)), 0))):
        assert len(set(np.asarray(g(XS)).tolist())) == 3


@pytest.mark.parametrize("checkpoint", [None, 2, "binomial"])
def test_checkpointed_scan_draws_once(checkpoint: Any) -> None:
    def f(x: Any) -> Any:
        def step(x: Array, _: None) -> tuple[Array, None]:
            return sample("s", Normal(x, x)) * fnp.cos(x), None

        return lax.scan(step, fnp.asarray(x), None, length=4, checkpoint=checkpoint)[0]

    assert_near(seed(fx.grad(f), 0)(2.0), fx.grad(seed(f, 0))(2.0))


def test_other_handlers_on_log_density() -> None:
    def density(w: Any) -> Array:
        return log_density(model)({"w": w[0], "b": fnp.zeros(2)}, XS, XS)

    w = fnp.array([0.5])
    assert_near(laplacian(density)(w), np.trace(np.asarray(fx.hessian(density)(w))))
    interval = bounds(density)(around(w, 0.01))
    assert interval.contains(density(w))
    assert count(seed(model, 0))(XS).flops > 0
    with pytest.raises(UnseededError, match=r"handler\(seed\(f, key\)\), not seed\(handler\(f\), key\)"):
        seed(bounds(model), 0)(around(fnp.asarray(XS), 0.1))
    assert bounds(seed(model, 0))(around(fnp.asarray(XS), 0.1)).contains(seed(model, 0)(XS)).all()
    want = sum(jst.norm.logpdf(1.0, x) for x in (1.0, 2.0, 3.0, 4.0))
    assert_near(log_density(walk)({"step": fnp.ones(4)}, 1.0), want)
