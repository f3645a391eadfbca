"""`make_jaxpr`, `eval_shape`, `named_call`, `named_scope`, `jaxpr_as_fun`."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import Case, assert_agree, assert_near
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.arange(6, dtype=np.float32).reshape(2, 3)

SHAPES: Final[dict[str, Case]] = {
    "array": lambda F, N: F.eval_shape(lambda x: N.sin(x), X),
    "types": lambda F, N: F.eval_shape(lambda x, y: x @ y, F.ShapeDtypeStruct((2, 3), "float32"), X),
    "number": lambda F, N: F.eval_shape(lambda x: x * 2, 3.0),
    "trees": lambda F, N: F.eval_shape(lambda p: {"a": p[0] @ p[1].T, "b": [p[0].sum(), None, 3]}, (M, M)),
    "keywords": lambda F, N: F.eval_shape(lambda x, *, k: x * k, X, k=M),
    "jit": lambda F, N: F.eval_shape(F.jit(lambda x: x.astype(np.float16)), X),
    "vmap of grad": lambda F, N: F.eval_shape(F.vmap(F.grad(lambda x: N.sum(x * x))), M),
    "huge": lambda F, N: F.eval_shape(lambda x: x @ x.T, F.ShapeDtypeStruct((1 << 20, 1 << 20), np.float32)),
    "64 bits asked for": lambda F, N: F.eval_shape(lambda x: x * 2, F.ShapeDtypeStruct((2,), np.int32)),
    "types in the output": lambda F, N: F.eval_shape(lambda x: (x, {"a": F.ShapeDtypeStruct((2,), "int8")}), X),
    "a type as the output": lambda F, N: F.eval_shape(lambda: F.ShapeDtypeStruct((2, 3), "float32")),
    "return_shape": lambda F, N: F.make_jaxpr(lambda x: {"a": x @ x.T, "b": 2 * x}, return_shape=True)(M)[1],
    "return_shape, keywords": lambda F, N: F.make_jaxpr(lambda *, x: [x], return_shape=True)(x=M)[1],
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_agree_with_jax(name: str) -> None:
    assert_agree(SHAPES[name])


PROGRAMS: Final[dict[str, Case]] = {
    "operations": lambda F, N: F.make_jaxpr(lambda x: N.sin(x) * 2.0)(X),
    "several outputs": lambda F, N: F.make_jaxpr(lambda x, y: {"b": x, "a": (y, x)})(X, M),
    "constant output": lambda F, N: F.make_jaxpr(lambda x: (x, 1.0))(X),
    "static_argnums": lambda F, N: F.make_jaxpr(lambda x, n: N.exp(x) if n else x, static_argnums=1)(X, 1),
    "static before": lambda F, N: F.make_jaxpr(lambda n, x: N.exp(x) if n else x, static_argnums=(0,))(1, X),
    "types": lambda F, N: F.make_jaxpr(lambda x: N.tanh(x))(F.ShapeDtypeStruct((4,), np.float32)),
    "nothing done": lambda F, N: F.make_jaxpr(lambda: ())(),
    "grad": lambda F, N: F.make_jaxpr(lambda x: F.jvp(N.sin, (x,), (x,)))(X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxprs_agree_with_jax(name: str) -> None:
    """The jaxprs have the same primitives with operands and results of the same types."""

    def summarize(jaxpr: Any) -> list[Any]:
        def aval(v: Any) -> tuple[Any, ...]:
            return v.aval.shape, v.aval.dtype, v.aval.weak_type

        inner = jaxpr.jaxpr
        outs = inner.outs if hasattr(inner, "outs") else inner.outvars
        names = [e.prim.name if hasattr(e, "prim") else e.primitive.name for e in inner.eqns]
        return [names, [aval(v) for v in inner.invars], [aval(v) for v in outs]]

    case = PROGRAMS[name]
    assert summarize(case(fx, fnp)) == summarize(case(jax, jax.numpy))


def test_jaxpr_as_fun() -> None:
    closed = fx.make_jaxpr(lambda x: [fnp.sin(x), x * fnp.asarray(X)])(X)
    run = fx.jaxpr_as_fun(closed)
    sine, product = run(X)
    assert_near(np.asarray(sine), np.sin(X), ELEMENTARY)
    np.testing.assert_array_equal(np.asarray(product), X * X)
    assert_near(
        np.asarray(fx.vmap(lambda x: fx.jaxpr_as_fun(closed)(x)[0])(np.stack([X, X]))), np.sin([X, X]), ELEMENTARY
    )
    assert fx.make_jaxpr(run)(X).eqns == closed.eqns


def test_staging_calls_the_function_with_tracers() -> None:
    tracers: list[Any] = []

    def f(x: Any) -> Any:
        tracers.append(x)
        return x

    fx.make_jaxpr(f)(X)
    fx.eval_shape(f, X)
    assert [type(x).__name__ for x in tracers] == ["StageTracer", "StageTracer"]


def test_error_messages_name_the_traced_argument() -> None:
    def choose(n: int, x: Any) -> Any:
        return x if x else n

    with pytest.raises(TypeError, match="the argument `x` of choose"):
        fx.make_jaxpr(choose, static_argnums=0)(1, 2.0)
    with pytest.raises(TypeError, match="the argument `x` of choose"):
        fx.jit(choose, static_argnums=0)(1, 2.0)
    with pytest.raises(TypeError, match=r"the argument `xs\[1\]` of "):
        fx.jit(lambda *xs: bool(xs[1]))(1.0, 2.0)
    with pytest.raises(TypeError, match=r"the argument `p\['a'\]\[0\]` of "):
        fx.jit(lambda *, p: bool(p["a"][0]))(p={"a": [1.0]})


# ------------------------------------------------------------------ name scopes


def lowered(f: Any) -> str:
    return fx.jit(f).lower(X).as_text(debug_info=True)


def test_error_messages_name_the_function_of_an_output() -> None:
    def text(x: Any, n: int = 0) -> Any:
        return "x" * n

    for call in (fx.eval_shape, fx.jit(text, static_argnums=1), fx.checkpoint(text, static_argnums=1)):
        with pytest.raises(TypeError, match=r"^text at .*test_staging.py:\d+: the output must be an array"):
            call(*((text, X) if call is fx.eval_shape else (X, 1)))


def test_named_scope_decorates_functions() -> None:
    def stack(lib: Any) -> Any:
        def double(x: Any) -> Any:
            """Doubles."""
            return x * 2

        f = lib.named_scope("decorated")(double)
        assert (f.__name__, f.__doc__) == ("double", "Doubles.")
        text = lib.jit(lambda x: f(f(x))).lower(X).as_text(debug_info=True)
        return [float(f(1.0)), "decorated/" in text]

    assert stack(fx) == stack(jax) == [2.0, True]


def test_named_scopes_reach_the_lowered_program() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("encoder"):
            y = fnp.sin(x)
            with fx.named_scope("inner"):
                z = fnp.cos(y)
        return fnp.exp(z)

    text = lowered(f)
    assert '"encoder/sin"' in text
    assert '"encoder/inner/cos"' in text
    assert '"exp"' in text
    assert __file__ in text
    assert "encoder" not in fx.jit(f).lower(X).as_text()


def test_named_scopes_reach_the_optimized_program() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("encoder"):
            return fnp.sin(x) @ x

    assert 'op_name="encoder/' in fx.jit(f).lower(X).compile().as_text()


def test_named_scopes_are_kept_in_derived_programs() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("layer"):
            return fnp.sum(fnp.sin(x))

    assert '"layer/cos"' in lowered(fx.grad(f))

    def summed(x: Any) -> Any:
        return f(x[None])

    assert '"layer/sin"' in lowered(fx.vmap(summed))


def test_custom_rules_have_the_scopes_of_their_equation() -> None:
    @fx.custom_jvp
    def sine(x: Any) -> Any:
        return fnp.sin(x)

    @sine.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        with fx.named_scope("rule"):
            return sine(*primals), fnp.cos(primals[0]) * tangents[0]

    @fx.jit
    def f(x: Any) -> Any:
        with fx.named_scope("layer"):
            return fnp.sum(sine(x))

    assert '"layer/rule/cos"' in lowered(fx.grad(f))


def test_named_call() -> None:
    def block(x: Any) -> Any:
        """Docs."""
        return fnp.sin(x)

    assert '"block/sin"' in lowered(fx.named_call(block))
    assert '"other/sin"' in lowered(fx.named_call(block, name="other"))
    assert (fx.named_call(block).__name__, fx.named_call(block).__doc__) == ("block", "Docs.")
    assert_near(np.asarray(fx.named_call(block)(X)), np.sin(X), ELEMENTARY)


def test_scope_ends_on_exception() -> None:
    def fails() -> None:
        with fx.named_scope("gone"):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert "gone" not in lowered(fnp.sin)


def test_scope_is_reentrant() -> None:
    scope = fx.named_scope("again")

    def f(x: Any) -> Any:
        with scope, scope:
            y = fnp.sin(x)
        return fnp.cos(y)

    text = lowered(f)
    assert '"again/again/sin"' in text
    assert '"cos"' in text


def test_named_scopes_do_not_change_program_equality() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("a"):
            return fnp.sin(x)

    assert fx.make_jaxpr(f)(X) == fx.make_jaxpr(fnp.sin)(X)


STRUCTS: Final[dict[str, Case]] = {
    "like an array": lambda F, N: F.ShapeDtypeStruct.like(N.ones((2, 3))),
    "like NumPy's": lambda F, N: F.ShapeDtypeStruct.like(np.ones(2, np.int8)),
    "like a number": lambda F, N: F.ShapeDtypeStruct.like(1.0),
    "like a type": lambda F, N: F.ShapeDtypeStruct.like(F.ShapeDtypeStruct((2,), "int8")),
    "shape": lambda F, N: F.ShapeDtypeStruct((2,), "int8").update(shape=(4,)),
    "dtype": lambda F, N: F.ShapeDtypeStruct((2,), "int8").update(dtype="float32"),
    "weak_type": lambda F, N: F.ShapeDtypeStruct((2,), "float32").update(weak_type=True),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_shape_dtype_structs_agree_with_jax(name: str) -> None:
    tracefx_struct: Any = STRUCTS[name](fx, fnp)
    jax_struct: Any = STRUCTS[name](jax, jnp)
    assert (
        tracefx_struct.shape,
        tracefx_struct.dtype,
        tracefx_struct.weak_type,
        tracefx_struct.sharding,
        tracefx_struct.is_ref,
    ) == (
        jax_struct.shape,
        jax_struct.dtype,
        jax_struct.weak_type,
        jax_struct.sharding,
        jax_struct.is_ref,
    )


def test_shape_dtype_structs_keep_shardings() -> None:
    device_array = fx.device_put(fnp.ones(2), fx.devices()[-1])
    struct = fx.ShapeDtypeStruct.like(device_array)
    assert struct.sharding == (device_array.sharding if device_array.committed else None)
    with_sharding = fx.ShapeDtypeStruct((2,), "int8", sharding=device_array.sharding)
    assert with_sharding.update(shape=(4,)).sharding == device_array.sharding
    assert with_sharding.update(sharding=None).sharding is None
    assert fx.ShapeDtypeStruct.like(with_sharding) == with_sharding


@pytest.mark.parametrize(
    "wrap",
    [
        fx.jit,
        fx.grad,
        fx.vmap,
        fx.checkpoint,
        lambda f: fx.grad(lambda x: fx.lax.scan(lambda c, _: (f(c) + c, None), x, None, length=2)[0].sum()),
        lambda f: lambda x: fx.lax.cond(x.sum() > 0, f, f, x),
    ],
)
@pytest.mark.parametrize("size", [3, 1000])
def test_closed_over_numpy_array_is_one_constant(wrap: Any, size: int) -> None:
    weights = np.linspace(0.0, 1.0, size)  # of another dtype than in the program, as usual

    def program(x: Any) -> Any:
        for _ in range(3):
            x = fnp.sin(weights * x)
        return x.sum()

    x = np.ones((2, size), np.float32) if wrap is fx.vmap else np.ones(size, np.float32)
    closed = fx.make_jaxpr(wrap(program))(x)
    assert [v.aval.shape for v in closed.consts if v.aval.shape] == [(size,)]
    assert_near(fx.jit(wrap(program))(x), wrap(program)(x), ELEMENTARY)


def test_different_constants_are_not_merged() -> None:
    """Also arrays that change between uses, equal samples, zeros of either sign, and transposed arrays."""
    changing, sparse, zeros = np.zeros(1000), np.zeros(1000), np.zeros(3, np.float32)
    sparse[1] = 1.0

    def program(x: Any) -> Any:
        before = x + changing
        changing[7] += 1.0
        after = x + changing
        signs = fnp.signbit(fnp.where(x[:3] == 0, zeros, x[:3])), fnp.signbit(fnp.where(x[:3] == 0, -zeros, x[:3]))
        return before, after, x + sparse, *signs, x[0] + M, x[0] + M.T

    outs = fx.jit(program)(np.zeros(1000, np.float32))
    assert float(outs[0][7]) == 0.0
    assert float(outs[1][7]) == 1.0
    assert float(outs[2][1]) == 1.0
    assert outs[3].tolist() == [False] * 3
    assert outs[4].tolist() == [True] * 3
    assert outs[5].tolist() == M.tolist()
    assert outs[6].tolist() == M.T.tolist()


def _partly_concrete(F: Any, N: Any, x: Any) -> Any:
    """Computes a traced and a concrete number in one block; the concrete one is a shape."""
    with F.ensure_compile_time_eval():
        y = N.sin(x) * N.cos(2.0)
        steps = F.lax.fori_loop(0, 3, lambda i, c: c + i, 0)
        n = int(F.jit(lambda a: a * 2)(steps))
        z = F.lax.cond(x.sum() > 0, lambda: F.jit(N.exp)(x), lambda: x)
    return N.zeros(n) + (y * z).sum()


@pytest.mark.parametrize(
    "transform",
    [
        lambda F, N, f: f(N.asarray(X)),
        lambda F, N, f: F.jit(f)(X),
        lambda F, N, f: F.vmap(f)(M),
        lambda F, N, f: F.jit(F.vmap(f, in_axes=1))(M),
        lambda F, N, f: F.jacrev(f)(X),
        lambda F, N, f: F.jit(F.grad(lambda x: f(x).sum()))(X),
        lambda F, N, f: F.lax.scan(lambda c, x: (c + f(x).sum(), f(x)), 0.0, M),
        lambda F, N, f: F.jvp(F.jit(f), (X,), (X,)),
    ],
)
def test_compile_time_evaluation_traces_operations_on_tracers(transform: Any) -> None:
    results = [transform(F, N, lambda x, F=F, N=N: _partly_concrete(F, N, x)) for F, N in ((fx, fnp), (jax, jnp))]
    for got, want in zip(*map(jax.tree.leaves, results), strict=True):
        assert_near(np.asarray(got), np.asarray(want), ELEMENTARY)


def test_compile_time_evaluation_ends_after_an_error() -> None:
    def f(x: Any) -> Any:
        with pytest.raises(ZeroDivisionError), fx.ensure_compile_time_eval():
            raise ZeroDivisionError
        assert fx.extend.current().title == "jit"
        return x * 2

    assert fx.jit(f)(1.0) == 2.0
