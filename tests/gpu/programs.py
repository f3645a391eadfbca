"""Programs to compile for a GPU: the functions of the test records, decompositions, products, models, collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks import gpt, resnet
from benchmarks.libraries import OURS as BOTH
from tests.differential import harness
from tests.differential.records import TRACEFX, Call, Record, arrays
from tests.differential.table import RECORDS
from tests.ops.test_collective import SIZE
from tests.sharding.test_collectives import ALL as COLLECTIVES
from tests.sharding.test_collectives import X
from tests.xla.test_gpu_kernels import CASES, in_library
from tracefx import P, lax
from tracefx.core import DType
from tracefx.lax import linalg
from tracefx.sharding import AxisType
from tracefx.xla.emitted_module import EmittedModule
from tracefx.xla.lower import lower_for, plan_export
from tracefx.xla.runtime import mlir

BuiltCall: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
"""A function and its arguments, or their types."""


@final
@frozen
class Program:
    group: str
    name: str
    calls: tuple[tuple[str, Callable[[], BuiltCall]], ...]
    """Builders of the calls, by label. All calls are compiled as one program."""
    over_devices: bool = False


def programs() -> Iterator[Program]:
    for record in RECORDS:
        if not record.is_plain:
            calls = [(str(c), c) for c in (*record.calls, *record.values)]
            yield Program("functions", record.name, _calls(record, calls))
    for record in RECORDS:
        if not record.is_plain:
            yield Program("dtypes", record.name, _calls(record, list(_in_other_dtypes(record))))
    for record in RECORDS:
        if record.derivatives and not record.is_plain:
            slopes = [
                (str(c), functools.partial(_gradient, record, c)) for c in record.calls if c.differentiable_operands
            ]
            yield Program("gradients", record.name, tuple(slopes))
    for case in CASES:
        if "cuda" in case.platforms:
            function = functools.partial(getattr(linalg, case.name), **in_library(case.keywords, linalg))
            kinds = [(dtype, functools.partial(_abstract_call, function, dtype, case.shapes)) for dtype in case.dtypes]
            yield Program("decompositions", str(case), tuple(kinds))
    yield from _products()
    yield from _models()
    for name, f in COLLECTIVES.items():
        yield Program("several devices", name, (("", functools.partial(_collective, f)),), over_devices=True)
    yield Program("several devices", "a step of training, by batches", (("", _sharded),), over_devices=True)


def lowered(calls: Sequence[BuiltCall], over_devices: bool) -> EmittedModule:
    """Lowers all the calls, as one program, for GPUs."""

    def call_all(given: Sequence[Any]) -> list[Any]:
        return [f(*args) for (f, _), args in zip(calls, given, strict=True)]

    given = [args for _, args in calls]
    if over_devices:
        # A program with collectives is the same on every platform.
        with mlir.unknown_location():
            return EmittedModule(mlir.parse_module(fx.jit(call_all).lower(given).as_text()), False, False, (), ())
    return lower_for(plan_export(fx.jit(call_all).trace(given).trace.jaxpr), "together", ("cuda",))


# ------------------------------------------------------------------ records


def _calls(record: Record, calls: Sequence[tuple[str, Call]]) -> tuple[tuple[str, Callable[[], BuiltCall]], ...]:
    return tuple([(label, functools.partial(_build_call, record, call)) for label, call in calls])


def _build_call(record: Record, call: Call) -> BuiltCall:
    f = record.via(TRACEFX)
    given = arrays(TRACEFX, call)
    fx.eval_shape(lambda *xs: fx.tree.leaves(call.of(f, xs)), *given)  # raises for invalid calls
    return lambda *xs: fx.tree.leaves(call.of(f, xs)), tuple(given)


def _in_other_dtypes(record: Record) -> Iterator[tuple[str, Call]]:
    alike = harness._main_dtype(record)
    if alike:
        first, main, same = alike
        for dtype in record.dtypes:
            if dtype != main:
                yield dtype, harness._with_dtypes(first, dict.fromkeys(same, dtype))


def _gradient(record: Record, call: Call) -> BuiltCall:
    slope = harness.DerivativeCase.of(record, call)
    if not slope.differentiable_operands or all(w is None for w in slope.weights):
        raise ValueError("it has no derivative")
    given = arrays(TRACEFX, call)
    f = slope.restrict(record.via(TRACEFX), given, slope.differentiable_operands)
    primals = tuple([given[i] for i in slope.differentiable_operands])
    pulled = slope.vjp_function(TRACEFX, f)
    pulled(*primals)
    return pulled, primals


# ------------------------------------------------------------------ products and models


def _abstract_call(f: Callable[..., Any], dtype: str | DType, shapes: Sequence[tuple[int, ...]]) -> BuiltCall:
    given = tuple([fx.ShapeDtypeStruct(shape, dtype) for shape in shapes])
    fx.eval_shape(f, *given)
    return f, given


DTYPES: Final = (
    *("bool", "int2", "int4", "uint4", "int8", "uint8", "int16", "int32", "uint32", "int64"),
    *("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e3m4"),
    *("float8_e8m0fnu", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)
RESULT_DTYPES: Final = ("float32", "float64", "bfloat16", "int32", "complex64", "float8_e5m2")


def _products() -> Iterator[Program]:
    def conv(x: Any, y: Any, result_dtype: str | None = None) -> Any:
        n = x.ndim - 2
        return lax.conv_general_dilated(x, y, (1,) * n, "SAME", preferred_element_type=result_dtype)

    def dilated(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, (2, 1), ((1, 1), (1, 2)), (2, 2), (2, 1), feature_group_count=2)

    for dtype in DTYPES:
        products: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
            "of matrices": (lax.dot, ((63, 31), (31, 17))),
            "of larger ones": (lax.dot, ((256, 128), (128, 64))),
            "of vectors": (lax.dot, ((64,), (64,))),
            "of stacks": (fnp.matmul, ((3, 16, 32), (3, 32, 8))),
            **{
                f"added in {result_dtype}": (
                    functools.partial(lax.dot, preferred_element_type=result_dtype),
                    ((64, 32), (32, 16)),
                )
                for result_dtype in RESULT_DTYPES
            },
        }
        convolved: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
            **{f"along {n}": (conv, ((2, 4) + (8,) * n, (4, 4) + (3,) * n)) for n in (1, 2, 3)},
            "dilated, in groups": (dilated, ((2, 4, 8, 8), (6, 2, 3, 3))),
            **{
                f"added in {result_dtype}": (
                    functools.partial(conv, result_dtype=result_dtype),
                    ((2, 4, 8, 8), (6, 4, 3, 3)),
                )
                for result_dtype in RESULT_DTYPES
            },
        }
        for group, table in (("products", products), ("convolutions", convolved)):
            calls = [
                (label, functools.partial(_abstract_call, f, dtype, shapes)) for label, (f, shapes) in table.items()
            ]
            yield Program(group, dtype, tuple(calls))
    x = ((128, 64), (64, 32))
    for preset in lax.DotAlgorithmPreset:
        dtype = "float8_e4m3fn" if preset.name.startswith("ANY") else "float32"
        f = functools.partial(lax.dot, precision=preset)
        yield Program("products", preset.name, (("", functools.partial(_abstract_call, f, dtype, x)),))


def _models() -> Iterator[Program]:
    def step(loss: Callable[..., Any], params: Any, *batch: Any) -> BuiltCall:
        return lambda params, *batch: fx.value_and_grad(loss)(params, *batch), (params, *batch)

    images = np.zeros((resnet.BATCH, resnet.SIZE, resnet.SIZE, 3), np.float32)
    labels = np.zeros(resnet.BATCH, np.int32)
    yield Program("models", "GPT", (("", lambda: step(gpt.loss_of(BOTH), gpt.parameters(), *gpt.text())),))
    yield Program("models", "ResNet", (("", lambda: step(resnet.loss_of(BOTH), resnet.parameters(), images, labels)),))
    x = np.ones((4, 8), np.float32)
    calls: dict[str, Callable[..., Any]] = {
        "pure_callback": lambda x: fx.pure_callback(np.sin, x, x),
        "io_callback": lambda x: fx.io_callback(np.sin, x, x),
        "io_callback, ordered": lambda x: fx.io_callback(np.sin, x, x, ordered=True),
        "debug.print": _printed,
    }
    for name, f in calls.items():
        yield Program("calls of Python", name, (("", functools.partial(lambda f: (f, (x,)), f)),))


def _printed(x: Any) -> Any:
    fx.debug.print("{}", x)
    return x + 1


# ------------------------------------------------------------------ several devices


def _collective(f: Callable[[Any, Any], Any]) -> BuiltCall:
    def one(x: Any) -> Any:
        return f(lax, x[0])[None]

    mesh = fx.make_mesh((SIZE,), ("i",), devices=fx.devices("cpu")[:SIZE])
    return fx.shard_map(one, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False), (X,)


def _sharded() -> BuiltCall:
    mesh = fx.make_mesh((SIZE,), ("batch",), (AxisType.Auto,), devices=fx.devices("cpu")[:SIZE])
    (tokens,) = gpt.text()
    params = fx.device_put(gpt.parameters(), fx.sharding.NamedSharding(mesh, P()))
    batch = fx.device_put(tokens, fx.sharding.NamedSharding(mesh, P("batch")))
    return fx.value_and_grad(gpt.loss_of(BOTH)), (params, batch)
