"""Records of array methods, properties and operators: their values, types and errors.

Most have the programs of functions of `tracefx.numpy`, as a test in test_table.py checks: the records of the functions
compare derivatives and batches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from tests.differential.records import (
    Call,
    Function,
    Library,
    Record,
    StaticArgument,
    Weak,
    bools,
    c_grid,
    call,
    f32,
    grid,
    i32,
    record,
)
from tracefx.testing.tolerances import EXACT, PROGRAM, SUMMED, ULPS, Ulps

X: Final = grid(2, 3, low=0.3)
Y: Final = grid(2, 3, low=0.3, seed=1)
FEW: Final = ("bool", "int32", "bfloat16", "complex64")
values_only: Final = partial(record, derivatives=False, batched=False)


def method(name: str, *calls: Call, ulps: Ulps = EXACT, refused: tuple[Call, ...] = (), **kw: Any) -> Record:
    def method_function(_: Library) -> Function:
        return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)

    kw.setdefault("dtypes", FEW)
    return values_only(f"ndarray.{name}", *calls, via=method_function, ulps=ulps, refused=refused, **kw)


def attribute(name: str, *calls: Call, is_plain: bool = False) -> Record:
    def get(_: Library) -> Function:
        return lambda x: getattr(x, name)

    return values_only(f"ndarray.{name}", *calls, via=get, ulps=EXACT, is_plain=is_plain, dtypes=FEW)


def operation(name: str, f: Function, *calls: Call, ulps: Ulps = EXACT, **kw: Any) -> Record:
    return values_only(f"ndarray.{name}", *calls, via=lambda _: f, ulps=ulps, dtypes=FEW, **kw)


def reflected(f: Callable[[Any, Any], Any]) -> Function:
    return lambda x, y: f(y, x)


OTHERS: Final = (
    *(call(X, 2), call(X, 1.5), call(X, np.float32(0.5))),
    *[call(X, StaticArgument(y)) for y in (np.array([1.0, 2.0, 3.0]), np.arange(1, 4))],
)
"""Calls with Python, NumPy and array operands on one side."""


def number(name: str, f: Callable[[Any, Any], Any], ulps: Ulps = EXACT) -> tuple[Record, Record]:
    """Records of an operator and its reflected form."""
    calls = (call(X, Y), call(X, 2), call(X, 1.5), call(Weak(X), Y[0]))
    refused = (call(X, "a"), call(X, None), call(X, [1.0, 2.0, 3.0]), call(X, f32(1, 2)))
    values = (call(i32(5, -3), 2), *OTHERS, call(f32(1, 2), np.array([3.0, 4.0])), call(f32(), 1.0))
    return (
        operation(f"__{name}__", f, *calls, values=values, refused=refused, ulps=ulps),
        operation(f"__r{name}__", reflected(f), *OTHERS, refused=refused[:3], ulps=ulps),
    )


def bits(name: str, f: Callable[[Any, Any], Any]) -> tuple[Record, Record]:
    x = i32(5, 2, -3)
    others = (call(x, 2), call(x, np.int32(1)), call(x, StaticArgument(np.arange(3))))
    refused = (call(x, 1.5), call(x, "a"), call(X, 1))
    return (
        operation(f"__{name}__", f, call(x, i32(1, 0, 2)), *others, refused=refused),
        operation(f"__r{name}__", reflected(f), *others, refused=refused),
    )


def comparison(name: str, f: Callable[[Any, Any], Any]) -> Record:
    values = [call(f32(1, np.nan), f32(1, np.nan)), call(i32(1, 2), 1.5), *OTHERS]
    return operation(f"__{name}__", f, call(X, Y), call(X, 1), values=values)


def protocol_function(name: str, f: Function, *calls: Call, **kw: Any) -> Record:
    return operation(f"__{name}__", f, *calls, **kw)


def iterate(x: Any, dtype: Any = None) -> Any:
    """Returns the elements by iteration."""
    return list(x)


OVER: Final = (call(X), call(X, 1), call(X, axis=0, keepdims=True))

RECORDS: Final[tuple[Record, ...]] = (
    *number("add", operator.add),
    *number("sub", operator.sub),
    *number("mul", operator.mul, ULPS["mul"]),
    *number("truediv", operator.truediv, ULPS["div"]),
    *number("floordiv", operator.floordiv),
    *number("mod", operator.mod),
    *number("pow", operator.pow, ULPS["pow"]),
    *number("divmod", divmod),
    *bits("and", operator.and_),
    *bits("or", operator.or_),
    *bits("xor", operator.xor),
    *bits("lshift", operator.lshift),
    *bits("rshift", operator.rshift),
    *[comparison(name, getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    operation(
        "__matmul__", operator.matmul, call(X, Y.T), call(X, Y[0]), refused=(call(X, Y), call(X, 2.0)), ulps=SUMMED
    ),
    operation("__rmatmul__", reflected(operator.matmul), call(X, np.ones((3, 2), np.float32)), ulps=SUMMED),
    protocol_function("neg", operator.neg, call(X), refused=[call(bools(True))]),
    protocol_function("pos", operator.pos, call(X)),
    protocol_function("abs", abs, call(X), call(i32(-1, 2)), ulps=Ulps(1, 1, 1)),  # XLA's complex `abs` is one ulp off
    protocol_function("invert", operator.inv, call(i32(5, -3)), call(bools(True)), refused=[call(X)]),
    protocol_function("round", round, call(X), call(X, 1), ulps=ULPS["div"]),
    protocol_function("iter", iterate, call(X), call(X[0]), refused=[call(grid())], derivatives=True, batched=True),
    protocol_function(
        "getitem",
        operator.getitem,
        call(X, 1),
        call(X, slice(None, 1)),
        call(X, (0, 1)),
        call(X, i32(1, 0)),
        refused=[call(X, "a"), call(X, 1.5)],
        derivatives=True,
        batched=True,
    ),
    protocol_function("len", len, call(X), refused=[call(grid())], is_plain=True),
    attribute("T", call(X)),
    attribute("mT", call(X)),
    attribute("real", call(X), call(c_grid(2))),
    attribute("imag", call(X), call(c_grid(2))),
    attribute("shape", call(X), is_plain=True),
    attribute("dtype", call(X), is_plain=True),
    attribute("ndim", call(X), is_plain=True),
    attribute("size", call(X), is_plain=True),
    attribute("itemsize", call(X), is_plain=True),
    attribute("nbytes", call(X), is_plain=True),
    attribute("weak_type", call(X), call(Weak(X)), is_plain=True),
    method(
        "byteswap",
        values=(call(X), call(np.arange(3, dtype=np.int16)), call(np.arange(3, dtype=np.uint8)), call(bools(True))),
        dtypes=(),
    ),
    method(
        "view",
        values=(
            call(X, "int32"),
            call(grid(2, 4), "float64"),
            call(X, "int8"),
            call(c_grid(2), "float32"),
            call(grid(2, 4), "complex64"),
            call(bools(True, False), "int8"),
            call(np.arange(3, dtype=np.int8), "bool"),
            call(X),
        ),
        refused=(call(f32(1)[0], "int16"), call(grid(3), "float64"), call(X, "no")),
        dtypes=(),
    ),
    method(
        "choose",
        values=(call(i32(1, 0, 9), [f32(1, 2, 3), 4.5], mode="clip"),),
        refused=(call(X, [X]),),
        dtypes=(),
    ),
    method(
        "astype",
        call(X, "float64"),
        call(X, "bfloat16"),
        values=(call(X, "int8"), call(X, bool)),
        refused=(call(X, "other"),),
    ),
    method("conj", call(X), call(c_grid(2))),
    method("reshape", call(X, 3, 2), call(X, (3, -1)), call(X, -1), refused=(call(X, 4, 2), call(X, "a"))),
    method("transpose", call(X), call(X, 1, 0), call(X, (1, 0)), refused=(call(X, 0, 0), call(X, 0))),
    method("ravel", call(X)),
    method("flatten", call(X), derivatives=True, batched=True),
    method("squeeze", call(X[:1]), call(X[:1], 0), refused=(call(X, 0),)),
    method("swapaxes", call(X, 0, 1), refused=(call(X, 0, 2),)),
    method("dot", call(X, Y.T), call(X, Y[0]), refused=(call(X, Y), call(X, "a")), ulps=SUMMED),
    method("clip", call(X, 0.4, 1.4), call(X, min=0.6), call(X, max=Y), refused=(call(X, "a"),)),
    method("round", call(X), call(X, 1), ulps=ULPS["div"]),
    method("sum", *OVER, values=(call(X, dtype="float64"),), refused=(call(X, 2),), ulps=SUMMED),
    method("prod", *OVER, values=(call(X, dtype="float64"),), refused=(call(X, 2),), ulps=SUMMED),
    method("mean", *OVER, values=(call(X, dtype="float64"),), refused=(call(X, 2),), ulps=SUMMED),
    method("var", *OVER, call(X, ddof=1), refused=(call(X, 2),), ulps=PROGRAM),
    method("std", *OVER, call(X, ddof=1), refused=(call(X, 2),), ulps=PROGRAM),
    *[method(name, *OVER, refused=(call(X, 2),)) for name in ("max", "min", "all", "any")],
    # In JAX, compiling these in 64 bits fails unless x64 is enabled.
    *[method(name, *OVER, refused=(call(X, 2),), dtypes=("int32", "bfloat16")) for name in ("argmax", "argmin")],
    method("conjugate", call(X), call(c_grid(2))),
    method("copy", call(X)),
    method("cumsum", call(X, 1), call(X), refused=(call(X, 2),), ulps=ULPS["cumsum"]),
    method("cumprod", call(X, 1), call(X), refused=(call(X, 2),), ulps=ULPS["cumprod"]),
    method("sort", call(X), call(X, 0, descending=True), refused=(call(X, 2),)),
    method("argsort", call(X), call(X, None, descending=True), refused=(call(X, 2),)),
    method("argpartition", call(X, 1), call(X, 0, 0), refused=(call(X, 3),), dtypes=("int32", "bfloat16")),
    method("searchsorted", call(np.sort(X[0]), Y), call(np.sort(X[0]), Y, "right"), refused=(call(X, Y),)),
    method("nonzero", call(X, size=4), call(X, size=7, fill_value=-1), refused=(call(X, size=-1),)),
    method("compress", call(X, bools(True, False), 0, size=1), refused=(call(X, bools(True), size=2),)),
    method("diagonal", call(X), call(X, 1), refused=(call(X, 0, 0, 0),)),
    method("trace", call(X), call(X, 1), refused=(call(X, 0, 0, 0),), ulps=SUMMED),
    method("ptp", *OVER, refused=(call(X, 2),), ulps=SUMMED),
    method("repeat", call(X, 2), call(X, 2, 1), refused=(call(X, 2, 2),)),
    method("take", call(X, i32(1, 0)), call(X, i32(1, 0), 1), refused=(call(X, i32(1), 2), call(X, f32(1)))),
)
