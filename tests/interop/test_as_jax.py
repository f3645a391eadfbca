"""`tracefx.interop.as_jax`: programs and libraries written for JAX run on tracefx, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_near
from tests.laws.samples import SAMPLES
from tracefx import tree
from tracefx.core import get_aval
from tracefx.core.handler import ROOT, handling
from tracefx.interop.as_jax.config import config
from tracefx.interop.as_jax.debugging import ResultChecker
from tracefx.interop.as_jax.primitive import BUILTIN_PRIMITIVES

INSTALL = "from tracefx.interop.as_jax import install\ninstall()\n"


def run(*arguments: str, status: int = 0) -> str:
    """Runs Python and returns its output, with errors if it fails as `status` says."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def run_installed(program: str, status: int = 0) -> str:
    """Runs a program in which `import jax` gives tracefx."""
    return run("-c", INSTALL + dedent(program), status=status)


# ------------------------------------------------------------------ the hook


def test_modules_are_tracefx() -> None:
    run_installed(
        """
        import importlib, sys
        import jax, jax.numpy as jnp, jax.scipy.stats.norm, jax.extend
        import tracefx as fx
        from jax import lax, random
        from jax.experimental import checkify
        from jax.scipy.special import gammaln
        assert jnp.sin is fx.numpy.sin and lax.scan is fx.lax.scan and jax.Array is fx.Array and jax.grad is fx.grad
        assert jax.numpy.linalg.inv is fx.numpy.linalg.inv and random.normal is fx.random.normal
        assert gammaln is fx.scipy.special.gammaln and checkify.checkify is fx.handlers.checkify
        assert isinstance(jnp.ones(3), jax.Array) and jnp.ones(3) is not None
        assert jax.__version__ == importlib.metadata.version("jax") and jax.__version_info__ >= (0, 10)
        assert not any(name.startswith("tracefx_real_jax") for name in sys.modules)
        assert "sin" in dir(jnp) and "Primitive" in dir(jax.extend.core) and "numpy" in dir(jax)
        jax.jit(lambda x: x if not isinstance(x, jax.core.Tracer) else jnp.sin(x))(1.0)
        """
    )


def test_every_addition_is_found() -> None:
    run_installed(
        """
        import importlib
        from tracefx.interop.as_jax.namespaces import ADDITIONS, UNSUPPORTED_MODULES, UNSUPPORTED_NAMES
        for name, namespace in ADDITIONS.items():
            module = importlib.import_module(name)
            for each in namespace.names:
                getattr(module, each)
        for name in UNSUPPORTED_MODULES:
            importlib.import_module(name)
        for name in UNSUPPORTED_NAMES:
            module, _, attribute = name.rpartition(".")
            getattr(importlib.import_module(module), attribute)
        """
    )


def test_install_after_jax_raises() -> None:
    error = run("-c", "import jax\n" + INSTALL, status=1)
    assert "RuntimeError: jax has been imported already: call tracefx.interop.as_jax.install()" in error


def test_second_install_does_nothing() -> None:
    run_installed("import sys; n = len(sys.meta_path); import jax; install(); assert len(sys.meta_path) == n")


def test_real_jax_is_reachable() -> None:
    run_installed(
        """
        import sys
        import jax, jax.numpy as jnp
        from tracefx.interop.jax import as_jax, from_jax, to_jax
        real = sys.modules["tracefx_real_jax"]
        assert real is not jax and sys.modules["jax"] is jax
        assert isinstance(as_jax(jnp.ones(3)), real.Array)
        assert round(float(from_jax(lambda x: real.numpy.sin(x))(1.0)), 5) == 0.84147
        assert round(float(real.jit(to_jax(jnp.sin))(1.0)), 5) == 0.84147
        assert float(jax.grad(from_jax(lambda x: real.numpy.sin(x)))(0.0)) == 1.0
        """
    )


def test_packages_in_terms_of_public_jax_run_unchanged() -> None:
    run_installed(
        """
        import jax
        from jax.example_libraries import optimizers
        init, update, get = optimizers.adam(0.1)
        state = init(1.0)
        for i in range(100):
            state = update(i, jax.grad(lambda x: x * x)(get(state)), state)
        assert abs(float(get(state))) < 0.1
        """
    )


