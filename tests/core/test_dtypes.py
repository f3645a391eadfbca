"""Dtypes, compared with JAX's names and limits, and the settings that determine the default dtypes."""

# Some functions of jax and ml_dtypes are unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

import contextvars
import pickle
import subprocess
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax._src import core as jax_core
from jax._src import dtypes as jax_dtypes

import tracefx as fx
from tests.subprocesses import run_python
from tracefx.core import DType, dtypes
from tracefx.core.dtypes import DTypeKind, as_dtype
from tracefx.settings import DISABLE_JIT, X64, Setting, disable_jit, enable_x64, parse_bool

jax.config.update("jax_explicit_x64_dtypes", "allow")

NUMBERS: Final = tuple(d for d in dtypes.ALL_DTYPES if d != dtypes.float0)
# Dtypes of JAX that StableHLO lacks, or that are not used for computation.
LEFT_TO_JAX: Final = {"int1", "uint1", "float6_e2m3fn", "float6_e3m2fn", "StringDType128"}


def _name(dtype: DType) -> str:
    return dtypes.short_name(dtype)


# ------------------------------------------------------------------ names and kinds


def test_dtypes_match_jax() -> None:
    jaxs = {d for d in map(np.dtype, jax_dtypes._jax_dtype_set) if d.name not in LEFT_TO_JAX}
    assert jaxs == set(dtypes.ALL_DTYPES)


def test_float0_matches_jax() -> None:
    assert dtypes.float0 == jax.dtypes.float0
    assert hash(dtypes.float0) == hash(jax.dtypes.float0)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_type_of_key_dtypes(impl: str) -> None:
    keys, jax_keys = fx.random.split(fx.random.key(0, impl=impl), 4), jax.random.split(jax.random.key(0, impl=impl), 4)
    assert jax_keys.dtype.type is jax.dtypes.prng_key
    assert keys.dtype.type is fx.dtypes.prng_key
    assert keys.dtype.type.__name__ == jax_keys.dtype.type.__name__
    for moved in (keys.reshape(2, 2)[0], fx.jit(lambda k: k[::2])(keys), fx.vmap(lambda k: k)(keys)):
        assert moved.dtype.type is fx.dtypes.prng_key
    assert fx.dtypes.issubdtype(keys.dtype, fx.dtypes.prng_key)
    restored = pickle.loads(pickle.dumps(keys))
    assert restored.dtype.type is fx.dtypes.prng_key


@pytest.mark.parametrize("dtype", dtypes.ALL_DTYPES, ids=_name)
def test_short_name(dtype: DType) -> None:
    printed = jax_core.ShapedArray((), dtype).str_short(short_dtypes=True)
    assert dtypes.short_name(dtype) + "[]" == printed
    assert dtypes.from_short_name(dtypes.short_name(dtype)) is dtype


def test_from_short_name_of_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="'float32' names no dtype; the short names are bool, i2"):
        dtypes.from_short_name("float32")


@pytest.mark.parametrize("dtype", NUMBERS, ids=_name)
def test_predicates_and_bits(dtype: DType) -> None:
    def is_subdtype(abstract: Any) -> bool:
        return bool(jnp.issubdtype(dtype, abstract))

    assert dtypes.is_bool(dtype) == is_subdtype(np.bool_)
    assert dtypes.is_integer(dtype) == is_subdtype(np.integer)
    assert dtypes.is_signed(dtype) == is_subdtype(np.signedinteger)
    assert dtypes.is_float(dtype) == is_subdtype(np.floating)
    assert dtypes.is_complex(dtype) == is_subdtype(np.complexfloating)
    assert dtypes.is_inexact(dtype) == is_subdtype(np.inexact)
    assert dtypes.itemsize_bits(dtype) == jax_dtypes.itemsize_bits(dtype)
    assert dtypes.tangent_dtype(dtype) == jax_core.primal_dtype_to_tangent_dtype(dtype)


@pytest.mark.parametrize(
    ("kind", "predicate"),
    [
        (DTypeKind.BOOL, dtypes.is_bool),
        (DTypeKind.SIGNED, dtypes.is_signed),
        (DTypeKind.UNSIGNED, lambda d: dtypes.is_integer(d) and not dtypes.is_signed(d)),
        (DTypeKind.FLOAT, dtypes.is_float),
        (DTypeKind.COMPLEX, dtypes.is_complex),
        (DTypeKind.FLOAT0, lambda d: d == dtypes.float0),
    ],
)
def test_kind_agrees_with_the_predicates(kind: DTypeKind, predicate: Callable[[DType], bool]) -> None:
    assert {d for d in dtypes.ALL_DTYPES if dtypes.kind(d) is kind} == {d for d in dtypes.ALL_DTYPES if predicate(d)}


def test_predicates_and_bits_of_float0() -> None:
    assert not dtypes.is_inexact(dtypes.float0)
    assert not dtypes.is_integer(dtypes.float0)
    assert dtypes.itemsize_bits(dtypes.float0) == 0
    assert dtypes.tangent_dtype(dtypes.float0) == dtypes.float0


