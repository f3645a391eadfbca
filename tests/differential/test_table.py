"""Every public function has a record, and the harness finds what is wrong."""

from __future__ import annotations

from typing import Final

import pytest

import tracefx.lax
import tracefx.nn
import tracefx.numpy
from tests.differential.table import RECORDS
from tracefx.core.array import Array

MODULES: Final = {"numpy": tracefx.numpy, "lax": tracefx.lax, "nn": tracefx.nn}
# What isn't a function from arrays to arrays, with what it is.
OTHERS: Final = {
    "numpy": (
        *("ndarray", "at", "pi", "e", "inf", "nan", "newaxis"),
        # dtypes and kinds of dtypes, and what they are asked
        *("bool_", "int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32"),
        *("uint64", "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "float8_e3m4"),
        *("float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "complexfloating", "floating", "generic", "inexact", "integer", "number", "signedinteger"),
        *("unsignedinteger", "finfo", "iinfo"),
    ),
    "lax": (
        # enumerations and tuples that are arguments
        *("RoundingMethod", "DotDimensionNumbers", "Precision", "PrecisionLike", "GatherDimensionNumbers"),
        *("ScatterDimensionNumbers", "GatherScatterMode"),
        # control flow, which takes functions: tests/control
        *("cond", "switch", "scan", "map", "fori_loop", "while_loop"),
    ),
    "nn": (),
}
# Of arrays: what hands the numbers to Python and NumPy, and what must not be done.
OF_ARRAYS: Final = (
    *("aval", "at", "block_until_ready", "concrete", "item", "tolist"),
    *("__array__", "__array_namespace__", "__array_priority__", "__bool__", "__complex__", "__dlpack__"),
    *(
        "__dlpack_device__",
        "__float__",
        "__format__",
        "__hash__",
        "__index__",
        "__int__",
        "__setitem__",
        "__contains__",
    ),
    *("__module__", "__doc__", "__slots__"),
)


def recorded() -> set[str]:
    return {name for record in RECORDS for name in (record.name, *record.also)}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_function_has_a_record(module: str) -> None:
    public: set[str] = set(MODULES[module].__all__)
    others = set(OTHERS[module])
    assert others <= public
    assert {name for name in public - others if f"{module}.{name}" not in recorded()} == set()


def test_every_method_and_operator_of_arrays_has_a_record() -> None:
    public = {name for name in vars(Array) if not name.startswith("_") or name.startswith("__")}
    assert {name for name in public - set(OF_ARRAYS) if f"numpy.ndarray.{name}" not in recorded()} == set()


def test_every_update_has_a_record() -> None:
    updates = {name for name in dir(tracefx.numpy.zeros(1).at[0]) if not name.startswith("_")}
    assert {name for name in updates - {"array", "index"} if f"numpy.at.{name}" not in recorded()} == set()
