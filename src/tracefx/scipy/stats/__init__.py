"""Probability distributions and sample statistics, with the names and arguments of `jax.scipy.stats`.

Each distribution is a namespace of functions, whose arguments broadcast together. `loc` and `scale` shift and scale the
distribution: densities are functions of `(x - loc) / scale`. Results are NaN where `scale` is not positive.
"""

import sys as _sys
from types import ModuleType as _ModuleType
from typing import cast as _cast

from tracefx.lazy_stubs import attach as _attach
from tracefx.scipy.stats import discrete as _discrete
from tracefx.scipy.stats import location_scale as _location_scale
from tracefx.scipy.stats import multivariate as _multivariate
from tracefx.scipy.stats import shaped as _shaped
from tracefx.scipy.stats.distributions import DistributionFunctions as _DistributionFunctions

__getattr__, __dir__ = _attach(__name__)

# In JAX, distributions are modules: `import jax.scipy.stats.norm` and `from jax.scipy.stats.norm import pdf` work.
_sys.modules |= {
    f"{__name__}.{name}": _cast(_ModuleType, each)
    for module in (_discrete, _location_scale, _multivariate, _shaped)
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, _DistributionFunctions) and each is not _DistributionFunctions
}
