"""`checkify`: error messages, batches, derivatives, compiled programs, and errors as pytrees."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.compiling import with_either_compile_options
from tests.errors import assert_errors, untyped
from tests.handlers.test_checkify import F, X, f32, has_error, i32
from tracefx import lax, nn
from tracefx.errors import ConcretizationError
from tracefx.handlers import (
    CheckError,
    Error,
    ErrorKind,
    all_checks,
    autocast,
    automatic_checks,
    check,
    check_error,
    checkify,
    debug_check,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    progress,
    user_checks,
)
from tracefx.testing import check_interpretation
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ error messages


def message_of(error: Error) -> str:
    return error.get() or ""


def line_of(f: F, offset: int) -> str:
    return f"{__file__}:{inspect.getsourcelines(f)[1] + offset} ({f.__qualname__})"


def get(f: F, *args: Any, errors: frozenset[ErrorKind] = all_checks) -> str:
    values = [fnp.asarray(x) for x in args]
    checked_functions = (checkify(f, errors), fx.jit(checkify(f, errors)), checkify(fx.jit(f), errors))
    (message,) = {g(*values)[0].get() for g in checked_functions}
    return message or ""


def test_nan_message_names_primitive_element_and_line() -> None:
    def f(x: Any) -> Any:
        return fnp.log(x)

    message = get(f, fnp.asarray([[1.0, 2.0], [3.0, -4.0]]))
    assert message == f"log gave NaN, at [1, 1] of f32[2,2], in {line_of(f, 1)}"


def test_division_message_names_the_divisor() -> None:
    message = get(lambda x, y: x / y, f32(1, 2, 3), f32(1, 0, 0), errors=div_checks)
    assert message.startswith("division by zero in div: the divisor at [1] of f32[3], in ")


def test_out_of_bounds_message_names_index_and_axis_size() -> None:
    x = fnp.asarray(X)
    assert get(lambda x, i: x[i], x, i32(1, 7)).startswith(
        "gather: index 7, number [1] of the indices, is out of bounds for axis 0 of f32[3,4], which has size 3, in "
    )
    out_of_bounds = "index -5 is out of bounds for axis 1 of f32[3,4], which has size 4, in "
    assert message_of(checkify(lambda x: x[:, -9], index_checks)(x)[0]).startswith("dynamic_slice: " + out_of_bounds)
    column = fx.jit(checkify(lambda x, i: x[:, i], index_checks))
    assert message_of(column(x, -9)[0]).startswith("gather: " + out_of_bounds)
    assert get(lambda x, i: lax.dynamic_slice_in_dim(x, i, 3, 1), x, np.int32(2)).startswith(
        "dynamic_slice: a window of size 3 from index 2 on is out of bounds for axis 1 of f32[3,4], which has size 4"
    )
    assert get(lambda x, i: x.at[i, 0].add(1.0), x, i32(0, 5)).startswith("scatter-add: index 5, number [1] of")
    assert get(lambda x, i: x.at[i, 0].subtract(1.0), x, i32(0, 5)).startswith("scatter-sub: index 5")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64])
def test_out_of_bounds_indices_of_any_integer_dtype(dtype: Any) -> None:
    x = np.zeros(100, np.float32)
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))

    def f(x: Any, i: Any) -> Any:
        return lax.gather(x, i, numbers, (1,), mode="clip")

    assert not has_error(f, index_checks, (x, np.array([[99]], dtype)))
    assert "index 120, number [1]" in get(f, x, np.array([[0], [120]], dtype))


def test_check_message_is_formatted_with_its_arguments() -> None:
    def f(x: Any, y: Any) -> Any:
        check(fnp.all(x > 0), "{name}: {0} and {x[a]:.2f}", y, x={"a": x[0]}, name="f")
        return x

    message = get(f, f32(-1.234, 2), i32(1, 2))
    assert message == f"f: [1 2] and -1.23, in {line_of(f, 1)}"


def test_first_failure_is_reported() -> None:
    def f(x: Any, y: Any) -> Any:
        z = fnp.log(x)
        check(y > 0, "later")
        return z / y

    assert get(f, -1.0, 0.0).startswith("log gave NaN")
    assert get(f, 1.0, 0.0).startswith("later")
    assert get(f, -1.0, 0.0, errors=user_checks | div_checks).startswith("later")

    def g(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            check(x < 2, "the second operation: {}", x)
            check(x < 1, "the first step: {}", x)
            return c, x

        return lax.scan(step, 0.0, xs)

    assert get(g, f32(0, 1, 2)).startswith("the first step: 1.0")
    assert get(g, f32(0, 2, 1)).startswith("the second operation: 2.0")


def test_branches_with_message_arguments_of_different_types() -> None:
    def f(i: Any, x: Any) -> Any:
        def first(x: Any) -> Any:
            check(x[0] > 0, "first: {}", x)
            return x

        def second(x: Any) -> Any:
            check(x[1] > 0, "second: {} {}", x[1], i)
            return fnp.log(x)

        return lax.switch(i, [first, second, lambda x: x], x)

    x = f32(-1, -2)
    assert get(f, np.int32(0), x).startswith("first: [-1. -2.]")
    assert get(f, np.int32(1), x).startswith("second: -2.0 1")
    assert get(f, np.int32(1), f32(-1, 2)).startswith("log gave NaN, at [0]")
    assert get(f, np.int32(2), x) == ""


# ------------------------------------------------------------------ batches


def positive(x: Any) -> Any:
    check(x > 0, "{} is not positive", x)
    return fnp.log(x)


def test_vmap_of_checkify_has_an_error_per_batch_element() -> None:
    x = f32(1, -1, 2, -3)
    for f in (fx.vmap(checkify(positive)), fx.jit(fx.vmap(checkify(positive)))):
        error, _ = f(x)
        assert [line.split(", in")[0] for line in message_of(error).split("\n")] == [
            "at batch index 1: -1.0 is not positive",
            "at batch index 3: -3.0 is not positive",
        ]
    assert fx.vmap(checkify(positive))(f32(1, 2))[0].get() is None
    error, _ = fx.vmap(fx.vmap(checkify(positive, nan_checks | user_checks)))(x.reshape(2, 2))
    assert message_of(error).startswith("at batch index 0, 1: -1.0 is not positive")


def test_checkify_of_vmap_names_the_batch_index() -> None:
    x = f32(1, -1, 2, -3)
    assert get(fx.vmap(positive), x, errors=user_checks).startswith("at batch index 1: -1.0 is not positive")
    assert get(fx.vmap(positive), x, errors=nan_checks | user_checks).startswith("at batch index 1")
    nested = fx.vmap(fx.vmap(positive))
    assert get(nested, x.reshape(2, 2), errors=user_checks).startswith("at batch index 0, 1: -1.0 is not positive")
    assert get(fx.vmap(fnp.log), x).startswith("log gave NaN, at [1] of f32[4]")
    rows = fx.vmap(lambda x, i: x[i])
    assert "index 9, number [1]" in get(rows, fnp.asarray(X), i32(0, 9, 1))


def test_finished_elements_of_a_batched_while_loop_raise_no_error() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda x: x > 0.5, lambda x: fnp.sqrt(x - 0.5), x)

    error, _ = fx.vmap(checkify(f, nan_checks))(f32(0.25, 9.0))
    assert error.get() is None


def test_scan_of_checkify_stacks_errors() -> None:
    _, (errors, _) = lax.scan(lambda c, x: (c, checkify(positive)(x)), 0.0, f32(1, -1, -2))
    assert [line.split(", in")[0] for line in message_of(errors).split("\n")] == [
        "at batch index 1: -1.0 is not positive",
        "at batch index 2: -2.0 is not positive",
    ]


# ------------------------------------------------------------------ derivatives


def output_first(f: F) -> F:
    return lambda *args: f(*args)[::-1]


@pytest.mark.parametrize("name", ["relu", "silu", "softplus", "gelu", "logsumexp", "softmax", "log_softmax", "sigmoid"])
def test_grad_and_checkify_compose(name: str) -> None:
    def f(x: Any) -> Any:
        return fnp.sum(getattr(nn, name)(x) ** 2) / x[0]

    def check_gradients() -> None:
        x = f32(1, -2, 0.0, 3)
        want = fx.grad(f)(x)
        for checked in (output_first(checkify(f, all_checks)), fx.jit(output_first(checkify(f, all_checks)))):
            got, error = fx.grad(checked, has_aux=True)(x)
            assert_near(got, want)
            assert error.get() is None
            _, error = fx.grad(checked, has_aux=True)(f32(0, 1))
            assert "division by zero" in message_of(error)
        error, got = checkify(fx.grad(f), all_checks)(x)
        assert_near(got, want, ELEMENTARY)
        assert error.get() is None

    with_either_compile_options(check_gradients)


def test_errors_in_the_backward_pass_are_reported() -> None:
    assert checkify(fnp.sqrt, all_checks)(0.0)[0].get() is None
    error, _ = checkify(fx.grad(fnp.sqrt), all_checks)(0.0)
    assert "division by zero" in message_of(error)
    error, _ = checkify(fx.grad(lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0)), nan_checks)(-1.0)
    assert "sqrt gave NaN" in message_of(error)


def test_grad_and_checkify_of_a_checkpointed_scan() -> None:
    def f(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            check(x > 0, "{}", x)
            return c * fnp.sin(x), fnp.log(x)

        c, ys = lax.scan(fx.checkpoint(step), 1.0, xs)
        return c + fnp.sum(ys)

    def plain(xs: Any) -> Any:
        return fnp.prod(fnp.sin(xs)) + fnp.sum(fnp.log(xs))

    for x in (f32(1, 2), f32(1, -2)):
        want = fx.grad(plain)(x)
        for gradient in (
            fx.grad(output_first(checkify(f)), has_aux=True),
            fx.jit(fx.grad(output_first(checkify(f)), has_aux=True)),
            output_first(checkify(fx.grad(f))),
            output_first(fx.jit(checkify(fx.grad(f)))),
        ):
            got, error = gradient(x)
            assert_near(got, want, ELEMENTARY)
            assert (error.get() is None) == bool(x[1] > 0)


def test_jvp_and_second_derivatives_of_checkify() -> None:
    def f(x: Any) -> Any:
        return checkify(lambda x: fnp.exp(x) / x, all_checks)(x)[1]

    plain = lambda x: fnp.exp(x) / x  # noqa: E731
    assert_near(fx.jvp(f, (2.0,), (1.0,)), fx.jvp(plain, (2.0,), (1.0,)), ELEMENTARY)
    assert_near(fx.grad(fx.grad(f))(2.0), fx.grad(fx.grad(plain))(2.0), ELEMENTARY)
    assert_near(fx.hessian(f)(2.0), fx.grad(fx.grad(plain))(2.0), ELEMENTARY)


# ------------------------------------------------------------------ without checkify


def test_failed_check_raises_in_eager_evaluation() -> None:
    with pytest.raises(CheckError, match=r"^-1.0 is not positive, in .*positive\)$"):
        positive(-1.0)
    assert positive(fnp.float32(1.0)) == 0
    with pytest.raises(CheckError, match=r"at batch index 1: -2.0 is not positive"):
        fx.vmap(positive)(f32(1, -2))
    with pytest.raises(CheckError, match="-1.0 is not positive"):
        fx.grad(positive)(-1.0)
    assert issubclass(CheckError, ValueError)


@pytest.mark.parametrize(
    "make",
    [
        fx.jit,
        lambda f: lambda x: lax.scan(lambda c, x: (c, f(x)), 0.0, fnp.stack([x, x])),
        lambda f: lambda x: lax.while_loop(lambda c: c > 9, f, x),
        lambda f: lambda x: lax.cond(x > 0, f, f, x),
        lambda f: fx.jit(fx.grad(f)),
        lambda f: fx.jit(lambda x: fx.vmap(f)(fnp.stack([x, x]))),
    ],
    ids=["jit", "scan", "while", "cond", "grad", "vmap"],
)
def test_staged_check_needs_checkify(make: Callable[[F], F]) -> None:
    with pytest.raises(ValueError, match=r"can't raise errors: '{} is not positive', in .*positive\)\. Apply tracefx"):
        make(positive)(fnp.float32(0.25))
    assert checkify(make(positive))(fnp.float32(0.25))[0].get() is None


def test_disabled_error_kinds_pass_to_the_outer_checkify() -> None:
    def f(x: Any) -> Any:
        check_error(checkify(fnp.log, nan_checks)(x)[0])
        return fnp.log(x)

    with pytest.raises(CheckError, match=r"log gave NaN"):
        checkify(f, user_checks)(-1.0)
    outer, (inner, _) = fx.jit(checkify(checkify(f, user_checks), nan_checks))(-1.0)
    assert "log gave NaN" in message_of(outer)
    assert inner.get() is None


def test_debug_checks_do_nothing_without_checkify() -> None:
    def f(x: Any) -> Any:
        debug_check(x > 0, "{} is not positive", x)
        check(x > 1, "{} is not large", x, debug=True)

        def step(c: Any, x: Any) -> Any:
            debug_check(x > 0, "a step")
            return c, x

        return lax.scan(step, x, fnp.stack([x, x]))[0]

    for g in (f, fx.jit(f), fx.grad(f)):
        g(-1.0)
    assert get(f, -1.0).startswith("-1.0 is not positive")
    assert get(f, 1.0).startswith("1.0 is not large")


def test_throw_and_check_error_raise_again() -> None:
    error, _ = fx.jit(checkify(positive))(-1.0)
    with pytest.raises(CheckError, match="-1.0 is not positive"):
        error.throw()
    with pytest.raises(CheckError, match="-1.0 is not positive"):
        check_error(error)
    fx.jit(checkify(positive))(1.0)[0].throw()

    def rethrows(x: Any) -> Any:
        error, out = fx.jit(checkify(positive))(x)
        check_error(error)
        return out

    assert get(rethrows, -1.0, errors=user_checks).startswith("-1.0 is not positive")
    with pytest.raises(CheckError, match="at batch index 1: -1.0 is not positive"):
        fx.vmap(checkify(positive))(f32(1, -1))[0].throw()
    inside = get(lambda x: check_error(fx.vmap(checkify(positive))(x)[0]), f32(1, -1), errors=user_checks)
    assert inside.startswith("at batch index 1: -1.0 is not positive")


def test_rethrown_errors_reach_the_checkify_that_enables_their_kind() -> None:
    def f(x: Any, y: Any) -> Any:
        error, out = checkify(lambda x, y: fnp.log(x) + 1 / y, float_checks)(x, y)
        error.throw()
        return out

    outer = checkify(checkify(f, nan_checks), div_checks)
    error, (inner, _) = outer(-1.0, fnp.float32(1.0))
    assert error.get() is None
    assert "log gave NaN" in message_of(inner)
    error, (inner, _) = outer(1.0, fnp.float32(0.0))
    assert "division by zero" in message_of(error)
    assert inner.get() is None


# ------------------------------------------------------------------ errors as values


def test_unions_of_error_kinds() -> None:
    assert float_checks == nan_checks | div_checks
    assert automatic_checks == float_checks | index_checks
    assert all_checks == automatic_checks | user_checks == frozenset(ErrorKind)


def test_errors_are_pytrees_and_pickle() -> None:
    error, _ = checkify(positive, all_checks)(-1.0)
    leaves, tree = fx.tree.flatten(error)
    assert fx.tree.unflatten(tree, leaves).get() == error.get()
    assert pickle.loads(pickle.dumps(error)).get() == error.get()
    assert repr(error) == f"Error({error.get()})"
    assert repr(checkify(positive)(1.0)[0]) == "Error(None)"

    @fx.jit
    def inspect_error(x: Any) -> Any:
        error, out = checkify(positive)(x)
        with pytest.raises(TypeError):
            error.get()
        assert repr(error).startswith("Error(")
        return out

    inspect_error(1.0)


def test_checkified_functions_compile_once() -> None:
    f = fx.jit(checkify(positive, all_checks))
    assert f(1.0)[0].get() is None
    assert f(-1.0)[0].get() is not None
    inner = fx.jit(positive)
    messages = {checkify(inner)(x)[0].get() is None for x in (1.0, 2.0)}
    assert messages == {True}


# ------------------------------------------------------------------ refused arguments


def test_invalid_arguments_are_refused() -> None:
    assert_errors(
        (lambda: untyped(checkify)(3), TypeError, "checkify"),
        (lambda: untyped(checkify)(positive, "nan"), TypeError, "errors must be user_checks, .* got 'nan'"),
        (lambda: untyped(checkify)(positive, {1}), TypeError, "errors must be"),
        (
            lambda: check(fnp.array([True, False]), ""),
            TypeError,
            r"check: pred must be a boolean scalar, got .*reduce an array",
        ),
        (lambda: debug_check(1, ""), TypeError, "debug_check: pred must be a boolean scalar, got 1"),
        (lambda: untyped(check)(True, 3), TypeError, "msg must be a string, got 3"),
        (lambda: check(True, "{y}", x=1), KeyError, "shows y, which it was not given"),
        (lambda: check(True, "{} {}", 1), IndexError, "shows argument 1, but there are 1"),
        (lambda: check(True, "{}", set()), TypeError, "must be arrays or hashable"),
        (lambda: untyped(check_error)(None), TypeError, "check_error takes the Error"),
    )


def test_checks_in_branches_of_a_batched_cond_are_refused() -> None:
    """Both branches would run for all batch elements, and the checks of the branch not taken would fail."""

    def f(x: Any) -> Any:
        return lax.cond(x > 0, positive, lambda x: x, x)

    with pytest.raises(ValueError, match="index is batched"):
        checkify(fx.vmap(f))(f32(1, -1))
    assert fx.vmap(checkify(f))(f32(1, -1))[0].get() is None


def test_checkify_composes_with_autocast_and_progress() -> None:
    def f(x: Any) -> Any:
        y = nn.softmax(x @ fnp.ones((3, 3)))
        y, _ = lax.scan(lambda c, _: (fnp.tanh(c @ c.T) @ c, None), y, None, 5)
        check(x[0, 0] != 3, "three")
        return fnp.sum(fnp.log(y))

    reports: list[Any] = []
    with_progress = functools.partial(progress, show=reports.append)
    stacks: list[F] = [
        checkify(autocast(f), all_checks),
        autocast(checkify(f, all_checks)),
        checkify(with_progress(f), all_checks),
        with_progress(fx.jit(autocast(checkify(f, all_checks)))),
        fx.jit(checkify(with_progress(autocast(f)), all_checks)),
    ]
    for g in stacks:
        error, out = g(fnp.ones((2, 3)))
        assert error.get() is None
        assert_near(fnp.asarray(out).astype(fnp.bfloat16), f(fnp.ones((2, 3))))
        assert message_of(g(fnp.full((2, 3), 3.0))[0]).startswith("three")
        assert "gave NaN" in message_of(g(fnp.full((2, 3), fnp.nan))[0])
    assert {r.done for r in reports} == {1, 2, 3, 4, 5}


def test_checkify_obeys_the_handler_laws() -> None:
    def unchanged(f: F) -> F:
        return lambda *args: checkify(f, all_checks)(*args)[1]

    assert not check_interpretation(unchanged).skipped


@pytest.mark.parametrize("errors", ["user_checks", "div_checks", "float_checks", "index_checks", "all_checks"])
@pytest.mark.parametrize("x", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("jitted", ["", "outside", "inside"])
def test_user_checks_are_reported_or_dropped_as_in_jax(errors: str, x: float, jitted: str) -> None:
    def passes(F: Any, checks: Any) -> tuple[bool, float]:
        def f(x: Any) -> Any:
            checks.check(x > 0, "must be positive")
            checks.debug_check(x > 0, "must be positive")
            return 1 / x

        checked = checks.checkify(F.jit(f) if jitted == "inside" else f, errors=getattr(checks, errors))
        error, y = (F.jit(checked) if jitted == "outside" else checked)(F.numpy.asarray(x))
        return error.get() is None, float(y)

    assert passes(fx, fx.handlers) == passes(jax, jax_checkify)


def test_dropped_checks_do_not_reach_the_outer_checkify() -> None:
    def outer(F: Any, checks: Any) -> bool:
        def f(x: Any) -> Any:
            checks.check(x > 0, "must be positive")
            return x

        def g(x: Any) -> Any:
            return checks.checkify(f, errors=checks.div_checks)(x)[1]

        error, _ = checks.checkify(g, errors=checks.user_checks)(F.numpy.asarray(-1.0))
        return error.get() is None

    assert outer(fx, fx.handlers) == outer(jax, jax_checkify)


# ------------------------------------------------------------------ mistakes


def test_error_has_no_truth_value() -> None:
    for x in (1.0, -1.0):
        error, _ = checkify(fnp.log, nan_checks)(x)
        with pytest.raises(TypeError, match=r"use `error.get\(\) is not None`"):
            bool(error)


def test_get_of_a_traced_error_says_where_to_call_it() -> None:
    def f(x: Any) -> Any:
        error, y = checkify(fnp.log, nan_checks)(x)
        return y if error.get() is None else 0.0

    with pytest.raises(ConcretizationError, match=r"Error.get needs a concrete value.* call get outside of it"):
        fx.jit(f)(1.0)


def test_predicate_that_is_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got 1.0; compare numbers, as in x > 0"):
        check(1.0, "no condition")


def test_error_of_a_sharded_array_is_raised() -> None:
    """The error is on several devices; a compiled program could not raise it."""

    def f(x: fx.Array) -> fx.Array:
        check(fnp.all(x > 0), "not positive: {s}", s=x.sum())
        return x

    mesh = fx.sharding.Mesh(np.array(fx.devices()[:2]), ("a",))
    x = fx.device_put(np.ones(4, np.float32), fx.sharding.NamedSharding(mesh, fx.sharding.PartitionSpec("a")))
    check_error(checkify(fx.jit(f))(x)[0])
    with pytest.raises(CheckError, match=r"not positive: -4\.0"):
        check_error(checkify(fx.jit(f))(-x)[0])
