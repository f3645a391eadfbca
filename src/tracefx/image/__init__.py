"""Image resizing for arrays of any rank, with the names of `jax.image`."""

from __future__ import annotations

from tracefx.image.resize_methods import ResizeMethod
from tracefx.image.resizing import resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