def test_names_that_libraries_use() -> None:
    run_installed(
        """
        import jax, jax.numpy as jnp
        from jax.test_util import check_grads
        assert (jax._src.xla_bridge._backends or {}).get("cpu") is None
        x, device = jnp.ones(3), jax.devices("cpu")[0]
        assert device in jax._src.xla_bridge._backends.get("cpu")
        assert jax._src.xla_bridge._backends.get("tpu") is None
        assert jax.typeof(x).sharding.is_fully_replicated and jax.sharding.get_abstract_mesh().axis_sizes == ()
        assert jax.typeof(x).str_short() == "float32[3]" and jax.typeof(x).str_short(short_dtypes=True) == "f32[3]"
        (error,) = jax._src.tree_util.prefix_errors({"y": [1.0]}, {"y": 1.0})
        assert str(error("in_axes")).startswith("in_axes must have") and not jax._src.tree_util.prefix_errors(0, (1, 2))
        assert isinstance(jax.typeof(jax.new_ref(x)), jax._src.state.types.AbstractRef)
        assert x.__array_namespace__() is jnp and jnp.__array_namespace_info__().default_dtypes()
        assert jnp.shape(None) == () and jnp.ndim([[x]]) == 3
        state = jax._src.distributed.global_state
        assert (state.client, state.process_id, state.num_processes) == (None, 0, 1)
        from jax.experimental import layout, multihost_utils
        assert not multihost_utils.reached_preemption_sync_point(3) and isinstance(x.format, layout.Format)
        sharding = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
        assert device in sharding._addressable_device_assignment and x.sharding == sharding
        with jax.set_mesh(jax.make_mesh((1,), ("data",))):
            assert jax.sharding.get_abstract_mesh().axis_names == ("data",)
        check_grads(jnp.sin, (x,), 1)
        check_grads(jnp.sin, (x,), order=2, modes=("rev",), atol=1e-2, rtol=1e-2)

        @jax.custom_jvp
        def almost_sin(x):
            return jnp.sin(x)

        almost_sin.defjvp(lambda primals, tangents: (jnp.sin(*primals), 1.01 * jnp.cos(*primals) * tangents[0]))
        check_grads(almost_sin, (x,), 1, atol=0.1)
        try:
            check_grads(almost_sin, (x,), 1, atol=1e-3)
        except AssertionError:
            pass
        else:
            raise ValueError
        """
    )


# ------------------------------------------------------------------ the command and the plug-in


