"""The list of known differences between tracefx and JAX, with reasons.

A difference names functions and the prefixes of the mismatches that the harness reports for them. A difference that is
no longer found fails the tests. The profile `long` tests more; mismatches that only it reports are `in_long_profile`.
"""

from __future__ import annotations

from typing import Final, final

from attrs import frozen

from tests.differential.records import DTYPES
from tests.versions import SINCE_011, SINCE_012


@final
@frozen
class KnownDifference:
    reason: str
    names: str
    """The names of the functions, separated by spaces."""
    prefixes: tuple[str, ...]
    in_long_profile: tuple[str, ...]
    """Prefixes of mismatches that only the profile `long` reports."""

    def applies_to(self, name: str) -> bool:
        return name in self.names.split()


def known_difference(reason: str, names: str, *prefixes: str, in_long_profile: tuple[str, ...] = ()) -> KnownDifference:
    return KnownDifference(reason, names, prefixes, in_long_profile)


UPDATES: Final = (
    "numpy.at.set numpy.at.add numpy.at.subtract numpy.at.multiply numpy.at.mul numpy.at.divide numpy.at.power "
    "numpy.at.min numpy.at.max"
)
BINARY: Final = (
    "lax.add lax.sub lax.mul lax.div lax.rem lax.max lax.min lax.atan2 lax.nextafter lax.pow lax.eq lax.ne lax.lt "
    "lax.le lax.gt lax.ge"
)

JAX_LOSES_WEAK_TYPE: Final = " ".join(
    [
        *[f"scipy.special.{name}" for name in ("erfcx", "dawsn", "ndtr", "ndtri", "log_ndtr", "owens_t", "expi")],
        *[f"scipy.special.{name}" for name in ("exp1", "expn", "sici", "fresnel", "spence", "gamma", "gammasgn")],
        *[f"scipy.special.{name}" for name in ("poch", "beta", "rel_entr", "kl_div", "logit", "hyp1f1", "hyp2f1")],
        *[f"scipy.special.{name}" for name in ("wofz", "loggamma", "multigammaln")],
        *[f"scipy.stats.{name}.pmf" for name in ("bernoulli", "betabinom", "nbinom", "geom")],
        *[f"scipy.stats.{name}.cdf" for name in ("beta", "truncnorm", "gamma", "chi2", "poisson")],
        *[f"scipy.stats.{name}.pdf" for name in ("norm", "cauchy", "laplace", "logistic", "gumbel_r")],
        *[f"scipy.stats.{name}.pdf" for name in ("pareto", "t", "gamma", "chi2", "beta", "truncnorm")],
    ]
)

WITH_COMPLEX: Final = tuple(
    [
        f"dtype {first} {second}"
        for first in DTYPES
        for second in DTYPES
        if first != second and "complex64" in (first, second)
    ]
)
"""Pairs of a complex dtype and another dtype."""

BEFORE_011: Final = (
    known_difference(
        "JAX uses the least 32-bit integer as initial value, and fails",
        "numpy.max numpy.min numpy.minmax numpy.ptp",
        "dtype all int64",
        in_long_profile=("value all int64",),
    ),
    known_difference("the same", "nn.softmax nn.log_softmax", "dtype all int64", in_long_profile=("value all int64",)),
    known_difference(
        "parts beyond the end are empty, as in NumPy; JAX refuses", "numpy.split", "value (float32[3], [5])"
    ),
)
"""Differences from JAX before 0.11 only."""

BEFORE_012: Final = (known_difference("results of weak operands are weak", "scipy.stats.uniform.pdf", "dtype (weak"),)
"""Differences from JAX before 0.12 only."""

IN_011: Final = (
    known_difference(
        "`log2` divides by a strongly typed logarithm, as `log10` multiplies by one; JAX has a primitive",
        "numpy.log2",
        *[f"value ({x})" for x in ("weak float32[2]", "2", "1.15")],
        in_long_profile=tuple([f"compiled ({x})" for x in ("weak float32[2]", "2", "1.15")]),
    ),
)
"""Differences from JAX since 0.11."""

