"""Ready-made handlers and the functions that apply them; each composes with `jit`, `grad`, `vmap` and loops.

Every module has one job and a page in `docs/gallery/`.
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