def test_command_runs_a_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, jax, beside\nprint(__name__, sys.argv[1:], jax.numpy.sin.__module__, beside.x)\nsys.exit(3)\n"
    )
    (tmp_path / "beside.py").write_text("x = 4\n")
    done = subprocess.run(
        [sys.executable, "-m", "tracefx.as_jax", str(program), "-v", "3"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("__main__ ['-v', '3'] tracefx.numpy 4\n", 3)


def test_command_runs_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text("import sys, jax\nprint(sys.argv[1:], jax.numpy.sin.__module__)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    assert run("-m", "tracefx.as_jax", "-m", "model", "x") == "['x'] tracefx.numpy\n"


def test_command_without_program_explains_itself() -> None:
    assert "usage: python -m tracefx.as_jax" in run("-m", "tracefx.as_jax", status=2)
    assert "usage: python -m tracefx.as_jax" in run("-m", "tracefx.as_jax", "-m", status=2)


def test_plugin_of_pytest(tmp_path: Path) -> None:
    test = tmp_path / "test_model.py"
    test.write_text("import jax\n\ndef test():\n    assert jax.numpy.sin.__module__ == 'tracefx.numpy'\n")
    out = run("-m", "pytest", "-q", "-p", "tracefx.interop.as_jax.pytest_plugin", "-c", os.devnull, str(test))
    assert "1 passed" in out


# ------------------------------------------------------------------ primitives


PRIMITIVE = """
import numpy as np
import jax, jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

scale_p = Primitive("scale")
scale_p.def_impl(lambda x, *, factor: np.asarray(x) * np.float32(factor))
scale_p.def_abstract_eval(lambda x, *, factor: jax.core.ShapedArray(x.shape, x.dtype))
mlir.register_lowering(scale_p, mlir.lower_fun(lambda x, *, factor: x * factor, multiple_results=False))
ad.deflinear2(scale_p, lambda ct, x, *, factor: [scale_p.bind(ct, factor=factor)])
batching.defvectorized(scale_p)

pair_p = Primitive("pair")
pair_p.multiple_results = True
pair_p.def_impl(lambda x, y: [x + y, x * y])
pair_p.def_abstract_eval(lambda x, y: [jax.core.ShapedArray(x.shape, x.dtype)] * 2)
mlir.register_lowering(pair_p, mlir.lower_fun(lambda x, y: [x + y, x * y]))
zeros = []

def pair_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    zeros.append([type(t) is ad.Zero for t in tangents])
    dx, dy = ad.instantiate_zeros(dx), ad.instantiate_zeros(dy)
    return pair_p.bind(x, y), [dx + dy, dx * y + x * dy]

def pair_batch(axis, args, dims):
    args = [batching.bdim_at_front(x, d, axis.size) for x, d in zip(args, dims)]
    return pair_p.bind(*args), [0, 0]

ad.primitive_jvps[pair_p] = pair_jvp
batching.fancy_primitive_batchers[pair_p] = pair_batch

def scale(x): return scale_p.bind(x, factor=3.0)
def pair(x, y): return pair_p.bind(x, y)

x = jnp.arange(4.0)
results = [
    scale(x), jax.jit(scale)(x), jax.grad(lambda x: scale(x).sum())(x), jax.vmap(scale)(x),
    jax.jvp(scale, (x,), (x,))[1], jax.linear_transpose(scale, x)(x)[0],
    *pair(x, x), *jax.jit(pair)(x, x), jax.grad(lambda x: pair(x, 2 * x)[1].sum())(x),
    *jax.vmap(pair, (0, None))(x, 2.0), *jax.vmap(pair, (1, 0))(jnp.ones((4, 3)), jnp.ones((3, 4))),
    jax.lax.scan(lambda c, y: (scale(c), y), 1.0, x)[0], jax.grad(jax.checkpoint(lambda x: scale(x).sum()))(x),
    jax.grad(lambda x: pair(x, jnp.ones(4))[1].sum())(x),
]
import json
print(json.dumps([np.asarray(r).tolist() for r in results]))
(eqn,) = jax.make_jaxpr(scale)(x).eqns
assert eqn.primitive is scale_p and eqn.params == {"factor": 3.0}, eqn
assert scale_p in ad.primitive_transposes and pair_p not in ad.primitive_transposes
assert zeros[-1] == [False, True], zeros
"""


def test_primitive_with_rules_as_on_jax() -> None:
    ours, theirs = json.loads(run_installed(PRIMITIVE)), json.loads(run("-c", PRIMITIVE))
    assert ours == theirs


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "jax.grad(lambda x: p.bind(x))(1.0)",
            "primitive 'bare' has no jvp rule: register it, ad.primitive_jvps[prim]",
        ),
        ("jax.vmap(lambda x: p.bind(x))(jnp.ones(3))", "primitive 'bare' has no batching rule"),
        ("q.bind(1.0)", "primitive 'other' has no lowering rule"),
        ("jax.jit(lambda x: q.bind(x))(1.0)", "primitive 'other' has no abstract evaluation rule"),
    ],
)
def test_missing_rules_are_named(call: str, message: str) -> None:
    error = run_installed(
        f"""
        import jax, jax.numpy as jnp
        from jax.extend.core import Primitive
        p, q = Primitive("bare"), Primitive("other")
        p.def_impl(lambda x: x)
        p.def_abstract_eval(lambda x: x)
        {call}
        """,
        status=1,
    )
    assert f"MissingRuleError: {message}" in error


# ------------------------------------------------------------------ jaxprs


