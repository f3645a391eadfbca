"""`check_equivalent`, `assert_transforms_commute`, `check_batchable`, `check_grads` and `check_linear`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors
from tests.laws import test_planted as planted
from tests.laws.test_reports import fails_again, law_error, python_of
from tests.primitives import BatchAxes, Values
from tests.test_imports import run
from tracefx import testing
from tracefx.core import dtypes as kinds
from tracefx.errors import MissingRuleError
from tracefx.extend import MappedAxis, batch_first, bind, bind1
from tracefx.testing.equivalence import FunctionTransform
from tracefx.testing.reproducer import source_of
from tracefx.testing.strategies import arrays, pytrees, shapes

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
FLOATS: Final = arrays(kinds.float32, shapes(max_dims=2), extreme=False)


# ------------------------------------------------------------------ equivalent functions


def softplus(x: Any) -> Any:
    return fnp.logaddexp(x, 0)


def softplus_by_parts(x: Any) -> Any:
    return fnp.maximum(x, 0) + fnp.log1p(fnp.exp(-fnp.abs(x)))


def total(x: Any) -> Any:
    return fnp.sum(x)


def product(x: Any) -> Any:
    return fnp.prod(x)


def test_check_equivalent_passes_equivalent_functions() -> None:
    testing.check_equivalent(lambda x: x * 2, lambda x: x + x, FLOATS)
    testing.check_equivalent(lambda x: fnp.transpose(x), lambda x: x.T, FLOATS, max_examples=20)
    testing.check_equivalent(lambda d, n: {"a": d["w"] * n}, lambda d, n: {"a": n * d["w"]}, {"w": X}, 2.0)
    testing.check_equivalent(lambda x: x[::-1], lambda x: fnp.flip(x), arrays(kinds.int32, (3,)))
    testing.check_equivalent(fx.jit(softplus), softplus, X)
    testing.check_equivalent(softplus, softplus_by_parts, np.array([0.5, -3.0, 20.0]))


def test_check_equivalent_draws_pytrees() -> None:
    testing.check_equivalent(
        lambda t: fx.tree.map(lambda x: x * 2, t), lambda t: fx.tree.map(lambda x: x + x, t), pytrees(), max_examples=30
    )


def test_errors_of_the_same_class_are_equivalent() -> None:
    def f(x: Any) -> Any:
        raise ValueError("one")

    def g(x: Any) -> Any:
        raise ValueError("two")

    testing.check_equivalent(f, g, X)
    testing.check_equivalent(lambda x: fnp.matmul(x, x), lambda x: fnp.dot(x, x), np.ones((2, 3), np.float32))


def test_concrete_arguments_mix_with_strategies() -> None:
    testing.check_equivalent(lambda x, y: x * y, lambda x, y: y * x, arrays(kinds.float32, (3,), extreme=False), X)


# ------------------------------------------------------------------ functions that differ


def vectors_only(x: Any) -> Any:
    if x.ndim != 1:
        raise TypeError("a vector, please")
    return x


@fx.custom_jvp
def sin_with_wrong_jvp(x: Any) -> Any:
    return fnp.sin(x)


sin_with_wrong_jvp.defjvp(lambda primals, tangents: (fnp.sin(primals[0]), tangents[0]))


@pytest.mark.parametrize(
    ("f", "g", "args", "messages"),
    [
        (total, product, (FLOATS,), ["of (array(np.zeros((0,)), 'float32'))\n", "the first:  f32[] 0."]),
        (lambda x: x, lambda x: x.astype("float16"), (X,), ["types f32[3] and f16[3]"]),
        (lambda x: x * 1, lambda x: x * np.float32(1), (2.0,), ["types f32[]* and f32[]"]),
        (lambda x: [x], lambda x: (x,), (X,), ["the first returns the tree PyTreeDef([*])"]),
        (lambda x: x, vectors_only, (np.float32(1),), ["returns f32[]", "raises TypeError: a vector, please"]),
        (fnp.abs, lambda x: fnp.maximum(x, -x), (np.zeros(2, np.float32),), ["in forward mode"]),
        (lambda x: x, fx.lax.stop_gradient, (X,), ["in forward mode", "output 1"]),
        (fnp.sin, sin_with_wrong_jvp, (X,), ["in forward mode"]),
        (lambda x: bind1(planted.Scale(), x), lambda x: bind1(planted.ReversesBatchAxis(), x), (X,), ["over a batch"]),
        (lambda x: bind1(planted.Scale(), x), lambda x: bind1(planted.WrongLowering(), x), (X,), ["compiled"]),
        (planted.differs_when_traced, planted.differs_when_traced, (X,), ["the first compiled:", "evaluated:"]),
        (lambda x: bind1(planted.Scale(), x), lambda x: bind1(planted.WrongTranspose(), x), (X,), ["in reverse mode"]),
    ],
)
def test_check_equivalent_reports_the_difference(f: Any, g: Any, args: Any, messages: list[str]) -> None:
    error = law_error(lambda: testing.check_equivalent(f, g, *args))
    for text in messages:
        assert text in error.message


def test_report_of_a_difference_shows_both_programs_and_runs() -> None:
    error = law_error(lambda: testing.check_equivalent(total, product, FLOATS))
    assert str(error).splitlines() == [
        "the functions are equivalent: violated by total and product of (array(np.zeros((0,)), 'float32'))",
        "  the first:  f32[] 0.",
        "  the second: f32[] 1.",
        "  output 0: 0.0 and 1.0, 8.389e+06 ulps apart, at most 256 allowed",
        "",
        "the first is this program:",
        "  { lambda ; a:f32[0]. let b:f32[] = reduce_sum[axes=(0,)] a in (b,) }",
        "the second is this program:",
        "  { lambda ; a:f32[0]. let b:f32[] = reduce_prod[axes=(0,)] a in (b,) }",
        "in Python:",
        "",
        "import numpy as np",
        "from tracefx.testing import array, check_equivalent",
        "",
        "from tests.laws.test_equivalence import total",
        "from tests.laws.test_equivalence import product",
        "",
        "check_equivalent(total, product, array(np.zeros((0,)), 'float32'))",
    ]
    fails_again(error)
    assert not getattr(error, "__notes__", [])


def test_reproducer_contains_programs_of_local_functions() -> None:
    error = law_error(lambda: testing.check_equivalent(lambda x, n: x * n, lambda x, n: x * n + 1, {"a": X}["a"], 2.0))
    assert python_of(error)[-1] == "check_equivalent(f, g, array([0.5, -1.0, 2.0], 'float32'), 2.0)"
    fails_again(error)


def test_difference_in_tree_structure_has_no_python_reproducer() -> None:
    error = law_error(lambda: testing.check_equivalent(lambda x: [x], lambda x: (x,), X))
    assert error.reproducer is not None
    assert error.reproducer.python is None


def test_check_equivalent_under_transformations() -> None:
    testing.check_equivalent(fnp.sin, sin_with_wrong_jvp, X, transforms=[testing.COMPILED, testing.BATCHED])
    with pytest.raises(testing.LawError, match="under Grad"):
        testing.check_equivalent(fnp.sin, sin_with_wrong_jvp, np.float32(0.5), transforms=[fx.Grad()])
    error = law_error(
        lambda: testing.check_equivalent(
            fnp.sin, sin_with_wrong_jvp, np.float32(0.5), transforms=[testing.COMPILED, fx.grad]
        )
    )
    assert "under grad" in error.message
    assert python_of(error)[-1] == (
        "check_equivalent(sin, sin_with_wrong_jvp, array(0.5, 'float32'), transforms=[COMPILED, fx.grad])"
    )
    fails_again(error)
    # Differentiation laws are skipped for integers.
    testing.check_equivalent(
        lambda x: x + 1, lambda x: 1 + x, np.arange(3), transforms=[testing.FORWARD, testing.REVERSE]
    )


def test_check_equivalent_uses_the_given_tolerance() -> None:
    def inexact(x: Any) -> Any:
        return x * np.float32(1 + 2.0**-20)

    testing.check_equivalent(lambda x: x, inexact, X)
    with pytest.raises(testing.LawError, match="8 ulps apart|at most 4 allowed"):
        testing.check_equivalent(lambda x: x, inexact, X, ulps=testing.Ulps(4, 4, 4))


def test_check_equivalent_shrinks_arguments() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(x)

    def g(x: Any) -> Any:
        return fnp.sum(x) if x.ndim < 2 or x.shape[0] < 2 else fnp.sum(x) + 1

    error = law_error(lambda: testing.check_equivalent(f, g, FLOATS))
    assert "(array(np.zeros((2, 0)), 'float32'))" in error.message


def test_checks_run_without_hypothesis() -> None:
    out = run(
        {"hypothesis", "jax", "pytest"},
        """
        import numpy as np
        from tracefx.testing import check_equivalent, check_handler, IdentityHandler

        check_equivalent(lambda x: x * 2, lambda x: x + x, np.ones(2))
        check_handler(IdentityHandler, lambda x: x * 2, np.ones(2))
        print("done")
        """,
    )
    assert out == "done\n"


# ------------------------------------------------------------------ transformations that commute


ROWS: Final = np.array([[0.5, -1.0, 2.0], [1.0, 0.25, 3.0]], np.float32)


def summed_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    return fx.grad(lambda x: fnp.sum(f(x)))


@pytest.mark.parametrize(
    ("a", "b", "f", "args"),
    [
        (fx.jit, fx.vmap, fnp.cumsum, (ROWS,)),
        (fx.Vmap(), fx.Jvp(), fnp.dot, ((ROWS, ROWS), (ROWS, ROWS))),
        (fx.vmap, summed_grad, lambda x: fnp.sin(x) * x, (ROWS,)),
        (fx.Jit(), fx.Grad(), fnp.sin, (0.5,)),
        (fx.Vmap(1), fx.Jit() @ fx.Vmap(), fnp.sin, (ROWS,)),
        (fx.vmap, fx.jit, planted.Scale(), (ROWS,)),
    ],
)
def test_commuting_transformations_pass(a: FunctionTransform, b: FunctionTransform, f: Any, args: Any) -> None:
    if isinstance(a, fx.Vmap) and a == fx.Vmap(1):  # maps columns, and rows inside: mapping rows outside differs
        with pytest.raises(testing.LawError):
            testing.assert_transforms_commute(a, b, f, *args)
    else:
        testing.assert_transforms_commute(a, b, f, *args)


def test_transformations_that_do_not_commute_are_reported() -> None:
    error = law_error(lambda: testing.assert_transforms_commute(fx.vmap, fx.grad, fnp.sin, ROWS[0]))
    assert error.message.splitlines()[:2] == [
        "vmap and grad commute: violated by sin(array([0.5, -1.0, 2.0], 'float32'))",
        "  vmap of grad returns f32[3]",
    ]
    assert "  grad of vmap raises TypeError: grad of sin: the function must return a scalar" in error.message
    fails_again(error)

    def by_rank(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: f(x) * x.ndim

    error = law_error(lambda: testing.assert_transforms_commute(fx.Vmap(), by_rank, fnp.sin, ROWS))
    assert error.reproducer is not None
    first, second = error.reproducer.programs.split("\nby_rank of Vmap() is this program:\n")
    assert first.startswith("Vmap() of by_rank is this program:\n")
    assert "= mul b 1.0:f32[]" in first
    assert "= mul b 2.0:f32[]" in second
    assert error.reproducer.python is None


# ------------------------------------------------------------------ batching


def test_check_batchable_passes_correct_functions() -> None:
    testing.check_batchable(lambda x, y: fnp.dot(x, y) + y[0], np.ones((2, 3)), np.arange(3.0))
    testing.check_batchable(lambda x: fnp.argmax(x), np.array([3, 1, 2]))
    testing.check_batchable(lambda x: fx.lax.scan(lambda c, k: (c * k, c), x, X), np.float32(2))
    testing.check_batchable(planted.Scale(), X)


@fx.custom_batching.custom_vmap
def wrong_for_batch_size_one(x: Any) -> Any:
    return fnp.sin(x)


@wrong_for_batch_size_one.def_vmap
def _wrong_for_batch_size_one_rule(axis_size: int, in_batched: list[bool], x: Any) -> Any:
    return (fnp.cos(x) if axis_size == 1 else fnp.sin(x)), True


@frozen(eq=False)
class WrongNestedBatch(planted.Scale):
    """Computes a wrong result under nested vmap."""

    depth: int = 0

    @override
    def batch(self, axis: MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        deeper = WrongNestedBatch(self.depth + 1)
        (out,) = bind(deeper, batch_first(args[0], dims[0], axis))
        return [fnp.negative(out) if self.depth else out], [0]


@pytest.mark.parametrize(
    ("f", "messages"),
    [
        (planted.ReversesBatchAxis(), "vmap gives the same results as a loop"),
        (planted.WrongJvpOfABatch(), "vmap and jvp commute"),
        (wrong_for_batch_size_one, "batches of size 1 and 0"),
        (planted.WrongTracedBatch(), "a compiled batch gives the same results as an eager one"),
        (WrongNestedBatch(), "nested vmap gives the same results as nested loops"),
    ],
)
def test_check_batchable_detects_wrong_batch_rules(f: Any, messages: str) -> None:
    with pytest.raises(testing.LawError, match=messages):
        testing.check_batchable(f, X)


def test_check_batchable_needs_a_batch_rule_and_arguments() -> None:
    with pytest.raises(MissingRuleError, match="no batch rule"):
        testing.check_batchable(planted.OnlyEvaluated(), X)
    with pytest.raises(ValueError, match="check_batchable needs arguments"):
        testing.check_batchable(lambda: fnp.ones(2))


# ------------------------------------------------------------------ derivatives by forward and reverse mode


def test_tolerance_of_check_grads_holds_for_the_transpose() -> None:
    def inexact(x: Any) -> Any:
        return fx.custom_derivatives.linear_call(lambda _, x: x * 3.0, lambda _, ct: ct * (3.0 + 1e-9), (), x)

    with pytest.raises(testing.LawError, match="Jᵀ"):
        testing.check_grads(inexact, X, order=1)
    testing.check_grads(inexact, X, order=1, ulps=testing.Ulps(f64=1e9, f32=1e9))


def test_check_grads_in_forward_and_reverse_mode() -> None:
    for modes in (("fwd",), ("rev",), ("fwd", "rev")):
        testing.check_grads(lambda x, y: fnp.sum(x * fnp.exp(y)) * y[0], X, X / 2, order=3, modes=modes)
    with pytest.raises(testing.LawError, match="jvp agrees with finite differences"):
        testing.check_grads(lambda x: bind1(planted.WrongJvp(), x), X, order=1, modes=["fwd"])
    testing.check_grads(planted.WrongTranspose(), X, order=3, modes=["fwd"])
    with pytest.raises(testing.LawError, match="differences along v> = <vjp of w, v>"):
        testing.check_grads(planted.WrongTranspose(), X, order=1, modes=["rev"])
    with pytest.raises(testing.LawError, match="<J v, w> = <v, Jᵀ w>"):
        testing.check_grads(planted.WrongTranspose(), X, order=1)


def test_check_grads_detects_a_second_derivative_wrong_in_reverse_mode_only() -> None:
    """The backward pass stops the gradient, so the gradient has a wrong cotangent."""

    @fx.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (fx.lax.stop_gradient(fnp.cos(x)) * ct,))
    testing.check_grads(f, X, order=1)
    with pytest.raises(testing.LawError, match="the gradient of"):
        testing.check_grads(f, X, order=2, modes=["rev"])


def test_check_grads_of_a_complex_function() -> None:
    testing.check_grads(lambda z: fnp.sum(z * z * fnp.conj(z)), np.array([0.5 + 1j, -1.0 + 0.5j]))


def test_check_grads_refuses_invalid_arguments() -> None:
    assert_errors(
        (lambda: testing.check_grads(fnp.sin, X, modes=["forward"]), ValueError, "modes must be a sequence of"),  # type: ignore[list-item]  # the error is the point
        (lambda: testing.check_grads(fnp.sin, X, order=0), ValueError, "order must be at least 1, got 0"),
        (
            lambda: testing.check_grads(lambda x: x, np.arange(3)),
            testing.Inapplicable,
            r"no argument is differentiable: i32\[3\]",
        ),
    )


def test_check_equivalent_without_the_arguments_raises() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        testing.check_equivalent(fnp.sin, fnp.cos)


def test_reproducer_of_functions_of_one_name_imports_both() -> None:
    with pytest.raises(testing.LawError) as failure:
        testing.check_equivalent(fnp.exp, math.exp, 1.0)
    assert "from math import exp as other_exp" in str(failure.value)
    assert "check_equivalent(exp, other_exp, 1.0)" in str(failure.value)


def test_check_linear_uses_the_given_tolerance() -> None:
    def rounded(x: Any) -> Any:
        return x.astype("float32").astype(x.dtype)  # loses precision

    with pytest.raises(testing.LawError):
        testing.check_linear(rounded, np.ones(3))
    testing.check_linear(rounded, np.ones(3), ulps=testing.Ulps(2.0**32))
    with pytest.raises(testing.LawError, match="mul is not linear|not linear"):
        testing.check_linear(lambda x: x + 1e-20 * x * x, np.ones(3))


# ------------------------------------------------------------------ arrays in reports


@pytest.mark.parametrize(
    "x",
    [
        testing.array([0.1, np.nan, np.inf, -np.inf, -0.0], "float32"),
        testing.array([[1, 2], [3, 4]], "int8"),
        testing.array(1e300, "float64"),
        testing.array(2.5, "float32", weak_type=True),
        testing.array([True, False], "bool"),
        testing.array([complex(np.nan, -1), 1j], "complex64"),
        testing.array([0.5, 3.0], "bfloat16"),
        testing.array(np.zeros((2, 0)), "float64"),
        testing.array(np.linspace(0, 1, 200).reshape(2, 100), "float64"),
        testing.array(np.ones((20, 20)), "int32"),
        {"a": [testing.array([1.5], "float32"), None], "b": (1, 2.5)},
    ],
)
def test_source_of_arrays_evaluates_to_the_same_arrays(x: Any) -> None:
    rebuilt = eval(source_of(x), {"np": np, "array": testing.array})
    leaves: list[Any] = fx.tree.leaves(x)
    others: list[Any] = fx.tree.leaves(rebuilt)
    for leaf, other in zip(leaves, others, strict=True):
        if isinstance(leaf, int | float):
            assert leaf == other
            continue
        assert repr(leaf.aval) == repr(other.aval)
        assert np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
