"""Where tracefx and JAX differ, each with its reason: the one list of it.

A difference says of which functions, and how what the harness finds begins. One that is found no more fails the tests.
Under the profile `long` the harness looks at more: what it finds then alone is listed beside.
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
    """The functions, with spaces between them."""
    beginnings: tuple[str, ...]
    at_length: tuple[str, ...]
    """How what is found under the profile `long` alone begins."""

    def concerns(self, name: str) -> bool:
        return name in self.names.split()


def known_difference(reason: str, names: str, *beginnings: str, at_length: tuple[str, ...] = ()) -> KnownDifference:
    return KnownDifference(reason, names, beginnings, at_length)


UPDATES: Final = (
    "numpy.at.set numpy.at.add numpy.at.subtract numpy.at.multiply numpy.at.mul numpy.at.divide numpy.at.power "
    "numpy.at.min numpy.at.max"
)
BINARY: Final = (
    "lax.add lax.sub lax.mul lax.div lax.rem lax.max lax.min lax.atan2 lax.nextafter lax.pow lax.eq lax.ne lax.lt "
    "lax.le lax.gt lax.ge"
)

LOSING_WEAKNESS: Final = " ".join(
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
    [f"dtype {one} {other}" for one in DTYPES for other in DTYPES if one != other and "complex64" in (one, other)]
)
"""Pairs of a complex dtype and another."""

BEFORE_011: Final = (
    known_difference(
        "JAX starts from the least of 32-bit integers, and fails",
        "numpy.max numpy.min numpy.ptp",
        "dtype all int64",
        at_length=("value all int64",),
    ),
    known_difference("the same", "nn.softmax nn.log_softmax", "dtype all int64", at_length=("value all int64",)),
    known_difference(
        "beyond the end there is nothing, as in NumPy; JAX refuses", "numpy.split", "value (float32[3], [5])"
    ),
)
"""Differences from JAX before 0.11 alone."""

BEFORE_012: Final = (known_difference("results of weak operands are weak", "scipy.stats.uniform.pdf", "dtype (weak"),)
"""Differences from JAX before 0.12 alone."""

IN_011: Final = (
    known_difference(
        "`log2` divides by a logarithm that is not weak, as `log10` multiplies by one; JAX has a primitive",
        "numpy.log2",
        *[f"{aspect} ({x})" for aspect in ("value", "compiled") for x in ("weak float32[2]", "2", "1.15")],
    ),
)
"""Differences from JAX since 0.11."""

IN_012: Final = (
    known_difference(
        "a length is weak only if both operands are; JAX promotes their dtypes first",
        "numpy.hypot",
        *[
            f"{aspect} ({x})"
            for aspect in ("value", "compiled")
            for x in ("[1, 2], 0.5", "[1, 2], weak float32[1]", "[True, False], 2")
        ],
    ),
    known_difference(
        "`sinc` multiplies by pi as NumPy does; JAX reduces the argument first, and is 0 at infinity",
        "numpy.sinc",
        *[f"{aspect} ({x})" for aspect in ("value", "compiled") for x in ("float32[2, 3]", "float32[9]", "2")],
        *[f"value all {dtype}" for dtype in ("bool", "int32", "bfloat16")],
        at_length=(
            *[f"value all {dtype}" for dtype in ("int8", "uint8", "uint32", "float16")],
            *[f"compiled all {dtype}" for dtype in ("bool", "int8", "uint8", "int32", "uint32")],
            *[f"compiled all {dtype}" for dtype in ("float16", "bfloat16")],
        ),
    ),
    known_difference(
        "indices filled with a weak value are weak",
        "numpy.nonzero",
        "value (bool[2, 3], fill_value=0.5, size=5)",
        "compiled (bool[2, 3], fill_value=0.5, size=5)",
    ),
    known_difference(
        "vectors may have 2 components; JAX refuses them",
        "numpy.cross",
        "value (float32[2, 2], float32[2, 3])",
        "value (float32[2, 2], float32[2])",
        "value (float32[3, 2], float32[2])",
        *[f"{aspect} (float32[2, 2], float32[2, 3])" for aspect in ("jvp", "grad", "second")],
    ),
    known_difference(
        "a vector in the place of a matrix is a TypeError; JAX raises a ValueError",
        "lax.linalg.cholesky lax.linalg.eigh",
        "error (float32[1])",
    ),
    known_difference(
        "not here: generalized eigenvalue problems",
        "scipy.linalg.eigh",
        "error (float32[3, 3], float32[3, 3])",
        "error (float32[3, 3], type=2)",
    ),
    known_difference(
        "JAX cannot differentiate the derivative at an array: it selects between a scalar and the array",
        "scipy.special.erfcx",
        "second (float32[4])",
    ),
    known_difference(
        "the quantile function has a slope at 1/2; JAX's is 0, since it selects a constant there",
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
        "a result of weak operands is weak in every function; JAX's loses that on the way",
        "numpy.deg2rad numpy.rad2deg",
        *(f"{aspect} (weak float32[2])" for aspect in ("value", "compiled")),
    ),
    known_difference(
        "the same", "nn.softplus nn.mish", "value all bool: weak_type", at_length=("compiled all bool: weak_type",)
    ),
    known_difference("the same", LOSING_WEAKNESS, "dtype (weak"),
    known_difference(
        "places are never weak",
        "numpy.argpartition",
        "value (weak float32[5], 0): weak_type",
        "compiled (weak float32[5], 0): weak_type",
    ),
    known_difference(
        "the same", "numpy.heaviside", "value (weak float32[2, 3], 0.5)", "compiled (weak float32[2, 3], 0.5)"
    ),
    known_difference("the same", "numpy.angle", "value (2.0)", "compiled (2.0)"),
    known_difference("the same", "numpy.frexp numpy.spacing", "value (3)", "compiled (3)"),
    known_difference("the same", "numpy.ldexp", "value (1.5, 2)", "compiled (1.5, 2)"),
    known_difference(
        "the same", "numpy.choose", "value ([0], [2.5], mode='clip')", "compiled ([0], [2.5], mode='clip')"
    ),
    known_difference("the same", "numpy.diagflat", "value (2.0)", "compiled (2.0)"),
    # ------------------------------------------------------------------ what JAX can't
    known_difference(
        "changes of the matrix need not be symmetric, though it is; JAX takes them for symmetric where it solves back",
        "scipy.linalg.solve",
        "second (float32[2, 2], float32[2], assume_a='pos')",
    ),
    known_difference(
        "norms of integers are floats; JAX takes the root in integers",
        "numpy.linalg.vector_norm",
        "value all int32",
        at_length=("compiled all int32",),
    ),
    known_difference(
        "bools are taken as by NumPy, and stay as they are",
        "numpy.round numpy.ndarray.round numpy.ndarray.__round__",
        "value all bool",
    ),
    known_difference(
        "JAX multiplies by a constant of 32 bits, and fails",
        "numpy.log10",
        "value all float64",
        "dtype all int64",
        at_length=("value all int64",),
    ),
    known_difference(
        "a constant of 32 bits makes JAX's results in 64 bits wrong",
        "nn.gelu",
        "value all float64",
        at_length=("value all int64", "compiled all int64", "compiled all float64"),
    ),
    known_difference(
        "weights are as exact as the image; JAX has them in 32 bits",
        "image.resize",
        "value all float64",
        at_length=("compiled all float64",),
    ),
    known_difference(
        "the greatest is subtracted from floats; JAX subtracts it from unsigned integers",
        "nn.softmax nn.log_softmax",
        at_length=tuple([f"{aspect} all {d}" for aspect in ("value", "compiled") for d in ("uint8", "uint32")]),
    ),
    known_difference(
        "products of float16 are computed with more bits on CPUs too; JAX fails",
        "nn.dot_product_attention",
        at_length=("value all float16",),
    ),
    known_difference(
        "JAX takes bits of 64 with masks of 32, and fails",
        "numpy.frexp numpy.ldexp",
        "value all float64",
        *(() if SINCE_012 else ("dtype all int64",)),
        at_length=("value all int64",),
    ),
    known_difference(
        "a fraction has the sign of the number, and is 0 of an infinite one, as in NumPy",
        "numpy.modf",
        "value (float32[13])",
        "compiled (float32[13])",
        "value all int32",
        at_length=("value all int8", "value all int64", *(f"compiled all {d}" for d in ("int8", "int32", "int64"))),
    ),
    known_difference(
        "a bool becomes a float as an integer does; JAX fails", "nn.softmax nn.log_softmax", "value all bool"
    ),
    known_difference(
        "JAX asks for an order with the dtype of the points, where it gave it that",
        "lax.polygamma",
        "value all float64",
    ),
    known_difference(
        "zeros have the signs that the array API and Python give them",
        "numpy.floor_divide numpy.remainder numpy.divmod",
        "value (float32[13, 13], float32[13, 13])",
        "compiled (float32[13, 13], float32[13, 13])",
    ),
    known_difference("the same", "numpy.sign", "value (float32[13])", "compiled (float32[13])"),
    known_difference("bools are multiplied, as by NumPy; JAX refuses", "numpy.kron", "value all bool"),
    known_difference(
        "arrays that don't broadcast are not equal; JAX fails", "numpy.array_equiv", "value (float32[2], float32[3])"
    ),
    known_difference(
        "narrow integers are multiplied in the default integer, as the array API says",
        "numpy.cumulative_prod",
        "dtype all int8",
        "dtype all uint8",
        at_length=tuple([f"{aspect} all {d}" for aspect in ("value", "compiled") for d in ("int8", "uint8")]),
    ),
    known_difference(
        "numbers below zero are out of order as unsigned ones, and searching these finds anything",
        "numpy.searchsorted",
        at_length=("compiled all uint32",),
    ),
    known_difference("bools are added, as by NumPy; JAX refuses", "numpy.polyadd", "value all bool"),
    known_difference(
        "repetitions may be a list, as in NumPy; JAX refuses", "numpy.repeat", "value (float32[3], [1, 2, 0])"
    ),
    known_difference(
        "JAX scales numbers of 16 bits before it takes more of them",
        "scipy.fft.idct",
        "value all bfloat16",
        at_length=("compiled all bfloat16",),
    ),
    known_difference(
        "numbers of any real dtype are taken; JAX refuses all but those of 32 and 64 bits",
        "scipy.special.ndtr scipy.special.ndtri scipy.special.log_ndtr scipy.special.spence",
        "dtype all float16",
        "dtype ([1, 2, 3, 1])",
        at_length=("value all float16",),
    ),
    known_difference(
        "numbers of 16 bits stay such; JAX gives more of them",
        "scipy.special.owens_t",
        "dtype all float16",
        at_length=("value all float16", "compiled all float16"),
    ),
    known_difference(
        "orders may be floats that are whole, as SciPy's",
        "scipy.special.polygamma",
        "dtype all float16",
        at_length=("value all float16",),
    ),
    known_difference(
        "numbers of 16 bits are computed with more of them; JAX's are NaN where one in between is too large",
        "scipy.special.expi scipy.special.sici scipy.special.poch",
        at_length=("value all float16", "compiled all float16"),
    ),
    known_difference(
        "an order that is negative is told; JAX gives nothing", "scipy.special.bessel_jn", "error (float32[1], v=-1)"
    ),
    # ------------------------------------------------------------------ what is not here
    known_difference(
        "not here: derivatives of derivatives of draws in their parameter; JAX has them going forward alone",
        "random.gamma",
        "second ([17, 4000000003], float32[2])",
    ),
    known_difference(
        "not here: logarithms of sums of exponentials of complex numbers",
        "nn.softplus nn.log_sigmoid nn.mish",
        "value all complex64",
    ),
    known_difference(
        "large numbers do not overflow, and -inf gives 0; JAX has infinity and NaN",
        "nn.squareplus",
        "value (float32[13])",
        "compiled (float32[13])",
    ),
    known_difference(
        "JAX takes the constants in float32 first",
        "nn.selu",
        "value all float64",
        at_length=("compiled all float64",),
    ),
    known_difference(
        "complex numbers have no order; JAX's result is that of their parts",
        "lax.clamp",
        "value all complex64",
        "error (complex64[1]",
    ),
    known_difference(
        "a class is an integer; JAX compares floats with integers",
        "nn.one_hot",
        "dtype all float32",
        "error (float32[1], 3)",
        at_length=("value all float32",),
    ),
    known_difference("sequences are no arrays, in no function", "nn.one_hot", "error ([1], 3)"),
    known_difference("None is no dtype", "numpy.result_type", "error (None, None)"),
    known_difference(
        "a number has a dtype, as an argument of `result_type` has", "numpy.promote_types", "error ('int8', 1)"
    ),
    known_difference(
        "operations broadcast only arrays without axes: what repeats an array is written down in a program",
        BINARY,
        "error (float32[2, 1], float32[1, 2])",
    ),
    known_difference("the same", "lax.complex lax.polygamma", "error (float32[1], float32[2])"),
    known_difference("a shift is an integer; JAX cuts off fractions", "numpy.roll", "error (float32[2, 3, 4], 1.5)"),
    known_difference(
        "a start counts from the first element; JAX gives more elements than there are between",
        "lax.slice",
        "error (float32[2, 3], (-1, 0), (1, 3))",
    ),
    known_difference(
        "what one deals out has a part for each; JAX leaves some out", "lax.psum_scatter", "error (float32[2, 3]):"
    ),
    known_difference(
        "numbers of no integer dtype have no variance in it; JAX gives 0",
        "numpy.var",
        "error (float32[2, 3, 2], dtype='int32')",
    ),
    known_difference(
        "`copy` says nothing about arrays that never change", "numpy.meshgrid", "error (float32[3], copy=False)"
    ),
    known_difference("`%` of a string is the string's", "numpy.ndarray.__rmod__", "error (float32[2, 3], 'a')"),
    known_difference(
        "there are as many counts as values",
        "numpy.unique_all numpy.unique_counts",
        "value (float32[2, 0], fill_value=3, size=2)",
        "compiled (float32[2, 0], fill_value=3, size=2)",
    ),
    # ------------------------------------------------------------------ classes of errors
    known_difference(
        "the name of a rule for bins is refused as in `histogram_bin_edges`",
        "numpy.histogram",
        "error (float32[2, 3, 2], 'auto')",
    ),
    known_difference(
        "a wrong dtype is a TypeError; JAX raises a ValueError in these",
        "numpy.hypot",
        "value all complex64",
        "dtype operand 0 complex64",
        "dtype operand 1 complex64",
        at_length=WITH_COMPLEX,
    ),
    known_difference("the same", "numpy.isposinf numpy.isneginf", "value all complex64"),
    known_difference("the same", "numpy.sum numpy.prod", "error (float32[2, 3, 2], where=float32[2])"),
    known_difference("the same", "numpy.take", "error (float32[3, 4], 1.5)"),
    known_difference("the same", "scipy.stats.multinomial.pmf", "error (float32[3], 6, float32[3])"),
    known_difference("the same", "numpy.ndarray.take", "error (float32[2, 3], float32[1])"),
    known_difference(
        "what is no array is a TypeError; JAX looks at it too late", UPDATES, "error (float32[3, 4], 0, None)"
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
        "what must be an integer is a TypeError if it is none", "numpy.swapaxes", "error (float32[2, 3], 0.5, 1)"
    ),
    known_difference("the same", "numpy.eye", "error (2, k=0.5)"),
    known_difference(
        "what JAX finds out by dividing by zero is told before",
        "numpy.reshape",
        "error (float32[2, 0], (-1, 0))",
    ),
    known_difference("the same", "numpy.split numpy.array_split", "error (float32[2, 3], 0)"),
    known_difference("the same", "lax.slice", "error (float32[2, 3], (0, 0), (1, 1), (0, 1))"),
    known_difference("the same, by taking the first of none", "numpy.hstack lax.stack", "error ([])"),
    known_difference(
        "the same, by going through two sequences at once", "lax.slice", "error (float32[2, 3], (0,), (1,))"
    ),
    known_difference("the same", "lax.dynamic_slice", "error (float32[2, 3], (0, 0), (1,))"),
    known_difference("the same, by lowering", "lax.reshape", "error (float32[2, 3], (4, 2))"),
    known_difference("the same, by an assertion", "lax.psum_scatter", "error (float32[2, 3], tiled=True)"),
    known_difference(
        "the same",
        "nn.dot_product_attention",
        "error (float32[1, 2, 4, 2], float32[1, 3, 2, 2], float32[1, 3, 2, 2], float32[1, 3, 2, 3])",
    ),
    known_difference(
        "the same", "lax.ppermute", "error (float32[3, 4], [(0, 1), (0, 2)])", "error (float32[3, 4], [(0, 5)])"
    ),
    known_difference(
        "one number for each element; JAX takes no list at all", "numpy.repeat", "error (float32[2, 3], [1, 2], axis=1)"
    ),
    known_difference(
        "an unknown name is a ValueError, of a mode too", "numpy.pad", "error (float32[2, 3], 1, mode='other')"
    ),
    known_difference("the same", "numpy.take", "error (float32[3, 4], [1, 0, -1], mode='raise')"),
)
"""In order: what differs by the release of JAX, in type, in what there is, and only in the class of an error."""
