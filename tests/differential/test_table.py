"""Tests that every public function has a record, and that the harness detects planted mistakes of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import unwrap
from types import FunctionType, ModuleType
from typing import Any, Final, Generic

import numpy as np
import pytest
from attrs import evolve

import tracefx as fx
import tracefx.nn
import tracefx.random
import tracefx.scipy.special
import tracefx.scipy.stats
from tests.differential import harness
from tests.differential.methods import RECORDS as METHODS
from tests.differential.records import (
    JAX,
    TRACEFX,
    Call,
    Mismatches,
    Record,
    Weak,
    arrays,
    call,
    grid,
    record,
    reference,
)
from tests.differential.table import RECORDS
from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array
from tracefx.core.array_reductions import ArrayReductions
from tracefx.core.handler import Tracer
from tracefx.core.indexed_updates import A
from tracefx.core.primitive import Primitive
from tracefx.lazy_stubs import exports
from tracefx.testing.tolerances import Ulps

# Public names that are not functions from arrays to arrays.
EXCLUDED_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "numpy": (
        *("bool", "cdouble", "complex_", "csingle", "double", "float4_e2m1fn", "float_", "int_", "single", "uint"),
        *("ComplexWarning", "character", "dtype", "flexible", "object_", "euler_gamma"),
        # in tests/numpy/test_array_api.py; `byteswap` and `view` equal the methods
        *("__array_api_version__", "__array_namespace_info__", "byteswap", "view"),
        *("ndarray", "at", "pi", "e", "inf", "nan", "newaxis"),
        # dtypes, abstract dtypes, and their properties
        *("bool_", "int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32"),
        *("uint64", "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "float8_e3m4"),
        *("float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "complexfloating", "floating", "generic", "inexact", "integer", "number", "signedinteger"),
        *("unsignedinteger", "finfo", "iinfo"),
        # input and output, in tests/numpy/test_interchange.py; NumPy objects
        *("from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter", "fromstring", "load", "save", "savez"),
        *("array_repr", "array_str", "get_printoptions", "printoptions", "set_printoptions", "index_exp", "s_"),
        # take a function, in tests/numpy/test_functions_of_functions.py
        *("mask_indices", "piecewise"),
        # in tests/numpy/test_universal.py
        *("ufunc", "frompyfunc", "vectorize", "apply_along_axis", "apply_over_axes"),
        # in tests/numpy/test_editing.py: needs concrete values, or returns no array
        *("trim_zeros", "einsum_path"),
    ),
    "lax": (
        # enumerations and tuples used as arguments
        *("RoundingMethod", "DotDimensionNumbers", "Precision", "PrecisionLike", "GatherDimensionNumbers"),
        *("ScatterDimensionNumbers", "GatherScatterMode", "FftType"),
        # random bits from a state, in tests/laws/samples/random.py
        *("rng_bit_generator", "RandomAlgorithm"),
        "random_gamma_grad",  # in tests/control/test_special_functions.py
        # in tests/ops/test_accuracy.py
        *("AccuracyMode", "Tolerance", "DotAlgorithm", "DotAlgorithmPreset"),
        # take a function and a name, or return nothing; both in tests/control/test_composite.py
        *("composite", "dce_sink"),
        *("ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "RaggedDotDimensionNumbers"),
        # along named axes, compared with JAX in tests/sharding/test_collectives.py
        *("pbroadcast", "pcast", "pshuffle", "pswapaxes", "ragged_all_to_all"),
    ),
    "lax.linalg": ("EigImplementation", "EighImplementation", "SvdAlgorithm"),
    # in tests/test_nn_layers.py, since JAX's need accelerators; `tanh` is numpy's
    "nn": ("scaled_dot_general", "scaled_matmul", "tanh"),
    # tested through `cholesky`; takes a function: in tests/scipy/test_linalg.py
    "scipy.linalg": ("cho_factor", "funm"),
    "image": ("ResizeMethod",),
    "scipy.integrate": ("odeint",),  # takes a function: in tests/scipy/test_integrate.py
    **dict.fromkeys(("ops", "numpy.fft", "numpy.linalg"), ()),
    **dict.fromkeys(
        [f"scipy.{name}" for name in ("cluster.vq", "fft", "interpolate", "ndimage", "signal", "special")],
        (),
    ),
}
# Array attributes that convert to Python or NumPy values, or are not supported.
EXCLUDED_ARRAY_ATTRIBUTES: Final = (
    *("aval", "at", "block_until_ready", "concrete_or_error", "item", "tolist", "tobytes", "device", "devices"),
    *("platform", "to_device", "addressable_data", "addressable_shards", "global_shards"),
    *("__array__", "__array_namespace__", "__array_priority__", "__bool__", "__complex__", "__dlpack__"),
    *("__dlpack_device__", "__float__", "__format__", "__hash__", "__index__", "__int__", "__setitem__"),
    *("__contains__", "__module__", "__doc__", "__slots__"),
)


def recorded() -> set[str]:
    return {name for record in RECORDS for name in (record.name, *record.also)}


def public_names(module: ModuleType) -> set[str]:
    """Returns the public names of a module, except modules and primitives."""
    return {
        name
        for name in module.__all__
        if not isinstance(value := getattr(module, name), ModuleType)
        and not (isinstance(value, type) and issubclass(value, Primitive))
    }


@pytest.mark.parametrize("name", EXCLUDED_NAMES)
def test_every_public_function_has_a_record(name: str) -> None:
    module = import_module(f"tracefx.{name}")
    public = public_names(module)
    excluded = set(EXCLUDED_NAMES[name])
    assert excluded <= public
    # control flow, which takes functions, is compared in tests/control
    functions = [f for f in public if isinstance(getattr(module, f), FunctionType)]
    excluded |= {f for f in functions if unwrap(getattr(module, f)).__module__.startswith("tracefx.transforms.")}
    assert {f for f in public - excluded if f"{name}.{f}" not in recorded()} == set()


def test_every_random_function_has_a_record() -> None:
    """Functions that create or describe keys are tested in tests/random/test_keys.py."""
    key_functions = {"PRNGKey", "key", "key_dtype", "key_impl", "wrap_key_data"}
    public = public_names(tracefx.random)
    assert {name for name in public - key_functions if f"random.{name}" not in recorded()} == set()


def test_every_initializer_has_a_record() -> None:
    room = tracefx.nn.initializers
    defined_here = [f for f in vars(room).values() if isinstance(f, FunctionType) and f.__module__ == room.__name__]
    public = {f.__name__ for f in defined_here if not f.__name__.startswith("_")}
    assert {name for name in public if f"nn.initializers.{name}" not in recorded()} == set()


def test_every_distribution_and_statistic_has_a_record() -> None:
    names = {name.split(".")[2] for name in recorded() if name.startswith("scipy.stats.")}
    assert set(exports("tracefx.scipy.stats")) - {"ModeResult"} == names


def test_every_method_and_operator_of_arrays_has_a_record() -> None:
    class Empty(Generic[A]):
        __slots__ = ()

    names = {*vars(Array), *vars(ArrayReductions)} - set(vars(Empty))
    public = {name for name in names if not name.startswith("_") or name.startswith("__")}
    assert {
        name for name in public - set(EXCLUDED_ARRAY_ATTRIBUTES) if f"numpy.ndarray.{name}" not in recorded()
    } == set()


def test_every_update_has_a_record() -> None:
    updates = {name for name in dir(tracefx.numpy.zeros(1).at[0]) if not name.startswith("_")}
    assert {name for name in updates - {"array", "index"} if f"numpy.at.{name}" not in recorded()} == set()


SPECIAL_FUNCTIONS: Final[Mapping[str, tuple[str, int]]] = {
    "igamma": ("gammainc", 2),
    "igammac": ("gammaincc", 2),
    "betainc": ("betainc", 3),
    "polygamma": ("polygamma", 2),
    "bessel_i0e": ("i0e", 1),
    "bessel_i1e": ("i1e", 1),
}
"""Functions of `tracefx.lax` with the programs of functions of `tracefx.scipy.special` of that many operands."""


def test_functions_compared_by_types_only_have_records_elsewhere() -> None:
    assert {record.name.removeprefix("lax.") for record in RECORDS if record.types_only} == set(SPECIAL_FUNCTIONS)
    for name, (other, count) in SPECIAL_FUNCTIONS.items():
        operands = [np.array([0.25, 0.5], np.float32)] * count
        functions = (getattr(lax, name), getattr(tracefx.scipy.special, other))
        assert len({str(fx.make_jaxpr(f)(*operands)) for f in functions}) == 1, name


# The functions of operators and of properties with other names.
FUNCTIONS_OF_METHODS: Final = dict(
    (
        *(("sub", "subtract"), ("mul", "multiply"), ("truediv", "true_divide"), ("floordiv", "floor_divide")),
        *(("mod", "remainder"), ("pow", "power"), ("and", "bitwise_and"), ("or", "bitwise_or")),
        *(("xor", "bitwise_xor"), ("lshift", "left_shift"), ("rshift", "right_shift"), ("eq", "equal")),
        *(("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")),
        *(("neg", "negative"), ("pos", "positive"), ("T", "transpose"), ("mT", "matrix_transpose")),
    )
)
# Arguments that the function takes in another form; `round` of Python returns integers.
OTHER_FORMS: Final = ("(float32[2, 3], 3, 2)", "(float32[2, 3], 1, 0)", "(float32[2, 3], [True, False], 0, size=1)")


@pytest.mark.parametrize("method", [r for r in METHODS if not (r.is_plain or r.derivatives)], ids=lambda r: r.name)
def test_methods_have_the_programs_of_functions(method: Record) -> None:
    attribute = method.name.removeprefix("numpy.ndarray.")
    word = attribute.strip("_")
    is_reflected = attribute.startswith("__r") and word not in ("round", "rshift")
    word = word.removeprefix("r") if is_reflected else word
    function = getattr(fnp, FUNCTIONS_OF_METHODS.get(word, word))
    for each in [c for c in method.calls if str(c) not in OTHER_FORMS and attribute != "__round__"]:

        def program(f: Callable[..., Any], each: Call = each) -> str:
            return str(fx.make_jaxpr(lambda *xs: each.of(f, xs))(*arrays(TRACEFX, each)))

        expected = program((lambda x, y: function(y, x)) if is_reflected else function)
        assert program(method.via(TRACEFX)) == expected, each


# ------------------------------------------------------------------ planted mistakes

SINE: Final = record(
    "sin",
    call(grid(3)),
    call(Weak(grid(2))),
    refused=[call("a")],
    dtypes=("float64", "int32"),
    reference=reference(np.sin, Ulps(4, 4), call(grid(3)), values=[call(grid(3))]),
)


def record_with_mistake(wrong: Callable[..., Any]) -> Record:
    """Returns the record of `sin` in which `wrong` takes the place of tracefx's function."""
    return evolve(SINE, via=lambda library: JAX.numpy.sin if library is JAX else wrong)


