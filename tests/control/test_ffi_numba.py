"""`tracefx.ffi` with a kernel that numba compiles: XLA's typed interface, without a C++ compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.laws.examples import is_long_profile

pytestmark = pytest.mark.skipif(not is_long_profile(), reason="`make slow` imports numba, which takes seconds")
NAME: Final = "tracefx_test_numba_softplus"
# Positions in the structures of jaxlib/include/xla/ffi/api/c_api.h, in words of 8 bytes.
EXTENSION, OPERANDS, RESULTS = 1, 9, 14  # in XLA_FFI_CallFrame: the first extension, and the buffers in args and rets
METADATA, VERSION = 3, 3  # in XLA_FFI_Metadata_Extension, and in XLA_FFI_Metadata
DATA, RANK, DIMENSIONS = 3, 4, 5  # in XLA_FFI_Buffer


def api_version() -> int:
    """Returns the two numbers of the version of XLA's interface, as they are in the memory of XLA_FFI_Metadata."""
    header = (Path(fx.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    major, minor = [int(re.findall(rf"#define XLA_FFI_API_{part} (\d+)", header)[0]) for part in ("MAJOR", "MINOR")]
    return minor << 32 | major


def compiled_kernel(numba: Any) -> Any:
    """Returns a kernel of XLA's interface as a function pointer: `log(1 + exp(x))` for f32 arrays of any shape."""
    words, floats = numba.types.CPointer(numba.uint64), numba.types.CPointer(numba.float32)

    def pointer_to(kind: Any) -> Any:
        """Returns a function that converts an address to a pointer."""

        @numba.extending.intrinsic  # type: ignore[untyped-decorator]  # numba has no types
        def convert(typing_context: Any, address: Any) -> Any:
            def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

            return kind(numba.uint64), emit

        return convert

    as_words, as_floats, version = pointer_to(words), pointer_to(floats), api_version()

    @numba.cfunc(numba.uint64(words))  # type: ignore[untyped-decorator]  # numba has no types
    def kernel(frame: Any) -> int:
        if frame[EXTENSION] != 0:  # XLA asks for the version when the kernel is registered
            as_words(as_words(frame[EXTENSION])[METADATA])[VERSION] = version
            return 0
        operand = as_words(as_words(frame[OPERANDS])[0])
        result = as_words(as_words(frame[RESULTS])[0])
        x, y = as_floats(operand[DATA]), as_floats(result[DATA])
        dimensions, size = as_words(operand[DIMENSIONS]), 1
        for i in range(operand[RANK]):
            size *= dimensions[i]
        for i in range(size):
            y[i] = np.log1p(np.exp(x[i]))
        return 0  # no error

    return kernel


@pytest.fixture(scope="module")
def kernel() -> Any:
    """The kernel, which owns the compiled code and lives until the tests have run."""
    return compiled_kernel(pytest.importorskip("numba", reason="numba is not installed"))


@pytest.fixture(scope="module")
def softplus(kernel: Any) -> Callable[[Any], Any]:
    fx.ffi.register_ffi_target(NAME, fx.ffi.pycapsule(kernel.ctypes))

    @fx.custom_jvp
    def call(x: Any) -> Any:
        result = fx.ShapeDtypeStruct(x.shape, x.dtype)
        return fx.ffi.ffi_call(NAME, result, vmap_method="broadcast_all")(x)

    call.defjvp(lambda primals, tangents: (call(*primals), fx.nn.sigmoid(primals[0]) * tangents[0]))
    return call


X: Final = np.linspace(-3, 3, 6).astype(np.float32).reshape(2, 3)


def test_values(softplus: Callable[[Any], Any]) -> None:
    for wrap in (lambda f: f, fx.jit):
        assert_near(wrap(softplus)(fnp.asarray(X)), fnp.log1p(fnp.exp(X)))


def test_batches_and_loops(softplus: Callable[[Any], Any]) -> None:
    whole = softplus(fnp.asarray(X))
    assert_same(fx.vmap(softplus)(fnp.asarray(X)), whole)
    assert_same(fx.jit(fx.vmap(fx.vmap(softplus), in_axes=1, out_axes=1))(X), whole)
    twice = fx.lax.fori_loop(0, 2, lambda i, x: softplus(x), fnp.asarray(X))
    assert_same(twice, softplus(whole))


def test_derivatives(softplus: Callable[[Any], Any]) -> None:
    slopes = fx.jit(fx.grad(lambda x: fnp.sum(softplus(x))))(X)
    assert_near(slopes, fx.nn.sigmoid(X))
