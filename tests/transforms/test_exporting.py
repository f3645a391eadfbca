"""Exported functions: called where they are loaded, transformed there, on other platforms and in other processes."""

from __future__ import annotations

import functools
import os
import pickle
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.core.programs import Scale
from tests.transforms.exported import PARAMS, Pair, Scaled, X, exported, model, same
from tracefx import handlers
from tracefx.core.array import ArrayLike
from tracefx.errors import SerializationError
from tracefx.programs import deserialize
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.xla import runtime

ROOT: Final = Path(__file__).parent.parent.parent


# ------------------------------------------------------------------ there and back


def test_what_is_loaded_is_the_function() -> None:
    loaded = fx.load(exported().serialize())
    same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
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


def test_what_is_loaded_is_transformed() -> None:
    loaded = fx.load(exported().serialize())

    def loss(f: Callable[..., dict[str, Any]], params: dict[str, ArrayLike]) -> fx.Array:
        return fnp.sum(f(params, X, scale=2.0)["h"] ** 2)

    mine, theirs = functools.partial(loss, loaded.call), functools.partial(loss, model)
    same(fx.grad(mine)(PARAMS), fx.grad(theirs)(PARAMS))
    same(fx.jit(fx.grad(mine))(PARAMS), fx.jit(fx.grad(theirs))(PARAMS))
    same(fx.jvp(mine, (PARAMS,), (PARAMS,)), fx.jvp(theirs, (PARAMS,), (PARAMS,)))
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
def test_trees(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
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


@pytest.mark.parametrize(("f", "args"), [case[1:] for case in PROGRAMS], ids=[case[0] for case in PROGRAMS])
def test_programs_as_jaxpr_and_as_module(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    it = fx.export(fx.jit(f))(*args)
    want = fx.jit(f)(*args)
    same(fx.load(it.serialize()).call(*args), want)
    for got, expected in zip(run_module(it, *args), map(np.asarray, fx.tree.leaves(want)), strict=True):
        assert got.dtype == expected.dtype
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        assert_near(got.astype(wide), expected.astype(wide), ELEMENTARY)


def run_module(it: fx.Exported[..., Any], *args: Any) -> list[Any]:
    """The leaves that the StableHLO module gives, compiled for what it is."""
    module = runtime.read_portable(it.mlir_module_serialized)
    executable = runtime.compile_module(module, device=runtime.devices()[0])
    leaves = fx.tree.leaves((args, {}))
    given = [np.asarray(leaves[i], it.in_avals[i].dtype) for i in it.module_kept_var_idx]
    return [runtime.buffer_to_numpy(out) for out in executable.execute(executable.put(given))]


def test_inputs_that_are_not_used_are_not_the_modules() -> None:
    it = exported()
    assert it.module_kept_var_idx == (0, 2, 3)
    assert it.mlir_module().count("%arg") > 0
    assert "%arg3" not in it.mlir_module()
    assert "dense<[[0.000000e+00, 1.000000e+00]" in it.mlir_module()  # the constants are


def test_static_arguments_become_part_of_it() -> None:
    power = fx.jit(lambda x, n, *, how: x**n if how == "power" else x * n, static_argnums=1, static_argnames="how")
    loaded = fx.load(fx.export(power)(X, 3, how="power").serialize())
    same(loaded.call(X), power(X, 3, how="power"))


def test_methods() -> None:
    class Layer:
        weight = 2.0

        @functools.partial(fx.jit, static_argnums=0)
        def __call__(self, x: fx.Array) -> fx.Array:
            return x * self.weight

    it = fx.export(Layer().__call__)(X)
    same(it.call(X), Layer()(X))


def test_wide_types_where_they_are_off() -> None:
    with fx.enable_x64(True):
        data = fx.export(fx.jit(lambda x: x / 3))(1.0).serialize()
    loaded = fx.load(data)
    assert loaded.call(1.0).dtype == np.float64
    assert float(loaded.call(0.1)) == 0.1 / 3


def test_it_pickles() -> None:
    again = pickle.loads(pickle.dumps(exported()))
    same(again.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))


def test_operations_of_others() -> None:
    data = fx.programs.serialize(fx.make_jaxpr(lambda x: fx.bind(Scale(2), x))(X))
    assert deserialize(data, Scale).eqns[0].prim == Scale(2)


def test_what_is_sown_is_reaped_where_it_is_loaded() -> None:
    def f(x: fx.Array) -> fx.Array:
        y = handlers.sow(fnp.sin(x), tag="t", name="y")
        out: fx.Array = handlers.sow({"a": y * 2, "b": (x, None)}, tag="t", name="z")["a"]  # type: ignore[assignment]  # of objects
        return out

    loaded = fx.load(fx.export(fx.jit(f))(fnp.float32(1.0)).serialize())
    same(loaded.call(fnp.float32(2.0)), fx.jit(f)(fnp.float32(2.0)))
    got, want = (handlers.reap(g, tag="t")(fnp.float32(2.0)) for g in (loaded.call, fx.jit(f)))
    same(got, want)
    assert list(got[1]) == ["y", "z"]


# ------------------------------------------------------------------ calls that don't fit


def test_arguments_of_another_kind() -> None:
    loaded = fx.load(exported().serialize())
    with pytest.raises(TypeError, match="the exported model: arguments does not have the right structure"):
        loaded.call(PARAMS, X)
    with pytest.raises(TypeError, match=r"exported for args\[0\]\['b'\] of type f32\[2\], but called with f32\[3\]"):
        loaded.call({**PARAMS, "b": np.ones(3, np.float32)}, X, scale=2.0)
    with pytest.raises(TypeError, match=r"for kwargs\['scale'\] of type f32\[\]\*, but called with c64\[\]\*"):
        loaded.call(PARAMS, X, scale=2j)
    with pytest.raises(TypeError, match=r"for args\[1\] of type f32\[4,3\], but called with i32\[4,3\]"):
        loaded.call(PARAMS, X.astype(np.int32), scale=2.0)
    same(loaded.call(PARAMS, X, scale=2), model(PARAMS, X, scale=2.0))  # a number of Python's


# ------------------------------------------------------------------ what can't be exported


def test_callbacks_are_refused() -> None:
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


KEPT: Final = fx.checkpoint_policies.dots_saveable


@fx.custom_jvp
def ruled(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


@fx.custom_vjp
def backed(x: fx.Array) -> fx.Array:
    return fnp.sin(x)


ruled.defjvp(lambda primals, tangents: (ruled(*primals), 7.0 * tangents[0]))
backed.defvjp(lambda x: (backed(x), x), lambda x, ct: (7.0 * ct,))


@pytest.mark.parametrize(
    "f",
    [ruled, backed, fx.checkpoint(fnp.sin, policy=fx.checkpoint_policies.dots_saveable)],
    ids=["jvp", "vjp", "policy"],
)
def test_rules_are_refused_or_dropped(f: Callable[[fx.Array], fx.Array]) -> None:
    def through_a_loop(x: fx.Array) -> fx.Array:
        return fx.lax.fori_loop(0, 1, lambda _, x: f(x), x)

    with pytest.raises(SerializationError, match="functions can't be serialized"):
        fx.export(fx.jit(through_a_loop))(X)
    it = fx.export(fx.jit(through_a_loop), drop_rules=True)(X)
    loaded = fx.load(it.serialize())
    same(loaded.call(X), fx.jit(fnp.sin)(X))
    assert_near(fx.grad(lambda x: fnp.sum(loaded.call(x)))(X), np.cos(X), ELEMENTARY)


def test_it_closes_over_a_tracer() -> None:
    def f(y: fx.Array) -> fx.Array:
        fx.export(fx.jit(lambda x: x * y))(1.0)
        return y

    with pytest.raises(TypeError, match="export of <lambda>: it closes over .* export it outside of the transf"):
        fx.grad(f)(fnp.float32(1.0))


def test_bad_options() -> None:
    with pytest.raises(
        TypeError, match=r"export takes a function returned by tracefx.jit, got <function .*export\(tracefx.jit"
    ):
        fx.export(lambda x: x)  # type: ignore[arg-type]  # on purpose
    for platforms in ("cpu", [], ["gpu"], ["cpu", "cpu"]):
        with pytest.raises(ValueError, match="platforms must be None or a sequence of some of cpu, cuda, rocm, tpu"):
            fx.export(model, platforms=platforms)
    with pytest.raises(TypeError, match="StableHLO has no arrays of float0"):
        fx.export(fx.jit(lambda x: x))(fx.ShapeDtypeStruct((2,), np.dtype([("float0", np.void, 0)])))


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


def test_metadata_that_have_no_bytes() -> None:
    it = fx.export(fx.jit(lambda h: h.held))(Holder(1.0, np.sin))
    with pytest.raises(
        SerializationError, match="the arguments of <lambda>: the metadata .*sin.* of a .*Holder can't be"
    ):
        it.serialize()


# ------------------------------------------------------------------ platforms and places


def test_several_platforms() -> None:
    it = fx.export(model, platforms=["cpu", "tpu"])(PARAMS, X, scale=2.0)
    assert 'tensor<i32> {jax.global_constant = "_platform_index"}' in it.mlir_module()
    assert fx.load(it.serialize()).platforms == ("cpu", "tpu")
    alone = fx.export(model, platforms=["tpu"])(PARAMS, X, scale=2.0)
    assert alone.mlir_module() == exported().mlir_module()
    same(alone.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))


def test_programs_that_depend_on_the_platform() -> None:
    f = fx.jit(lambda x: fx.lax.platform_dependent(x, cpu=fnp.sin, cuda=fnp.cos))
    here, there = (fx.export(f, platforms=[p])(X) for p in ("cpu", "cuda"))
    assert here.mlir_module() != there.mlir_module()
    same(fx.load(here.serialize()).call(X), fx.jit(fnp.sin)(X))
    both = fx.export(f, platforms=["cpu", "cuda"])(X)
    same(fx.load(both.serialize()).call(X), fx.jit(fnp.sin)(X))
    with pytest.raises(NotImplementedError, match="runs on tpu, but there are functions for cpu, cuda only"):
        fx.export(f, platforms=["cpu", "tpu"])(X)


def test_places_are_kept_if_asked_for() -> None:
    without = exported()
    kept = fx.export(model, provenance=True)(PARAMS, X, scale=2.0)
    assert b"exported.py" not in without.serialize()
    assert b"exported.py" in kept.mlir_module_serialized
    loaded = fx.load(kept.serialize())
    assert "exported.py" in str(loaded.jaxpr.eqns[0].source)
    assert fx.load(without.serialize()).jaxpr.eqns[0].source is None


# ------------------------------------------------------------------ another process

ELSEWHERE: Final = """
import sys, numpy as np, tracefx as fx
REGISTER
loaded = fx.load(open(sys.argv[1], "rb").read())
args = np.load(sys.argv[2])
out = loaded.call({"b": args["b"], "unused": args["b"]}, args["x"], scale=2.0)
slope = fx.grad(lambda b: fx.numpy.sum(loaded.call({"b": b, "unused": b}, args["x"], scale=2.0)["h"]))(args["b"])
np.savez(sys.argv[3], h=out["h"], total=out["rest"][0], slope=slope)
print("jax" in sys.modules)
"""


def elsewhere(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "7"}
    return subprocess.run(
        [sys.executable, "-c", script, *args], env=environ, capture_output=True, text=True, check=False
    )


def test_it_runs_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(exported().serialize())
    np.savez(tmp_path / "args.npz", b=np.asarray(PARAMS["b"]), x=X)
    files = [str(tmp_path / name) for name in ("model", "args.npz", "out.npz")]
    done = elsewhere(ELSEWHERE.replace("REGISTER", ""), *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
    out, want = np.load(tmp_path / "out.npz"), model(PARAMS, X, scale=2.0)
    np.testing.assert_array_equal(out["h"], want["h"])
    np.testing.assert_array_equal(out["total"], want["rest"][0])
    slope = fx.grad(lambda b: fnp.sum(model({**PARAMS, "b": b}, X, scale=2.0)["h"]))(PARAMS["b"])
    np.testing.assert_array_equal(out["slope"], slope)


def test_classes_must_be_there(tmp_path: Path) -> None:
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
        done = elsewhere(script, str(path))
        assert done.returncode == 1
        assert "ParseError: an exported function, byte " in done.stderr
        assert re.search(message, done.stderr)


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    script = (
        "import sys, tracefx as fx\n"
        "f = fx.export(fx.jit(lambda x: {'a': fx.numpy.sin(x), 'b': x}))(fx.ShapeDtypeStruct((3,), 'float32'))\n"
        "print(f.serialize().hex())"
    )
    here = fx.export(fx.jit(lambda x: {"a": fnp.sin(x), "b": x}))(fx.ShapeDtypeStruct((3,), "float32"))
    assert elsewhere(script).stdout == here.serialize().hex() + "\n"
