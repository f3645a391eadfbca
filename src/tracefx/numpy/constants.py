"""The constants of NumPy's namespace, and its names for the classes of arrays and truth values."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tracefx.core import Array
from tracefx.numpy.scalar_types import bool_

ndarray = Array
bool: Final = bool_

pi: Final = math.pi
e: Final = math.e
euler_gamma: Final = np.euler_gamma
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
__array_api_version__: Final = "2024.12"