@pytest.mark.parametrize("dtype", NUMBERS, ids=_name)
def test_finfo_and_iinfo(dtype: DType) -> None:
    if dtypes.is_inexact(dtype):
        for limit in ("bits", "eps", "max", "min", "tiny"):
            assert getattr(dtypes.finfo(dtype), limit) == getattr(jnp.finfo(dtype), limit)
    elif dtypes.is_integer(dtype):
        for limit in ("bits", "max", "min"):
            assert getattr(dtypes.iinfo(dtype), limit) == getattr(jnp.iinfo(dtype), limit)
    if not dtypes.is_inexact(dtype):
        with pytest.raises(TypeError, match=f"finfo .* got {dtype}"):
            dtypes.finfo(dtype)
    if not dtypes.is_integer(dtype):
        with pytest.raises(TypeError, match=f"iinfo .* got {dtype}"):
            dtypes.iinfo(dtype)


def test_real_dtype() -> None:
    for dtype in NUMBERS:
        expected = np.zeros((), dtype).real.dtype if dtypes.is_complex(dtype) else dtype
        assert dtypes.real_dtype(dtype) == expected


@pytest.mark.parametrize(
    "function",
    [
        *(dtypes.short_name, dtypes.kind, dtypes.itemsize_bits, dtypes.tangent_dtype, dtypes.real_dtype),
        *(dtypes.finfo, dtypes.iinfo),
    ],
)
def test_unsupported_dtypes_raise(function: Callable[[DType], object]) -> None:
    with pytest.raises(TypeError, match="complex32"):
        function(np.dtype(ml_dtypes.complex32))


# ------------------------------------------------------------------ as_dtype


@pytest.mark.parametrize("dtype", NUMBERS, ids=_name)
def test_as_dtype_of_each_spelling(dtype: DType) -> None:
    for spelling in (dtype, dtype.type, dtype.name, getattr(jnp, dtype.name)):
        assert as_dtype(spelling) is dtype


@pytest.mark.parametrize("x", ["f4", "<f8", "int", "longlong", np.longlong, np.dtype("f4", metadata={"unit": "m"})])
def test_as_dtype_canonicalizes_numpy_spellings(x: Any) -> None:
    assert any(as_dtype(x) is dtype for dtype in NUMBERS)
    assert as_dtype(x) == np.dtype(x)


@pytest.mark.parametrize("scalar", [bool, int, float, complex])
@pytest.mark.parametrize("x64", [False, True])
def test_python_types_convert_to_the_default_dtypes(scalar: type[complex], x64: bool) -> None:
    with enable_x64(x64), jax.enable_x64(x64):
        assert as_dtype(scalar) == dtypes.scalar_dtype(scalar) == jax.dtypes.result_type(scalar)


@pytest.mark.parametrize("x64", [False, True])
def test_defaults_and_narrowing(x64: bool) -> None:
    with enable_x64(x64), jax.enable_x64(x64):
        assert dtypes.default_int() == jax_dtypes.default_int_dtype()
        assert dtypes.default_uint() == jax_dtypes.default_uint_dtype()
        assert dtypes.default_float() == jax_dtypes.default_float_dtype()
        assert dtypes.default_complex() == jax_dtypes.default_complex_dtype()
        for dtype in dtypes.ALL_DTYPES:
            assert dtypes.canonicalize(dtype) == jax.dtypes.canonicalize_dtype(dtype)
            assert as_dtype(dtype) is dtype


@pytest.mark.parametrize(
    "x",
    [
        *(None, 3, 1.5, str, object, list, "datetime64[s]", "U5", "no such dtype", np.dtype([("x", np.float32)])),
        *({"names": ["x"], "formats": ["f4"]}, [("x", "f4")], np.dtype(("f4", (2,))), np.void, np.floating),
        *(np.longdouble, ml_dtypes.complex32, np.zeros(2, np.float32)),
    ],
    ids=repr,
)
def test_as_dtype_rejects_unsupported_types(x: Any) -> None:
    with pytest.raises(TypeError, match=r"out_dtype=.*Supported are bool, int2, .*float0"):
        as_dtype(x, "out_dtype")


def test_as_dtype_error_suggests_a_dtype() -> None:
    with pytest.raises(TypeError, match="Write 'bfloat16'"):
        as_dtype("bf16")
    swapped = np.dtype("f4").newbyteorder()
    with pytest.raises(TypeError, match=r"astype\('float32'\)"):
        as_dtype(swapped)


def test_scalar_dtype_accepts_only_python_types() -> None:
    with pytest.raises(TypeError, match="float64"):
        dtypes.scalar_dtype(np.float64)


# ------------------------------------------------------------------ settings


def x64() -> bool:
    """Reads the setting. A function, since type checkers narrow a property after an assertion."""
    return X64.value


def jit_disabled() -> bool:
    return DISABLE_JIT.value


