"""Functions that mean the same and such that don't; transformations that commute; batches; derivatives in modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws import test_planted as planted
from tests.laws.test_reports import broken, fails_again, python_of
from tests.test_imports import run
from tracefx.core import dtypes as kinds
from tracefx.errors import MissingRuleError
from tracefx.extend import MappedAxis, Value, batch_first, bind, bind1
from tracefx.testing import (
    BATCHED,
    COMPILED,
    FORWARD,
    REVERSE,
    Inapplicable,
    LawError,
    Ulps,
    array,
    assert_transforms_commute,
    check_batchable,
    check_equivalent,
    check_grads,
    check_linear,
)
from tracefx.testing.equivalence import FunctionTransform
from tracefx.testing.reproducer import source_of
from tracefx.testing.strategies import arrays, pytrees, shapes

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
FLOATS: Final = arrays(kinds.float32, shapes(max_dims=2), extreme=False)


# ------------------------------------------------------------------ the same


def softplus(x: Any) -> Any:
    return fnp.logaddexp(x, 0)


def softplus_by_parts(x: Any) -> Any:
    return fnp.maximum(x, 0) + fnp.log1p(fnp.exp(-fnp.abs(x)))


def total(x: Any) -> Any:
    return fnp.sum(x)


def product(x: Any) -> Any:
    return fnp.prod(x)


def test_functions_that_mean_the_same() -> None:
    check_equivalent(lambda x: x * 2, lambda x: x + x, FLOATS)
    check_equivalent(lambda x: fnp.transpose(x), lambda x: x.T, FLOATS, max_examples=20)
    check_equivalent(lambda d, n: {"a": d["w"] * n}, lambda d, n: {"a": n * d["w"]}, {"w": X}, 2.0)
    check_equivalent(lambda x: x[::-1], lambda x: fnp.flip(x), arrays(kinds.int32, (3,)))
    check_equivalent(fx.jit(softplus), softplus, X)
    check_equivalent(softplus, softplus_by_parts, np.array([0.5, -3.0, 20.0]))


def test_trees_are_drawn_too() -> None:
    check_equivalent(
        lambda t: fx.tree.map(lambda x: x * 2, t), lambda t: fx.tree.map(lambda x: x + x, t), pytrees(), max_examples=30
    )


def test_errors_of_one_class_are_the_same() -> None:
    def f(x: Any) -> Any:
        raise ValueError("one")

    def g(x: Any) -> Any:
        raise ValueError("two")

    check_equivalent(f, g, X)
    check_equivalent(lambda x: fnp.matmul(x, x), lambda x: fnp.dot(x, x), np.ones((2, 3), np.float32))


def test_given_arguments_may_stand_beside_drawn_ones() -> None:
    check_equivalent(lambda x, y: x * y, lambda x, y: y * x, arrays(kinds.float32, (3,), extreme=False), X)


# ------------------------------------------------------------------ not the same


def strict(x: Any) -> Any:
    if x.ndim != 1:
        raise TypeError("a vector, please")
    return x


@fx.custom_jvp
def wrongly(x: Any) -> Any:
    return fnp.sin(x)


wrongly.defjvp(lambda primals, tangents: (fnp.sin(primals[0]), tangents[0]))


@pytest.mark.parametrize(
    ("f", "g", "args", "says"),
    [
        (total, product, (FLOATS,), ["of (array(np.zeros((0,)), 'float32'))\n", "the first:  f32[] 0."]),
        (lambda x: x, lambda x: x.astype("float16"), (X,), ["types f32[3] and f16[3]"]),
        (lambda x: x * 1, lambda x: x * np.float32(1), (2.0,), ["types f32[]* and f32[]"]),
        (lambda x: [x], lambda x: (x,), (X,), ["the first returns the tree PyTreeDef([*])"]),
        (lambda x: x, strict, (np.float32(1),), ["returns f32[]", "raises TypeError: a vector, please"]),
        (fnp.abs, lambda x: fnp.maximum(x, -x), (np.zeros(2, np.float32),), ["in forward mode"]),
        (lambda x: x, fx.lax.stop_gradient, (X,), ["in forward mode", "output 1"]),
        (fnp.sin, wrongly, (X,), ["in forward mode"]),
        (
            lambda x: bind1(planted.Scale(), x),
            lambda x: bind1(planted.NoBatchAxis(), x),
            (X,),
            ["over a batch"],
        ),
        (
            lambda x: bind1(planted.Scale(), x),
            lambda x: bind1(planted.OtherwiseCompiled(), x),
            (X,),
            ["compiled"],
        ),
        (planted.differs_when_traced, planted.differs_when_traced, (X,), ["the first compiled:", "evaluated:"]),
        (
            lambda x: bind1(planted.Scale(), x),
            lambda x: bind1(planted.WrongTranspose(), x),
            (X,),
            ["in reverse mode"],
        ),
    ],
)
def test_functions_that_differ(f: Any, g: Any, args: Any, says: list[str]) -> None:
    error = broken(lambda: check_equivalent(f, g, *args))
    for text in says:
        assert text in error.message


def test_the_report_has_both_programs_and_runs() -> None:
    error = broken(lambda: check_equivalent(total, product, FLOATS))
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


def test_functions_that_can_not_be_imported_are_given_by_their_programs() -> None:
    error = broken(lambda: check_equivalent(lambda x, n: x * n, lambda x, n: x * n + 1, {"a": X}["a"], 2.0))
    assert python_of(error)[-1] == "check_equivalent(f, g, array([0.5, -1.0, 2.0], 'float32'), 2.0)"
    fails_again(error)


def test_a_difference_that_programs_do_not_show_has_no_python() -> None:
    error = broken(lambda: check_equivalent(lambda x: [x], lambda x: (x,), X))
    assert error.reproducer is not None
    assert error.reproducer.python is None


def test_transformations_to_compare_under() -> None:
    check_equivalent(fnp.sin, wrongly, X, transforms=[COMPILED, BATCHED])
    with pytest.raises(LawError, match="under Grad"):
        check_equivalent(fnp.sin, wrongly, np.float32(0.5), transforms=[fx.Grad()])
    error = broken(lambda: check_equivalent(fnp.sin, wrongly, np.float32(0.5), transforms=[COMPILED, fx.grad]))
    assert "under grad" in error.message
    assert python_of(error)[-1] == (
        "check_equivalent(sin, wrongly, array(0.5, 'float32'), transforms=[COMPILED, fx.grad])"
    )
    fails_again(error)
    # Differentiation of integers says nothing.
    check_equivalent(lambda x: x + 1, lambda x: 1 + x, np.arange(3), transforms=[FORWARD, REVERSE])


def test_tolerances_are_those_given() -> None:
    def off(x: Any) -> Any:
        return x * np.float32(1 + 2.0**-20)

    check_equivalent(lambda x: x, off, X)
    with pytest.raises(LawError, match="8 ulps apart|at most 4 allowed"):
        check_equivalent(lambda x: x, off, X, ulps=Ulps(4, 4, 4))


def test_arguments_shrink() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(x)

    def g(x: Any) -> Any:
        return fnp.sum(x) if x.ndim < 2 or x.shape[0] < 2 else fnp.sum(x) + 1

    error = broken(lambda: check_equivalent(f, g, FLOATS))
    assert "(array(np.zeros((2, 0)), 'float32'))" in error.message


def test_the_check_needs_no_hypothesis() -> None:
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
def test_transformations_that_commute(a: FunctionTransform, b: FunctionTransform, f: Any, args: Any) -> None:
    if isinstance(a, fx.Vmap) and a == fx.Vmap(1):  # a batch along rows of what is mapped along columns
        with pytest.raises(LawError):
            assert_transforms_commute(a, b, f, *args)
    else:
        assert_transforms_commute(a, b, f, *args)


def test_transformations_that_do_not_commute() -> None:
    error = broken(lambda: assert_transforms_commute(fx.vmap, fx.grad, fnp.sin, ROWS[0]))
    assert error.message.splitlines()[:2] == [
        "vmap and grad commute: violated by sin(array([0.5, -1.0, 2.0], 'float32'))",
        "  vmap of grad returns f32[3]",
    ]
    assert "  grad of vmap raises TypeError: grad of sin: the function must return a scalar" in error.message
    fails_again(error)

    def by_rank(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: f(x) * x.ndim

    error = broken(lambda: assert_transforms_commute(fx.Vmap(), by_rank, fnp.sin, ROWS))
    assert error.reproducer is not None
    first, second = error.reproducer.programs.split("\nby_rank of Vmap() is this program:\n")
    assert first.startswith("Vmap() of by_rank is this program:\n")
    assert "= mul b 1.0:f32[]" in first
    assert "= mul b 2.0:f32[]" in second
    assert error.reproducer.python is None


# ------------------------------------------------------------------ batches


def test_functions_that_can_be_mapped() -> None:
    check_batchable(lambda x, y: fnp.dot(x, y) + y[0], np.ones((2, 3)), np.arange(3.0))
    check_batchable(lambda x: fnp.argmax(x), np.array([3, 1, 2]))
    check_batchable(lambda x: fx.lax.scan(lambda c, k: (c * k, c), x, X), np.float32(2))
    check_batchable(planted.Scale(), X)


@fx.custom_batching.custom_vmap
def wrong_for_one(x: Any) -> Any:
    return fnp.sin(x)


@wrong_for_one.def_vmap
def _rule(axis_size: int, in_batched: list[bool], x: Any) -> Any:
    return (fnp.cos(x) if axis_size == 1 else fnp.sin(x)), True


@frozen(eq=False)
class WrongTwice(planted.Scale):
    """A batch of batches of it is something else."""

    depth: int = 0

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        deeper = WrongTwice(self.depth + 1)
        (out,) = bind(deeper, batch_first(args[0], dims[0], axis))
        return [fnp.negative(out) if self.depth else out], [0]


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (planted.WrongBatchAxis(), "vmap gives the same results as a loop"),
        (planted.WrongJvpOfABatch(), "vmap and jvp commute"),
        (wrong_for_one, "batches of size 1 and 0"),
        (planted.OtherwiseStaged(), "a compiled batch gives the same results as an eager one"),
        (WrongTwice(), "nested vmap gives the same results as nested loops"),
    ],
)
def test_functions_that_can_not_be_mapped_rightly(f: Any, says: str) -> None:
    with pytest.raises(LawError, match=says):
        check_batchable(f, X)


def test_functions_without_a_rule_or_arguments() -> None:
    with pytest.raises(MissingRuleError, match="no batch rule"):
        check_batchable(planted.OnlyEvaluated(), X)
    with pytest.raises(ValueError, match="check_batchable needs arguments"):
        check_batchable(lambda: fnp.ones(2))


# ------------------------------------------------------------------ derivatives


def test_modes_of_derivatives() -> None:
    for modes in (("fwd",), ("rev",), ("fwd", "rev")):
        check_grads(lambda x, y: fnp.sum(x * fnp.exp(y)) * y[0], X, X / 2, order=3, modes=modes)
    with pytest.raises(LawError, match="jvp agrees with finite differences"):
        check_grads(lambda x: bind1(planted.WrongJvp(), x), X, order=1, modes=["fwd"])
    check_grads(planted.WrongTranspose(), X, order=3, modes=["fwd"])
    with pytest.raises(LawError, match="differences along v> = <vjp of w, v>"):
        check_grads(planted.WrongTranspose(), X, order=1, modes=["rev"])
    with pytest.raises(LawError, match="<J v, w> = <v, Jᵀ w>"):
        check_grads(planted.WrongTranspose(), X, order=1)


def test_a_second_derivative_that_is_wrong_backward_alone() -> None:
    """The cotangent of the gradient: what its rule for reverse mode gives has no derivative where it should."""

    @fx.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (fx.lax.stop_gradient(fnp.cos(x)) * ct,))
    check_grads(f, X, order=1)
    with pytest.raises(LawError, match="the gradient of"):
        check_grads(f, X, order=2, modes=["rev"])


def test_complex_derivatives() -> None:
    check_grads(lambda z: fnp.sum(z * z * fnp.conj(z)), np.array([0.5 + 1j, -1.0 + 0.5j]))


def test_what_derivatives_refuse() -> None:
    with pytest.raises(ValueError, match='modes must be "fwd", "rev" or both'):
        check_grads(fnp.sin, X, modes=["forward"])  # type: ignore[list-item]  # the error is the point
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        check_grads(fnp.sin, X, order=0)
    with pytest.raises(Inapplicable, match=r"no argument is differentiable: i32\[3\]"):
        check_grads(lambda x: x, np.arange(3))


def test_linear_functions_with_a_tolerance() -> None:
    def nearly(x: Any) -> Any:
        return x.astype("float32").astype(x.dtype)  # rounds

    with pytest.raises(LawError):
        check_linear(nearly, np.ones(3))
    check_linear(nearly, np.ones(3), ulps=Ulps(2.0**32))
    with pytest.raises(LawError, match="mul is not linear|not linear"):
        check_linear(lambda x: x + 1e-20 * x * x, np.ones(3))


# ------------------------------------------------------------------ arrays as reports write them


@pytest.mark.parametrize(
    "x",
    [
        array([0.1, np.nan, np.inf, -np.inf, -0.0], "float32"),
        array([[1, 2], [3, 4]], "int8"),
        array(1e300, "float64"),
        array(2.5, "float32", weak_type=True),
        array([True, False], "bool"),
        array([complex(np.nan, -1), 1j], "complex64"),
        array([0.5, 3.0], "bfloat16"),
        array(np.zeros((2, 0)), "float64"),
        array(np.linspace(0, 1, 200).reshape(2, 100), "float64"),
        array(np.ones((20, 20)), "int32"),
        {"a": [array([1.5], "float32"), None], "b": (1, 2.5)},
    ],
)
def test_arrays_are_what_they_are_written_as(x: Any) -> None:
    again = eval(source_of(x), {"np": np, "array": array})
    leaves: list[Any] = fx.tree.leaves(x)
    others: list[Any] = fx.tree.leaves(again)
    for leaf, other in zip(leaves, others, strict=True):
        if isinstance(leaf, int | float):
            assert leaf == other
            continue
        assert repr(leaf.aval) == repr(other.aval)
        assert np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
