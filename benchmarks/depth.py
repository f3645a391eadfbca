"""Compile time of a transformer's gradient by the number of its layers: `python -m benchmarks.depth`.

The options `--layers 6 12` and `--library jax` choose what is measured, because JAX takes minutes for 48 layers. The
compilations of the libraries alternate; the result is the median of three. Each line of the output is a row of
`benchmarks/results/depth.csv`; `--plot` draws these rows as SVG instead.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks import repeats, transformer
from benchmarks.harness import returned_value
from benchmarks.libraries import JAX, OURS, Library

LIBRARIES: Final = {"tracefx": OURS, "jax": JAX}
RESULTS: Final = Path(__file__).parent / "results" / "depth.csv"
HEAD: Final = ("library", "layers", "compile")
COLOURS: Final = {"tracefx": "#1f77b4", "jax": "#d62728"}
NAMES: Final = {"tracefx": "tracefx", "jax": "JAX"}
WIDTH: Final = 560
HEIGHT: Final = 320
LEFT: Final = 50
BOTTOM: Final = 40

Curves: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""The layers and the seconds of compilation, by library."""


def compile_seconds(libraries: Sequence[Library], layers: int) -> list[float]:
    """Returns the CPU seconds of compiling the gradient with each library; tracing is not measured."""
    arguments = transformer.parameters(layers), *transformer.text()
    runs = [repeats.compiling(library, repeats.gradient_of(transformer.loss_of), arguments) for library in libraries]
    rounds = [[returned_value(run, 1) for run in runs] for _ in range(repeats.COMPILATIONS)]
    return [statistics.median(seconds) for seconds in zip(*rounds, strict=True)]


def read(path: Path) -> Curves:
    curves: dict[str, list[tuple[int, float]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            curves.setdefault(row["library"], []).append((int(row["layers"]), float(row["compile"])))
    return curves


def plot(curves: Curves) -> str:
    """Draws the curves as SVG, on logarithmic axes."""
    points = [point for curve in curves.values() for point in curve]
    layers, seconds = sorted({n for n, _ in points}), [s for _, s in points]
    ticks = [10**i for i in range(math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds))) + 1)]

    def x(n: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * math.log(n / layers[0]) / math.log(layers[-1] / layers[0])

    def y(s: float) -> float:
        return (HEIGHT - BOTTOM) - (HEIGHT - BOTTOM - 20) * math.log(s / ticks[0]) / math.log(ticks[-1] / ticks[0])

    def text(at_x: float, at_y: float, content: object, anchor: str, colour: str = "#666") -> str:
        return f'<text x="{at_x:.0f}" y="{at_y:.0f}" text-anchor="{anchor}" fill="{colour}">{content}</text>'

    def grid() -> Iterable[str]:
        for tick in ticks:
            yield f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - 20}" stroke="#ccc"/>'
            yield text(LEFT - 6, y(tick) + 4, f"{tick:g} s", "end")
        for n in layers:
            yield text(x(n), HEIGHT - BOTTOM + 18, n, "middle")
        yield text(WIDTH / 2, HEIGHT - 6, "layers", "middle")

    def lines() -> Iterable[str]:
        for name, curve in curves.items():
            path, colour = " ".join([f"{x(n):.1f},{y(s):.1f}" for n, s in curve]), COLOURS[name]
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield from [f'<circle cx="{x(n):.1f}" cy="{y(s):.1f}" r="3" fill="{colour}"/>' for n, s in curve]
            n, s = curve[len(curve) // 2]
            yield text(x(n) - 8, y(s) - 10, NAMES[name], "end", colour)

    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view}>'
    return "\n".join([head, *grid(), *lines(), "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.depth", description=__doc__)
    parser.add_argument("--layers", nargs="+", type=int, default=[6, 12, 24])
    parser.add_argument("--library", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    parser.add_argument("--plot", action="store_true", help=f"draw the rows of {RESULTS.name}")
    options = parser.parse_args()
    if options.plot:
        print(plot(read(RESULTS)), end="")
        return
    print(",".join(HEAD))
    libraries = [LIBRARIES[name] for name in options.library]
    for library in libraries:
        library.core.jit(lambda x: x + 1).lower(1.0).compile()
    for layers in options.layers:
        for name, seconds in zip(options.library, compile_seconds(libraries, layers), strict=True):
            print(f"{name},{layers},{seconds:.2f}", flush=True)


if __name__ == "__main__":
    main()