def test_overrides_nest_and_restore() -> None:
    assert not x64()
    with enable_x64():
        assert x64()
        with enable_x64(False):
            assert not x64()
            with enable_x64():
                assert x64()
            assert not x64()
        assert x64()
    assert not x64()
    with disable_jit():
        assert jit_disabled()
        assert not x64()
    assert not jit_disabled()


def test_exception_restores_the_setting() -> None:
    with pytest.raises(KeyError), enable_x64():
        raise KeyError
    assert not x64()


def test_exit_out_of_order_keeps_the_inner_override() -> None:
    outer, inner = enable_x64(), enable_x64(False)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert not x64()
    inner.__exit__(None, None, None)
    assert not x64()


def test_exit_twice_or_without_enter_raises() -> None:
    override = enable_x64()
    with pytest.raises(RuntimeError, match="is not active"):
        override.__exit__(None, None, None)
    with override:
        pass
    with pytest.raises(RuntimeError, match="is not active"):
        override.__exit__(None, None, None)
    assert not x64()


def test_override_is_reusable_but_not_reentrant() -> None:
    override = enable_x64()
    for _ in range(2):
        with override:
            with pytest.raises(RuntimeError, match="already active"):
                override.__enter__()
            assert x64()
        assert not x64()


def test_suspended_generators_with_overrides_are_independent() -> None:
    def inside() -> Generator[bool]:
        with enable_x64(False):
            yield x64()

    def run() -> None:
        generator = inside()
        assert not next(generator)
        with enable_x64():
            generator.close()
            assert x64()
        assert not x64()

    contextvars.copy_context().run(run)
    assert not x64()


def test_threads_have_independent_settings() -> None:
    seen: dict[str, bool] = {}
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        seen["start"] = x64()
        with disable_jit():
            entered.set()
            leave.wait(10)
            seen["own"] = jit_disabled()

    with enable_x64():
        thread = threading.Thread(target=run)
        thread.start()
        assert entered.wait(10)
        assert not jit_disabled()
        leave.set()
        thread.join()
    assert seen == {"start": False, "own": True}


def test_copied_context_sees_the_override_and_can_exit_it() -> None:
    override = enable_x64()
    override.__enter__()
    context = contextvars.copy_context()
    assert context.run(x64)
    context.run(override.__exit__, None, None, None)
    assert not context.run(x64)
    assert not x64()


def test_setting_without_with_warns() -> None:
    """A call as a statement would otherwise leave the setting as it was, without a word."""
    message = r"^a call of enable_x64 had no effect: write `with enable_x64\(...\):` .* set TRACEFX_ENABLE_X64 in"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        enable_x64()
    assert caught[0].filename == __file__
    assert not x64()
    with pytest.warns(RuntimeWarning, match=r"^a call of set_mesh had no effect: .* meant for$"):
        fx.set_mesh(fx.make_mesh((1,), ("x",)))


@pytest.mark.parametrize("bad", [1, None, "on", np.True_])
def test_setting_helpers_require_bools(bad: Any) -> None:
    with pytest.raises(TypeError, match="enable_x64 takes True or False"):
        enable_x64(bad)
    with pytest.raises(TypeError, match="disable_jit takes True or False"):
        disable_jit(bad)


def test_setting_reads_its_environment_variable_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEFX_TEST_SETTING", "12")
    setting = Setting("test", 3, "TRACEFX_TEST_SETTING", int)
    monkeypatch.setenv("TRACEFX_TEST_SETTING", "13")
    assert setting.value == 12
    with setting.override(4):
        assert setting.value == 4
    assert setting.value == 12
    monkeypatch.delenv("TRACEFX_TEST_SETTING")
    assert Setting("test", 3, "TRACEFX_TEST_SETTING", int).value == 3


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("yes", True), (" on ", True), ("0", False), ("False", False)]
)
def test_parse_bool(text: str, value: bool) -> None:
    assert parse_bool(text) is value


def _run_with_variable(variable: str, text: str) -> subprocess.CompletedProcess[str]:
    program = (
        "from tracefx import settings; from tracefx.core import dtypes;"
        "print(dtypes.default_float(), settings.X64.value, settings.DISABLE_JIT.value)"
    )
    return run_python("-c", program, **{variable: text})


@pytest.mark.parametrize(
    ("variable", "text", "printed"),
    [
        ("TRACEFX_ENABLE_X64", "1", "float64 True False"),
        ("TRACEFX_ENABLE_X64", "off", "float32 False False"),
        ("TRACEFX_DISABLE_JIT", "true", "float32 False True"),
    ],
)
def test_environment_sets_the_default(variable: str, text: str, printed: str) -> None:
    result = _run_with_variable(variable, text)
    assert result.stdout.strip() == printed, result.stderr


def test_invalid_environment_variable_raises() -> None:
    result = _run_with_variable("TRACEFX_ENABLE_X64", "maybe")
    assert result.returncode != 0
    assert (
        "ValueError: environment variable TRACEFX_ENABLE_X64='maybe': allowed are 1, true, yes, on, 0" in result.stderr
    )
