"""`custom_jvp`, `custom_vjp` and `custom_gradient`, compared with JAX under stacks of transformations."""

# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
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

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
TWO: Final = np.float32(2.0)

# ------------------------------------------------------------------ functions with custom rules


def log1pexp(lib: Any, np_: Any) -> Any:
    """The rule keeps the derivative finite."""

    @lib.custom_jvp
    def f(x: Any) -> Any:
        return np_.log(1.0 + np_.exp(x))

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return f(x), (1 - 1 / (1 + np_.exp(x))) * t

    return f


def doubled(lib: Any, np_: Any) -> Any:
    """The rule differs from the true derivative, so the result shows whether the rule was called."""

    @lib.custom_vjp
    def f(x: Any) -> Any:
        return np_.sin(x) * x

    f.defvjp(lambda x: (f(x), (np_.cos(x), x)), lambda res, ct: (2 * ct * (res[0] * res[1] + np_.sin(res[1])),))
    return f


def of_two(lib: Any, np_: Any) -> Any:
    """Two arguments, two outputs of which one is often unused, and a custom rule inside a custom rule."""
    inner = log1pexp(lib, np_)

    @lib.custom_vjp
    def g(x: Any, y: Any) -> Any:
        return inner(x) * y, np_.cos(y)

    def bwd(res: Any, ct: Any) -> Any:
        x, y = res
        return 3 * ct[0] * y * inner(x), ct[0] * inner(x) - 5 * ct[1] * np_.sin(y)

    g.defvjp(lambda x, y: (g(x, y), (x, y)), bwd)
    return lambda x: g(x, x * 0.5)[0]


def with_defjvps(lib: Any, np_: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return np_.sin(x) * y

    f.defjvps(lambda t, out, x, y: 3 * t * y * np_.cos(x), lambda t, out, x, y: t * out)
    return lambda x: f(x, x + 1.0)


FUNCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    f.__name__: f for f in (log1pexp, doubled, of_two, with_defjvps)
}


def pushed(lib: Any, f: Any) -> Any:
    return lambda x: lib.jvp(f, (x,), (x * 0.5 + 1.0,))


STACKS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "nothing": lambda lib, total, f: f,
    "jit": lambda lib, total, f: lib.jit(f),
    "vmap": lambda lib, total, f: lib.vmap(f),
    "grad": lambda lib, total, f: lib.grad(total(f)),
    "jit of grad of jit": lambda lib, total, f: lib.jit(lib.grad(total(lib.jit(f)))),
    "vmap of grad": lambda lib, total, f: lib.vmap(lib.grad(f)),
    "grad of vmap": lambda lib, total, f: lib.grad(total(lib.vmap(f))),
    "grad of jit of vmap of jit": lambda lib, total, f: lib.grad(total(lib.jit(lib.vmap(lib.jit(f))))),
    "vmap of jit of grad of jit": lambda lib, total, f: lib.vmap(lib.jit(lib.grad(lib.jit(f)))),
    "vmap of grad of grad": lambda lib, total, f: lib.vmap(lib.grad(lib.grad(f))),
    "jit of vmap of grad of jit of grad": lambda lib, total, f: lib.jit(lib.vmap(lib.grad(lib.jit(lib.grad(f))))),
    "vmap of vmap of grad": lambda lib, total, f: lambda x: lib.vmap(lib.vmap(lib.grad(f)))(x[None]),
    "jacrev": lambda lib, total, f: lib.jacrev(f),
}
FORWARD: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "jvp": lambda lib, total, f: pushed(lib, f),
    "jit of jvp of jit": lambda lib, total, f: lib.jit(pushed(lib, lib.jit(f))),
    "vmap of jvp": lambda lib, total, f: lib.vmap(pushed(lib, f)),
    "jvp of vmap of jit": lambda lib, total, f: pushed(lib, lib.vmap(lib.jit(f))),
    "jacfwd": lambda lib, total, f: lib.jacfwd(f),
    "jacfwd of jit": lambda lib, total, f: lib.jacfwd(lib.jit(f)),
    "linearize": lambda lib, total, f: lambda x: lib.linearize(f, x)[1](x),
    "grad of jvp": lambda lib, total, f: lib.grad(lambda x: lib.jvp(total(f), (x,), (x,))[1]),
    "jvp of jvp": lambda lib, total, f: pushed(lib, pushed(lib, f)),
    "hessian": lambda lib, total, f: lib.hessian(total(f)),
    "jit of hessian of jit": lambda lib, total, f: lib.jit(lib.hessian(total(lib.jit(f)))),
    "jvp of jit of grad of jit": lambda lib, total, f: pushed(lib, lib.jit(lib.grad(total(lib.jit(f))))),
}


