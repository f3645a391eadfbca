"""NumPy's functions over tracefx arrays, with the names and the dtype rules of `jax.numpy`.

Functions that few programs use live in modules that are imported when one of their names is first used.
"""

from __future__ import annotations

import importlib as _importlib
import math
from typing import TYPE_CHECKING, Final

from numpy import character, dtype, flexible, object_
from numpy import euler_gamma as _euler_gamma
from numpy.exceptions import ComplexWarning

from tracefx.core.array import Array as ndarray
from tracefx.numpy.closeness import (
    allclose,
    array_equal,
    array_equiv,
    isclose,
)
from tracefx.numpy.creation import (
    arange,
    array,
    asarray,
    copy,
    empty,
    empty_like,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from tracefx.numpy.diagonals import diag, diagonal, eye, identity, trace, tri, tril, triu
from tracefx.numpy.dot_products import (
    dot,
    inner,
    matmul,
    outer,
    tensordot,
    vdot,
)
from tracefx.numpy.dtype_routines import (
    complexfloating,
    finfo,
    floating,
    generic,
    iinfo,
    inexact,
    integer,
    isdtype,
    issubdtype,
    number,
    promote_types,
    result_type,
    signedinteger,
    unsignedinteger,
)
from tracefx.numpy.einstein_summation import einsum
from tracefx.numpy.floating_point import copysign, nextafter, signbit
from tracefx.numpy.indexing import (
    getitem,
    take,
    take_along_axis,
)
from tracefx.numpy.joining import (
    append,
    array_split,
    concatenate,
    hstack,
    split,
    stack,
    vstack,
)
from tracefx.numpy.lazy_names import LAZY_NAMES as _LATE
from tracefx.numpy.logic import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    invert,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    right_shift,
)
from tracefx.numpy.padding import pad
from tracefx.numpy.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    cumprod,
    cumsum,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    var,
)
from tracefx.numpy.repeating import repeat, roll, tile
from tracefx.numpy.scalar_types import (
    bfloat16,
    bool_,
    cdouble,
    complex64,
    complex128,
    complex_,
    csingle,
    double,
    float4_e2m1fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    float_,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    int_,
    single,
    uint,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tracefx.numpy.scalar_types import bool_ as bool
from tracefx.numpy.shapes import (
    astype,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_to,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from tracefx.numpy.transcendentals import (
    acos,
    acosh,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    cos,
    cosh,
    deg2rad,
    degrees,
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    rad2deg,
    radians,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from tracefx.numpy.ufuncs import (
    abs,
    absolute,
    add,
    around,
    ceil,
    clip,
    conj,
    conjugate,
    divide,
    divmod,
    fabs,
    floor,
    floor_divide,
    fmod,
    imag,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    positive,
    pow,
    power,
    real,
    reciprocal,
    remainder,
    rint,
    round,
    sign,
    square,
    subtract,
    true_divide,
    trunc,
    where,
)
from tracefx.numpy.updates import at

pi: Final = math.pi
e: Final = math.e
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
__array_api_version__: Final = "2024.12"
euler_gamma: Final = _euler_gamma

if TYPE_CHECKING:
    from tracefx.numpy import fft, linalg
    from tracefx.numpy.array_api_info import __array_namespace_info__
    from tracefx.numpy.convolution import convolve, correlate
    from tracefx.numpy.covariance import corrcoef, cov
    from tracefx.numpy.differences import cumulative_prod, cumulative_sum, diff, ediff1d, gradient, trapezoid, unwrap
    from tracefx.numpy.editing import delete, fill_diagonal, insert, put_along_axis, resize, trim_zeros
    from tracefx.numpy.float_parts import frexp, ldexp, modf, spacing
    from tracefx.numpy.histograms import bincount, histogram, histogram2d, histogram_bin_edges, histogramdd
    from tracefx.numpy.index_tricks import (
        c_,
        diag_indices,
        diag_indices_from,
        index_exp,
        indices,
        ix_,
        mask_indices,
        mgrid,
        ogrid,
        r_,
        ravel_multi_index,
        s_,
        tril_indices,
        tril_indices_from,
        triu_indices,
        triu_indices_from,
        unravel_index,
    )
    from tracefx.numpy.integers import bitwise_count, gcd, lcm, packbits, unpackbits
    from tracefx.numpy.interchange import (
        from_dlpack,
        frombuffer,
        fromfile,
        fromfunction,
        fromiter,
        fromstring,
        load,
        save,
        savez,
    )
    from tracefx.numpy.mask_selection import argwhere, compress, extract, flatnonzero, nonzero, place, put
    from tracefx.numpy.nan_reductions import (
        nanargmax,
        nanargmin,
        nancumprod,
        nancumsum,
        nanmax,
        nanmean,
        nanmin,
        nanprod,
        nanstd,
        nansum,
        nanvar,
    )
    from tracefx.numpy.polynomial_fitting import poly, polyfit, roots
    from tracefx.numpy.polynomials import polyadd, polyder, polydiv, polyint, polymul, polysub, polyval
    from tracefx.numpy.printing import array_repr, array_str, get_printoptions, printoptions, set_printoptions
    from tracefx.numpy.products import cross, einsum_path, kron, matvec, vecdot, vecmat
    from tracefx.numpy.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
    from tracefx.numpy.rotation import fliplr, flipud, rollaxis, rot90
    from tracefx.numpy.searching import digitize, interp, searchsorted
    from tracefx.numpy.selection import choose, piecewise, select
    from tracefx.numpy.sequences import diagflat, geomspace, logspace, vander
    from tracefx.numpy.sets import (
        intersect1d,
        isin,
        setdiff1d,
        setxor1d,
        union1d,
        unique,
        unique_all,
        unique_counts,
        unique_inverse,
        unique_values,
    )
    from tracefx.numpy.sorting import argpartition, argsort, lexsort, partition, sort, sort_complex
    from tracefx.numpy.special_functions import (
        angle,
        float_power,
        fmax,
        fmin,
        heaviside,
        iscomplex,
        isreal,
        logaddexp2,
        nan_to_num,
        sinc,
    )
    from tracefx.numpy.stacking import block, column_stack, concat, dsplit, dstack, hsplit, unstack, vsplit
    from tracefx.numpy.static_queries import (
        broadcast_shapes,
        can_cast,
        iscomplexobj,
        isrealobj,
        isscalar,
        iterable,
        ndim,
        shape,
        size,
    )
    from tracefx.numpy.vectorization import apply_along_axis, apply_over_axes, frompyfunc, ufunc, vectorize
    from tracefx.numpy.views import byteswap, view
    from tracefx.numpy.window_functions import bartlett, blackman, hamming, hanning, i0, kaiser
else:  # hidden from type checkers, which would otherwise accept every attribute name

    def __getattr__(name: str) -> object:
        where = _LATE.get(name)
        if where is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _importlib.import_module(where)
        found: object = module if where == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


__all__ = ["ndarray", "pi", "e", "euler_gamma", "inf", "nan", "newaxis", "__array_api_version__"]
__all__ += ["allclose", "array_equal", "array_equiv", "isclose"]
__all__ += ["arange", "array", "asarray", "copy", "diag", "diagonal", "empty", "empty_like", "eye", "full", "full_like"]
__all__ += ["identity", "linspace", "meshgrid", "ones", "ones_like", "trace", "tri", "tril", "triu", "zeros"]
__all__ += ["zeros_like"]
__all__ += ["copysign", "nextafter", "signbit"]
__all__ += ["getitem", "take", "take_along_axis"]
__all__ += ["append", "array_split", "concatenate", "hstack", "split", "stack", "vstack"]
__all__ += ["complexfloating", "finfo", "floating", "generic", "iinfo", "inexact", "integer", "isdtype", "issubdtype"]
__all__ += ["number", "promote_types", "result_type", "signedinteger", "unsignedinteger"]
__all__ += ["dot", "inner", "matmul", "outer", "tensordot", "vdot"]
__all__ += ["bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift"]
__all__ += ["bitwise_xor", "equal", "greater", "greater_equal", "invert", "isfinite", "isinf", "isnan", "isneginf"]
__all__ += ["isposinf", "left_shift", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor"]
__all__ += ["not_equal", "right_shift"]
__all__ += ["pad"]
__all__ += ["all", "amax", "amin", "any", "argmax", "argmin", "average", "count_nonzero", "cumprod", "cumsum", "max"]
__all__ += ["mean", "min", "prod", "ptp", "std", "sum", "var"]
__all__ += ["repeat", "roll", "tile"]
__all__ += ["bfloat16", "bool_", "complex64", "complex128", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"]
__all__ += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float16"]
__all__ += ["float32", "float64", "int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8"]
__all__ += ["uint16", "uint32", "uint64"]
__all__ += ["bool", "cdouble", "complex_", "csingle", "double", "float4_e2m1fn", "float_", "int_", "single", "uint"]
__all__ += ["ComplexWarning", "character", "dtype", "flexible", "object_"]
__all__ += ["astype", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "expand_dims"]
__all__ += ["flip", "matrix_transpose", "moveaxis", "ndim", "permute_dims", "ravel", "reshape", "size", "squeeze"]
__all__ += ["swapaxes", "transpose"]
__all__ += ["einsum"]
__all__ += ["acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh"]
__all__ += ["atan", "atan2", "atanh", "cbrt", "cos", "cosh", "deg2rad", "degrees", "exp", "exp2", "expm1", "hypot"]
__all__ += ["log", "log1p", "log2", "log10", "logaddexp", "rad2deg", "radians", "sin", "sinh", "sqrt", "tan", "tanh"]
__all__ += ["abs", "absolute", "add", "around", "ceil", "clip", "conj", "conjugate", "divide", "divmod", "fabs"]
__all__ += ["floor", "floor_divide", "fmod", "imag", "maximum", "minimum", "mod", "multiply", "negative", "positive"]
__all__ += ["pow", "power", "real", "reciprocal", "remainder", "rint", "round", "sign", "square", "subtract"]
__all__ += ["true_divide", "trunc", "where"]
__all__ += ["at"]
__all__ += ["fft", "linalg"]
__all__ += ["block", "column_stack", "concat", "dsplit", "dstack", "hsplit", "unstack", "vsplit"]
__all__ += ["c_", "diag_indices", "diag_indices_from", "index_exp", "indices", "ix_", "mask_indices", "mgrid", "ogrid"]
__all__ += ["r_", "ravel_multi_index", "s_", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from"]
__all__ += ["unravel_index"]
__all__ += ["broadcast_shapes", "can_cast", "iscomplexobj", "isrealobj", "isscalar", "iterable", "shape"]
__all__ += ["array_repr", "array_str", "get_printoptions", "printoptions", "set_printoptions"]
__all__ += ["from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter", "fromstring", "load", "save", "savez"]
__all__ += ["frexp", "ldexp", "modf", "spacing"]
__all__ += ["angle", "float_power", "fmax", "fmin", "heaviside", "iscomplex", "isreal", "logaddexp2", "nan_to_num"]
__all__ += ["sinc"]
__all__ += ["bitwise_count", "gcd", "lcm", "packbits", "unpackbits"]
__all__ += ["cumulative_prod", "cumulative_sum", "diff", "ediff1d", "gradient", "trapezoid", "unwrap"]
__all__ += ["delete", "fill_diagonal", "insert", "put_along_axis", "resize", "trim_zeros"]
__all__ += ["fliplr", "flipud", "rollaxis", "rot90"]
__all__ += ["choose", "piecewise", "select"]
__all__ += ["cross", "einsum_path", "kron", "matvec", "vecdot", "vecmat"]
__all__ += ["diagflat", "geomspace", "logspace", "vander"]
__all__ += ["corrcoef", "cov"]
__all__ += ["convolve", "correlate"]
__all__ += ["apply_along_axis", "apply_over_axes", "frompyfunc", "ufunc", "vectorize"]
__all__ += ["bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"]
__all__ += ["polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub", "polyval"]
__all__ += ["poly", "polyfit", "roots"]
__all__ += ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]
__all__ += ["digitize", "interp", "searchsorted"]
__all__ += ["argwhere", "compress", "extract", "flatnonzero", "nonzero", "place", "put"]
__all__ += ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all", "unique_counts"]
__all__ += ["unique_inverse", "unique_values"]
__all__ += ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
__all__ += ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]
__all__ += ["nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd"]
__all__ += ["nansum", "nanvar"]
__all__ += ["__array_namespace_info__"]
__all__ += ["byteswap", "view"]
