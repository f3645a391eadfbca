"""ResNet-18 with batch normalization, for either library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.libraries import Library

BATCH: Final = 8
SIZE: Final = 64
CLASSES: Final = 1000
WIDTHS: Final = (64, 128, 256, 512)
LAYOUT: Final = ("NHWC", "HWIO", "NHWC")


def parameters(widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """Returns kernels with the scale and shift of their normalization, two blocks per width, and the last layer."""
    random = np.random.default_rng(0)

    def layer(size: int, ins: int, outs: int) -> tuple[Any, Any, Any]:
        kernel = random.normal(0, (2 / (size * size * ins)) ** 0.5, (size, size, ins, outs))
        return kernel.astype(np.float32), np.ones(outs, np.float32), np.zeros(outs, np.float32)

    def block(ins: int, outs: int) -> dict[str, Any]:
        layers = {"first": layer(3, ins, outs), "second": layer(3, outs, outs)}
        return layers if ins == outs else {**layers, "shortcut": layer(1, ins, outs)}

    return {
        "stem": layer(7, 3, widths[0]),
        "blocks": [
            block(ins, outs)
            for before, width in zip((widths[0], *widths), widths, strict=False)
            for ins, outs in ((before, width), (width, width))
        ],
        "classes": (
            random.normal(0, widths[-1] ** -0.5, (widths[-1], CLASSES)).astype(np.float32),
            np.zeros(CLASSES, np.float32),
        ),
    }


def batch(size: int = SIZE) -> tuple[Any, Any]:
    """Returns images and their labels."""
    random = np.random.default_rng(1)
    images = random.normal(size=(BATCH, size, size, 3)).astype(np.float32)
    return images, random.integers(0, CLASSES, BATCH).astype(np.int32)


def forward_of(library: Library, epsilon: float = 1e-5) -> Callable[..., Any]:
    """Returns the function of the logits: `f32[batch, classes]`."""
    lax, numpy, nn = library.core.lax, library.numpy, library.nn

    def layer(x: Any, params: tuple[Any, Any, Any], stride: int = 1) -> Any:
        kernel, scale, shift = params
        x = lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=LAYOUT)
        mean, variance = numpy.mean(x, axis=(0, 1, 2)), numpy.var(x, axis=(0, 1, 2))
        return (x - mean) / numpy.sqrt(variance + epsilon) * scale + shift

    def block(x: Any, params: Mapping[str, Any], stride: int) -> Any:
        shortcut = layer(x, params["shortcut"], stride) if "shortcut" in params else x
        x = nn.relu(layer(x, params["first"], stride))
        return nn.relu(layer(x, params["second"]) + shortcut)

    def forward(params: Mapping[str, Any], images: Any) -> Any:
        x = nn.relu(layer(images, params["stem"], 2))
        x = lax.reduce_window(x, -numpy.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for each in params["blocks"]:
            x = block(x, each, 2 if "shortcut" in each else 1)
        weights, shift = params["classes"]
        return numpy.mean(x, axis=(1, 2)) @ weights + shift

    return forward


def loss_of(library: Library, epsilon: float = 1e-5) -> Callable[..., Any]:
    """Returns the cross-entropy loss."""
    numpy, nn, forward = library.numpy, library.nn, forward_of(library, epsilon)

    def loss(params: Mapping[str, Any], images: Any, labels: Any) -> Any:
        log_probabilities = nn.log_softmax(forward(params, images), axis=-1)
        return -numpy.mean(numpy.take_along_axis(log_probabilities, labels[:, None], axis=-1))

    return loss
