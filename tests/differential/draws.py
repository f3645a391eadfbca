"""Records of `tracefx.random`: from the same words of a key the same numbers, which are operands as all others are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tests.differential.records import INF, NAN, Call, Function, Library, Record, call, f32, grid, i32, record
from tracefx.testing.tolerances import Ulps

WORDS: Final = np.array([17, 4_000_000_003], np.uint32)
ROUNDED: Final = Ulps(16, 16, 4, least=0.25)
"""For functions of draws: XLA's, which JAX puts together otherwise."""
TWO: Final = f32(0.5, 2.0)
SHAPES: Final = f32(0.05, 0.7, 1.0, 3.0, 40.0)
CHANCES: Final = f32(0.2, 0.3, 0.5)
LOGITS: Final = f32([0.1, 2.0, -1.0], [1.0, 0.0, 0.5])
COVARIANCE: Final = f32([2.0, 0.5], [0.5, 1.0])
TABLE: Final = np.arange(12, dtype=np.int32).reshape(3, 4)
NEGATIVE: Final = call((-1,))
UNKNOWN: Final = call((2,), "other")


def drawn(name: str, first: Call, *values: Call, refused: Sequence[Call] = (), **kw: Any) -> Record:
    """Calls without the key, at the first of which everything is compared."""

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


def shaped(name: str, *values: Call, **kw: Any) -> Record:
    """A distribution without parameters."""
    return drawn(name, call((3,)), *values, call((0, 2)), refused=[NEGATIVE, UNKNOWN], **kw)


def of_gamma(name: str, first: Call, *values: Call, **kw: Any) -> Record:
    """A distribution made of draws of `gamma`, which is what is differentiated and batched."""
    return drawn(name, first, *values, derivatives=False, batched=False, **kw)


