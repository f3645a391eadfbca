"""Images in other sizes: arrays of any number of axes, resampled along some of them."""

from __future__ import annotations

from tracefx.image.resize_methods import ResizeMethod
from tracefx.image.resizing import resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
