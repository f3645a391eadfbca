"""Invalid arguments of reductions, and cumulative reductions and means in narrow dtypes."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors

REDUCTIONS: Final = ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "count_nonzero", "ptp")


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize("name", [*REDUCTIONS, "argmax", "argmin"])
def test_invalid_arguments_raise_with_the_parameter_name(name: str) -> None:
    f = getattr(fnp, name)
    x = fnp.ones((2, 3))
    with pytest.raises(ValueError, match="axis 2 is out of bounds for an array with 2 axes"):
        f(x, axis=2)
    with pytest.raises(TypeError, match="axis"):
        f(x, axis=1.5)
    for bad in ([1, 2], "a", None):
        with pytest.raises(TypeError, match=": a must be an array"):
            f(bad)
    if not name.startswith("arg"):
        with pytest.raises(ValueError, match="twice"):
            f(x, axis=(0, -2))


def test_invalid_where_and_initial_raise() -> None:
    x = fnp.ones((2, 3))
    untyped: Any = fnp
    assert_errors(
        (lambda: fnp.max(x, where=x > 0), ValueError, "where needs initial"),
        (lambda: fnp.sum(x, where=x), TypeError, "sum: where must be an array of bools"),
        (lambda: untyped.sum(x, where=[True, False, True]), TypeError, "sum: where must be an array"),
        (lambda: fnp.sum(x, initial=fnp.ones(3)), ValueError, "sum: initial must have no axes"),
        (lambda: fnp.sum(x, dtype="nonsense"), TypeError, "dtype"),
        (lambda: fnp.max(fnp.ones((0, 3))), ValueError, "no elements"),
    )


@pytest.mark.parametrize("name", ["mean", "var", "std", "nanmean", "nanvar", "nanstd"])
def test_errors_of_moments_name_the_function(name: str) -> None:
    f, x = getattr(fnp, name), fnp.ones((2, 3))
    options: list[dict[str, Any]] = [{"axis": 2}, {"dtype": "nonsense"}, {"where": x}]
    options += [{"where": fnp.ones(4, bool)}, {"where": fnp.ones((2, 1, 4), bool)}]
    if not name.endswith("mean"):
        options += [{"dtype": "int32"}, {"mean": "a"}, {"mean": fnp.ones(4)}]
        options += [{"mean": fnp.ones((4, 1, 1)), "where": fnp.ones((5, 2, 1), bool)}]
    if name in ("var", "std"):
        options.append({"ddof": 1, "correction": 2})
    assert_errors(*[(lambda each=each: f(x, **each), (TypeError, ValueError), f"^{name}: ") for each in options])
    assert_errors((lambda: f(x, out=x), NotImplementedError, f"^{name}: out must be None"))
    if not name.endswith("mean"):
        with pytest.raises(ValueError, match=f"^{name}: dtype=.* is real, but a is c64"):
            f(x + 1j, dtype="float32")


# ------------------------------------------------------------------ cumulative sums, weighted means


def test_cumulative_reductions_and_means_in_narrow_dtypes() -> None:
    for values in ([1.5, 0.0, 2.0], [3, 0, 2], [True, False, True], [0, 0, 1]):
        for name in ("cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"):
            got, want = (getattr(m, name)(m.array(values), dtype=bool) for m in (fnp, jnp))
            assert (got.dtype, got.tolist()) == (want.dtype, want.tolist()), (name, values)
        for name in ("mean", "nanmean"):
            for dtype in ("int8", "uint8", "int32"):
                got, want = (getattr(m, name)(m.array(values), dtype=dtype) for m in (fnp, jnp))
                assert (got.dtype, got.tolist()) == (want.dtype, want.tolist()), (name, values, dtype)
    assert fx.jit(lambda x: fnp.cumsum(x, dtype=bool))(fnp.array([0, 2, 0])).tolist() == [False, True, True]
    hundreds = np.array([100, 100, 100])
    assert int(fnp.mean(hundreds, dtype="int8")) == int(jnp.mean(hundreds, dtype="int8")) == 14
    assert fnp.mean(np.ones(300), dtype="int8").tolist() == jnp.mean(np.ones(300), dtype="int8").tolist()