RECORDS: Final[tuple[Record, ...]] = (
    drawn("bits", call(), call((2, 3), "uint8"), call((5,), "uint64"), refused=[NEGATIVE, call((2,), "int8")]),
    drawn(
        "uniform",
        call((2,), minval=f32(0, 1), maxval=f32(1, 3)),
        call((2, 3)),
        call((4,), "bfloat16", -1.0, 2.0),
        call((4,), "float16"),
        call((4,), "float64"),
        call((0, 3)),
        refused=[NEGATIVE, call((2,), "int32")],
    ),
    drawn(
        "randint",
        call((2, 3), i32(0, 1, 2), i32(1, 0, 50)),
        call((3, 2), -5, 10),
        call((5,), 0, 256, "uint8"),
        call((5,), -1000, 1000, "int8"),
        call((4,), 0, 1 << 30, "uint32"),
        call((3,), -(1 << 40), 1 << 40, "int64"),
        refused=[call((-1,), 0, 1), call((2,), 0, 1, "float32")],
    ),
    drawn(
        "bernoulli",
        call(f32(0.1, 0.9), (3, 2)),
        call(),
        call(0.4, (9,), "high"),
        refused=[call(0.5, (-1,)), call(f32(0.1, 0.9), (3,)), call(0.5, (2,), "other")],
    ),
    drawn("rademacher", call((5,)), call((5,), "float32"), refused=[NEGATIVE]),
    shaped("normal", call((3,), "bfloat16"), call((3,), "complex64")),
    drawn(
        "truncated_normal",
        call(f32(-2.0, 0.125), f32(0.75, 3.0)),
        call(-1.0, 2.0, (3,)),
        refused=[call(0.0, 1.0, (2,), "int32"), call(f32(0, 0), 1.0, (3,))],
    ),
    drawn("lognormal", call(TWO), call(shape=(2,)), refused=[call(1.0, (2,), "int32")]),
    shaped("maxwell"),
    drawn("double_sided_maxwell", call(TWO, f32(1, 2), (3, 2)), call(1.0, f32(1, 2), (3, 2))),
    shaped("exponential"),
    drawn("pareto", call(TWO, (3, 2)), refused=[call(TWO, (3,))]),
    shaped("cauchy"),
    shaped("laplace"),
    shaped("logistic"),
    drawn("weibull_min", call(f32(2, 3), f32(1.5, 3), (3, 2))),
    drawn("rayleigh", call(TWO, (3, 2)), refused=[call(TWO, (3,))]),
    drawn("triangular", call(f32(0, 0.5), f32(1, 2), f32(4, 5), (3, 2))),
    drawn("wald", call(TWO, (3, 2)), refused=[call(TWO, (3,))]),
    shaped("gumbel", call((3,), mode="high"), call((3,), mode="highest"), call((2,), "float64")),
    drawn("gamma", call(TWO), call(SHAPES), call(2.0, (2, 3)), refused=[call(TWO, (3,))]),
    of_gamma("loggamma", call(SHAPES), refused=[call(TWO, (3,))]),
    of_gamma("beta", call(TWO, f32(3, 1), (3, 2)), refused=[call(TWO, 1.0, (3,))]),
    of_gamma("dirichlet", call(f32(0.5, 2.0, 3.0), (2,)), refused=[call(0.5)]),
    of_gamma("chisquare", call(f32(1, 5)), refused=[call(TWO, (3,))]),
    of_gamma("f", call(f32(3, 2), f32(1, 5)), refused=[call(TWO, TWO, (3,))]),
    of_gamma("t", call(f32(1, 5)), refused=[call(TWO, (3,))]),
    of_gamma("generalized_normal", call(f32(1.5, 2.5), (2,)), call(1.5, (3,))),
    drawn("ball", call(3, 2, (2,)), refused=[call(3, 2, (-1,))]),
    drawn(
        "permutation",
        call(TABLE),
        call(7),
        call(TABLE, 1, True),
        call(grid(3)),
        refused=[call(TABLE, 2), call(1.5)],
    ),
    drawn(
        "choice",
        call(grid(3), (5,), p=CHANCES),
        call(9, (3,)),
        call(grid(9), (2, 2), False),
        call(TABLE, (2,), axis=1),
        call(3, (2,), False, CHANCES),
        refused=[call(3, (4,), False), call(TABLE, (2,), axis=2), call(3, p=TWO), call(0)],
    ),
    drawn(
        "categorical",
        call(LOGITS),
        call(LOGITS, 0, (4, 3)),
        call(LOGITS, shape=(2, 2), replace=False),
        call(LOGITS, mode="high"),
        refused=[call(LOGITS, 2), call(LOGITS, shape=(3,))],
    ),
    drawn("geometric", call(f32(0.1, 0.9), (3, 2)), refused=[call(TWO, (3,))]),
    drawn("poisson", call(f32(0.5, 9.0, 11.0)), call(f32(0, 1e4, NAN))),
    drawn(
        "binomial",
        call(f32(5, 100), 0.3),
        call(f32(1e4, -1, INF), 0.3),
        call(1000, f32(0, 0.7, 1, NAN)),
        refused=[call(TWO, 0.5, (3,))],
    ),
    drawn("multinomial", call(20.0, CHANCES)),
    drawn(
        "multivariate_normal",
        call(TWO, COVARIANCE, (3,)),
        *[call(TWO * 0, COVARIANCE, method=method) for method in ("eigh", "svd")],
        refused=[call(TWO, COVARIANCE, method="other"), call(TWO, TWO), call(f32(1, 2, 3), COVARIANCE)],
    ),
    drawn("orthogonal", call(3), call(2, (2,), m=3), call(2, dtype="complex64"), refused=[call(2, (-1,))]),
    drawn("split", call(), call(3), call((2, 3))),
    drawn("fold_in", call(np.asarray(3, np.int32)), call(2**32 - 1), refused=[call(i32(1, 2))]),
    drawn("key_data", call()),
    drawn("clone", call()),
)