def _stacked(stack: Any, lib: Any, np_: Any, function: Any) -> Any:
    return stack(lib, lambda f: lambda x: np_.sum(f(x)), function(lib, np_))(np_.asarray(X))


@pytest.mark.parametrize("function", list(FUNCTIONS))
@pytest.mark.parametrize("stack", list(STACKS))
def test_custom_derivatives_under_a_stack_of_transformations(stack: str, function: str) -> None:
    assert_agree(lambda lib, np_: _stacked(STACKS[stack], lib, np_, FUNCTIONS[function]))


@pytest.mark.parametrize("function", ["log1pexp", "with_defjvps"])
@pytest.mark.parametrize("stack", list(FORWARD))
def test_forward_mode_through_custom_jvp(stack: str, function: str) -> None:
    assert_agree(lambda lib, np_: _stacked(FORWARD[stack], lib, np_, FUNCTIONS[function]))


def _as_custom_jvp(lib: Any, np_: Any) -> Any:
    """The same function and derivative as `doubled`, with a JVP rule."""

    @lib.custom_jvp
    def f(x: Any) -> Any:
        return np_.sin(x) * x

    f.defjvp(lambda primals, ts: (f(*primals), 2 * (np_.cos(primals[0]) * primals[0] + np_.sin(primals[0])) * ts[0]))
    return f


@pytest.mark.parametrize("stack", list(FORWARD))
def test_forward_mode_through_custom_vjp_is_the_transpose_of_the_backward_rule(stack: str) -> None:
    got = _stacked(FORWARD[stack], fx, fnp, doubled)
    assert_same(got, _stacked(FORWARD[stack], jax, jnp, _as_custom_jvp), JAX_TRANSFORM_TOLERANCE)


# ------------------------------------------------------------------ examples of JAX's documentation


def clip_gradient(lib: Any, np_: Any) -> Any:
    @partial(lib.custom_vjp, nondiff_argnums=(0, 1))
    def clip(lo: float, hi: float, x: Any) -> Any:
        return x

    clip.defvjp(lambda lo, hi, x: (x, None), lambda lo, hi, _, ct: (np_.clip(ct, lo, hi),))
    t = np_.linspace(0.0, 10.0, 7)

    def f(x: Any) -> Any:
        return clip(-0.75, 0.75, np_.sin(x)) * 3.0

    return (
        lib.vmap(lib.grad(f))(t),
        lib.jit(lib.vmap(lib.grad(f)))(t),
        lib.vmap(lib.grad(lib.jit(f)))(t),
        lib.grad(lambda x: np_.sum(lib.vmap(f)(x)))(t),
        lib.vmap(lib.grad(lib.grad(f)))(t),
    )


def clip_by_arrays(lib: Any, np_: Any) -> Any:
    @lib.custom_vjp
    def clip(lo: Any, hi: Any, x: Any) -> Any:
        return x

    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)), lambda res, ct: (None, None, np_.clip(ct, *res)))
    t = np_.linspace(0.0, 10.0, 7)

    def f(x: Any) -> Any:
        return clip(-0.75, 0.75, np_.sin(x)) * 3.0

    return lib.vmap(lib.grad(f))(t), lib.jit(lib.vmap(lib.grad(lib.jit(f))))(t)


def nondiff_functions(lib: Any, np_: Any) -> Any:
    @partial(lib.custom_jvp, nondiff_argnums=(0, 2))
    def apply(f: Any, x: Any, g: Any) -> Any:
        return f(g(x))

    @apply.defjvp
    def rule(f: Any, g: Any, primals: Any, tangents: Any) -> Any:
        return f(g(primals[0])), 3.0 * tangents[0]

    def called(x: Any) -> Any:
        return apply(np_.sin, x, lambda y: 5 * y)

    return called(np_.asarray(X)), lib.vmap(lib.grad(called))(X), lib.jit(lib.vmap(lib.grad(lib.jit(called))))(X)


