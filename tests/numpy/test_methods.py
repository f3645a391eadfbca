"""Array methods, and the keyword arguments of reductions, against JAX."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_programs_agree
from tests.errors import untyped
from tests.numpy.agreement import both, check, numbers

REPEATS, INDICES = np.array([2, 0, 1]), np.array([2, 0, 9])
MASK: Final = np.array([[True, False, True], [True, True, False]])
# Arguments that the records of methods in tests/differential/methods.py do not pass.
CALLS: Final[tuple[Callable[[Any, Any], object], ...]] = (
    lambda np, x: x.sum(1, None, None, True),
    lambda np, x: x.sum(0, where=MASK),
    lambda np, x: x.max(0, None, True, -5, MASK),
    lambda np, x: x.mean(0, "float32", None, True),
    lambda np, x: x.var(1, correction=1, where=MASK),
    lambda np, x: x.cumprod(0, "float32"),
    lambda np, x: x.repeat(REPEATS, 1, total_repeat_length=5),
    lambda np, x: x.take(INDICES, 1, mode="clip"),
    lambda np, x: x.reshape(3, 2, order="F"),
    lambda np, x: x.ravel("F"),
    lambda np, x: x.astype("float16", copy=True),
    lambda np, x: x.dot(x.T, preferred_element_type="float32"),
)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_methods_match_jax(dtype: str) -> None:
    assert_programs_agree(CALLS, numbers(dtype, (2, 3)))


NAMES: Final = {"T": "transpose", "mT": "matrix_transpose", "conj": "conjugate", "flatten": "ravel"}
METHODS: Final = {
    name: function
    for name, member in inspect.getmembers(fx.Array)
    if isinstance(function := member.fget if isinstance(member, property) else member, FunctionType)
    and function.__code__.co_name == "method"  # a function that `numpy_method` made
    and not name.startswith("_")
}
"""The methods and properties that are functions of `tracefx.numpy`."""


@pytest.mark.parametrize("name", METHODS)
def test_methods_have_a_docstring_and_the_parameters_of_their_function(name: str) -> None:
    method, function = METHODS[name], getattr(fnp, NAMES.get(name, name))
    assert (method.__doc__ or "").rstrip().endswith(".")
    _, *of_method = inspect.signature(method).parameters.values()
    _, *of_function = inspect.signature(function).parameters.values()
    known = {p.name: (p.kind, p.default) for p in of_function}
    assert {p.name: (p.kind, p.default) for p in of_method}.items() <= known.items()
    positional = [p.name for p in of_method if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [p.name for p in of_function][: len(positional)]


def test_most_methods_are_functions() -> None:
    assert len(METHODS) > 35
    assert inspect.signature(fx.Array.sum).parameters["keepdims"].default is False
    assert isinstance(fx.Array.sum, FunctionType)
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        untyped(fnp.ones(3).sum)(foo=1)


def test_python_protocols_of_arrays() -> None:
    x = fnp.arange(6).reshape(2, 3)
    assert 5 in x
    assert 6 not in x
    assert x.__array_namespace__() is fnp
    assert x.item(1, 2) == 5
    assert (x.nbytes, x.itemsize, x.size, x.ndim) == (24, 4, 6, 2)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_ddof_and_correction_together_raise() -> None:
    with pytest.raises(ValueError, match="ddof 1 and correction 1 mean the same"):
        fnp.var(fnp.ones((2, 3)), ddof=1, correction=1)


def test_sum_method_with_initial() -> None:
    """JAX's method ignores `initial`; its function does not."""
    x, y = both(numbers("int8", (2, 3)))
    check(x.sum(0, initial=2, where=MASK), jnp.sum(y, 0, initial=2, where=jnp.asarray(MASK)))