JAXPRS = """
import json
import jax, jax.numpy as jnp
from jax import lax
import jax.extend
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun, primitives

def f(x, y):
    return lax.sin(x) * y + lax.cos(2.0 * y), x

closed = jax.make_jaxpr(f)(1.0, jnp.ones(3))
assert isinstance(closed, ClosedJaxpr) and isinstance(closed.jaxpr, Jaxpr) and isinstance(closed.eqns[0], JaxprEqn)

def interpret(jaxpr, consts, *args):
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
    read = lambda v: v.val if isinstance(v, Literal) else env[v]
    for eqn in jaxpr.eqns:
        outs = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(v) for v in jaxpr.outvars]

args = 0.5, jnp.arange(3.0)
for outs in (interpret(closed.jaxpr, closed.consts, *args), jaxpr_as_fun(closed)(*args), f(*args),
             jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)):
    print(json.dumps([jnp.asarray(o).tolist() for o in outs]))
names = [eqn.primitive.name for eqn in closed.eqns]
assert names[0] == "sin" and closed.eqns[0].primitive is lax.sin_p, names
assert {v.aval.shape for v in closed.jaxpr.invars} == {(), (3,)}
(eqn,) = jax.make_jaxpr(jax.named_scope("a")(jax.named_scope("b")(lax.sin)))(1.0).eqns
assert str(eqn.source_info.name_stack) == "a/b", eqn.source_info
looped = jax.make_jaxpr(lambda x: lax.scan(lambda c, y: (c * y, c), 1.0, x))(jnp.ones(3))
(eqn,) = [e for e in looped.eqns if e.primitive is lax.scan_p]
assert isinstance(eqn.params["jaxpr"], ClosedJaxpr) and eqn.params["length"] == 3
print(json.dumps([jnp.asarray(o).tolist() for o in interpret(looped.jaxpr, looped.consts, jnp.arange(3.0))]))
relu = jax.make_jaxpr(lambda x: jax.nn.relu(x) + jax.nn.silu(x))(jnp.ones(3))
print(json.dumps([jnp.asarray(o).tolist() for o in jax.core.eval_jaxpr(relu.jaxpr, relu.consts, jnp.arange(3.0) - 1)]))
called = jax.make_jaxpr(jax.jit(lambda x: x + 1))(1.0)
assert called.eqns[0].primitive is primitives.jit_p and called.eqns[0].params["jaxpr"].eqns[0].primitive is lax.add_p
"""


def test_jaxprs_have_the_attributes_of_jax() -> None:
    ours, theirs = (list(map(json.loads, out.splitlines())) for out in (run_installed(JAXPRS), run("-c", JAXPRS)))
    assert_near(tree.map(np.float32, ours), tree.map(np.float32, theirs))


def test_partially_known_programs() -> None:
    run_installed(
        """
        import jax, jax.numpy as jnp
        from jax.extend import linear_util as lu
        from jax.interpreters import partial_eval as pe
        fun = lu.wrap_init(lambda x, y: [jnp.sin(x), x * y], debug_info=None)
        aval = jax.core.ShapedArray((3,), jnp.float32)
        pvals = [pe.PartialVal.known(jnp.ones(3)), pe.PartialVal.unknown(aval)]
        jaxpr, outs, consts = pe.trace_to_jaxpr_nounits(fun, pvals)
        assert [out.is_known() for out in outs] == [True, False] and [e.primitive.name for e in jaxpr.eqns] == ["mul"]
        jaxpr, avals, consts = pe.trace_to_jaxpr_dynamic(fun, [aval, aval])
        assert len(jaxpr.eqns) == 2 and avals == [aval, aval] and consts == []
        used, inputs = pe.dce_jaxpr(jaxpr, [True, False])
        assert [e.primitive.name for e in used.eqns] == ["sin"] and inputs == [True, False]
        """
    )


# ------------------------------------------------------------------ options and errors


def test_options_are_settings() -> None:
    run_installed(
        """
        import threading
        import jax, jax.numpy as jnp
        assert jnp.ones(1).dtype == "float32" and not jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        found = []
        thread = threading.Thread(target=lambda: found.append(jnp.ones(1).dtype)); thread.start(); thread.join()
        assert found == ["float64"] and jax.config.x64_enabled and jax.config.read("jax_enable_x64")
        with jax.enable_x64(False):
            assert jnp.ones(1).dtype == "float32" and not jax.config.values["jax_enable_x64"]
        with jax.numpy_dtype_promotion("standard"), jax.debug_nans(False):
            pass
        jax.config.update("jax_disable_jit", True)
        traced = []
        jax.jit(lambda x: traced.append(isinstance(x, jax.core.Tracer)))(1.0)
        assert traced == [False]
        """
    )