def nondiff_tracers(lib: Any, np_: Any) -> Any:
    """A non-differentiated argument, concrete or traced."""

    @partial(lib.custom_jvp, nondiff_argnums=(1,))
    def scaled(x: Any, n: Any) -> Any:
        return np_.sin(x) * n

    scaled.defjvp(lambda n, p, t: (scaled(p[0], n), 7.0 * n * t[0]))
    n = np_.arange(3)
    return (
        lib.jit(lib.grad(scaled))(2.0, n[2]),
        lib.vmap(lib.grad(scaled))(np_.asarray(X), n),
        lib.vmap(lib.jit(lib.grad(scaled)), (0, None))(np_.asarray(X), n[1]),
        lib.grad(lambda x: np_.sum(lib.vmap(scaled)(x, x)))(np_.asarray(X)),
    )


def nondiff_names(lib: Any, np_: Any) -> Any:
    @partial(lib.custom_jvp, nondiff_argnames=("n",))
    def power(x: Any, n: int) -> Any:
        return x**n

    power.defjvp(lambda n, p, t: (power(p[0], n), 7 * n * power(p[0], n - 1) * t[0]))
    x = np_.float32(2.0)
    return lib.grad(power)(x, 3), lib.grad(power)(x, n=3), lib.grad(lambda x: power(n=3, x=x))(x)


def keywords_and_defaults(lib: Any, np_: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any = TWO) -> Any:
        return x * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda res, ct: (ct * res[1] * 10, ct * res[0] * 100))
    x = np_.float32(3.0)
    return lib.grad(f)(x), lib.grad(f)(x, y=x), lib.grad(lambda y: f(x, y=y))(x), lib.jit(lib.grad(f))(x)


def pytrees(lib: Any, np_: Any) -> Any:
    @lib.custom_vjp
    def f(d: Any, xs: Any) -> Any:
        return {"a": d["u"] * xs[0], "b": (xs[1], d["v"])}

    def bwd(res: Any, ct: Any) -> Any:
        d, xs = res
        return {"u": ct["a"] * xs[0], "v": ct["b"][1] * 2}, [d["u"] * ct["a"], None]

    f.defvjp(lambda d, xs: (f(d, xs), (d, xs)), bwd)
    args = {"u": np_.float32(2.0), "v": np_.arange(3.0)}, [np_.float32(3.0), np_.ones(2)]

    def total(d: Any, xs: Any) -> Any:
        out = f(d, xs)
        return out["a"] + np_.sum(out["b"][0]) + np_.sum(out["b"][1])

    gradient = lib.grad(total, (0, 1))
    return f(*args), gradient(*args), lib.jit(gradient)(*args), lib.vjp(f, *args)[1](f(*args))


def integers(lib: Any, np_: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, i: Any) -> Any:
        return x * i, i + 1

    f.defvjp(lambda x, i: (f(x, i), i), lambda i, ct: (ct[0] * i * 2, None))

    @lib.custom_jvp
    def g(x: Any, i: Any) -> Any:
        return x * i

    g.defjvps(lambda t, out, x, i: t * i * 2, None)
    x, i = np_.asarray(X), np_.arange(3)

    def first(x: Any, i: Any) -> Any:
        return f(x, i)[0]

    return (
        lib.vmap(lib.grad(first))(x, i),
        lib.jit(lib.vmap(lib.grad(lib.jit(first)), (0, None)))(x, i[2]),
        lib.vmap(lib.grad(g))(x, i),
        lib.jvp(lambda x: g(x, i), (x,), (x,)),
    )


def safe_at_zero(lib: Any, np_: Any) -> Any:
    """A square root whose derivative at 0 is defined as 0."""

    @lib.custom_jvp
    def root(x: Any) -> Any:
        return np_.where(x > 0, np_.sqrt(np_.where(x > 0, x, 1.0)), 0.0)

    @root.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        y = root(*primals)
        return y, np_.where(y > 0, tangents[0] / (2 * np_.where(y > 0, y, 1.0)), 0.0)

    x = np_.array([0.0, -1.0, 4.0])
    return lib.vmap(lib.grad(root))(x), lib.jacfwd(root)(x), lib.hessian(lambda x: np_.sum(root(x)))(x)


def control_flow_on_values(lib: Any, np_: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any) -> Any:
        return np_.sin(x) if x > 0 else np_.cos(x)

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        return f(*primals), (2 if primals[0] > 0 else 3) * tangents[0]

    @lib.custom_vjp
    def g(x: Any) -> Any:
        return np_.sin(x) if x > 0 else np_.cos(x)

    g.defvjp(lambda x: (g(x), x), lambda x, ct: ((40.0 if x > 0 else 60.0) * ct,))
    gradients = lib.grad(f), lib.grad(g), lib.grad(lambda x: f(x) * g(x))
    return [gradient(np_.float32(x)) for gradient in gradients for x in (1.0, -1.0)]