IN_012: Final = (
    known_difference(
        "`hypot` is weak only if both operands are; JAX promotes their dtypes first",
        "numpy.hypot",
        *[f"value ({x})" for x in ("[1, 2], 0.5", "[1, 2], weak float32[1]", "[True, False], 2")],
        in_long_profile=tuple(
            [f"compiled ({x})" for x in ("[1, 2], 0.5", "[1, 2], weak float32[1]", "[True, False], 2")]
        ),
    ),
    known_difference(
        "`sinc` multiplies by pi as NumPy does; JAX reduces the argument first, and is 0 at infinity",
        "numpy.sinc",
        *[f"value ({x})" for x in ("float32[2, 3]", "float32[9]", "2")],
        "compiled (float32[2, 3])",
        *[f"value all {dtype}" for dtype in ("int32", "bfloat16")],
        in_long_profile=(
            *[f"compiled ({x})" for x in ("float32[9]", "2")],
            *[f"value all {dtype}" for dtype in ("bool", "int8", "uint8", "uint32", "float16")],
            *[f"compiled all {dtype}" for dtype in ("bool", "int8", "uint8", "int32", "uint32")],
            *[f"compiled all {dtype}" for dtype in ("float16", "bfloat16")],
        ),
    ),
    known_difference(
        "indices filled with a weak value are weak",
        "numpy.nonzero",
        "value (bool[2, 3], fill_value=0.5, size=5)",
        in_long_profile=("compiled (bool[2, 3], fill_value=0.5, size=5)",),
    ),
    known_difference(
        "vectors may have 2 components; JAX refuses them",
        "numpy.cross",
        "value (float32[2, 2], float32[2, 3])",
        "value (float32[2, 2], float32[2])",
        "value (float32[3, 2], float32[2])",
        "grad (float32[2, 2], float32[2, 3])",
        in_long_profile=tuple([f"{aspect} (float32[2, 2], float32[2, 3])" for aspect in ("jvp", "second")]),
    ),
    known_difference(
        "a vector instead of a matrix is a TypeError; JAX raises a ValueError",
        "lax.linalg.cholesky lax.linalg.eigh",
        "error (float32[1])",
    ),
    known_difference(
        "not implemented: generalized eigenvalue problems",
        "scipy.linalg.eigh",
        "error (float32[3, 3], float32[3, 3])",
        "error (float32[3, 3], type=2)",
    ),
    known_difference(
        "JAX cannot differentiate the derivative of arrays: it selects between a scalar and the array",
        "scipy.special.erfcx",
        "second (float32[4])",
    ),
    known_difference(
        "the quantile function has a nonzero derivative at 1/2; JAX's is 0, since it selects a constant there",
        "scipy.stats.cauchy.pdf",
        *[
            f"{aspect} (float32[3], float32[3], float32[], float32[]){where}"
            for aspect, where in (
                ("jvp", " at (1,): output 6"),
                ("grad", " at (1,): output 0"),
                ("jvp", ": output 6"),
                ("grad", ": output 1"),
                ("second", ": output 1"),
            )
        ],
    ),
)
"""Differences from JAX since 0.12."""