OPTIONS = """
import json
import jax, jax.numpy as jnp, numpy as np

def result(f):
    try:
        return np.asarray(f()).tolist()
    except (FloatingPointError, TypeError, ValueError) as error:
        return next(c.__name__ for c in (FloatingPointError, ValueError, TypeError) if isinstance(error, c))

x, i, zeros, key = jnp.ones(3), jnp.arange(3), jnp.zeros(3), jax.random.key(7)
results, multiply, draw = [], jax.jit(lambda x, i: x * i), jax.jit(lambda key: jax.random.uniform(key, (3,)))
with jax.numpy_dtype_promotion("strict"):
    for f in (
        lambda: x + i, lambda: x + True, lambda: x + 1, lambda: i + 1.0, lambda: x + 1j, lambda: i + np.int8(1),
        lambda: jnp.where(x > 0, x, 0), lambda: jnp.where(x > 0, x, i), lambda: multiply(x, i), lambda: i / 2,
        lambda: x.mean() + x.std(), lambda: jax.nn.softmax(x), lambda: jnp.concatenate([x, i]), lambda: x @ i,
        lambda: jax.grad(lambda x: jnp.sum(jnp.log(x) * x**2))(x), lambda: jax.random.normal(key, (2,)),
    ):
        results.append(result(f))
results.append(result(lambda: multiply(x, i)))
with jax.numpy_rank_promotion("raise"):
    for f in (lambda: x + jnp.ones((2, 3)), lambda: x + 1, lambda: jax.jit(jnp.add)(x, jnp.ones((2, 3))),
              lambda: jnp.var(jnp.ones((2, 3)), axis=1), lambda: jnp.add(x, np.ones((1, 3), np.float32))):
        results.append(result(f))
results.append(draw(key).tolist())
jax.config.update("jax_threefry_partitionable", False)
for shape in ((5,), (4, 3), ()):
    results.append([jax.random.bits(key, shape, dtype).tolist() for dtype in ("uint8", "uint16", "uint32")])
results += [draw(key).tolist(), jax.random.key_data(jax.random.split(key, (3, 2))).tolist()]
results.append(jax.vmap(lambda key: jax.random.normal(key, (3,)))(jax.random.split(key)).tolist())
jax.config.update("jax_threefry_partitionable", True)
results.append(draw(key).tolist())
with jax.default_prng_impl("rbg"):
    results.append(list(jax.random.PRNGKey(0).shape))
with jax.enable_custom_prng():
    results.append(list(jax.random.PRNGKey(0).shape))
with jax.debug_nans():
    results.append(jax.config.jax_debug_nans)
    results += [result(lambda: zeros / zeros), result(lambda: x + 1), result(lambda: jax.jit(lambda x: x / x)(zeros))]
with jax.debug_infs(True):
    results += [result(lambda: 1 / zeros), result(lambda: x + 1)]
results.append(jax.config.jax_debug_nans)
wide = np.float64
results += [
    str(jnp.dtype(dtype)) for dtype in (
        jnp.zeros(3, wide).dtype, x.astype(wide).dtype, jnp.arange(3, dtype=np.int64).dtype, jnp.result_type(wide),
        jax.random.normal(key, (2,), wide).dtype, jnp.promote_types(wide, np.float32),
        jax.ShapeDtypeStruct((), wide).dtype,
        jnp.sum(x, dtype=wide).dtype, jax.lax.full((), 1, np.int64).dtype, jnp.float64(1).dtype, jnp.finfo(wide).dtype,
        jax.core.ShapedArray((), wide).dtype, jax.jit(lambda x: x.astype(wide))(x).dtype,
    )
]
results.append(bool(jnp.can_cast(wide, np.float32)))
with jax.enable_x64(True):
    results.append(str(jnp.zeros(3, wide).dtype))
print(json.dumps(results))
"""


