"""`with_units`: unit arithmetic, conversion and checking in loops, branches and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx import lax, nn, tree
from tracefx.handlers import Normal, Quantity, Unit, UnitError, in_unit, of_unit, reap, sample, seed, sow, with_units
from tracefx.handlers.units import (
    DIMENSIONLESS,
    J,
    N,
    Pa,
    V,
    W,
    base,
    cm,
    day,
    degree,
    g,
    hour,
    kg,
    km,
    m,
    mm,
    ms,
    percent,
    s,
)
from tracefx.testing.tolerances import ELEMENTARY

A = np.array([1.0, 2.0, 4.0], np.float32)


def quantity(x: Any, unit: Unit) -> Quantity:
    return Quantity(fnp.asarray(x), unit)


def assert_quantity(actual: Any, value: Any, unit: Unit = DIMENSIONLESS) -> None:
    assert (actual.unit if isinstance(actual, Quantity) else DIMENSIONLESS) == unit, actual
    assert_near(np.asarray(actual.value if isinstance(actual, Quantity) else actual), value)


# ------------------------------------------------------------------ units


def test_units_compare_by_dimension_and_scale() -> None:
    assert N * m == J == W * s == kg * m**2 / s**2
    assert hash(N * m) == hash(J)
    assert km / hour != m / s
    assert 3.6 * km / hour != m / s  # 3.6 is not a binary fraction
    assert Fraction("3.6") * km / hour == m / s
    assert 1000 * g == kg
    assert (km**2) ** Fraction(1, 2) == km
    assert m / m == DIMENSIONLESS == m**0
    assert 24 * hour == day
    assert Pa * m**2 == N
    assert base("EUR") / base("EUR") == DIMENSIONLESS != base("EUR")


def test_units_as_text() -> None:
    assert [str(u) for u in (1 / s, m * s / kg**2, m**0.5, 60 * s, N, DIMENSIONLESS, V / m)] == [
        "1/s",
        "m*s/kg**2",
        "m**(1/2)",
        "60*s",
        "N",
        "1",
        "V/m",
    ]
    assert str((5 * m).called("pole")) == "pole"


def test_unit_conversion() -> None:
    assert_quantity(quantity(36.0, km / hour).to(m / s), 10.0, m / s)
    assert_quantity(quantity(A, km).to(cm), A * 1e5, cm)
    assert_quantity(quantity([1, 2], km).to(m), [1000, 2000], m)
    with pytest.raises(UnitError, match="a quantity in km can't be converted to s, a unit of another dimension"):
        quantity(1.0, km).to(s)
    with pytest.raises(UnitError, match="integers in m can't be converted to km.* exactly"):
        quantity([1, 2], m).to(km)


# ------------------------------------------------------------------ primitives

OPERATIONS: list[tuple[Callable[..., Any], tuple[Quantity | float, ...], Any, Unit]] = [
    (lambda x, y: x + y, (quantity(A, km), quantity(500.0, m)), A + 0.5, km),
    (lambda x, y: x - y, (quantity(A, m), quantity(1.0, km)), A - 1000, m),
    (lambda x, y: x % y, (quantity(A, m), quantity(3.0, m)), A % 3, m),
    (lambda x, y: x * y, (quantity(A, km), quantity(2.0, s)), A * 2, km * s),
    (lambda x, y: x / y, (quantity(A, km), quantity(2.0, km)), A / 2, DIMENSIONLESS),
    (lambda x, y: x * y, (quantity(A, m), 2.0), A * 2, m),
    (lambda x: 1 / x, (quantity(A, s),), 1 / A, 1 / s),
    (lambda x: -abs(x), (quantity(-A, s),), -A, s),
    (lambda x: x**3, (quantity(A, s),), A**3, s**3),
    (lambda x: x**2.5, (quantity(A, s),), A**2.5, s**2.5),
    (lambda x: x**-1.0, (quantity(A, s),), 1 / A, 1 / s),
    (fnp.sqrt, (quantity(A, m**2),), np.sqrt(A), m),
    (fnp.cbrt, (quantity(A, m**3),), np.cbrt(A), m),
    (lax.rsqrt, (quantity(A, m**2),), 1 / np.sqrt(A), 1 / m),
    (lax.square, (quantity(A, m),), A**2, m**2),
    (fnp.sum, (quantity(A, m),), 7.0, m),
    (fnp.prod, (quantity(A, m),), 8.0, m**3),
    (fnp.max, (quantity(A, m),), 4.0, m),
    (fnp.mean, (quantity(A, m),), 7 / 3, m),
    (fnp.std, (quantity(A, m),), A.std(), m),
    (lax.cumsum, (quantity(A, m),), np.cumsum(A), m),
    (fnp.argmax, (quantity(A, m),), 2, DIMENSIONLESS),
    (lambda x, y: lax.sort((x, y))[1], (quantity(A, m), quantity(-A, s)), -A, s),
    (lambda x: lax.top_k(x, 2)[0], (quantity(A, m),), [4, 2], m),
    (lambda x: lax.top_k(x, 2)[1], (quantity(A, m),), [2, 1], DIMENSIONLESS),
    (fnp.sign, (quantity(A, m),), [1, 1, 1], DIMENSIONLESS),
    (fnp.isfinite, (quantity(A, m),), [True] * 3, DIMENSIONLESS),
    (lambda x, y: x < y, (quantity(A, m), quantity(0.3, cm * 1000)), [True, True, False], DIMENSIONLESS),
    (lambda x: x > 0, (quantity(A, m),), [True] * 3, DIMENSIONLESS),
    (lambda x: fnp.where(x > of_unit(150.0, cm), x, 0.0), (quantity(A, m),), [0, 2, 4], m),
    (lambda x, y: fnp.where(x > y, x, y), (quantity(A, m), quantity(300.0, cm)), [3, 3, 4], m),
    (lambda x, y: fnp.clip(x, y, fnp.inf), (quantity(A, m), quantity(150.0, cm)), [150, 200, 400], cm),
    (lambda x, y: fnp.concatenate([x, y]), (quantity(A, m), quantity(A, km)), [*A, *(1000 * A)], m),
    (lambda x, y: fnp.stack([x, y])[1], (quantity(A, m), quantity(A, km)), 1000 * A, m),
    (lambda x: x[fnp.array([2, 0])], (quantity(A, m),), [4, 1], m),
    (lambda x, i: x[i], (quantity(A, m), 1), 2.0, m),
    (lambda x, y: x.at[1].set(y), (quantity(A, m), quantity(1.0, km)), [1, 1000, 4], m),
    (lambda x, y: x.at[1].add(y), (quantity(A, m), quantity(1.0, km)), [1, 1002, 4], m),
    (lambda x, y: x.at[1].subtract(y), (quantity(A, m), quantity(1.0, km)), [1, -998, 4], m),
    (lambda x: lax.reduce_window(x, 0.0, lax.add, (2,)), (quantity(A, m),), [3, 6], m),
    (lambda x: fnp.pad(x, 1), (quantity(A, m),), [0, *A, 0], m),
    (lambda x, y: x @ y, (quantity(A, m), quantity(A, N)), 21.0, J),
    (lambda x: fnp.linspace(0.0, 1.0, 3) * x, (quantity(2.0, m),), [0, 1, 2], m),
    (fnp.sin, (quantity(90.0, degree),), 1.0, DIMENSIONLESS),
    (fnp.arctan2, (quantity(1.0, m), quantity(1000.0, mm)), np.pi / 4, DIMENSIONLESS),
    (lambda x, y: fnp.exp(x / y), (quantity(1.0, m), quantity(1.0, km)), np.exp(1e-3), DIMENSIONLESS),
    (lambda x: 1 + x, (quantity(50.0, percent),), 1.5, DIMENSIONLESS),
    (lambda x: nn.relu(x), (quantity(-A, m),), [0, 0, 0], m),
    (lambda x: fnp.asarray(x, "float16"), (quantity(A, m),), A, m),
    (lambda x: fnp.split(x, 3)[1], (quantity(A, m),), [2.0], m),
    (lambda x: in_unit(x, km), (quantity(A, m),), A / 1000, DIMENSIONLESS),
    (lambda x: fnp.zeros(3) + x, (quantity(A, m),), A, m),
    (lambda x: fx.checkpoint_name(lax.optimization_barrier(x), "x"), (quantity(A, m),), A, m),
]


@pytest.mark.parametrize(("f", "args", "value", "unit"), OPERATIONS)
def test_units_of_primitives(f: Callable[..., Any], args: tuple[Any, ...], value: Any, unit: Unit) -> None:
    assert_quantity(with_units(f)(*args), value, unit)
    assert_quantity(with_units(fx.jit(f, static_argnums=()))(*args), value, unit)


def test_units_under_jit() -> None:
    assert_quantity(fx.jit(with_units(lambda x, y: x + y))(quantity(A, km), quantity(500.0, m)), A + 0.5, km)


METRE = quantity(1.0, m)


@pytest.mark.parametrize(
    ("f", "args", "message"),
    [
        (lambda x, y: x + y, (quantity(1.0, km), quantity(1.0, s)), r"add of km and s at .*: their dimensions differ"),
        (lambda x: x + 1.0, (quantity(1.0, m),), r"add of m and a dimensionless number at "),
        (lambda x: 1.0 - x, (quantity(1.0, m),), r"sub of a dimensionless number and m at "),
        (lambda x, y: x < y, (quantity(1.0, m), quantity(1.0, kg)), r"lt of m and kg at "),
        (fnp.exp, (quantity(1.0, m),), r"exp takes dimensionless numbers, but an operand is in m"),
        (fnp.floor, (quantity(1.0, m),), r"floor takes dimensionless numbers, but an operand is in m"),
        (lambda x, y: x**y, (METRE, METRE), r"pow of m with an exponent that is not a constant number"),
        (lambda x: in_unit(x, s), (quantity(1.0, m),), r"in_unit: the value is in m, not in s at "),
        (lambda x, y: fnp.concatenate([x, y]), (quantity(A, m), quantity(A, s)), r"concatenate of m and s"),
        (
            lambda x: lax.fori_loop(0, 2, lambda i, y: y * x, x),
            (METRE,),
            r"a carry enters a step of scan with m and leaves it with m\*\*2",
        ),
        (lambda x: lax.cond(x > 0, lambda: x, lambda: x * x), (METRE,), r"branch 1 of cond.* is in m\*\*2 and in m at"),
        (
            lambda x: lax.while_loop(lambda y: y < x, lambda y: y * x, x),
            (METRE,),
            r"a carry enters a step of while_loop with m",
        ),
    ],
)
def test_incompatible_units_are_refused(f: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    for g_ in (f, fx.jit(f)):
        with pytest.raises(UnitError, match=message):
            with_units(g_)(*args)


def test_error_names_the_source_line() -> None:
    def sum_of(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(UnitError, match=r"test_units\.py:\d+ \(.*sum_of\)"):
        with_units(sum_of)(quantity(1.0, m), quantity(1.0, s))


def test_arguments_without_units() -> None:
    with pytest.raises(TypeError, match="the unit of a quantity must be a Unit, got 'm'"):
        with_units(lambda x: x)(untyped(Quantity)(1.0, "m"))
    with pytest.raises(TypeError, match="must be an array or a number"):
        with_units(lambda x: x)(Quantity("1", m))
    out = with_units(lambda x, k: {"a": x["a"] * k, "n": k})({"a": quantity(1.0, m)}, 3)
    assert_quantity(out["a"], 3.0, m)
    assert out["n"] == 3


# ------------------------------------------------------------------ composition


def spring(x: Any, v: Any) -> Any:
    dt, stiffness = of_unit(0.1, s), of_unit(1.0, 1 / s**2)

    def step(state: Any, _: None) -> Any:
        x, v = state
        return (x + v * dt, v - stiffness * x * dt), x

    return lax.scan(step, (x, v), None, 10)


def test_a_carry_that_is_a_quantity_keeps_its_unit() -> None:
    times = with_units(lambda x, y: x * y)

    def f(x: Quantity) -> Any:
        return lax.scan(lambda c, _: ({"v": c["v"], "x": times(c["x"], x)}, None), {"v": x, "x": x}, None, 3)[0]

    with pytest.raises(TypeError, match="the carry must have the same structure") as failure:
        f(METRE)
    assert "{'v': Quantity(*, unit=m), 'x': Quantity(*, unit=m**2)}" in str(failure.value)
    assert "Quantity with 1 child and unit=m**2" in str(failure.value)


def test_units_in_a_scan() -> None:
    (x, v), xs = spring(1.0, 0.0)
    compiled = fx.jit(with_units(spring)), with_units(fx.jit(spring))
    for f, start in [(with_units(spring), 0.0), *[(f, quantity(0.0, m / s)) for f in (with_units(spring), *compiled)]]:
        (x_, v_), xs_ = f(quantity(1.0, m), start)
        assert_quantity(x_, x, m)
        assert_quantity(v_, v, m / s)
        assert_quantity(xs_, xs, m)
    (_, v_), _ = with_units(spring)(quantity(1.0, m), quantity(0.0, km / hour))
    assert_quantity(v_, v * 3.6, km / hour)
    total, sums = with_units(lambda xs: lax.scan(lambda c, x: (c + x, c), 0.0, xs))(quantity(A, m))
    assert_quantity(total, 7.0, m)
    assert_quantity(sums, [0, 1, 3], m)
    doubled = with_units(lambda x: lax.while_loop(lambda y: y < of_unit(1.0, km), lambda y: 2 * y, x))(quantity(1.0, m))
    assert_quantity(doubled, 1024.0, m)
    branch = with_units(lambda x: lax.cond(x > of_unit(1.0, km), lambda: x, lambda: of_unit(3.0, km)))
    assert_quantity(branch(quantity(2.0, m)).to(m), 3000.0, m)
    assert_quantity(branch(quantity(2000.0, m)).to(m), 2000.0, m)
    assert_quantity(with_units(lambda x: lax.cond(x > 0, lambda: x, lambda: 0.0))(quantity(2.0, m)), 2.0, m)


def test_units_of_derivatives() -> None:
    def f(x: Any, v: Any) -> Any:
        return (spring(x, v)[1] ** 2).sum()

    want = fx.grad(f, (0, 1))(1.0, 0.5)
    for h in (with_units(fx.grad(f, (0, 1))), fx.jit(with_units(fx.grad(fx.jit(f), (0, 1))))):
        actual = h(quantity(1.0, m), quantity(0.5, m / s))
        assert_quantity(actual[0], want[0], m)
        assert_quantity(actual[1], want[1], m * s)

    def jvp_in_time(t: Any, dt: Any) -> Any:
        return fx.jvp(lambda t: of_unit(3.0, m / s**2) * t**2, (t,), (dt,))

    position, displacement = with_units(jvp_in_time)(quantity(2.0, s), quantity(0.5, s))
    assert_quantity(position, 12.0, m)
    assert_quantity(displacement, 6.0, m)
    outer = fx.grad(lambda x: with_units(f)(Quantity(x, m), Quantity(0.5, m / s)).value)(1.0)
    assert_near(outer, want[0], ELEMENTARY)

    def cube(x: Any) -> Any:
        return x**3

    assert_quantity(with_units(fx.grad(fx.grad(cube)))(quantity(2.0, m)), 12.0, m)


def test_gradient_with_two_units_of_one_dimension() -> None:
    def square_of_sum(x: Any, y: Any) -> Any:
        return (x + y) ** 2

    actual = with_units(fx.grad(square_of_sum, (0, 1)))(quantity(1.0, km), quantity(500.0, m))
    assert_quantity(actual[0], 3.0, km)
    assert actual[1].unit.dimension == m.dimension
    assert_quantity(actual[1].to(m), 3000.0, m)


def test_units_under_vmap() -> None:
    x, v = quantity(A, m), quantity(A, m / s)
    want = fx.vmap(spring)(A, A)[1]
    for f in (with_units(fx.vmap(spring)), fx.vmap(with_units(spring)), fx.jit(fx.vmap(with_units(spring)))):
        assert_quantity(f(x, v)[1], want, m)


def test_compiled_programs_contain_no_units() -> None:
    plain = fx.make_jaxpr(lambda x, y: x * y + x)(1.0, 2.0)
    with_ = fx.make_jaxpr(lambda x, y: with_units(lambda x, y: x * y + x)(Quantity(x, m), y).value)(1.0, 2.0)
    assert str(plain) == str(with_)


def test_numbers_are_in_base_units_without_with_units() -> None:
    assert float(of_unit(3.0, km)) == 3000.0
    assert float(in_unit(of_unit(3.0, hour), ms)) == 3 * 3600 * 1000
    assert_near(fx.jit(spring)(1.0, 0.0)[1], spring(1.0, 0.0)[1], ELEMENTARY)
    assert float(fx.grad(lambda x: of_unit(x, km) ** 2)(1.0)) == 2e6


def test_debug_print_shows_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fx.debug.print("{}", x)
        return sow(x, name="seen") * 2

    out, seen = reap(with_units(f))(quantity(3.0, m))
    assert_quantity(out, 6.0, m)
    assert_quantity(seen["seen"], 3.0)
    assert capsys.readouterr().out == "3.0\n"
    assert_quantity(with_units(fx.jit(f))(quantity(3.0, m)), 6.0, m)


def test_random_draws_have_units() -> None:
    def draw(mean: Any) -> Any:
        return sample("x", Normal(mean, of_unit(1.0, cm)))

    out = with_units(seed(draw, 0))(quantity(2.0, m))
    assert abs(float(out.to(m).value) - 2.0) < 0.05  # five standard deviations


def test_quantity_is_a_pytree() -> None:
    doubled = tree.map(lambda x: 2 * x, quantity(A, m))
    assert_quantity(doubled, 2 * A, m)
