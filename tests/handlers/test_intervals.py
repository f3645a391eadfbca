"""Interval bounds contain the values that programs compute, in exact arithmetic and in floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from numpy.typing import NDArray
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.primitives import SameTypes
from tracefx import lax, nn
from tracefx.extend import MissingRuleError, bind1
from tracefx.handlers import BoundsRule, Interval, around, bounds, reap, sow
from tracefx.handlers.intervals.elementwise import FUNCTION_ULPS
from tracefx.testing.tolerances import ELEMENTARY, EXACT, FINITE_DIFFERENCES_32_BITS, PROGRAM, Ulps

Floats = NDArray[np.floating[Any]]
ENDS: Final = (-np.inf, -1e30, -20.0, -3.0, -1.0, -0.25, -1e-3, -0.0, 0.0, 1e-3, 0.25, 1.0, 3.0, 20.0, 1e30, np.inf)
WIDENED: Final = Ulps(f32=2 * FUNCTION_ULPS)
"""The tolerance for outward rounding; an ulp of 1 is two ulps of the floats below it."""


def intervals(count: int, least: float = -np.inf, most: float = np.inf, seed: int = 0) -> tuple[Floats, Floats]:
    """Random intervals, and all pairs from a list of edge values."""
    rng = np.random.default_rng(seed)
    fixed = [(a, b) for a in ENDS for b in ENDS if a <= b and least <= a < np.inf and -np.inf < b <= most]
    centers = rng.normal(size=count) * 10.0 ** rng.integers(-3, 3, size=count)
    radii = np.abs(rng.normal(size=count)) * 10.0 ** rng.integers(-4, 2, size=count)
    lo = np.concatenate([[a for a, _ in fixed], np.clip(centers - radii, least, most)])
    hi = np.concatenate([[b for _, b in fixed], np.clip(centers + radii, least, most)])
    return lo.astype(np.float32), hi.astype(np.float32)


def points(lo: Floats, hi: Floats, count: int = 40, seed: int = 1) -> Floats:
    """Random numbers in the intervals, including the ends."""
    rng = np.random.default_rng(seed)
    a, b = np.clip(lo, -3e38, 3e38).astype(np.float64), np.clip(hi, -3e38, 3e38).astype(np.float64)
    shares = rng.uniform(size=(count, *lo.shape))
    shares[0], shares[1] = 0.0, 1.0
    return np.clip((a * (1 - shares) + b * shares).astype(np.float32), a, b).astype(np.float32)


def check_contained(out: Any, values: Floats, label: str) -> None:
    """Checks that the bounds contain the values; NaN values are skipped, since they are outside the domain."""
    lo, hi = np.asarray(out.lo, np.float64), np.asarray(out.hi, np.float64)
    assert not (np.isnan(lo) | np.isnan(hi)).any(), label
    wrong = ~(np.isnan(values) | ((values >= lo) & (values <= hi)))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise AssertionError(f"{label}: {values[place]!r} not in [{lo[place[1:]]!r}, {hi[place[1:]]!r}], at {place}")


def check_bounds(f: Callable[..., Any], *args: tuple[Floats, Floats], defined: Callable[..., Any] | None = None) -> Any:
    """Checks that eager and compiled bounds of `f` contain its values in float32 and float64, where it is `defined`."""
    boxes = [Interval(fnp.asarray(lo), fnp.asarray(hi)) for lo, hi in args]
    xs = [points(lo, hi, seed=i + 1) for i, (lo, hi) in enumerate(args)]
    plain, compiled = bounds(f)(*boxes), fx.jit(bounds(f))(*boxes)
    single = fx.jit(fx.vmap(f))(*xs)
    with fx.enable_x64():
        double = fx.jit(fx.vmap(f))(*[x.astype(np.float64) for x in xs])
    if defined is not None:
        single, double = [np.where(defined(*xs), values, np.nan) for values in (single, double)]
    for where, out in (("evaluated", plain), ("compiled", compiled)):
        check_contained(out, np.asarray(single, np.float64), f"{where}, in floats")
        check_contained(out, np.asarray(double, np.float64), f"{where}, in doubles")
    return plain


UNARY: Final[dict[str, tuple[Callable[..., Any], float, float]]] = {
    **{
        name: (getattr(fnp, name), -np.inf, np.inf)
        for name in (
            "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "arcsinh", "cbrt",
            "square", "abs", "sign", "floor", "ceil", "negative", "isfinite",
        )
    },
    **{name: (getattr(fnp, name), 0.0, np.inf) for name in ("log", "sqrt")},
    "log1p": (fnp.log1p, -1.0, np.inf),
    "arccosh": (fnp.arccosh, 1.0, np.inf),
    **{name: (getattr(fnp, name), -1.0, 1.0) for name in ("arcsin", "arccos", "arctanh")},
    **{
        name: (getattr(lax, name), -np.inf, np.inf)
        for name in ("erf", "erfc", "logistic", "round", "lgamma", "digamma")
    },
    "erf_inv": (lax.erf_inv, -1.0, 1.0),
    "rsqrt": (lax.rsqrt, 0.0, np.inf),
    "clip": (lambda x: fnp.clip(x, -0.5, 2.0), -np.inf, np.inf),
    **{f"power {n}": (lambda x, n=n: lax.integer_pow(x, n), -np.inf, np.inf) for n in (-3, -2, -1, 0, 1, 2, 3, 4)},
    "bfloat16 and back": (lambda x: x.astype("bfloat16").astype(x.dtype), -np.inf, np.inf),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 5), -np.inf, np.inf),
    "stop_gradient": (lax.stop_gradient, -np.inf, np.inf),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_bounds_of_unary_functions(name: str) -> None:
    f, least, most = UNARY[name]
    lo, hi = intervals(200, least, most)
    if name in ("bfloat16 and back", "reduce_precision"):  # a double beyond it rounds to infinity
        lo, hi = np.clip(lo, -1e30, 1e30), np.clip(hi, -1e30, 1e30)
    check_bounds(f, (lo, hi), defined=(lambda x: x != 0) if name == "rsqrt" else None)


BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "atan2": lax.atan2,
    "pow": lax.pow,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
    "eq": lax.eq,
    "ne": lax.ne,
    "and": lambda x, y: (x > 0) & (y > 0),
    "or": lambda x, y: (x > 0) | (y > 0),
    "xor": lambda x, y: (x > 0) ^ (y > 0),
    "not": lambda x, y: ~(x > y),
    "where": lambda x, y: fnp.where(x > 0.5, x, y),
    "select by number": lambda x, y: lax.select_n(fnp.clip(x, 0, 2).astype(int), y, 2 * y, -y),
    "hypot": fnp.hypot,
    "logaddexp": fnp.logaddexp,
}


@pytest.mark.parametrize("name", BINARY)
def test_bounds_of_binary_functions(name: str) -> None:
    xs, ys = intervals(300, seed=2), intervals(300, seed=3)
    order = np.random.default_rng(0).permutation(len(ys[0]))
    defined = (lambda x, y: y != 0) if name in ("div", "rem") else None
    check_bounds(BINARY[name], xs, (ys[0][order], ys[1][order]), defined=defined)


W1, W2 = [np.random.default_rng(i).normal(size=shape).astype(np.float32) for i, shape in enumerate([(3, 8), (8, 2)])]


def mlp(x: Any) -> Any:
    return nn.relu(x @ W1 + 0.1) @ W2


def total(x: Any) -> Any:
    return mlp(x).sum()


def waves(x: Any) -> Any:
    return fnp.sin(x @ W1).sum()


def tanh_times_x(x: Any) -> Any:
    return fnp.tanh(x) * x


def branching(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x)


def switched(x: Any) -> Any:
    branches: list[Callable[[Any], Any]] = [lambda x: x, lambda x: -x, lambda x: x * x]
    return lax.switch(x[0].astype(int), branches, x)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, y: (c * y + x[0], c), fnp.ones(()), x)


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (2,)) * lax.reduce_window(x, 0.0, lax.add, (2,))


ARRAYS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
    "mlp": (mlp, (3,)),
    "gradient": (fx.grad(total), (3,)),
    "hessian": (fx.hessian(waves), (3,)),
    "softmax": (nn.softmax, (4,)),
    "logsumexp": (nn.logsumexp, (4,)),
    "norm": (lambda x: fnp.sqrt((x**2).sum()), (5,)),
    "mean of nothing": (lambda x: x.sum(), (0,)),
    "prod": (fnp.prod, (5,)),
    "prod of an axis": (lambda x: fnp.prod(x, axis=1), (2, 3)),
    "prod of nothing": (lambda x: fnp.prod(x, axis=0), (0, 2)),
    "cumsum": (fnp.cumsum, (5,)),
    "cummax": (lambda x: lax.cummax(x, 0), (5,)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 0), (5,)),
    "argmax": (fnp.argmax, (5,)),
    "sort": (lax.sort, (5,)),
    "sort of several": (lambda x: lax.sort((x[0], x[1], x[2]), num_keys=2), (3, 4)),
    "sort by what is known": (lambda x: lax.sort((np.array([2, 0, 1]), x), num_keys=1), (3,)),
    "top_k": (lambda x: lax.top_k(x, 2), (4,)),
    "max and min": (lambda x: x.max() - x.min(), (5,)),
    "any and all": (lambda x: (x > 0).any() ^ (x > 0).all(), (3,)),
    "moving": (lambda x: fnp.pad(fnp.concatenate([x[::-1], x[1:]]).reshape(1, -1).T, 1, constant_values=2.0), (4,)),
    "gather": (lambda x: x[np.array([2, 0, 0])], (3, 2)),
    "dynamic slices": (lambda x: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (1,), (2,)), (0,)), (4,)),
    "updates": (lambda x: x.at[0].set(x[1]).at[np.array([1, 1])].add(x[0]).at[2].max(x[0]), (4,)),
    "subtractions": (lambda x: x.at[np.array([1, 1])].subtract(x[0]), (4,)),
    "windows": (pooled, (5,)),
    "unstack": (lambda x: lax.unstack(x)[1] * lax.unstack(x)[0], (2, 3)),
    "split": (lambda x: fnp.split(x, 2)[0] * fnp.split(x, 2)[1], (4,)),
    "cond": (branching, (3,)),
    "switch": (switched, (2,)),
    "scan": (scanned, (4,)),
    "fori_loop": (lambda x: lax.fori_loop(0, 5, lambda i, y: fnp.cos(y) * x, x), (2,)),
    "checkpoint": (fx.checkpoint(tanh_times_x), (3,)),
    "integers": (lambda x: (x.astype(int) * 3 + 1 - x.astype(int) ** 2).sum(), (4,)),
    "batched products": (lambda x: fnp.einsum("bij,bjk->bik", x, x), (2, 3, 3)),
    "var": (fnp.var, (6,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("radius", [0.0, 1e-3, 0.5, 30.0])
def test_bounds_of_array_functions(name: str, radius: float) -> None:
    f, shape = ARRAYS[name]
    rng = np.random.default_rng(4)
    x = rng.normal(size=shape).astype(np.float32)
    lo, hi = x - radius, x + np.float32(radius) * rng.uniform(size=shape).astype(np.float32)

    def flattened(x: Any) -> Any:
        out = f(x)
        leaves: list[Any] = fx.tree.leaves(out)
        return fnp.concatenate([fnp.ravel(leaf) for leaf in leaves])

    out = check_bounds(flattened, (lo, hi))
    if radius == 0.0 and name not in ("argmax", "sort of several", "top_k", "cond", "switch", "any and all"):
        scale = np.maximum(1.0, abs(np.asarray(out.mid)))
        assert (np.asarray(out.width) <= 0.02 * scale).all(), "bounds of a point are a point but for rounding"


def test_bounds_are_tight() -> None:
    x = Interval(fnp.float32(-1.0), fnp.float32(2.0))
    assert_near(bounds(lambda x: x * x)(x), (0.0, 4.0), ELEMENTARY)
    assert_near(bounds(lambda x: x - x)(x), (0.0, 0.0), EXACT)
    assert_near(bounds(fnp.sin)(x), (np.sin(-1.0), 1.0), WIDENED)
    assert_near(bounds(lambda x: fnp.where(x > 3, 100.0, x))(x), (-1.0, 2.0), EXACT)
    assert_near(bounds(nn.relu)(x), (0.0, 2.0), EXACT)
    assert_near(bounds(lambda x: fnp.where(x < 0.5, x, 0.5))(x), (-1.0, 0.5), EXACT)
    assert_near(bounds(lambda x: fnp.where(x < 0.5, -x, x))(x), (-2.0, 2.0), EXACT)
    middle, radius = W1.sum(0), 0.1 * abs(W1).sum(0)
    product = bounds(lambda x: x @ W1)(around(fnp.ones(3), 0.1))
    terms = evolve(WIDENED, least=float(abs(W1).sum(0).max()))
    assert_near(product.lo, middle - radius, terms)
    assert_near(product.hi, middle + radius, terms)


def test_bounds_under_transformations() -> None:
    def width(x: Any) -> Any:
        return bounds(mlp)(around(x, 0.1)).width.sum()

    x = fnp.asarray([0.3, -0.2, 1.0])
    assert_near(fx.jit(width)(x), width(x))
    assert_near(fx.vmap(width)(fnp.stack([x, -x])), [width(x), width(-x)])
    slope, step = fx.grad(width)(x), np.array([1e-2, 0.0, 0.0], np.float32)
    assert_near(slope[0], (width(x + step) - width(x - step)) / 2e-2, FINITE_DIFFERENCES_32_BITS)
    widths = lax.scan(lambda c, x: (c, width(x)), 0.0, fnp.stack([x, -x]))[1]
    assert_near(widths, [width(x), width(-x)])
    twice = bounds(fx.vmap(mlp))(around(fnp.stack([x, -x]), 0.1))
    assert_near(twice.width.sum(1), widths)
    inside = bounds(fx.jit(lambda x: lax.scan(lambda c, y: (c + mlp(y), None), fnp.zeros(2), x)[0]))
    assert_near(inside(around(fnp.stack([x, -x]), 0.1)).width.sum(), widths.sum(), PROGRAM)


def test_bounds_of_pytrees_and_constant_results() -> None:
    out = bounds(lambda d, y: {"sum": d["x"] + y, "y": y, "n": 3})({"x": around(1.0, 0.5)}, fnp.float32(2.0))
    assert isinstance(out["sum"], Interval)
    assert not isinstance(out["y"], Interval)
    assert out["n"] == 3


def test_unsupported_programs_are_refused() -> None:
    with pytest.raises(TypeError, match="fori_loop or scan"):
        bounds(lambda x: lax.while_loop(lambda x: x < 3, lambda x: x + 1, x))(around(0.0, 1.0))
    with pytest.raises(TypeError, match="no order"):
        bounds(fnp.exp)(Interval(fnp.asarray(1j), fnp.asarray(2j)))
    with pytest.raises(TypeError, match="one type"):
        bounds(fnp.exp)(Interval(fnp.ones(2), fnp.ones(3)))
    with pytest.raises(TypeError, match="indices of gather are in an interval"):
        bounds(lambda x: fnp.arange(3.0)[x.astype(int)])(around(1.0, 1.0))
    with pytest.raises(TypeError, match="control flow depends"):
        bounds(lambda x: x if x > 0 else -x)(around(0.0, 1.0))


def test_sown_values_are_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        y = sow({"squared": x * x, "one": 1.0}, name="y")["squared"]
        fx.debug.print("{}", y)
        return lax.scan(lambda c, _: (sow(c * 0.5, name="half"), None), y, None, length=2)[0]

    for run in (bounds(f), fx.jit(bounds(f)), bounds(fx.jit(f))):
        out, sown = reap(run)(Interval(fnp.float32(1.0), fnp.float32(3.0)))
        assert isinstance(sown["y"]["squared"], Interval)
        assert_near(sown["y"]["squared"], (1.0, 9.0), ELEMENTARY)
        assert_near(sown["half"], ((0.5, 0.25), (4.5, 2.25)))
        assert_near(out, (0.25, 2.25))
        assert_near(np.float32(capsys.readouterr().out), 5.0, ELEMENTARY)


@pytest.mark.parametrize(
    "f", [lambda x: x / 2.0, lambda x: 1.0 / x, lambda x: x**0.5, lambda x: fnp.where(x > 0, x, 1.0)]
)
def test_bounds_keep_weak_types(f: Any) -> None:
    """A program traced through `bounds` has the same types as the primitives."""
    out = bounds(f)(around(0.7, 0.01))
    assert out.lo.aval == out.hi.aval == f(fnp.asarray(0.7)).aval


def test_bounds_of_the_gradient_of_a_linear_solve() -> None:
    def solution(x: Any) -> Any:
        return lax.custom_linear_solve(lambda v: v * x, x + 1.0, lambda matvec, b: b / matvec(1.0), symmetric=True)

    slope = bounds(fx.grad(solution))(around(0.7, 0.01))
    assert slope.lo <= fx.grad(solution)(0.7) <= slope.hi


def test_bounds_of_checkpoint_name() -> None:
    out = bounds(lambda x: fx.checkpoint_name(fnp.sin(x), "sine") * 2.0)(around(0.7, 0.01))
    assert out.lo <= 2 * np.sin(0.7) <= out.hi


class _RoundToEven(SameTypes):
    """Rounds down to an even number: a user-defined primitive."""

    name = "evened"

    @override
    def impl(self, *args: NDArray[Any]) -> Sequence[NDArray[Any]]:
        return [args[0] - args[0] % 2]


class _Bounded(_RoundToEven, BoundsRule):
    @override
    def interval(self, *operands: Interval) -> Sequence[Interval]:
        (x,) = operands
        return [Interval(bind1(self, x.lo), bind1(self, x.hi))]


def test_user_defined_bounds_rule() -> None:
    with pytest.raises(MissingRuleError, match="evened"):
        bounds(lambda x: bind1(_RoundToEven(), x))(around(3.75, 0.75))
    out = bounds(lambda x, y: bind1(_Bounded(), x) + y)(around(3.75, 0.75), 1.0)
    assert out.lo <= 3.0 <= 5.0 <= out.hi
    assert out.hi - out.lo < 2.001