def custom_gradient_functions(lib: Any, np_: Any) -> Any:
    @lib.custom_gradient
    def square(x: Any) -> Any:
        return x**2, lambda ct: (ct * x,)

    @lib.custom_gradient
    def product(x: Any, y: Any) -> Any:
        return x * y, lambda ct: (ct * y * y, ct * x)

    @lib.custom_gradient
    def dictionary(d: Any) -> Any:
        y = np_.sin(d["a"])
        return y, lambda ct: ({"a": ct * y},)

    x = np_.asarray(X)
    return (
        square(x),
        lib.vmap(lib.grad(square))(x),
        lib.jit(lib.vmap(lib.grad(lib.jit(square))))(x),
        lib.vmap(lib.grad(lib.grad(square)))(x),
        lib.grad(lambda x: np_.sum(lib.vmap(product)(x, x)))(x),
        lib.vmap(lib.grad(dictionary))({"a": x}),
    )


def unbatched_operands(lib: Any, np_: Any) -> Any:
    """The cotangents of unbatched operands are summed over the batch."""

    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return np_.sin(x) + y

    f.defvjp(lambda x, y: (f(x, y), x), lambda x, ct: (ct * np_.cos(x) * 2, ct * 3))
    x, y = np_.asarray(X), np_.float32(2.0)
    by_x, by_y = lib.vmap(f, (0, None)), lib.vmap(f, (None, 0))
    return (
        lib.grad(lambda y: np_.sum(by_x(x, y)))(y),
        lib.grad(lambda y: np_.sum(by_y(y, x)))(y),
        lib.grad(lambda y: np_.sum(lib.jit(by_x)(x, y)))(y),
        lib.jit(lib.grad(lambda y: np_.sum(lib.vmap(lib.jit(f), (0, None))(x, y))))(y),
        lib.vmap(lib.vmap(lib.grad(f, (0, 1)), (0, None)), (None, 0))(x, x),
        lib.grad(lambda y: np_.sum(lib.vmap(lib.vmap(f, (0, None)), (None, 0))(x, y)))(x),
    )


def batched_tangents_of_an_unbatched_output(lib: Any, np_: Any) -> Any:
    """The function's output is unbatched, but the tangent that the rule computes is batched."""

    @lib.custom_jvp
    def scaled(x: Any, s: Any) -> Any:
        return x

    scaled.defjvp(lambda p, t: (p[0], p[1] * t[0]))
    s, x = np_.asarray(X), np_.float32(2.0)
    return (
        lib.vmap(lib.grad(scaled), (None, 0))(x, s),
        lib.vmap(lambda s: lib.jvp(lambda x: scaled(x, s), (x,), (x,)))(s),
        lib.grad(lambda x: np_.sum(lib.vmap(scaled, (None, 0))(x, s)))(x),
    )


def methods(lib: Any, np_: Any) -> Any:
    class Model:
        @staticmethod
        @lib.custom_jvp
        def f(x: Any) -> Any:
            return np_.sin(x)

    Model.f.defjvp(lambda p, t: (Model.f(*p), 9.0 * t[0]))
    return lib.grad(Model().f)(np_.float32(1.0))


DOCUMENTED: Final = (
    *(clip_gradient, clip_by_arrays, nondiff_functions, nondiff_tracers, nondiff_names, keywords_and_defaults),
    *(pytrees, integers, safe_at_zero, control_flow_on_values, custom_gradient_functions, unbatched_operands),
    *(batched_tangents_of_an_unbatched_output, methods),
)


@pytest.mark.parametrize("case", DOCUMENTED, ids=lambda case: case.__name__)
def test_custom_derivatives_agree_with_jax(case: Callable[[Any, Any], Any]) -> None:
    assert_agree(case)


# ------------------------------------------------------------------ symbolic zeros