def test_options_mean_what_they_do_in_jax() -> None:
    ours, theirs = (json.loads(out.splitlines()[-1]) for out in (run_installed(OPTIONS), run("-c", OPTIONS)))
    assert len(ours) == len(theirs)
    for mine, reference in zip(ours, theirs, strict=True):
        if isinstance(reference, str | bool):
            assert mine == reference
        else:
            assert_near(tree.map(np.float32, mine), tree.map(np.float32, reference))


def test_error_about_nan_names_operation_and_line() -> None:
    checker = ResultChecker(ROOT, infinities=False)
    with (
        handling(checker),
        pytest.raises(FloatingPointError, match=r"log at .*test_as_jax\.py:\d+.* returned nan in f32"),
    ):
        fx.lax.log(fx.numpy.float32(-1.0))


def test_unknown_option_raises() -> None:
    with pytest.raises(AttributeError, match="no option 'jax_enable_x46'; it has jax_enable_x64"):
        config.update("jax_enable_x46", True)
    with pytest.raises(AttributeError, match="no option"):
        _ = config.jax_unknown
    with pytest.raises(AttributeError, match="write jax.config.update"):
        config.jax_enable_x64 = True


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("jax.config.update('jax_debug_nans', True)", "jax_debug_nans=True for the whole process (used at <string>:"),
        (
            "from jax.experimental import pallas as pl\npl.pallas_call(None)",
            "jax.experimental.pallas.pallas_call (used",
        ),
        ("jax.core.Trace()", "jax.core.Trace (used at <string>:4) is not available on tracefx: a handler"),
        (
            """p = jax.extend.core.Primitive('p')
p.def_abstract_eval(lambda x: x)
mlir.register_lowering(p, lambda ctx, x: [x])
jax.jit(p.bind)(1.0)""",
            "the MLIR lowering of the primitive p",
        ),
        (
            "jax.lax.exp_p.bind(1.0, rounding='up')",
            "exp_p.bind(rounding='up') (used at <string>:4) is not available on tracefx: its parameters are accuracy",
        ),
    ],
)
def test_unsupported_features_are_named(program: str, message: str) -> None:
    error = run("-c", f"{INSTALL}import jax, jax.extend; from jax.interpreters import mlir\n{program}", status=1)
    assert f"UnsupportedJaxError: {message}" in error


def test_unknown_names_are_attribute_errors() -> None:
    run_installed(
        """
        import jax
        assert not hasattr(jax, "no_such_name") and not hasattr(jax.numpy, "_private")
        try:
            import jax.no_such_module
        except ModuleNotFoundError as error:
            assert error.name == "jax.no_such_module"
        else:
            raise AssertionError
        """
    )


def test_primitives_of_several_results_are_known() -> None:
    samples = [sample for group in SAMPLES.values() for sample in group if sample.within is None]
    for prim, operands in [(sample.prim, sample.operands[0]) for sample in samples]:
        builtin = BUILTIN_PRIMITIVES.get(prim.name)
        if builtin is not None and not builtin.multiple_results:
            assert len(prim.abstract_eval(*map(get_aval, operands))) == 1, prim


def test_sparse_arrays() -> None:
    run_installed(
        """
        import jax, jax.numpy as jnp
        import tracefx as fx
        from jax.experimental import sparse
        from jax.experimental.sparse import BCOO, bcoo_dot_general
        from jax.experimental.sparse.bcoo import bcoo_todense
        assert sparse.BCOO is BCOO is fx.sparse.BCOO and bcoo_todense is fx.sparse.bcoo_todense
        mat = BCOO.fromdense(jnp.eye(3))
        assert isinstance(mat, sparse.JAXSparse)
        assert jax.jit(sparse.sparsify(lambda m, v: jnp.sin(m) @ v))(mat, jnp.ones(3)).shape == (3,)
        assert sparse.grad(lambda m: (m @ jnp.ones(3)).sum())(mat).nse == 3
        """
    )
    assert "use BCOO and BCSR" in run("-c", INSTALL + "from jax.experimental.sparse import COO\nCOO(1)", status=1)
