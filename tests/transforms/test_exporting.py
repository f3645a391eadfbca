"""Exported functions: loading, calling, transforming, other platforms, other processes."""

from __future__ import annotations

import functools
import pickle
import re
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.core.programs import Scale
from tests.errors import untyped
from tests.subprocesses import output_of, run_python
from tests.transforms.exported import PARAMS, Pair, Scaled, X, exported, model
from tracefx import handlers
from tracefx.core import ArrayLike
from tracefx.errors import ParseError, SerializationError
from tracefx.programs import deserialize
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.xla.runtime import buffers, executables, portable
from tracefx.xla.runtime.platforms import devices

# ------------------------------------------------------------------ serialize and load


def test_loaded_function_equals_exported() -> None:
    loaded = fx.load(exported().serialize())
    assert_same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
    assert loaded.fun_name == "model"
    assert loaded.platforms == ("cpu",)
    assert loaded.in_avals == exported().in_avals
    assert loaded.out_avals == exported().out_avals
    assert loaded.in_tree == fx.tree.structure(((PARAMS, X), {"scale": 2.0}))
    assert loaded.out_tree == fx.tree.structure(model(PARAMS, X, scale=2.0))
    assert loaded.jaxpr == exported().jaxpr
    assert loaded.mlir_module_serialized == exported().mlir_module_serialized
    assert loaded.serialize() == exported().serialize()
    assert repr(loaded) == (
        "<model exported for cpu: (f32[2], f32[2], f32[4,3], f32[]) -> (f32[4,2], f32[], f32[], i8[2], f32[4,3])>"
    )


def test_loaded_function_can_be_transformed() -> None:
    loaded = fx.load(exported().serialize())

    def loss(f: Callable[..., dict[str, Any]], params: dict[str, ArrayLike]) -> fx.Array:
        return fnp.sum(f(params, X, scale=2.0)["h"] ** 2)

    exported_loss, original_loss = functools.partial(loss, loaded.call), functools.partial(loss, model)
    assert_same(fx.grad(exported_loss)(PARAMS), fx.grad(original_loss)(PARAMS))
    assert_same(fx.jit(fx.grad(exported_loss))(PARAMS), fx.jit(fx.grad(original_loss))(PARAMS))
    assert_same(fx.jvp(exported_loss, (PARAMS,), (PARAMS,)), fx.jvp(original_loss, (PARAMS,), (PARAMS,)))
    scales = np.array([1.0, 2.0, 3.0], np.float32)
    got = fx.vmap(lambda s: loaded.call(PARAMS, X, scale=s)["h"])(scales)
    np.testing.assert_array_equal(got[2], model(PARAMS, X, scale=np.float32(3))["h"])
    assert "name='model'" in str(fx.make_jaxpr(lambda p: loaded.call(p, X, scale=2.0))(PARAMS))


