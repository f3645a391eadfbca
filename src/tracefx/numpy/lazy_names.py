"""The names of `tracefx.numpy` that are imported lazily, when they are first accessed, by module.

Names that most programs use are imported with the package. Type checkers see all names in `__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_NAMES_BY_MODULE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fft": "fft",
        "linalg": "linalg",
        "stacking": "block column_stack concat dsplit dstack hsplit unstack vsplit",
        "index_tricks": (
            "c_ diag_indices diag_indices_from index_exp indices ix_ mask_indices mgrid ogrid r_ "
            "ravel_multi_index s_ tril_indices tril_indices_from triu_indices triu_indices_from unravel_index"
        ),
        "static_queries": "broadcast_shapes can_cast iscomplexobj isrealobj isscalar iterable ndim shape size",
        "printing": "array_repr array_str get_printoptions printoptions set_printoptions",
        "interchange": "from_dlpack frombuffer fromfile fromfunction fromiter fromstring load save savez",
        "float_parts": "frexp ldexp modf spacing",
        "special_functions": "angle float_power fmax fmin heaviside iscomplex isreal logaddexp2 nan_to_num sinc",
        "integers": "bitwise_count gcd lcm packbits unpackbits",
        "differences": "cumulative_prod cumulative_sum diff ediff1d gradient trapezoid unwrap",
        "editing": "delete fill_diagonal insert put_along_axis resize trim_zeros",
        "rotation": "fliplr flipud rollaxis rot90",
        "selection": "choose piecewise select",
        "convolution": "convolve correlate",
        "products": "cross einsum_path kron matvec vecdot vecmat",
        "sequences": "diagflat geomspace logspace vander",
        "covariance": "corrcoef cov",
        "vectorization": "apply_along_axis apply_over_axes frompyfunc ufunc vectorize",
        "window_functions": "bartlett blackman hamming hanning i0 kaiser",
        "polynomials": "polyadd polyder polydiv polyint polymul polysub polyval",
        "polynomial_fitting": "poly polyfit roots",
        "sorting": "argpartition argsort lexsort partition sort sort_complex",
        "searching": "digitize interp searchsorted",
        "mask_selection": "argwhere compress extract flatnonzero nonzero place put",
        "sets": (
            "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values"
        ),
        "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "histograms": "bincount histogram histogram2d histogram_bin_edges histogramdd",
        "nan_reductions": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar",
        "array_api_info": "__array_namespace_info__",
        "views": "byteswap view",
    }
)

LAZY_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"tracefx.numpy.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
)
"""The module of each lazy name. A namespace such as `linalg` is listed under its own name."""