def wrong_when_traced(x: Any) -> Any:
    """Right when evaluated eagerly, wrong for tracers."""
    return fnp.sin(x) * 2 if isinstance(x, Tracer) else fnp.sin(x)


def wrong_second_derivative(x: Any) -> Any:
    """Right in value and first derivative, wrong in the second derivative."""
    stopped = lax.stop_gradient(x)
    return fnp.sin(stopped) + lax.stop_gradient(fnp.cos(x)) * (x - stopped)


def wrong_error_class(x: Any) -> Any:
    if isinstance(x, str):
        raise KeyError(x)
    return fnp.sin(x)


MISTAKES: Final[tuple[tuple[str, Callable[..., Any], Callable[[Record], Mismatches]], ...]] = (
    ("value", lambda x: fnp.sin(x) * 1.001, harness.values),
    ("value", lambda x: [fnp.sin(x)], harness.values),
    ("value (weak float32[2]): weak_type False", lambda x: fnp.sin(x).astype("float32"), harness.values),
    ("value all int32", lambda x: fnp.sin(x).astype("float16") if x.dtype == "int32" else fnp.sin(x), harness.values),
    ("compiled", wrong_when_traced, harness.values),
    ("error", wrong_error_class, harness.refusals),
    ("error", lambda x: x if isinstance(x, str) else fnp.sin(x), harness.refusals),
    ("jvp", lambda x: lax.stop_gradient(fnp.sin(x)), harness.derivatives),
    ("grad", lambda x: lax.stop_gradient(fnp.sin(x)), harness.derivatives),
    ("second", wrong_second_derivative, harness.derivatives),
    ("vmap", wrong_when_traced, harness.batches),
    ("value of reference float64", lambda x: fnp.sin(x.astype("float32")).astype(x.dtype), harness.values),
    ("value of reference float32", lambda x: fnp.sin(x) * (1 + 1e-6), harness.values),
    ("jvp of reference", lambda x: lax.stop_gradient(fnp.sin(x)), harness.derivatives),
    ("vmap (float64", wrong_when_traced, harness.batches),
)


@pytest.mark.parametrize(("prefix", "wrong", "find"), MISTAKES, ids=range(len(MISTAKES)))
def test_harness_detects_planted_mistake(
    prefix: str, wrong: Callable[..., Any], find: Callable[[Record], Mismatches]
) -> None:
    assert any(each.startswith(prefix) for each in find(record_with_mistake(wrong)))


def test_harness_accepts_correct_function() -> None:
    aspects = (harness.values, harness.types, harness.refusals, harness.derivatives, harness.batches)
    assert [find(SINE) for find in aspects] == [[]] * len(aspects)
    assert harness.derivatives(record_with_mistake(wrong_second_derivative)) != []
    assert not [
        each
        for each in harness.derivatives(record_with_mistake(wrong_second_derivative))
        if each.startswith(("jvp", "grad"))
    ]