def test_calls_are_compiled_once() -> None:
    loaded = fx.load(exported().serialize())
    loaded.call(PARAMS, X, scale=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracefx.xla.backend.lower", lambda *_: pytest.fail("lowered again"))
        loaded.call(PARAMS, X, scale=3.0)


TREES: Final[list[tuple[str, Callable[..., Any], tuple[Any, ...]]]] = [
    ("none", lambda x: None, (1.0,)),
    ("nothing", lambda: (), ()),
    ("named tuples", lambda p: Pair(p.right, [p.left, None]), (Pair(1.0, {"a": 2}),)),
    ("nodes", lambda s: Scaled((s.value * s.scale,), 0.5, "out"), (Scaled(np.float32(3), 2.0, "in"),)),
    ("ordered", lambda o: OrderedDict(z=o["b"], a=o["c"]), (OrderedDict(b=1.0, c=2.0),)),
    ("keys", lambda d: {(1, "x"): d[3], (0, "y"): d[1]}, ({3: 1.0, 1: 2.0},)),
    ("deep", lambda x: [[[[({"a": [x]},)]]]], (1.0,)),
]


@pytest.mark.parametrize(("f", "args"), [case[1:] for case in TREES], ids=[case[0] for case in TREES])
def test_pytrees_survive_serialization(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    loaded = fx.load(fx.export(fx.jit(f))(*args).serialize())
    got, want = loaded.call(*args), fx.jit(f)(*args)
    assert fx.tree.structure(got) == fx.tree.structure(want)
    assert str(fx.tree.leaves(got)) == str(fx.tree.leaves(want))
    if isinstance(got, Scaled):
        assert (got.scale, got.name) == (0.5, "out")


def squares(x: fx.Array) -> fx.Array:
    return fnp.sum(fx.checkpoint(lambda y: fnp.tanh(y))(x) ** 2)


def weighted(x: fx.Array) -> fx.Array:
    total: fx.Array = fx.lax.psum(x, "i")
    return total * fx.lax.axis_index("i")


PROGRAMS: Final[list[tuple[str, Callable[..., Any], tuple[Any, ...]]]] = [
    ("scan", lambda xs: fx.lax.scan(lambda c, x: (c * x + 1, c), np.float32(0.5), xs), (X[:, 0],)),
    ("while", lambda x: fx.lax.while_loop(lambda c: c < 10, lambda c: c * 2, x), (np.float32(1),)),
    ("cond", lambda x: fx.lax.cond(x > 1, lambda x: fnp.sin(x), lambda x: fx.jit(fnp.cos)(x), x), (np.float32(2),)),
    ("gradient", fx.grad(squares), (X,)),
    ("vmap", fx.vmap(weighted, axis_name="i"), (X,)),
    ("dtypes", lambda x: [x.astype(d) for d in ("bfloat16", "float8_e4m3fn", "int4", "bool", "complex64")], (X,)),
    ("empty", lambda x: (fnp.sum(x), x.T, fnp.concatenate([x, x])), (np.zeros((0, 3), np.float32),)),
    ("indices", lambda x: x[fnp.array([0, 2]), 1:], (X,)),
    ("special", lambda x: (fx.lax.erf_inv(x / 2), fx.lax.lgamma(x + 1), fnp.nan * x, -0.0), (X,)),
]


@pytest.mark.usefixtures("default_repeats")  # a module for export has no shared blocks, so last digits differ
@pytest.mark.parametrize(("f", "args"), [case[1:] for case in PROGRAMS], ids=[case[0] for case in PROGRAMS])
def test_jaxpr_and_module_give_same_results(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    exported_fn = fx.export(fx.jit(f))(*args)
    want = fx.jit(f)(*args)
    assert_same(fx.load(exported_fn.serialize()).call(*args), want)
    for got, expected in zip(run_module(exported_fn, *args), map(np.asarray, fx.tree.leaves(want)), strict=True):
        assert got.dtype == expected.dtype
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        assert_near(got.astype(wide), expected.astype(wide), ELEMENTARY)


def run_module(exported_fn: fx.Exported[..., Any], *args: Any) -> list[Any]:
    """Returns the output leaves of the StableHLO module, compiled as serialized."""
    module = portable.read_portable(exported_fn.mlir_module_serialized)
    executable = executables.compile_module(module, device=devices()[0])
    leaves = fx.tree.leaves((args, {}))
    operands = [np.asarray(leaves[i], exported_fn.in_avals[i].dtype) for i in exported_fn.module_kept_var_idx]
    inputs = [executable.put_function(i)(operand) for i, operand in enumerate(operands)]
    return [buffers.buffer_to_numpy(out) for out in executable.execute(inputs)]


def test_unused_inputs_are_dropped_from_the_module() -> None:
    exported_fn = exported()
    assert exported_fn.module_kept_var_idx == (0, 2, 3)
    assert exported_fn.mlir_module().count("%arg") > 0
    assert "%arg3" not in exported_fn.mlir_module()
    assert "dense<[[0.000000e+00, 1.000000e+00]" in exported_fn.mlir_module()  # closed-over constants are in the module


def test_static_arguments_are_baked_in() -> None:
    power = fx.jit(lambda x, n, *, how: x**n if how == "power" else x * n, static_argnums=1, static_argnames="how")
    loaded = fx.load(fx.export(power)(X, 3, how="power").serialize())
    assert_same(loaded.call(X), power(X, 3, how="power"))


def test_jitted_methods_can_be_exported() -> None:
    class Layer:
        weight = 2.0

        @functools.partial(fx.jit, static_argnums=0)
        def __call__(self, x: fx.Array) -> fx.Array:
            return x * self.weight

    exported_fn = fx.export(Layer().__call__)(X)
    assert_same(exported_fn.call(X), Layer()(X))


def test_x64_export_runs_without_enable_x64() -> None:
    with fx.enable_x64(True):
        data = fx.export(fx.jit(lambda x: x / 3))(1.0).serialize()
    loaded = fx.load(data)
    assert loaded.call(1.0).dtype == np.float64
    assert float(loaded.call(0.1)) == 0.1 / 3


def test_exported_functions_pickle() -> None:
    again = pickle.loads(pickle.dumps(exported()))
    assert_same(again.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))


def test_user_defined_primitives_are_deserialized() -> None:
    data = fx.programs.serialize(fx.make_jaxpr(lambda x: fx.bind(Scale(2), x))(X))
    assert deserialize(data, Scale).eqns[0].prim == Scale(2)


def test_loaded_function_can_be_reaped() -> None:
    def f(x: fx.Array) -> fx.Array:
        y = handlers.sow(fnp.sin(x), tag="t", name="y")
        out: fx.Array = handlers.sow({"a": y * 2, "b": (x, None)}, tag="t", name="z")["a"]  # type: ignore[assignment]  # of objects
        return out

    loaded = fx.load(fx.export(fx.jit(f))(fnp.float32(1.0)).serialize())
    assert_same(loaded.call(fnp.float32(2.0)), fx.jit(f)(fnp.float32(2.0)))
    got, want = (handlers.reap(g, tag="t")(fnp.float32(2.0)) for g in (loaded.call, fx.jit(f)))
    assert_same(got, want)
    assert list(got[1]) == ["y", "z"]


# ------------------------------------------------------------------ invalid calls


def test_calls_with_other_types_raise() -> None:
    loaded = fx.load(exported().serialize())
    with pytest.raises(TypeError, match="the exported model: arguments must have the structure of the export"):
        loaded.call(PARAMS, X)
    with pytest.raises(TypeError, match=r"exported for args\[0\]\['b'\] of type f32\[2\], but called with f32\[3\]"):
        loaded.call({**PARAMS, "b": np.ones(3, np.float32)}, X, scale=2.0)
    with pytest.raises(TypeError, match=r"for kwargs\['scale'\] of type f32\[\]\*, but called with c64\[\]\*"):
        loaded.call(PARAMS, X, scale=2j)
    with pytest.raises(TypeError, match=r"for args\[1\] of type f32\[4,3\], but called with i32\[4,3\]"):
        loaded.call(PARAMS, X.astype(np.int32), scale=2.0)
    assert_same(loaded.call(PARAMS, X, scale=2), model(PARAMS, X, scale=2.0))  # a Python number


# ------------------------------------------------------------------ functions that cannot be exported


def test_callbacks_cannot_be_exported() -> None:
    def f(x: fx.Array) -> fx.Array:
        fx.debug.print("{}", x)
        return x

    with pytest.raises(SerializationError, match=r"equation 0 of 1 at .*test_exporting.py:\d+ ") as caught:
        fx.export(fx.jit(f))(X)
    assert "DebugPrint.callback: it is the function _Printer, and functions can't be serialized" in str(caught.value)
    with pytest.raises(
        SerializationError, match="PureCallback.callback: it is the function sin, and functions can't be serialized"
    ):
        fx.export(fx.jit(lambda x: fx.pure_callback(np.sin, x, x)))(X)


@fx.custom_jvp
def with_custom_jvp(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


@fx.custom_vjp
def with_custom_vjp(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


with_custom_jvp.defjvp(lambda primals, tangents: (with_custom_jvp(*primals), 7.0 * tangents[0]))
with_custom_vjp.defvjp(lambda x: (with_custom_vjp(x), x), lambda x, ct: (7.0 * ct,))


@pytest.mark.parametrize(
    "f",
    [with_custom_jvp, with_custom_vjp, fx.checkpoint(fnp.sin, policy=fx.checkpoint_policies.dots_saveable)],
    ids=["jvp", "vjp", "policy"],
)
def test_custom_rules_are_refused_or_dropped(f: Callable[[fx.Array], fx.Array]) -> None:
    def in_loop(x: fx.Array) -> fx.Array:
        return fx.lax.fori_loop(0, 1, lambda _, x: f(x), x)

    with pytest.raises(SerializationError, match="functions can't be serialized") as refused:
        fx.export(fx.jit(in_loop))(X)
    assert [note[:30] for note in refused.value.__notes__] == ["export(f, drop_rules=True) exp"]
    exported_fn = fx.export(fx.jit(in_loop), drop_rules=True)(X)
    loaded = fx.load(exported_fn.serialize())
    assert_same(loaded.call(X), fx.jit(fnp.sin)(X))
    assert_near(fx.grad(lambda x: fnp.sum(loaded.call(x)))(X), np.cos(X), ELEMENTARY)


def test_dropping_rules_is_not_advised_for_callbacks() -> None:
    for drop_rules in (False, True):
        with pytest.raises(SerializationError, match="it is the function sin") as refused:
            fx.export(fx.jit(lambda x: fx.pure_callback(np.sin, x, x)), drop_rules=drop_rules)(X)
        assert not hasattr(refused.value, "__notes__")


def test_closed_over_tracer_raises() -> None:
    def f(y: fx.Array) -> fx.Array:
        fx.export(fx.jit(lambda x: x * y))(1.0)
        return y

    with pytest.raises(TypeError, match="export of <lambda>: it closes over .* export it outside of the transf"):
        fx.grad(f)(fnp.float32(1.0))


def test_invalid_options_raise() -> None:
    with pytest.raises(
        TypeError, match=r"export takes a function returned by tracefx.jit, got <function .*export\(tracefx.jit"
    ):
        untyped(fx.export)(lambda x: x)
    for platforms in ("cpu", [], ["gpu"], ["cpu", "cpu"]):
        with pytest.raises(ValueError, match="platforms must be None or a sequence of some of cpu, cuda, rocm, tpu"):
            fx.export(model, platforms=platforms)


@fx.tree.register_pytree_node_class
@frozen
class Holder:
    held: Any
    function: Any

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return (self.held,), self.function

    @classmethod
    def tree_unflatten(cls, metadata: Any, children: tuple[Any, ...]) -> Holder:
        return cls(children[0], metadata)


def test_unserializable_metadata_raises() -> None:
    exported_fn = fx.export(fx.jit(lambda h: h.held))(Holder(1.0, np.sin))
    with pytest.raises(
        SerializationError, match="the arguments of <lambda>: the metadata .*sin.* of a .*Holder can't be"
    ):
        exported_fn.serialize()


# ------------------------------------------------------------------ derivatives

COUNTS: Final = np.arange(6, dtype=np.int32).reshape(2, 3)
FLOAT0: Final = np.zeros((3, 2), fx.dtypes.float0)


def counts_and_square(counts: Any, x: Any) -> tuple[Any, Any]:
    return 2 * counts.T, x.T * x.T


def test_exported_vjp_agrees_with_jax() -> None:
    backward = fx.export(fx.jit(counts_and_square))(COUNTS, X).vjp()
    in_jax = jax.export.export(jax.jit(counts_and_square))(COUNTS, X).vjp()
    assert backward.has_vjp()
    assert in_jax.has_vjp()
    for ours, theirs in ((backward.in_avals, in_jax.in_avals), (backward.out_avals, in_jax.out_avals)):
        assert [(a.shape, a.dtype) for a in ours] == [(a.shape, a.dtype) for a in theirs]
    assert backward.module_kept_var_idx == in_jax.module_kept_var_idx
    assert backward.fun_name == "counts_and_square_vjp"
    for f in (backward, fx.load(backward.serialize())):
        got, want = f.call(COUNTS, X, FLOAT0, X.T), in_jax.call(COUNTS, X, FLOAT0, X.T)
        assert got[0].dtype == want[0].dtype == fx.dtypes.float0
        assert_near(got[1], want[1])
        assert_near(f.vjp().call(COUNTS, X, FLOAT0, X.T, got[0], X)[1], 2 * X * X)


def sum_of(f: Callable[[Any], Any], x: Any) -> Any:
    return jnp.sum(f(x))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_jax_differentiates_as_often_as_asked(order: int) -> None:
    data = fx.export(fx.jit(lambda x: fnp.sum(x**3)))(X).to_jax(vjp_order=order)
    f: Callable[..., Any] = jax.export.deserialize(bytearray(data)).call
    for _ in range(order):
        f = jax.grad(functools.partial(sum_of, f))
    assert_near(f(X), [np.sum(X**3), 3 * X**2, 6 * X][order])
    with pytest.raises(ValueError, match="No VJP"):
        jax.grad(functools.partial(sum_of, f))(X)


def test_serialize_checks_that_derivatives_exist() -> None:
    exported_fn = fx.export(fx.jit(lambda x: fnp.sin(x)))(X)
    assert exported_fn.serialize(vjp_order=2) == exported_fn.serialize()
    loop = fx.export(fx.jit(lambda x: fx.lax.while_loop(lambda c: c < 9, lambda c: c * x, x)))(2.0)
    with pytest.raises(ValueError, match="reverse-mode differentiation doesn't work"):
        loop.serialize(vjp_order=1)
    with pytest.raises(TypeError, match="StableHLO has no arrays of float0"):
        fx.export(fx.jit(lambda t, x: fx.lax.optimization_barrier((t, x))[1]))(FLOAT0, X)


# ------------------------------------------------------------------ platforms and provenance


def test_multi_platform_export() -> None:
    exported_fn = fx.export(model, platforms=["cpu", "tpu"])(PARAMS, X, scale=2.0)
    assert 'tensor<i32> {jax.global_constant = "_platform_index"}' in exported_fn.mlir_module()
    assert fx.load(exported_fn.serialize()).platforms == ("cpu", "tpu")
    for_tpu = fx.export(model, platforms=["tpu"])(PARAMS, X, scale=2.0)
    assert for_tpu.mlir_module() == exported().mlir_module()


@pytest.mark.parametrize("call", [lambda f: f(X), lambda f: fx.jit(f)(X), lambda f: fx.grad(lambda x: f(x).sum())(X)])
def test_a_call_on_a_platform_that_was_not_exported_raises_as_in_jax(call: Callable[[Any], Any]) -> None:
    exported_fn = fx.export(fx.jit(lambda x: fnp.sin(x)), platforms=["cuda", "tpu"])(X)
    loaded = fx.load(exported_fn.serialize())
    in_jax = jax.export.export(jax.jit(jnp.sin), platforms=["cuda", "tpu"])(X)
    with pytest.raises(ValueError, match="was exported for platform"):
        in_jax.call(X)
    with pytest.raises(ValueError, match="<lambda> was exported for cuda, tpu, but it is called on cpu: export it for"):
        call(loaded.call)


def test_an_exported_function_may_call_one_that_was_exported_for_its_platforms() -> None:
    inner = fx.export(fx.jit(lambda x: fnp.sin(x)), platforms=["cuda", "tpu"])(X)
    assert "sine" in fx.export(fx.jit(inner.call), platforms=["cuda"])(X).mlir_module()
    for platforms in (["cpu"], ["cuda", "cpu"]):
        with pytest.raises(ValueError, match="exported for cuda, tpu, but it is called on cpu"):
            fx.export(fx.jit(inner.call), platforms=platforms)(X)


def test_platform_dependent_programs() -> None:
    f = fx.jit(lambda x: fx.lax.platform_dependent(x, cpu=fnp.sin, cuda=fnp.cos))
    for_cpu, for_cuda = (fx.export(f, platforms=[p])(X) for p in ("cpu", "cuda"))
    assert for_cpu.mlir_module() != for_cuda.mlir_module()
    assert_same(fx.load(for_cpu.serialize()).call(X), fx.jit(fnp.sin)(X))
    both = fx.export(f, platforms=["cpu", "cuda"])(X)
    assert_same(fx.load(both.serialize()).call(X), fx.jit(fnp.sin)(X))
    with pytest.raises(NotImplementedError, match="runs on tpu, but there are functions for cpu, cuda only"):
        fx.export(f, platforms=["cpu", "tpu"])(X)


def test_provenance_is_exported_on_request() -> None:
    without_provenance = exported()
    with_provenance = fx.export(model, provenance=True)(PARAMS, X, scale=2.0)
    assert b"exported.py" not in without_provenance.serialize()
    assert b"exported.py" in with_provenance.mlir_module_serialized
    loaded = fx.load(with_provenance.serialize())
    assert "exported.py" in str(loaded.jaxpr.eqns[0].source)
    assert fx.load(without_provenance.serialize()).jaxpr.eqns[0].source is None


# ------------------------------------------------------------------ another process

LOAD_AND_CALL: Final = """
import sys, numpy as np, tracefx as fx
REGISTER
loaded = fx.load(open(sys.argv[1], "rb").read())
args = np.load(sys.argv[2])
out = loaded.call({"b": args["b"], "unused": args["b"]}, args["x"], scale=2.0)
slope = fx.grad(lambda b: fx.numpy.sum(loaded.call({"b": b, "unused": b}, args["x"], scale=2.0)["h"]))(args["b"])
np.savez(sys.argv[3], h=out["h"], total=out["rest"][0], slope=slope)
print("jax" in sys.modules)
"""


def test_exported_function_runs_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(exported().serialize())
    np.savez(tmp_path / "args.npz", b=np.asarray(PARAMS["b"]), x=X)
    files = [str(tmp_path / name) for name in ("model", "args.npz", "out.npz")]
    assert output_of(LOAD_AND_CALL.replace("REGISTER", ""), *files) == "False\n"
    out, want = np.load(tmp_path / "out.npz"), model(PARAMS, X, scale=2.0)
    np.testing.assert_array_equal(out["h"], want["h"])
    np.testing.assert_array_equal(out["total"], want["rest"][0])
    slope = fx.grad(lambda b: fnp.sum(model({**PARAMS, "b": b}, X, scale=2.0)["h"]))(PARAMS["b"])
    np.testing.assert_array_equal(out["slope"], slope)


def test_unregistered_node_classes_raise(tmp_path: Path) -> None:
    path = tmp_path / "function"
    script = "import sys, tracefx as fx\nprint(fx.load(open(sys.argv[1], 'rb').read()))"
    for tree, message in (
        (
            Scaled(1.0, 2.0, ""),
            r"exported.Scaled is not registered as a pytree node here: register it before this",
        ),
        (Pair(1.0, 2.0), r"there is no named tuple .*exported.Pair here: import the module that defines it"),
    ):
        path.write_bytes(fx.export(fx.jit(lambda x: x))(tree).serialize())
        process = run_python("-c", script, path)
        assert process.returncode == 1
        assert "ParseError: an exported function, byte " in process.stderr
        assert re.search(message, process.stderr)


SAVE_FROM_SCRIPT: Final = """
import dataclasses, sys, tracefx as fx
from typing import NamedTuple

class Pair(NamedTuple):
    left: object
    right: object

@fx.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    left: object
    right: object

for cls, path in zip((Pair, Weights), sys.argv[1:]):
    data = fx.export(fx.jit(lambda p: p.left + p.right))(cls(1.0, 2.0)).serialize()
    assert fx.load(data).call(cls(1.0, 2.0)) == 3.0
    open(path, "wb").write(data)
"""


def test_node_class_of_a_script_must_move_to_a_module(tmp_path: Path) -> None:
    files = [tmp_path / "pair", tmp_path / "weights"]
    output_of(SAVE_FROM_SCRIPT, *map(str, files))
    advice = "the script that wrote this defines it: move it to a module, import that in both programs, write it again"
    for path, message in zip(
        files,
        ("there is no named tuple __main__.Pair here", "__main__.Weights is not registered as a pytree node here"),
        strict=True,
    ):
        with pytest.raises(ParseError, match=re.escape(f"{message}: {advice}")):
            fx.load(path.read_bytes())


def test_named_tuple_that_no_module_has_is_not_serialized() -> None:
    class Local(NamedTuple):
        x: float

    misnamed = namedtuple("Other", "x")  # type: ignore[name-match]  # on purpose
    for cls in (Local, misnamed):
        exported = fx.export(fx.jit(lambda p: p.x))(cls(1.0))
        assert exported.call(cls(2.0)) == 2.0
        with pytest.raises(
            SerializationError,
            match=rf"the arguments of <lambda> can't be serialized: .*no module has .*{cls.__name__}; define it at",
        ):
            exported.serialize()


def test_serialized_bytes_are_the_same_in_every_process(tmp_path: Path) -> None:
    script = (
        "import sys, tracefx as fx\n"
        "f = fx.export(fx.jit(lambda x: {'a': fx.numpy.sin(x), 'b': x}))(fx.ShapeDtypeStruct((3,), 'float32'))\n"
        "print(f.serialize().hex())"
    )
    expected = fx.export(fx.jit(lambda x: {"a": fnp.sin(x), "b": x}))(fx.ShapeDtypeStruct((3,), "float32"))
    assert output_of(script, PYTHONHASHSEED="7") == expected.serialize().hex() + "\n"
