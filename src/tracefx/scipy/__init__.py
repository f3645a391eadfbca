"""Scientific functions, with the names of `jax.scipy`. Submodules are imported lazily."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Final as _Final

if _TYPE_CHECKING:
    from tracefx.scipy import cluster as cluster
    from tracefx.scipy import fft as fft
    from tracefx.scipy import integrate as integrate
    from tracefx.scipy import interpolate as interpolate
    from tracefx.scipy import linalg as linalg
    from tracefx.scipy import ndimage as ndimage
    from tracefx.scipy import optimize as optimize
    from tracefx.scipy import signal as signal
    from tracefx.scipy import sparse as sparse
    from tracefx.scipy import spatial as spatial
    from tracefx.scipy import special as special
    from tracefx.scipy import stats as stats

_MODULES: _Final = frozenset(
    {
        "cluster",
        "fft",
        "integrate",
        "interpolate",
        "linalg",
        "ndimage",
        "optimize",
        "signal",
        "sparse",
        "spatial",
        "special",
        "stats",
    }
)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
