"""tracefx: transformations of NumPy-style functions: derivatives, batching, compilation, and user-defined handlers."""

from tracefx.late_bindings import provide_all as _provide_all
from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
_provide_all()