def zeros_in_a_jvp_rule(lib: Any, np_: Any) -> Any:
    zero = lib.custom_derivatives.SymbolicZero
    seen: set[tuple[bool, bool]] = set()

    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y, y

    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (tx, ty) = primals, tangents
        seen.add((type(tx) is zero, type(ty) is zero))
        assert tx.shape == x.shape
        assert tx.dtype == x.dtype
        out = 0.0 * x
        out = out if type(tx) is zero else out + 10 * tx * y
        out = out if type(ty) is zero else out + 100 * ty * x
        return f(x, y), (out, ty)

    f.defjvp(rule, symbolic_zeros=True)
    x, y = np_.asarray(X), np_.float32(3.0)

    def first(x: Any, y: Any) -> Any:
        return f(x, y)[0]

    results = (
        lib.vmap(lib.grad(first), (0, None))(x, y),
        lib.vmap(lib.grad(first, 1), (0, None))(x, y),
        lib.vmap(lib.grad(first, (0, 1)), (0, None))(x, y),
        lib.grad(lambda x: np_.sum(lib.vmap(first, (0, None))(x, y)))(x),
        lib.jvp(lambda x: f(x, x), (x,), (x,)),
    )
    return results, sorted(seen)


def zeros_in_vjp_rules(lib: Any, np_: Any) -> Any:
    derivatives = lib.custom_derivatives
    zero = derivatives.SymbolicZero
    seen: set[tuple[str, bool, bool]] = set()

    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y, y * 1.0

    def fwd(x: Any, y: Any) -> Any:
        seen.add(("fwd", x.perturbed, y.perturbed))
        return f(x.value, y.value), derivatives.custom_vjp_primal_tree_values((x, y))

    def bwd(res: Any, cts: Any) -> Any:
        seen.add(("bwd", type(cts[0]) is zero, type(cts[1]) is zero))
        a, b = [ct * 0.0 + 1.0 if type(ct) is not zero else np_.zeros(ct.shape) for ct in cts]
        return 10 * a * res[1], 100 * (a * res[0] + b)

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    x, y = np_.asarray(X), np_.float32(3.0)
    results = (
        lib.vmap(lib.grad(lambda x, y: f(x, y)[0]), (0, None))(x, y),
        lib.grad(lambda y: f(y, y)[1])(y),
        lib.grad(lambda x, y: f(x, y)[0] + f(x, y)[1], (0, 1))(y, y),
        lib.jit(lib.grad(lambda x: f(x, y)[0]))(y),
    )
    return results, sorted(seen)


@pytest.mark.parametrize("case", [zeros_in_a_jvp_rule, zeros_in_vjp_rules], ids=lambda case: case.__name__)
def test_symbolic_zeros_agree_with_jax(case: Callable[[Any, Any], Any]) -> None:
    assert_agree(case)


@agrees_with_jax
def test_zero_from_primal(lib: Any, np_: Any) -> Any:
    values = {"a": np_.asarray(X), "b": (np_.arange(2), np.float32(1.0))}
    symbolic = lib.custom_derivatives.zero_from_primal(values, symbolic_zeros=True)
    zeros = lib.custom_derivatives.zero_from_primal({"a": values["a"]})
    return zeros, [(z.shape, str(z.dtype)) for z in (symbolic["a"], *symbolic["b"])]


def test_vjp_residuals_may_contain_values_that_are_no_arrays() -> None:
    @fx.custom_vjp
    def f(x: fx.Array) -> fx.Array:
        return x

    f.defvjp(lambda x: (x, ("mode", abs, x)), lambda res, ct: (res[1](res[2]) * ct if res[0] == "mode" else None,))
    np.testing.assert_array_equal(fx.jit(fx.vmap(fx.grad(fx.jit(f))))(fnp.asarray(X)), np.abs(X))


def test_vjp_residuals_keep_python_numbers() -> None:
    def kinds(lib: Any) -> set[tuple[bool, ...]]:
        seen: set[tuple[bool, ...]] = set()

        @lib.custom_vjp
        def f(x: Any) -> Any:
            return x

        def backward(residuals: Any, ct: Any) -> Any:
            size, flag, scale, x = residuals
            seen.add((isinstance(size, int), isinstance(flag, bool), isinstance(scale, float)))
            return (sum(ct * x * scale for _ in range(size)) if flag else ct,)

        f.defvjp(lambda x: (x, (3, True, 0.5, x)), backward)
        for derivative in (lib.grad(f), lib.jit(lib.grad(f)), lib.grad(lib.jit(f))):
            assert float(derivative(2.0)) == 3.0
        assert np.all(np.asarray(lib.vmap(lib.grad(f))(X)) == 1.5 * X)
        return seen

    assert kinds(fx) == kinds(jax) == {(True, True, True)}
