"""Differences between the versions of jax and jaxlib that the tests run with.

The tests run with jaxlib 0.10.2 (`make test`) and with the newest supported one (`make test-latest`). Where JAX or XLA
prints, names or computes something differently, a test uses a constant from here instead of a version check.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from tracefx.core import DType, dtypes
from tracefx.testing.tolerances import Ulps


def _release(package: str) -> tuple[int, ...]:
    """Returns the installed release, such as `(0, 11, 2)`."""
    numbers = re.match(r"\d+(\.\d+)*", importlib.import_module(f"{package}.version").__version__)
    assert numbers is not None
    return tuple(map(int, numbers[0].split(".")))


JAXLIB: Final = _release("jaxlib")

SINCE_011: Final = JAXLIB >= (0, 11)
SINCE_0111: Final = JAXLIB >= (0, 11, 1)
SINCE_0112: Final = JAXLIB >= (0, 11, 2)
SINCE_012: Final = JAXLIB >= (0, 12)
"""Conditions of the tables below, and of the differences from JAX in `tests/differential/differences.py`."""

RETURN_LISTS: Final[tuple[str, ...]] = (
    *(() if SINCE_011 else ("numpy.broadcast_arrays", "numpy.meshgrid")),
    *(() if SINCE_012 else ("numpy.atleast_1d", "numpy.atleast_2d", "numpy.atleast_3d")),
)
"""Functions of JAX that return a list of arrays where tracefx and NumPy 2 return a tuple."""

CHECKS_DTYPES_OF_MATRICES: Final = SINCE_0111
"""Whether JAX refuses dtypes that LAPACK lacks when it traces a decomposition; before, when it compiles."""

CHECKS_SHAPES_OF_MATRICES: Final = SINCE_012
"""Whether `cholesky` and `eigh` of JAX check the shape of their operand themselves, with a ValueError."""

HAS_LOG2_PRIMITIVE: Final = SINCE_0112
"""Whether JAX's `log2` is one primitive, weakly typed for weak operands; before, it divides by log(2)."""

OTHER_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    **({} if SINCE_0111 else {"numpy.take_along_axis": ("wrap_negative_indices",)}),
    **({} if SINCE_012 else {"numpy.polyval": ("unroll",)}),
}
"""Parameters that JAX's functions lack in this release, or give another default than in later ones."""

ABSENT_PARAMETERS: Final = frozenset(
    ()
    if SINCE_011
    else [f"tracefx.random.{name}: method" for name in ("beta", "chisquare", "gamma", "loggamma", "poisson")]
)
"""Parameters of tracefx's functions that some supported release of JAX has, but not this one."""

WARNS_OF_ARGUMENTS_BY_PLACE: Final = not SINCE_012
"""Whether JAX's `array` takes positional arguments beyond those of NumPy, with a deprecation warning."""

_NAMES_SINCE: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(
        ("jax.Inline", "jax.custom_remat", "jax.sharding.UnreducedKind", "jax.ffi.abstract_token"), (0, 11)
    ),
    **dict.fromkeys(
        ("jax.CompilerEffortLevel",),
        (0, 11, 1),
    ),
    **dict.fromkeys(
        (
            *("jax.lax.log2_p", "jax.lax.one_minus_square_p"),
            "jax.ad_checkpoint.checkpoint_name_fwd",
        ),
        (0, 11, 2),
    ),
    **dict.fromkeys(
        (
            *(f"jax.lax.{name}" for name in ("polynomial_p", "psum_scatter_start")),
            *(f"jax.profiler.{name}" for name in ("ProfileLine", "ProfileSession", "export_profile_data")),
            *("jax.random.Key", "jax.sharding.no_collectives"),
        ),
        (0, 12),
    ),
}
_NAMES_UNTIL: Final[Mapping[str, tuple[int, int]]] = dict.fromkeys(
    ("jax.lax.psend", "jax.lax.precv", "jax.custom_remat"), (0, 12)
)
ABSENT_NAMES: Final = frozenset(
    [name for name, since in _NAMES_SINCE.items() if since > JAXLIB]
    + [name for name, until in _NAMES_UNTIL.items() if until <= JAXLIB]
)
"""Public names that some supported release of JAX has, but not this one."""

ABSENT_LAX_FUNCTIONS: Final = frozenset(
    [*(() if SINCE_0112 else ("log2", "one_minus_square")), *(() if SINCE_012 else ("polynomial",))]
)
"""Functions of `tracefx.lax` that some supported release of JAX has, but not this one."""

TAKES_COPY_FROM_DLPACK: Final = _release("numpy") >= (2, 1)
"""Whether `numpy.from_dlpack` has the arguments `copy` and `device`."""

with np.errstate(all="ignore"):
    NUMPY_CALLS_THE_C_LIBRARY: Final = not np.isnan(np.arccosh(complex(0.0, np.nan)).imag)
"""Whether NumPy was built to call the C library's inverse functions of complex numbers. Wheels of NumPy 2.0 for Linux
use their own: `arccosh(nan * 1j)` has no imaginary part, and signs that C leaves unspecified differ."""

HAS_FUSION_EMITTERS_FLAG: Final = not SINCE_011
"""Whether XLA has the flag `xla_cpu_use_fusion_emitters`; since 0.11 it aborts on this flag."""

PRINTS_TREES_OF_SCANS: Final = SINCE_011
"""Whether JAX prints the trees of operands and results of `scan` (`ft_in`, `ft_out`) instead of counts."""

