"""The picture of the demo: the losses during training, and the misclassified digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

INK: Final = "#22313f"
STEPS: Final = "#c3d3e8"
TRAINING: Final = "#2166ac"
TEST: Final = "#d6604d"
MAX_DIGITS: Final = 25


def draw(
    path: Path,
    losses: Sequence[float],
    test_losses: Sequence[float],
    images: ArrayLike,
    labels: ArrayLike,
    predicted: ArrayLike,
) -> None:
    """Writes a PNG with the losses of all steps, the test losses of all epochs, and the misclassified images."""
    with mpl.rc_context({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}):
        figure = Figure(figsize=(11, 5), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        ((left, right),) = figure.subfigures(1, 2, width_ratios=(1.3, 1), wspace=0.05, squeeze=False)
        _draw_losses(left.subplots(), np.asarray(losses), np.asarray(test_losses))
        _draw_misclassified(right, np.asarray(images), np.asarray(labels), np.asarray(predicted))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _draw_losses(axes: Axes, losses: np.ndarray, test_losses: np.ndarray) -> None:
    epochs = len(test_losses)
    steps = np.arange(1, len(losses) + 1) / len(losses) * epochs
    means = losses.reshape(epochs, -1).mean(axis=1)
    axes.semilogy(steps, losses, color=STEPS, linewidth=0.8)
    axes.semilogy(np.arange(epochs) + 0.5, means, color=TRAINING, linewidth=2)
    axes.semilogy(np.arange(1, epochs + 1), test_losses, color=TEST, linewidth=2)
    axes.set_title("Negative log-likelihood", loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    axes.set_xlim(0, epochs * 1.13)  # space for the labels of the curves
    axes.spines["bottom"].set_bounds(0, epochs)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.grid(axis="y", color="#e6ebf0", linewidth=0.8)
    for name, end, color in (("training", means[-1], TRAINING), ("test", test_losses[-1], TEST)):
        axes.annotate(name, (epochs, end), (6, 0), textcoords="offset points", color=color, va="center", weight="bold")


def _draw_misclassified(figure: SubFigure, images: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
    (wrong,) = np.nonzero(labels != predicted)
    title = f"{len(wrong)} of {len(labels)} test digits are misclassified"
    figure.suptitle(title if len(wrong) <= MAX_DIGITS else f"{title}, {MAX_DIGITS} of them:", fontweight="bold")
    shown = wrong[:MAX_DIGITS]
    side = max(2, math.ceil(math.sqrt(len(shown))))
    for axes in figure.subplots(side, side, squeeze=False).flat:
        axes.set_axis_off()
    for n, axes in zip(shown, figure.axes, strict=False):
        axes.imshow(images[n].reshape(8, 8), cmap="Greys", vmin=0, vmax=1)
        axes.set_title(f"{labels[n]} classified as {predicted[n]}", fontsize=9)
