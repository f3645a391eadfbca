"""Modules loaded by importing and using tracefx: never jax, and XLA only when something is compiled."""

from __future__ import annotations

import textwrap

from tests.subprocesses import output_of, refusing


def run(refused: set[str], program: str) -> str:
    """Runs a program in a new process in which importing any of `refused` fails, and returns its output."""
    return output_of(refusing(refused) + textwrap.dedent(program))


def test_tracing_transforming_compiling_and_running_never_import_jax() -> None:
    out = run(
        {"jax"},
        """
        import numpy as np
        import tracefx as fx, tracefx.numpy as fnp
        from tracefx.testing.tolerances import SUMMED, ulp_distance

        def is_near(got, want):
            got, want = np.asarray(got), np.asarray(want)
            allowed = SUMMED.for_array(want)
            return ulp_distance(got, want, allowed.least).max() <= allowed.of(want.dtype)

        def loss(w, x):
            return fnp.sum(fnp.tanh(x @ w) ** 2)

        w, x = {"a": np.ones((3, 2), np.float32)}, np.ones((4, 3), np.float32)
        f = lambda w, x: loss(w["a"], x)
        closed = fx.make_jaxpr(fx.grad(f))(w, x)
        step = fx.jit(fx.value_and_grad(f))
        value, gradient = step(w, x)
        per_example = fx.jit(fx.vmap(fx.grad(f), in_axes=(None, 0)))(w, x)
        again = step.lower(w, x).compile()(w, x)
        assert is_near(gradient["a"], per_example["a"].sum(0))
        assert is_near(value, f(w, x))
        assert np.array_equal(again[0], value)
        fx.hessian(lambda x: fnp.sum(x**3))(x[0])
        str(closed)
        print(any(name.split(".")[0] == "jax" for name in sys.modules))
        """,
    )
    assert out == "False\n"


def test_import_and_eager_evaluation_load_no_jaxlib() -> None:
    out = run(
        {"jax", "jaxlib"},
        """
        import numpy as np
        import tracefx as fx, tracefx.numpy as fnp

        x = fnp.arange(6.0).reshape(2, 3)
        y = fnp.sum(fnp.sin(x) @ x.T * 2 + np.ones(2), axis=0)[0]
        print(float(fnp.where(y > 0, 1.0, -1.0)), repr(x[1, 1:]))
        """,
    )
    assert out == "1.0 Array([4., 5.], dtype=float32)\n"


def test_import_and_eager_evaluation_load_no_lazy_modules() -> None:
    """Control flow, collectives, custom derivatives and most namespaces are imported lazily."""
    out = run(
        {"jax"},
        """
        import sys
        import tracefx as fx, tracefx.numpy as fnp

        x = fnp.arange(6.0).reshape(2, 3)
        x.at[0].add(1)
        fx.grad(lambda x: fnp.sum(fnp.tanh(x) ** 2))(x)
        fx.vmap(fnp.sum)(x)
        late = "control.scan control.cond control.while_loop control.checkpoint control.custom_jvp control.custom_vjp "
        late += "control.callback control.shard_map ops.collective ops.exchange nn random linalg transforms.jacobians"
        print([name for name in late.split() if f"tracefx.{name}" in sys.modules])
        fx.lax.scan, fx.custom_jvp
        print([name for name in ("control.scan", "control.custom_jvp") if f"tracefx.{name}" in sys.modules])
        """,
    )
    assert out == "[]\n['control.scan', 'control.custom_jvp']\n"


def test_lazy_imports_inside_a_trace_add_no_equations() -> None:
    out = run(
        {"jax"},
        """
        import tracefx as fx, tracefx.numpy as fnp

        def f(x):
            for module in (fx, fx.numpy, fx.lax):
                for name in dir(module):
                    getattr(module, name)
            return x * 2

        print(len(fx.make_jaxpr(f)(3.0).eqns))
        carry, _ = fx.lax.scan(lambda c, x: (c + x, c), 0.0, fnp.arange(3.0))
        print(carry, fx.nn.relu(-1.0), fx.random.uniform(fx.random.key(0)) < 1)
        """,
    )
    assert out == "1\n3.0 0.0 True\n"