PRINTS_SHARDINGS_OF_REDUCTIONS: Final = SINCE_011
"""Whether JAX prints `out_sharding=None` among the parameters of reductions such as `reduce_max`."""

EXPORTS_SAY_HAS_NAMED_SHARDINGS: Final = not SINCE_0111
"""Whether the constructor of `jax.export.Exported` takes `_has_named_shardings`."""

LOG_OF_DEVICE_ORDERS: Final = re.compile(r"W\d+ .*This branch is not expected as JAX is not known to use device .*\n")
"""XLA's log message since 0.11 for a program with two meshes that order the same devices differently."""

_JAXS_OWN_KERNELS: Final[Mapping[tuple[str, bool], Ulps]] = (
    {
        # JAX computes it itself; XLA's `lgamma`, which tracefx calls, has errors up to 25 ulps of 1.0 in 32 bits.
        ("lgamma", False): Ulps(0, 32, 1, least=1.0),
        # JAX scales the parts itself; XLA's `abs`, which tracefx calls, is NumPy's `hypot`.
        ("abs", True): Ulps(2, 2),
    }
    if SINCE_012
    else {}
)


def ulps_beside_jax(name: str, dtype: DType, usual: Ulps) -> Ulps:
    """The tolerance for an operation compared with JAX: `usual`, unless JAX does not call XLA's kernel of that name."""
    return _JAXS_OWN_KERNELS.get((name, dtypes.is_complex(dtype)), usual)


ULPS_OF_IMPORTED: Final[Mapping[str, Ulps]] = {"numpy.sinc": Ulps(8, 8, 4)} if SINCE_012 else {}
"""Tolerances for imported functions that JAX computes more exactly: it reduces the argument of `sinc` before it
multiplies by pi, which NumPy and tracefx round."""

ULPS_OF_50_STEPS: Final = 2.0**11 if SINCE_012 else 2.0**10
"""The tolerance in float32 ulps after 50 steps of a minimizer, compared with JAX. XLA 0.12 fuses JAX's differently."""

REFS_ARE_WEAKLY_TYPED: Final = not SINCE_0112
"""Whether a reference of JAX that is made of a weakly typed array has weakly typed contents."""

SAME_BUFFERS: Final = not SINCE_011
"""Whether the size of temporary buffers is independent of the order of instructions."""

ASKS_FOR_READ_ONLY_CAPSULES: Final = SINCE_012
"""Whether JAX requests DLPack capsules of version 1, which may be unaligned: JAX copies such arrays."""

PAIRS_MULTIPLIED_IN_32_BITS: Final[frozenset[tuple[str, str]]] = (
    frozenset({("complex64", "float64")}) if SINCE_011 else frozenset()
)
"""Dtypes of operands and of the product that XLA multiplies in 32 bits, but NumPy in 64."""

LARGER_PROGRAMS: Final[Mapping[str, tuple[int, int, int]]] = {
    **({"MLP step": (0, 32768, 0)} if SINCE_011 else {}),  # two maxima are recomputed at their uses
    **({"cumprod, gradient": (3, 0, 0), "linspace": (0, 0, 4)} if SINCE_012 else {}),  # fused differently
}
"""The numbers of kernels, flops and bytes accessed by which a compiled program may exceed JAX's: XLA since 0.11 fuses
equal operations in another order differently."""

_PRIMITIVES_UNTIL_0_11_0: Final = frozenset(
    {
        *("box_get", "box_set", "call", "closed_call", "log_extend", "log_read", "new_box", "new_log"),
        *("pbroadcast_done", "pbroadcast_start", "psum_start", "unreduced_psum_start"),
        "unreduced_reduce_scatter_start",
    }
)
_PRIMITIVES_UNTIL_0_11_2: Final = frozenset({"reduced_vary_cast_p", "vary_unreduced_cast_p"})
_PRIMITIVES_SINCE_0_11_1: Final = frozenset({"relayout", "unreduced_pmax", "unreduced_pmin"})
_PRIMITIVES_SINCE_0_11_2: Final = frozenset(
    {"log2", "one_minus_square", "program_order", "with_memory_space_constraint"}
)
_PRIMITIVES_SINCE_0_12: Final = frozenset(
    {"pbroadcast_dynamic", "polynomial", "reduced_vary_cast", "vary_unreduced_cast"}
)
OTHER_PRIMITIVES: Final = (
    (_PRIMITIVES_UNTIL_0_11_0 if SINCE_0111 else _PRIMITIVES_SINCE_0_11_1)
    | (frozenset() if SINCE_0112 else _PRIMITIVES_SINCE_0_11_2)
    | (_PRIMITIVES_UNTIL_0_11_2 if SINCE_012 else _PRIMITIVES_SINCE_0_12)
)
"""Primitives of other supported versions of JAX that the installed version lacks."""

STAGED_EVAL_JAXPR: Final = ("eval_jaxpr", "call_jaxpr") if SINCE_0111 else ("closed_call", "jaxpr")
"""The name of the primitive that a traced call of `eval_jaxpr` binds, and its parameter with the jaxpr."""

WRITES_SEARCHES_AS_HI_PRIMITIVES: Final = SINCE_012
"""Whether JAX writes `searchsorted`, `nonzero`, `ldexp` and `frexp` as calls of `call_hi_primitive`."""

RUNS_RELAYOUT: Final = SINCE_012
"""Whether JAX compiles `relayout`: 0.11 has the primitive, but raises NotImplementedError for all programs with it."""
