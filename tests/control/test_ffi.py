"""`tracefx.ffi` beside `jax.ffi`, with the kernels of kernels.cc."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.errors import assert_errors, untyped
from tracefx.control.ffi_call import mlir_attribute
from tracefx.interop.jax import from_jax

PREFIX: Final = "tracefx_test_"
KERNELS: Final = ("affine", "rows", "memory", "attributes", "count", "fail")
COMPILER: Final = shutil.which("c++")
MATRIX: Final = np.arange(6, dtype=np.float32).reshape(2, 3)
METHODS: Final = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


@pytest.fixture(scope="session", autouse=True)
def _registered_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    source = Path(__file__).with_name("kernels.cc")
    options = ["-std=c++17", "-O0", "-w", "-shared", "-fPIC", f"-I{fx.ffi.include_dir()}"]
    subprocess.run([COMPILER, *options, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    for name in KERNELS:
        fx.ffi.register_ffi_target(PREFIX + name, fx.ffi.pycapsule(getattr(loaded, name)))


def kernel(library: Any, name: str, *shapes: tuple[int, ...], **options: Any) -> Callable[..., Any]:
    """Returns a call of a kernel by one of the libraries."""
    outs = [library.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    call: Callable[..., Any] = library.ffi.ffi_call(PREFIX + name, outs[0] if len(outs) == 1 else outs, **options)
    return call


def affine(library: Any, x: Any, method: str | None = None) -> Any:
    return kernel(library, "affine", x.shape, vmap_method=method)(x, scale=np.float32(2), shift=3)


def rows(library: Any, x: Any, y: Any, method: str | None = None) -> Any:
    return kernel(library, "rows", x.shape[:-1], x.shape, vmap_method=method)(x, y)


def test_call() -> None:
    for wrap in (lambda f: f, fx.jit):
        assert_same(wrap(lambda x: affine(fx, x))(MATRIX), 2 * fnp.asarray(MATRIX) + 3)
        sums, products = wrap(lambda x, y: rows(fx, x, y))(MATRIX, MATRIX[0])
        assert_same(sums, fnp.asarray(MATRIX.sum(1)))
        assert_same(products, fnp.asarray(MATRIX * MATRIX[0]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axes", [(0, None), (0, 0), (1, None), (2, 1)])
def test_vmap_agrees_with_jax(method: str, axes: tuple[int, int | None]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    width = np.delete(x.shape, axes[0])[-1]
    y = np.arange(width, dtype=np.float32)
    if axes[1] is not None:
        y = np.stack([y, y + 1, y - 1, y * 2][: x.shape[axes[0]]], axis=axes[1])

    def outcome(library: Any, compiled: bool) -> Any:
        f = library.vmap(lambda x, y: rows(library, x, y, method), in_axes=axes)
        return (library.jit(f) if compiled else f)(x, y)

    want = [fnp.asarray(out) for out in outcome(jax, True)]
    assert_same(outcome(fx, True), want)
    assert_same(outcome(fx, False), want)


def test_nested_vmap_and_loops() -> None:
    def f(library: Any, x: Any) -> Any:
        twice = library.vmap(library.vmap(lambda x: affine(library, x, "broadcast_all")), in_axes=1)
        return library.lax.fori_loop(0, 3, lambda i, x: twice(x).T, x)

    assert_same(fx.jit(f, static_argnums=0)(fx, MATRIX), fnp.asarray(f(jax, MATRIX)))


def test_derivatives_are_those_of_custom_rules() -> None:
    @fx.custom_jvp
    def f(x: fx.Array) -> fx.Array:
        out: fx.Array = affine(fx, x)
        return out

    f.defjvp(lambda primals, tangents: (f(*primals), 2 * tangents[0]))
    assert_same(fx.jit(fx.grad(lambda x: f(x).sum()))(MATRIX), fnp.full((2, 3), 2, np.float32))


@pytest.mark.parametrize("layout", [(0, 1), (1, 0)])
def test_layouts(layout: tuple[int, int]) -> None:
    def f(library: Any, x: Any, **options: Any) -> Any:
        return kernel(library, "memory", x.shape, **options)(x)

    for options in ({"input_layouts": [layout]}, {"output_layouts": layout}):
        want = fnp.asarray(jax.jit(lambda x, options=options: f(jax, x, **options))(MATRIX))
        assert_same(fx.jit(lambda x, options=options: f(fx, x, **options))(MATRIX), want)
        batched: dict[str, Any] = {**options, "vmap_method": "sequential"}
        stack = np.stack([MATRIX, MATRIX * 2])
        assert_same(fx.vmap(lambda x, o=batched: f(fx, x, **o))(stack), fnp.stack([want, want * 2]))


def test_layouts_of_batches_have_a_slow_first_axis() -> None:
    stack = np.arange(12, dtype=np.float32).reshape(2, 2, 3)

    def f(library: Any) -> Any:
        call = kernel(library, "memory", (2, 3), input_layouts=[(1, 0)], vmap_method="broadcast_all")
        return library.jit(library.vmap(call))(stack)

    assert_same(f(fx), fnp.asarray(f(jax)))


def test_aliased_operands_are_copied_if_they_are_needed() -> None:
    call = kernel(fx, "affine", (2, 3), input_output_aliases={0: 0})
    x = fnp.asarray(MATRIX)
    y, z = fx.jit(lambda x: (call(x, scale=np.float32(2), shift=3), x + 1))(x)
    assert_same(y, 2 * x + 3)
    assert_same(z, fnp.asarray(MATRIX) + 1)
    assert_same(x, fnp.asarray(MATRIX))


def test_attributes() -> None:
    attributes: dict[str, Any] = {
        "flag": True,
        "word": np.int32(-7),
        "byte": np.uint8(200),
        "number": 0.5,
        "text": 'a "quoted" word',
        "array": np.array([1.5, 2], np.float32),
        "options": {"inner": 11},
    }
    got = kernel(fx, "attributes", (8,))(**attributes)
    assert_same(got, fnp.array([1, -7, 200, 0.5, 15, ord("a"), 3.5, 11], np.float32))
    jax_attributes = {k: v for k, v in attributes.items() if k != "array"} | {"array": attributes["array"]}
    assert_same(got, fnp.asarray(kernel(jax, "attributes", (8,))(**jax_attributes)))


VALUES: Final[tuple[Any, ...]] = (
    *(False, np.True_, 2**40, -1, np.int8(-3), np.uint32(7), 0.1, np.float16(0.1), np.float32("nan"), -np.inf),
    *("text", b"bytes", (1, 2.5), {"k": 1}, np.arange(3), np.ones((2, 2), np.float32), np.array([True, False])),
    *(np.array(3.0), np.zeros((0, 2), np.int16)),
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_attributes_are_lowered_as_by_jax(value: Any) -> None:
    def config(library: Any) -> str:
        call = kernel(library, "memory", (2, 3))
        text: str = library.jit(lambda x: call(x, value=value)).lower(MATRIX).as_text()
        return text.split("backend_config = {", 1)[1].split(", operand_layouts")[0]

    assert config(fx) == config(jax)


def test_side_effects() -> None:
    call = kernel(fx, "count", ())
    kept = kernel(fx, "count", (), has_side_effect=True)
    before = float(call(np.float32(0)))
    fx.jit(lambda x: (call(x), x)[1])(np.float32(0))
    assert float(call(np.float32(0))) == before + 1
    fx.jit(lambda x: (kept(x), x)[1])(np.float32(0))
    assert float(call(np.float32(0))) == before + 3


def test_each_device_calls_the_kernel_with_its_shard() -> None:
    mesh = fx.make_mesh((2,), ("i",))
    f = fx.shard_map(lambda x: affine(fx, x), mesh=mesh, in_specs=fx.P("i"), out_specs=fx.P("i"))
    assert_same(fx.jit(f)(MATRIX), 2 * fnp.asarray(MATRIX) + 3)
    assert "result_avals=(f32[1,3]" in str(fx.make_jaxpr(f)(MATRIX))


def test_calls_traced_by_jax_are_imported() -> None:
    f = from_jax(lambda x: affine(jax, x, "broadcast_all") + rows(jax, x, x[0])[1])
    want = 2 * fnp.asarray(MATRIX) + 3 + fnp.asarray(MATRIX * MATRIX[0])
    assert_same(f(MATRIX), want)
    batched = fx.jit(fx.vmap(from_jax(lambda x: affine(jax, x, "broadcast_all"))))
    assert_same(batched(MATRIX), 2 * fnp.asarray(MATRIX) + 3)


def test_programs_are_printed_parsed_and_compared() -> None:
    closed = fx.make_jaxpr(lambda x: affine(fx, x))(jnp.asarray(MATRIX))
    assert fx.parse_jaxpr(str(closed)) == closed.jaxpr
    assert "attributes=(('scale', '0x40000000 : f32'), ('shift', '3 : i64'))" in str(closed)


def test_errors() -> None:
    call: Any = fx.ffi.ffi_call
    out, capsule = fx.ShapeDtypeStruct((2, 3), np.float32), fx.ffi.pycapsule(ctypes.c_void_p(16))
    assert_errors(
        (lambda: fx.grad(lambda x: affine(fx, x).sum())(MATRIX), ValueError, "cannot be differentiated"),
        (lambda: fx.vmap(lambda x: affine(fx, x))(MATRIX), NotImplementedError, "set vmap_method"),
        (lambda: call("k", out, vmap_method="loop"), ValueError, "vmap_method must be None or one of"),
        (lambda: call("k", out, custom_call_api_version=2), NotImplementedError, "typed interface"),
        (lambda: call("k", out, legacy_backend_config="x"), NotImplementedError, "typed interface"),
        (lambda: call("k", out)("x"), TypeError, "ffi_call of 'k': arguments"),
        (lambda: call("k", out)(x=1j), TypeError, "the attribute 'x' is 1j of type complex"),
        (lambda: call("k", out)(x=np.ones(2, complex)), TypeError, "the attribute 'x' has dtype complex128"),
        (lambda: call("k", out)(x=fnp.ones(2)), TypeError, "as positional arguments"),
        (lambda: call("k", out)(x=2**70), OverflowError, "the attribute 'x'"),
        (lambda: call("k", out, input_layouts=[])(MATRIX), ValueError, "must be a sequence of 1 layouts"),
        (lambda: call("k", out, input_layouts=[(0, 0)])(MATRIX), ValueError, "not a permutation of the axes"),
        (lambda: call("k", out, input_output_aliases={1: 0})(MATRIX), ValueError, "1 arguments and 1 results"),
        (lambda: call("k", out, input_output_aliases={0: 0})(MATRIX[0]), ValueError, "but argument 0 is"),
        (lambda: call("k", out)(MATRIX), fx.errors.CompilationError, "No FFI handler registered for k"),
        (lambda: kernel(fx, "fail", ())(MATRIX), fx.errors.ExecutionError, "the kernel refuses"),
        (lambda: kernel(fx, "affine", (2, 3))(MATRIX), fx.errors.ExecutionError, "Wrong number of attributes"),
        (lambda: untyped(fx.ffi.register_ffi_target)("k", print), TypeError, "must be a capsule"),
        (
            lambda: fx.ffi.register_ffi_target("k", capsule, "tpu"),
            ValueError,
            "platform must be",
        ),
        (
            lambda: fx.ffi.register_ffi_target("k", capsule, api_version=0),
            ValueError,
            "typed",
        ),
    )


def test_strings_are_escaped() -> None:
    assert mlir_attribute('"\\\né', "x") == '"\\22\\5C\\0A\\C3\\A9"'


def test_results_for_operands_sharded_over_explicit_axes_are_not_sharded() -> None:
    mesh = fx.make_mesh((2,), ("i",))
    x = fx.device_put(MATRIX, fx.NamedSharding(mesh, fx.P("i")))
    out = fx.jit(lambda x: affine(fx, x))(x)
    assert str(fx.typeof(out)) == "f32[2,3]"
    assert_same(out, 2 * fnp.asarray(MATRIX) + 3)
