"""Functions with user-defined derivatives, and the types that their rules use."""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
