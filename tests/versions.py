"""What differs between the versions of jax and jaxlib that the tests run with, said once.

The tests run with jaxlib 0.10.2 (`make test`) and with the newest supported one (`make test-latest`). Where JAX or XLA
prints, names or computes something differently, a test uses a name from here instead of asking for the version.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Final


def _release(package: str) -> tuple[int, ...]:
    """The release that is installed, such as `(0, 11, 2)`."""
    numbers = re.match(r"\d+(\.\d+)*", importlib.import_module(f"{package}.version").__version__)
    assert numbers is not None
    return tuple(map(int, numbers[0].split(".")))


JAXLIB: Final = _release("jaxlib")

SINCE_011: Final = JAXLIB >= (0, 11)
SINCE_012: Final = JAXLIB >= (0, 12)
"""The conditions of the tables of differences that depend on the release of JAX."""

RETURN_LISTS: Final[tuple[str, ...]] = (
    *(() if SINCE_011 else ("numpy.broadcast_arrays", "numpy.meshgrid")),
    *(() if SINCE_012 else ("numpy.atleast_1d", "numpy.atleast_2d", "numpy.atleast_3d")),
)
"""Functions of JAX that return a list of arrays where tracefx and NumPy 2 return a tuple."""

HAS_FUSION_EMITTERS_FLAG: Final = JAXLIB < (0, 11)
"""Whether XLA knows `xla_cpu_use_fusion_emitters`: since 0.11 they are always used, and an unknown flag is an abort."""

PRINTS_TREES_OF_SCANS: Final = JAXLIB >= (0, 11)
"""Whether JAX prints the trees of operands and results of `scan` (`ft_in`, `ft_out`), and no counts of them."""

PRINTS_SHARDINGS_OF_REDUCTIONS: Final = JAXLIB >= (0, 11)
"""Whether JAX prints `out_sharding=None` among the parameters of `reduce_max` and its like."""

EXPORTS_SAY_HAS_NAMED_SHARDINGS: Final = JAXLIB < (0, 11)
"""Whether the constructor of `jax.export.Exported` takes `_has_named_shardings`."""

LOG_OF_DEVICE_ORDERS: Final = re.compile(r"W\d+ .*This branch is not expected as JAX is not known to use device .*\n")
"""What XLA logs since 0.11 of a program with two meshes that order the same devices differently."""

LARGER_PROGRAMS: Final[Mapping[str, tuple[int, int, int]]] = {
    **({"MLP step": (0, 32768, 0)} if JAXLIB >= (0, 11) else {}),  # two maxima are computed again where they are read
    **({"cumprod, gradient": (3, 0, 0), "linspace": (0, 0, 4)} if JAXLIB >= (0, 12) else {}),  # fused differently
}
"""By how many kernels, flops and bytes accessed a compiled program may be larger than JAX's, which is true of no
program with 0.10: XLA fuses equal operations in another order differently."""
