"""Records of `tracefx.random`: equal key data give equal numbers; the other parameters are operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tests.differential.records import INF, NAN, Call, Function, Library, Record, call, f32, grid, i32, record
from tracefx.testing.tolerances import Ulps

WORDS: Final = np.array([17, 4_000_000_003], np.uint32)
ROUNDED: Final = Ulps(16, 16, 4, least=0.25)
"""Tolerance for functions of samples, which JAX composes differently in XLA."""
PARAMETERS: Final = f32(0.5, 2.0)
SHAPES: Final = f32(0.05, 0.7, 1.0, 3.0, 40.0)
CHANCES: Final = f32(0.2, 0.3, 0.5)
LOGITS: Final = f32([0.1, 2.0, -1.0], [1.0, 0.0, 0.5])
COVARIANCE: Final = f32([2.0, 0.5], [0.5, 1.0])
TABLE: Final = np.arange(12, dtype=np.int32).reshape(3, 4)
NEGATIVE: Final = call((-1,))
UNKNOWN: Final = call((2,), "other")


def random_record(name: str, first: Call, *values: Call, refused: Sequence[Call] = (), **kw: Any) -> Record:
    """Calls without the key; everything is compared for the first."""

    def via(library: Library) -> Function:
        f: Function = getattr(library.root.random, name)

        def draw(words: Any, *args: Any, **options: Any) -> Any:
            out = f(library.root.random.wrap_key_data(words), *args, **options)
            return library.root.random.key_data(out) if name in ("split", "fold_in", "clone") else out

        return draw

    def keyed(c: Call) -> Call:
        args, kwargs = c.arguments
        return call(WORDS, *args, **kwargs)

    kw = {"dtypes": (), "ulps": ROUNDED, **kw}
    calls = map(keyed, (first, *values))
    return record(name, next(calls), module="random", values=[*calls], refused=[*map(keyed, refused)], via=via, **kw)


def parameterless(name: str, *values: Call, **kw: Any) -> Record:
    """Record of a distribution without parameters."""
    return random_record(name, call((3,)), *values, call((0, 2)), refused=[NEGATIVE, UNKNOWN], **kw)


def gamma_based(name: str, first: Call, *values: Call, **kw: Any) -> Record:
    """Record of a distribution based on samples of `gamma`, whose derivatives and batches are tested there."""
    return random_record(name, first, *values, derivatives=False, batched=False, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    random_record("bits", call(), call((2, 3), "uint8"), call((5,), "uint64"), refused=[NEGATIVE, call((2,), "int8")]),
    random_record(
        "uniform",
        call((2,), minval=f32(0, 1), maxval=f32(1, 3)),
        call((2, 3)),
        call((4,), "bfloat16", -1.0, 2.0),
        call((4,), "float16"),
        call((4,), "float64"),
        call((0, 3)),
        refused=[NEGATIVE, call((2,), "int32")],
    ),
    random_record(
        "randint",
        call((2, 3), i32(0, 1, 2), i32(1, 0, 50)),
        call((3, 2), -5, 10),
        call((5,), 0, 256, "uint8"),
        call((5,), -1000, 1000, "int8"),
        call((4,), 0, 1 << 30, "uint32"),
        call((3,), -(1 << 40), 1 << 40, "int64"),
        refused=[call((-1,), 0, 1), call((2,), 0, 1, "float32")],
    ),
    random_record(
        "bernoulli",
        call(f32(0.1, 0.9), (3, 2)),
        call(),
        call(0.4, (9,), "high"),
        refused=[call(0.5, (-1,)), call(f32(0.1, 0.9), (3,)), call(0.5, (2,), "other")],
    ),
    random_record("rademacher", call((5,)), call((5,), "float32"), refused=[NEGATIVE]),
    parameterless("normal", call((3,), "bfloat16"), call((3,), "complex64")),
    random_record(
        "truncated_normal",
        call(f32(-2.0, 0.125), f32(0.75, 3.0)),
        call(-1.0, 2.0, (3,)),
        refused=[call(0.0, 1.0, (2,), "int32"), call(f32(0, 0), 1.0, (3,))],
    ),
    random_record("lognormal", call(PARAMETERS), call(shape=(2,)), refused=[call(1.0, (2,), "int32")]),
    parameterless("maxwell"),
    random_record("double_sided_maxwell", call(PARAMETERS, f32(1, 2), (3, 2)), call(1.0, f32(1, 2), (3, 2))),
    parameterless("exponential"),
    random_record("pareto", call(PARAMETERS, (3, 2)), refused=[call(PARAMETERS, (3,))]),
    parameterless("cauchy"),
    parameterless("laplace"),
    parameterless("logistic"),
    random_record("weibull_min", call(f32(2, 3), f32(1.5, 3), (3, 2))),
    random_record("rayleigh", call(PARAMETERS, (3, 2)), refused=[call(PARAMETERS, (3,))]),
    random_record("triangular", call(f32(0, 0.5), f32(1, 2), f32(4, 5), (3, 2))),
    random_record("wald", call(PARAMETERS, (3, 2)), refused=[call(PARAMETERS, (3,))]),
    parameterless("gumbel", call((3,), mode="high"), call((3,), mode="highest"), call((2,), "float64")),
    random_record("gamma", call(PARAMETERS), call(SHAPES), call(2.0, (2, 3)), refused=[call(PARAMETERS, (3,))]),
    gamma_based("loggamma", call(SHAPES), refused=[call(PARAMETERS, (3,))]),
    gamma_based("beta", call(PARAMETERS, f32(3, 1), (3, 2)), refused=[call(PARAMETERS, 1.0, (3,))]),
    gamma_based("dirichlet", call(f32(0.5, 2.0, 3.0), (2,)), refused=[call(0.5)]),
    gamma_based("chisquare", call(f32(1, 5)), refused=[call(PARAMETERS, (3,))]),
    gamma_based("f", call(f32(3, 2), f32(1, 5)), refused=[call(PARAMETERS, PARAMETERS, (3,))]),
    gamma_based("t", call(f32(1, 5)), refused=[call(PARAMETERS, (3,))]),
    gamma_based("generalized_normal", call(f32(1.5, 2.5), (2,)), call(1.5, (3,))),
    random_record("ball", call(3, 2, (2,)), refused=[call(3, 2, (-1,))]),
    random_record(
        "permutation",
        call(TABLE),
        call(7),
        call(TABLE, 1, True),
        call(grid(3)),
        refused=[call(TABLE, 2), call(1.5)],
    ),
    random_record(
        "choice",
        call(grid(3), (5,), p=CHANCES),
        call(9, (3,)),
        call(grid(9), (2, 2), False),
        call(TABLE, (2,), axis=1),
        call(3, (2,), False, CHANCES),
        refused=[call(3, (4,), False), call(TABLE, (2,), axis=2), call(3, p=PARAMETERS), call(0)],
    ),
    random_record(
        "categorical",
        call(LOGITS),
        call(LOGITS, 0, (4, 3)),
        call(LOGITS, shape=(2, 2), replace=False),
        call(LOGITS, mode="high"),
        refused=[call(LOGITS, 2), call(LOGITS, shape=(3,))],
    ),
    random_record("geometric", call(f32(0.1, 0.9), (3, 2)), refused=[call(PARAMETERS, (3,))]),
    random_record("poisson", call(f32(0.5, 9.0, 11.0)), call(f32(0, 1e4, NAN))),
    random_record(
        "binomial",
        call(f32(5, 100), 0.3),
        call(f32(1e4, -1, INF), 0.3),
        call(1000, f32(0, 0.7, 1, NAN)),
        refused=[call(PARAMETERS, 0.5, (3,))],
    ),
    random_record("multinomial", call(20.0, CHANCES)),
    random_record(
        "multivariate_normal",
        call(PARAMETERS, COVARIANCE, (3,)),
        *[call(PARAMETERS * 0, COVARIANCE, method=method) for method in ("eigh", "svd")],
        refused=[
            call(PARAMETERS, COVARIANCE, method="other"),
            call(PARAMETERS, PARAMETERS),
            call(f32(1, 2, 3), COVARIANCE),
        ],
    ),
    random_record("orthogonal", call(3), call(2, (2,), m=3), call(2, dtype="complex64"), refused=[call(2, (-1,))]),
    random_record("split", call(), call(3), call((2, 3))),
    random_record("fold_in", call(np.asarray(3, np.int32)), call(2**32 - 1), refused=[call(i32(1, 2))]),
    random_record("key_data", call()),
    random_record("clone", call()),
)
