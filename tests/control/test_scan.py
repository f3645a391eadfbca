"""`scan`, `map` and `fori_loop` with known bounds: values, derivatives and batches as in JAX, invalid arguments."""

from __future__ import annotations

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
from tests.control.transform_checks import assert_agrees_with_jax, batch_axes_choices, normal
from tests.errors import error_message
from tests.laws.examples import sampled

lax: Any = fx.lax  # `Any`, since tests also call them with wrong types

H: Final = normal(2)
W: Final = normal(2, 2, seed=1)
XS: Final = normal(3, 2, seed=2)


def rnn(lib: Any, np_: Any, **options: Any) -> Any:
    """A recurrence with a weight, an integer counter, and outputs that depend on the slices only or on nothing."""

    def f(w: Any, h: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            n, h = carry
            h = np_.tanh(h @ w + x)
            return (n + 1, h), {"h": h * x, "sin": np_.sin(x), "n": n, "none": None}

        return lib.lax.scan(step, (0, h), xs, **options)

    return f


def affine(lib: Any, np_: Any, **options: Any) -> Any:
    """A scan that is linear in the carry and in each operand separately."""

    return lambda w, h, xs: lib.lax.scan(lambda h, x: (h @ w + x * w[0], h[0] * x), h, xs, **options)


# ------------------------------------------------------------------ values and derivatives


def without_xs(lib: Any, np_: Any) -> Any:
    return lambda x, y: lib.lax.scan(lambda c, _: (c * np_.sin(y), c + y), x, None, length=4)


def nested_scans_closing_over_tracers(lib: Any, np_: Any) -> Any:
    def f(w: Any, xs: Any) -> Any:
        def outer(c: Any, x: Any) -> Any:
            return lib.lax.scan(lambda d, y: (d * np_.sin(y * w[0]) + c, d * x), c, xs[:, 0], reverse=True)

        return lib.lax.scan(outer, w[1], xs[:, 1])

    return f


def integer_and_boolean_carries(lib: Any, np_: Any) -> Any:
    def f(x: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            n, ok, x = c
            return (n * 2, ~ok, np_.where(ok, x * k, x + n)), (n > 2, k)

        return lib.lax.scan(step, (np.int32(1), True, x), np.arange(3))

    return f


ARGS: Final = W, H, XS
WITHOUT_JIT: Final[dict[str, Any]] = {"eager": True, "second": False}
TRANSFORMED: Final[dict[str, tuple[Any, Any, Any, dict[str, Any]]]] = {
    "rnn": (rnn, ARGS, batch_axes_choices(ARGS), {}),
    "rnn, without jit": (rnn, ARGS, [(0, None, 1)], WITHOUT_JIT),
    "affine, without jit": (affine, ARGS, [(0, None, 1)], WITHOUT_JIT),
    "unroll=2": (partial(rnn, unroll=2), ARGS, (), {"second": False}),
    "unroll=True, reverse": (partial(rnn, unroll=True, reverse=True), ARGS, (), {}),
    "unroll=False": (partial(rnn, unroll=False), ARGS, (), {"second": False}),
    "unroll=7": (partial(rnn, unroll=7), ARGS, (), {"second": False}),
    "no step": (rnn, (W, H, XS[:0]), [(0, None, 1)], WITHOUT_JIT),
    "one step": (rnn, (W, H, XS[:1]), [(0, None, 1)], WITHOUT_JIT),
    "without xs": (without_xs, (np.float32(0.5), np.float32(0.25)), [(0, None), (None, 0)], {}),
    "nested": (nested_scans_closing_over_tracers, (H, XS), [(0, 2)], {"eager": True}),
    "integers and booleans": (integer_and_boolean_carries, (np.float32(0.5),), [(0,)], {"eager": True}),
}
"""Functions, arguments, batch axes, and options of `assert_agrees_with_jax`."""


@pytest.mark.parametrize("name", sampled(TRANSFORMED, 2))
def test_transformations_agree_with_jax(name: str) -> None:
    factory, args, axes, options = TRANSFORMED[name]
    assert_agrees_with_jax(factory, args, axes, **options)


def hessians(lib: Any, np_: Any) -> Any:
    f = rnn(lib, np_)

    def loss(w: Any, h: Any) -> Any:
        (_, last), ys = f(w, h, XS)
        return np_.sum(last**2) + np_.sum(ys["h"])

    return lib.hessian(loss, (0, 1))(W, H), lib.jit(lib.jacrev(lib.grad(loss)))(W, H)


def linear_transpose(lib: Any, np_: Any) -> Any:
    def linear(h: Any, xs: Any) -> Any:
        # The carry also has a counter and a known array.
        def step(carry: Any, x: Any) -> Any:
            n, h = carry
            return (n + 1, h * (n + 1.0) + x[0] * x[1]), h

        (_, h), ys = lib.lax.scan(step, (0, h), (xs, XS))
        return h, ys

    back = lib.linear_transpose(linear, H, XS)
    return back((H, XS)), lib.jit(back)((H, XS))


# ------------------------------------------------------------------ pytrees and dtypes


def pytree_carries_and_slices(lib: Any, np_: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        (a, none), d = c
        assert none is None
        assert x[1] == {}
        return ((a + x[0]["u"], None), {"k": d["k"] * 2, "e": ()}), [None, (a,), {"z": d["k"]}, ()]

    init = (np.float32(1), None), {"k": np.int32(1), "e": ()}
    xs: Any = ({"u": np.arange(3, dtype=np.float32)}, {})
    return lib.lax.scan(step, init, xs), lib.jit(lambda x: lib.lax.scan(step, init, x))(xs)


def empty_trees(lib: Any, np_: Any) -> Any:
    return (
        lib.lax.scan(lambda c, x: (c, None), (), (), length=3),
        tuple(lib.lax.scan(lambda c, x: [c + 1, x], 0.0, XS)),
        lib.lax.scan(lambda c, x: (c, x), None, XS),
        lib.lax.scan(lambda c, x: (c, {"x": {}}), {"c": None}, None, 2),
    )


def carry_of_dtype(lib: Any, np_: Any, dtype: str) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = c ^ x if dtype == "bool" else c * x + c
        return c, c

    xs = np_.asarray([1, 0, 3, 1], dtype)

    def f(c: Any, xs: Any) -> Any:
        return lib.lax.scan(step, c, xs)

    results = [f(np_.asarray(1, dtype), xs), lib.vmap(f, (0, None))(np_.asarray([1, 0], dtype), xs)]
    if "float" in dtype or "complex" in dtype:
        c = np_.asarray(0.5, dtype)
        results.append(lib.jvp(f, (c, xs), (c, xs)))
        results.append(lib.grad(lambda c, xs: f(c, xs)[0], (0, 1), holomorphic=dtype == "complex64")(c, xs))
    return results


def carry_dtypes(lib: Any, np_: Any) -> Any:
    dtypes = ("bool", "int8", "uint32", "bfloat16", "float16", "float64", "complex64")
    return {dtype: carry_of_dtype(lib, np_, dtype) for dtype in dtypes}


def weakly_typed_carries(lib: Any, np_: Any) -> Any:
    strong = lib.lax.scan(lambda c, x: (c + x, c * x), 0.0, np.arange(3, dtype=np.float32))
    wide = lib.lax.scan(lambda c, x: (c + x, c), 1, np_.asarray([1.5, 2], "bfloat16"))
    weak = lib.lax.scan(lambda c, _: (c * 2, c), 1.0, None, length=3)
    other = lib.lax.scan(lambda c, _: (c * 1.5, c), 1, None, length=3)
    return strong, wide, weak, other


def test_promotion_of_weakly_typed_carries_in_several_rounds() -> None:
    # Promotion takes three rounds: the first to the second's type, the second to the slices', the first again.
    xs = np.arange(3, dtype=np.float32)

    def swapped(c: Any, x: Any) -> Any:
        return (c[1], c[0] + x), None

    assert_same(
        lax.scan(swapped, (0, 0.0), xs),
        jax.lax.scan(swapped, (np.float32(0), np.float32(0)), xs),
        JAX_TRANSFORM_TOLERANCE,
    )


def closed_over_constants(lib: Any, np_: Any) -> Any:
    """The body closes over NumPy arrays, tracefx arrays, Python numbers, and an array that it returns."""
    constant = np_.asarray(XS)

    def f(h: Any) -> Any:
        return lib.lax.scan(lambda h, x: (h * x + constant[0] + H, (constant, 2, h)), h, constant)

    return f(H), lib.jit(f)(H), lib.vmap(f)(W), lib.jvp(f, (H,), (H,))


def closed_over_tracers_of_every_transformation(lib: Any, np_: Any) -> Any:
    def f(y: Any) -> Any:
        c, ys = lib.lax.scan(lambda c, x: (c * y + x, np_.sin(y)), np.float32(0.5), XS[:, 0])
        return c + np_.sum(ys)

    y = np_.asarray([0.5, -1.5], "float32")
    one = np.float32(0.5)
    return {
        "grad": lib.grad(f)(one),
        "jvp": lib.jvp(f, (one,), (one,)),
        "vmap": lib.vmap(f)(y),
        "linearize": lib.linearize(f, one)[1](one),
        "vmap of grad": lib.vmap(lib.grad(f))(y),
        "grad of vmap": lib.grad(lambda y: np_.sum(lib.vmap(f)(y)))(y),
        "jit of grad": lib.jit(lib.grad(f))(one),
    }


def collectives_in_the_body(lib: Any, np_: Any) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.scan(lambda c, k: (c + lib.lax.psum(c, "i") * k, lib.lax.axis_index("i")), x, XS[:, 0])

    return lib.vmap(f, axis_name="i")(H), lib.jit(lib.vmap(f, axis_name="i"))(H)


# ------------------------------------------------------------------ checkpointed scans


@pytest.mark.parametrize("checkpoint", [1, 3, 9, "binomial"])
def test_checkpoint_option_agrees_with_jax(checkpoint: Any) -> None:
    xs = normal(7, 2)

    def factory(lib: Any, np_: Any) -> Any:
        return rnn(lib, np_, **({"checkpoint": checkpoint, "reverse": True} if lib is fx else {"reverse": True}))

    assert_agrees_with_jax(
        factory, (W, H, xs), [(None, 0, None)] if checkpoint == 3 else (), second=checkpoint == "binomial"
    )


def test_checkpoint_eagerly() -> None:
    def factory(lib: Any, np_: Any) -> Any:
        return rnn(lib, np_, **({"checkpoint": 2} if lib is fx else {}))

    assert_agrees_with_jax(factory, (W, H, normal(5, 2)), eager=True, second=False)


@agrees_with_jax
def test_checkpoint_of_few_steps(lib: Any, np_: Any) -> Any:
    def slope(length: int, checkpoint: Any) -> Any:
        def f(w: Any) -> Any:
            (_, h), ys = rnn(lib, np_, **({"checkpoint": checkpoint} if lib is fx else {}))(w, H, XS[:length])
            return np_.sum(h) + np_.sum(ys["h"])

        return lib.jit(lib.grad(f))(W)

    return [slope(length, checkpoint) for length in (0, 1) for checkpoint in (1, 2, "binomial")]


# ------------------------------------------------------------------ map


def maps(lib: Any, np_: Any) -> Any:
    def f(d: Any) -> Any:
        return {"y": np_.sin(d["x"]) @ d["x"], "n": d["n"] * 2}

    def of_batch_size(size: int | None) -> Any:
        def g(xs: Any) -> Any:
            return lib.lax.map(f, {"x": xs, "n": np_.arange(4)}, batch_size=size)

        xs = np_.asarray(normal(4, 2))
        return g(xs), lib.jit(lib.grad(lambda xs: np_.sum(g(xs)["y"])))(xs)

    return {size: of_batch_size(size) for size in (None, 0, 1, 2, 3, 4, 10)}


def map_edge_cases(lib: Any, np_: Any) -> Any:
    return (
        lib.lax.map(lambda x: x + 1, np.zeros((0, 2), np.float32)),
        lib.vmap(lambda xs: lib.lax.map(np_.sin, xs), in_axes=1, out_axes=1)(XS),
        lib.lax.map(lambda x: (), XS),
        lib.lax.map(lambda t: t[0] * t[1], (XS, XS)),
    )


PROGRAMS: Final = (
    *(hessians, linear_transpose, pytree_carries_and_slices, empty_trees, weakly_typed_carries),
    *(closed_over_constants, closed_over_tracers_of_every_transformation, carry_dtypes, collectives_in_the_body),
    *(maps, map_edge_cases),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_agree_with_jax(program: Any) -> None:
    assert_agree(program)


# ------------------------------------------------------------------ fori_loop


BOUNDS: Final = [(0, 3), (2, 5), (-2, 1), (5, 2), (0, 0), (np.int8(-1), np.int8(2)), (0, np.int8(3))]


@agrees_with_jax
def test_fori_loop_known_bounds(lib: Any, np_: Any) -> Any:
    def f(lower: Any, upper: Any, x: Any) -> Any:
        return lib.lax.fori_loop(lower, upper, lambda i, c: c * x + i, x)

    functions = [partial(f, *bounds) for bounds in BOUNDS]
    return [(f(np.float32(0.5)), lib.jit(lib.grad(f))(np.float32(0.5))) for f in functions]


@pytest.mark.parametrize("unroll", [1, 2, True, False, None])
def test_fori_loop_unrolled(unroll: Any) -> None:
    def factory(lib: Any, np_: Any) -> Any:
        return lambda x: lib.lax.fori_loop(0, 5, lambda i, c: c * np_.sin(x + i), x, unroll=unroll)

    assert_agrees_with_jax(factory, (np.float32(0.5),), second=False)


@agrees_with_jax
def test_fori_loop_traced_bounds(lib: Any, np_: Any) -> Any:
    def f(a: Any, b: Any, x: Any) -> Any:
        return lib.lax.fori_loop(a, b, lambda i, c: c * x + i, x)

    def results(lower: Any, upper: Any) -> Any:
        x = np.float32(0.5)
        by = np.array([0, 1, 2], np.asarray(upper).dtype)
        tangents = lib.jit(lambda a, b: lib.jvp(lambda x: f(a, b, x), (x,), (x,)))(lower, upper)
        return lib.jit(f)(lower, upper, x), tangents, lib.vmap(f, (None, 0, None))(lower, by, x)

    return [results(*bounds) for bounds in BOUNDS]


# ------------------------------------------------------------------ with jit disabled; number of traces


def test_with_jit_disabled_every_step_runs_in_python() -> None:
    seen: list[float] = []

    def step(c: Any, x: Any) -> Any:
        seen.append(float(x))
        return c + x, c * x

    with fx.disable_jit():
        got = lax.scan(step, 0.0, np.array([1, 2, 3], np.float32), reverse=True)
    assert seen == [3.0, 2.0, 1.0]
    jax_lax: Any = jax.lax
    want = jax_lax.scan(lambda c, x: (c + x, c * x), 0.0, np.array([1, 2, 3], np.float32), reverse=True)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 2}])
def test_results_with_jit_disabled(options: Any) -> None:
    def case(lib: Any, np_: Any) -> Any:
        f = rnn(lib, np_, **options)
        batch = lib.vmap(lambda h: f(W, h, XS)[1]["h"])(W)
        mapped = lib.lax.map(np_.sin, XS), lib.lax.fori_loop(0, 3, lambda i, c: c * i + W, W)
        return f(W, H, XS)[1], batch, lib.jvp(lambda w: f(w, H, XS)[1]["h"], (W,), (W,)), mapped

    want = case(jax, jnp)
    with fx.disable_jit():
        assert_same(case(fx, fnp), want, JAX_TRANSFORM_TOLERANCE)


def test_body_is_traced_once() -> None:
    seen = []

    def step(c: Any, x: Any) -> Any:
        seen.append(c)
        return c * x, fnp.sin(c)

    def f(c: Any) -> Any:
        return lax.scan(step, c, XS)[1].sum()

    c = fnp.asarray(H)
    for _ in range(3):
        f(c)
        fx.grad(f)(c)
        fx.grad(lambda c: lax.scan(step, c, XS)[1].sum())(c)
        fx.jvp(f, (c,), (c,))
        fx.vmap(f)(fnp.asarray(W))
        fx.vmap(fx.grad(f))(fnp.asarray(W))
    assert len(seen) == 1


# ------------------------------------------------------------------ invalid arguments


def grows(c: Any, x: Any) -> Any:
    return {"a": c["a"], "b": (fnp.stack([c["b"][0]] * 2), fnp.int32(1))}, x


def restructures(c: Any, x: Any) -> Any:
    return [c["a"]], x


def test_carry_type_mismatch_is_rejected() -> None:
    init = {"a": np.float32(0), "b": (np.float32(1), np.float32(2))}
    assert error_message(lambda: lax.scan(grows, init, XS)) == (
        "scan of grows: the carry must have the same types:\n"
        "  leaf      going in  coming out\n"
        "  ['b'][0]  f32[]     f32[2]\n"
        "  ['b'][1]  f32[]     i32[]\n"
        "Convert or broadcast it, so that it keeps its type from step to step."
    )
    text = error_message(lambda: lax.fori_loop(0, 3, lambda i, c: c[None], np.float32(0)))
    assert "f32[]" in text
    assert "f32[1]" in text


def test_carry_structure_mismatch_is_rejected() -> None:
    init = {"a": np.float32(0), "b": (np.float32(1), np.float32(2))}
    text = error_message(lambda: lax.scan(restructures, init, XS))
    assert text.splitlines() == [
        "scan of restructures: the carry must have the same structure:",
        "  going in   : a dict with the keys 'a', 'b', {'a': *, 'b': (*, *)}",
        "  coming out : a list of length 1",
    ]


def test_body_must_return_a_pair() -> None:
    def body(c: Any, x: Any) -> Any:
        return c

    assert error_message(lambda: lax.scan(body, 0.0, XS)) == (
        "scan of body: the function must return a pair (carry, result), got one array"
    )


def test_inconsistent_lengths_are_rejected() -> None:
    def same_carry(c: Any, x: Any) -> Any:
        return c, x

    scan = lax.scan
    assert error_message(lambda: scan(same_carry, 0, {"a": XS, "b": H}), ValueError) == (
        "scan of same_carry: all arrays of xs must have the same first axis, but xs['a'] has 3, xs['b'] has 2"
    )
    assert error_message(lambda: scan(same_carry, 0, XS, length=4), ValueError) == (
        "scan of same_carry: length is 4, but xs has 3"
    )
    assert error_message(lambda: scan(same_carry, 0), ValueError) == (
        "scan of same_carry: there are no arrays in xs, so the number of steps is unknown; pass length"
    )
    assert error_message(lambda: scan(same_carry, 0, np.float32(1)), ValueError) == (
        "scan of same_carry: xs has no axis to scan over, it is f32[]"
    )
    assert error_message(lambda: scan(same_carry, 0, None, length=-1), ValueError) == (
        "scan of same_carry: length must not be negative: -1"
    )
    error_message(lambda: scan(same_carry, 0, XS, unroll=-1), ValueError)
    for bad in (0, -1, "logarithmic"):
        error_message(partial(scan, same_carry, 0, XS, checkpoint=bad), ValueError)


def test_invalid_bounds_are_rejected() -> None:
    for bounds in ((0.0, 3), (0, np.float32(3)), (np.zeros(2, np.int32), 3), ("0", 3)):
        assert error_message(partial(lax.fori_loop, *bounds, lambda i, c: c, 0.0)).startswith("fori_loop of ")
    for lib in (fx, jax):
        with pytest.raises(ValueError, match="unroll"):
            lib.jit(lambda n, lib=lib: lib.lax.fori_loop(0, n, lambda i, c: c, 0.0, unroll=2))(3)


def test_exception_in_the_body_restores_the_context() -> None:
    def bad(c: Any, x: Any) -> Any:
        raise KeyError("mine")

    assert error_message(lambda: lax.scan(bad, 0, XS), KeyError) == "'mine'"
    assert error_message(lambda: fx.vmap(fx.grad(lambda c: lax.scan(bad, c, XS)[0]))(H), KeyError) == "'mine'"


@agrees_with_jax
def test_unroll(lib: Any, np_: Any) -> Any:
    def scan(n: int, unroll: int | bool) -> Any:
        return lib.lax.scan(lambda c, x: (c + x, c * x), 0.0, np_.arange(float(n)), unroll=unroll)

    return [scan(n, unroll) for n in (0, 4) for unroll in (0, True, False, 8)]


@pytest.mark.parametrize(("options", "error"), [({"unroll": -1}, ValueError), ({"unroll": 1.5}, TypeError)], ids=str)
def test_invalid_unroll_is_rejected(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="unroll must be"):
        fx.lax.scan(lambda c, x: (c, x), 0.0, fnp.arange(3.0), **options)


@pytest.mark.parametrize(("batch_size", "error"), [(-1, ValueError), (2.0, TypeError), ("a", TypeError)])
def test_invalid_batch_size_is_rejected(batch_size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="batch_size must be"):
        fx.lax.map(lambda x: x, fnp.arange(3.0), batch_size=batch_size)