KNOWN_DIFFERENCES: Final[tuple[KnownDifference, ...]] = (
    *(IN_011 if SINCE_011 else BEFORE_011),
    *(IN_012 if SINCE_012 else BEFORE_012),
    # ------------------------------------------------------------------ weak types
    known_difference(
        "results of weak operands are weak in every function; JAX loses the weak type",
        "numpy.deg2rad numpy.rad2deg",
        "value (weak float32[2])",
        in_long_profile=("compiled (weak float32[2])",),
    ),
    known_difference(
        "the same",
        "nn.softplus nn.mish",
        "dtype all bool: weak_type",
        in_long_profile=("value all bool: weak_type", "compiled all bool: weak_type"),
    ),
    known_difference("the same", JAX_LOSES_WEAK_TYPE, "dtype (weak"),
    known_difference(
        "indices are never weakly typed",
        "numpy.argpartition",
        "value (weak float32[5], 0): weak_type",
        in_long_profile=("compiled (weak float32[5], 0): weak_type",),
    ),
    known_difference(
        "the same",
        "numpy.heaviside",
        "value (weak float32[2, 3], 0.5)",
        in_long_profile=("compiled (weak float32[2, 3], 0.5)",),
    ),
    known_difference("the same", "numpy.angle", "value (2.0)", in_long_profile=("compiled (2.0)",)),
    known_difference("the same", "numpy.frexp", "value (3)", "compiled (3)"),
    known_difference("the same", "numpy.spacing", "value (3)", in_long_profile=("compiled (3)",)),
    known_difference("the same", "numpy.ldexp", "value (1.5, 2)", "compiled (1.5, 2)"),
    known_difference(
        "the same",
        "numpy.choose",
        "value ([0], [2.5], mode='clip')",
        in_long_profile=("compiled ([0], [2.5], mode='clip')",),
    ),
    known_difference("the same", "numpy.diagflat", "value (2.0)", in_long_profile=("compiled (2.0)",)),
    # ------------------------------------------------------------------ limitations of JAX
    known_difference(
        "tangents of a symmetric matrix need not be symmetric; JAX assumes so in the transposed solve",
        "scipy.linalg.solve",
        "second (float32[2, 2], float32[2], assume_a='pos')",
    ),
    known_difference(
        "norms of integers are floats; JAX takes the square root in integers",
        "numpy.linalg.vector_norm",
        "value all int32",
        in_long_profile=("compiled all int32",),
    ),
    known_difference(
        "bools are accepted and returned unchanged, as in NumPy",
        "numpy.round numpy.ndarray.round numpy.ndarray.__round__",
        "dtype all bool",
        in_long_profile=("value all bool",),
    ),
    known_difference(
        "JAX multiplies by a 32-bit constant, and fails",
        "numpy.log10",
        "dtype all float64",
        "dtype all int64",
        in_long_profile=("value all float64", "value all int64"),
    ),
    known_difference(
        "a 32-bit constant makes JAX's 64-bit results inaccurate",
        "nn.gelu",
        in_long_profile=("value all int64", "compiled all int64", "value all float64", "compiled all float64"),
    ),
    known_difference(
        "weights have the precision of the image; JAX's have 32 bits",
        "image.resize",
        in_long_profile=("value all float64", "compiled all float64"),
    ),
    known_difference(
        "the maximum is subtracted from floats; JAX subtracts it from unsigned integers",
        "nn.softmax nn.log_softmax",
        in_long_profile=tuple([f"{aspect} all {d}" for aspect in ("value", "compiled") for d in ("uint8", "uint32")]),
    ),
    known_difference(
        "products of float16 are computed in higher precision on CPUs too; JAX fails",
        "nn.dot_product_attention",
        in_long_profile=("value all float16",),
    ),
    known_difference(
        "JAX applies 32-bit masks to 64-bit numbers, and fails",
        "numpy.frexp numpy.ldexp",
        *(() if SINCE_012 else ("dtype all int64", "dtype all float64")),
        in_long_profile=("value all float64", "value all int64"),
    ),
    known_difference(
        "the fractional part has the sign of the number, and is 0 for infinities, as in NumPy",
        "numpy.modf",
        "value (float32[13])",
        "compiled (float32[13])",
        "value all int32",
        in_long_profile=(
            "value all int8",
            "value all int64",
            *(f"compiled all {d}" for d in ("int8", "int32", "int64")),
        ),
    ),
    known_difference(
        "bools are converted to floats like integers; JAX fails",
        "nn.softmax nn.log_softmax",
        "dtype all bool",
        in_long_profile=("value all bool",),
    ),
    known_difference(
        "JAX requires the order and the points to have equal dtypes",
        "lax.polygamma",
        "dtype all float64",
    ),
    known_difference(
        "signs of zeros are those of the array API and Python",
        "numpy.floor_divide numpy.remainder numpy.divmod",
        "value (float32[13, 13], float32[13, 13])",
        "compiled (float32[13, 13], float32[13, 13])",
    ),
    known_difference("the same", "numpy.sign", "value (float32[13])", "compiled (float32[13])"),
    known_difference(
        "bools are multiplied, as in NumPy; JAX refuses",
        "numpy.kron",
        "dtype all bool",
        in_long_profile=("value all bool",),
    ),
    known_difference(
        "arrays that do not broadcast are not equivalent; JAX fails",
        "numpy.array_equiv",
        "value (float32[2], float32[3])",
    ),
    known_difference(
        "narrow integers are multiplied in the default integer dtype, as the array API specifies",
        "numpy.cumulative_prod",
        "dtype all int8",
        "dtype all uint8",
        in_long_profile=tuple([f"{aspect} all {d}" for aspect in ("value", "compiled") for d in ("int8", "uint8")]),
    ),
    known_difference(
        "negative numbers cast to unsigned are not sorted, so that any result is valid",
        "numpy.searchsorted",
        in_long_profile=("compiled all uint32",),
    ),
    known_difference(
        "bools are added, as in NumPy; JAX refuses",
        "numpy.polyadd",
        "dtype all bool",
        in_long_profile=("value all bool",),
    ),
    known_difference(
        "repetitions may be a list, as in NumPy; JAX refuses", "numpy.repeat", "value (float32[3], [1, 2, 0])"
    ),
    known_difference(
        "JAX scales 16-bit numbers before it converts them to higher precision",
        "scipy.fft.idct",
        "value all bfloat16",
        in_long_profile=("compiled all bfloat16",),
    ),
    known_difference(
        "all real dtypes are accepted; JAX accepts only 32 and 64 bits",
        "scipy.special.ndtr scipy.special.ndtri scipy.special.log_ndtr scipy.special.spence",
        "dtype all float16",
        "dtype ([1, 2, 3, 1])",
        in_long_profile=("value all float16",),
    ),
    known_difference(
        "16-bit operands have 16-bit results; JAX returns more bits",
        "scipy.special.owens_t",
        "dtype all float16",
        in_long_profile=("value all float16", "compiled all float16"),
    ),
    known_difference(
        "orders may be floats with integral values, as in SciPy",
        "scipy.special.polygamma",
        "dtype all float16",
        in_long_profile=("value all float16",),
    ),
    known_difference(
        "16-bit operands are computed in higher precision; JAX's results are NaN where an intermediate value overflows",
        "scipy.special.expi scipy.special.sici scipy.special.poch",
        in_long_profile=("value all float16", "compiled all float16"),
    ),
    known_difference(
        "a negative order is an error; JAX returns an empty result",
        "scipy.special.bessel_jn",
        "error (float32[1], v=-1)",
    ),
    # ------------------------------------------------------------------ missing or deliberately different
    known_difference(
        "not implemented: second derivatives of samples in their parameter; JAX has them in forward mode only",
        "random.gamma",
        "second ([17, 4000000003], float32[2])",
    ),
    known_difference(
        "large numbers do not overflow, and -inf gives 0; JAX has infinity and NaN",
        "nn.squareplus",
        "value (float32[13])",
        "compiled (float32[13])",
    ),
    known_difference(
        "JAX rounds the constants to float32 first",
        "nn.selu",
        in_long_profile=("value all float64", "compiled all float64"),
    ),
    known_difference(
        "complex numbers are not ordered; JAX compares their parts",
        "lax.clamp",
        "error (complex64[1]",
    ),
    known_difference("sequences are not accepted as arrays, in any function", "nn.one_hot", "error ([1], 3)"),
    known_difference("None is not a dtype", "numpy.result_type", "error (None, None)"),
    known_difference("Python numbers have a dtype, as in `result_type`", "numpy.promote_types", "error ('int8', 1)"),
    known_difference(
        "primitives broadcast only scalars: other broadcasting must be explicit in a program",
        BINARY,
        "error (float32[2, 1], float32[1, 2])",
    ),
    known_difference("the same", "lax.complex lax.polygamma", "error (float32[1], float32[2])"),
    known_difference("a shift must be an integer; JAX truncates floats", "numpy.roll", "error (float32[2, 3, 4], 1.5)"),
    known_difference(
        "negative starts are refused; JAX returns more elements than there are in between",
        "lax.slice",
        "error (float32[2, 3], (-1, 0), (1, 3))",
    ),
    known_difference(
        "the scattered axis must have a part for each device; JAX drops elements",
        "lax.psum_scatter",
        "error (float32[2, 3]):",
    ),
    known_difference(
        "an integer `dtype` is refused for the variance of floats; JAX returns 0",
        "numpy.var",
        "error (float32[2, 3, 2], dtype='int32')",
    ),
    known_difference("`copy` has no meaning for immutable arrays", "numpy.meshgrid", "error (float32[3], copy=False)"),
    known_difference(
        "`%` with a string on the left is string formatting", "numpy.ndarray.__rmod__", "error (float32[2, 3], 'a')"
    ),
    known_difference(
        "the numbers of counts and of values are equal",
        "numpy.unique_all numpy.unique_counts",
        "value (float32[2, 0], fill_value=3, size=2)",
        "compiled (float32[2, 0], fill_value=3, size=2)",
    ),
    # ------------------------------------------------------------------ error classes
    known_difference(
        "names of bin estimators are refused, as in `histogram_bin_edges`",
        "numpy.histogram",
        "error (float32[2, 3, 2], 'auto')",
    ),
    known_difference(
        "a wrong dtype is a TypeError; JAX raises a ValueError",
        "numpy.hypot",
        "value all complex64",
        "dtype operand 0 complex64",
        "dtype operand 1 complex64",
        in_long_profile=WITH_COMPLEX,
    ),
    known_difference("the same", "numpy.isposinf numpy.isneginf", "value all complex64"),
    known_difference("the same", "numpy.sum numpy.prod", "error (float32[2, 3, 2], where=float32[2])"),
    known_difference("the same", "numpy.take", "error (float32[3, 4], 1.5)"),
    known_difference("the same", "scipy.stats.multinomial.pmf", "error (float32[3], 6, float32[3])"),
    known_difference("the same", "numpy.ndarray.take", "error (float32[2, 3], float32[1])"),
    known_difference(
        "a non-array operand is a TypeError; JAX raises a later error", UPDATES, "error (float32[3, 4], 0, None)"
    ),
    known_difference("the same", "numpy.clip", "error (None)"),
    known_difference(
        "an index out of bounds is an IndexError, as in NumPy", "numpy.delete", "error (float32[3, 4], 3, axis=0)"
    ),
    known_difference("the same", "numpy.einsum", "error ('i', 'a')"),
    known_difference("the same", "lax.squeeze", "error ('a', (0,))"),
    known_difference("the same", "lax.dynamic_slice", "error ('a', (0,), (1,))"),
    known_difference("the same", "lax.dynamic_slice_in_dim", "error ('a', 0, 1)"),
    known_difference("the same", "lax.dynamic_update_slice", "error ('a', float32[2, 3], (0,))"),
    known_difference("the same", "lax.dynamic_update_slice_in_dim", "error ('a', float32[2, 3], 0, 0)"),
    known_difference("the same", "lax.dot", "error ('a', float32[3])"),
    known_difference("the same", "lax.sort", "error ('a')"),
    known_difference("the same", "lax.sort_key_val", "error ('a', float32[2, 3])"),
    known_difference("the same", "lax.top_k", "error ('a', 1)"),
    known_difference(
        "a non-integer where an integer is required is a TypeError", "numpy.swapaxes", "error (float32[2, 3], 0.5, 1)"
    ),
    known_difference("the same", "numpy.eye", "error (2, k=0.5)"),
    known_difference(
        "invalid sizes are refused; JAX raises a ZeroDivisionError",
        "numpy.reshape",
        "error (float32[2, 0], (-1, 0))",
    ),
    known_difference("the same", "numpy.split numpy.array_split", "error (float32[2, 3], 0)"),
    known_difference("the same", "lax.slice", "error (float32[2, 3], (0, 0), (1, 1), (0, 1))"),
    known_difference(
        "the same, instead of an IndexError for the first of no elements", "numpy.hstack lax.stack", "error ([])"
    ),
    known_difference("the same, instead of an error of `zip`", "lax.slice", "error (float32[2, 3], (0,), (1,))"),
    known_difference("the same", "lax.dynamic_slice", "error (float32[2, 3], (0, 0), (1,))"),
    known_difference("the same, instead of an error in lowering", "lax.reshape", "error (float32[2, 3], (4, 2))"),
    known_difference("the same, instead of an assertion", "lax.psum_scatter", "error (float32[2, 3], tiled=True)"),
    known_difference(
        "the same",
        "nn.dot_product_attention",
        "error (float32[1, 2, 4, 2], float32[1, 3, 2, 2], float32[1, 3, 2, 2], float32[1, 3, 2, 3])",
    ),
    known_difference(
        "the same", "lax.ppermute", "error (float32[3, 4], [(0, 1), (0, 2)])", "error (float32[3, 4], [(0, 5)])"
    ),
    known_difference(
        "a list needs one number for each element; JAX refuses lists",
        "numpy.repeat",
        "error (float32[2, 3], [1, 2], axis=1)",
    ),
    known_difference(
        "unknown modes are a ValueError, like other unknown names",
        "numpy.pad",
        "error (float32[2, 3], 1, mode='other')",
    ),
    known_difference("the same", "numpy.take", "error (float32[3, 4], [1, 0, -1], mode='raise')"),
)
"""All known differences: by JAX release, in weak types, JAX's limitations, missing features, and error classes."""
