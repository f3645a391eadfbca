"""Compile time and run time of a transformer's gradient by the number of its layers: `python -m benchmarks.depth`.

The options `--layers 6 12` and `--library jax` choose what is measured, in a process of its own, because JAX takes
minutes for 48 layers. Each line of the result is a row of `benchmarks/results/depth.csv`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Final

from benchmarks import transformer
from benchmarks.libraries import JAX, OURS, Library

LIBRARIES: Final = {"tracefx": OURS, "jax": JAX}
RUNS: Final = 21


def measured(library: Library, layers: int) -> tuple[float, float, float]:
    """Returns the CPU seconds of tracing and of compiling the gradient, and the seconds of a run."""
    arguments: Any = library.core.device_put((transformer.parameters(layers), *transformer.text()))
    options = {"repeats": "share"} if library is OURS else {}
    start = time.process_time()
    lowered = library.core.jit(library.core.grad(transformer.loss_of(library)), **options).lower(*arguments)
    traced = time.process_time()
    compiled = lowered.compile()
    compile_seconds = time.process_time() - traced
    runs = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        library.core.block_until_ready(compiled(*arguments))
        runs.append(time.perf_counter() - begin)
    return traced - start, compile_seconds, min(runs) if len(runs) < 3 else statistics.quantiles(runs, n=4)[0]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.depth", description=__doc__)
    parser.add_argument("--layers", nargs="+", type=int, default=[6, 12, 24])
    parser.add_argument("--library", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    options = parser.parse_args()
    print("library,layers,trace and lower (CPU s),compile (CPU s),run (ms)")
    for name in options.library:
        library = LIBRARIES[name]
        library.core.jit(lambda x: x + 1).lower(1.0).compile()
        for layers in options.layers:
            traced, compiled, run = measured(library, layers)
            print(f"{name},{layers},{traced:.2f},{compiled:.2f},{1e3 * run:.1f}", flush=True)


if __name__ == "__main__":
    main()
