"""Ratios of tracefx to JAX on a GPU: `make bench-gpu`, or `python -m benchmarks.gpu [--platform P] [--only GROUP ...]`.

Both libraries use one client of the GPU, in alternating blocks. The figures are written to
`benchmarks/results/gpu-<kind>.md` by default.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Figure, Subject, measure
from benchmarks.report import aligned_table, machine, table

RESULTS: Final = Path(__file__).parent / "results"
GROUPS: Final = ("products", "dispatch", "training", "compiled", "breadth")
SIZE: Final = 8192
DTYPES: Final[Mapping[str, str]] = {
    "float32": "float32",
    "bfloat16": "float32",
    "float16": "float32",
    "float8_e4m3fn": "bfloat16",
    "float8_e5m2": "bfloat16",
    "int8": "int32",
}
"""The dtype of the result for each dtype of the operands."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description="Ratios of tracefx to JAX on a GPU.")
    parser.add_argument("--platform", default="gpu", help="where to run")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP")
    parser.add_argument("--size", type=int, default=SIZE, help="of the matrices that are multiplied")
    parser.add_argument("--to", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    # Both libraries read these when they create their client.
    os.environ["TRACEFX_PLATFORM"] = options.platform
    os.environ["JAX_PLATFORMS"] = ""

    import tracefx as fx

    try:
        device: Any = fx.devices()[0]
    except fx.errors.PlatformError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return 1
    figures = []
    for subject in subjects(options.only, options.size):
        print(f"{subject.name} ...", file=sys.stderr, flush=True)
        figures.append(measure(subject))
    to = options.to or RESULTS / f"gpu-{_slug(device.device_kind)}.md"
    to.write_text(page(figures, device, options.size))
    print(f"written to {to}")
    return 0


def subjects(groups: Sequence[str], size: int) -> Iterator[Subject]:
    from benchmarks import breadth, compiled, dispatch, training

    modules = {module.GROUP: module.subjects for module in (breadth, compiled, dispatch, training)}
    for group in groups:
        yield from products(size) if group == "products" else modules[group]()


def products(size: int) -> Iterator[Subject]:
    """Returns products of square matrices with the operand and result dtypes that the hardware supports."""
    import jax

    import tracefx as fx
    from benchmarks.libraries import JAX, OURS, Library

    def run(library: Library, wait: Callable[[object], object], dtype: str, result: str) -> Callable[[], object]:
        lax, core = library.core.lax, library.core
        make = core.jit(lambda: (library.numpy.ones((size, size)) / 8).astype(dtype))
        multiply = core.jit(functools.partial(lax.dot, preferred_element_type=result))
        a, b = make(), make()
        return lambda: wait(multiply(a, b))

    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    for dtype, result in DTYPES.items():
        ours, theirs = run(OURS, fx.block_until_ready, dtype, result), run(JAX, wait_for_jax, dtype, result)
        yield Subject("products", f"{dtype} times {dtype} to {result}", ours, theirs, 1.05, blocks=21)


def page(figures: Sequence[Figure], device: Any, size: int) -> str:
    """Returns the figures as a page in Markdown."""
    client = device.client
    stats = device.memory_stats() or {}
    memory = f", {stats['bytes_limit'] / 2**30:.0f} GiB for XLA" if "bytes_limit" in stats else ""
    speeds = [
        (f.name, f"{2 * size**3 / f.ours / 1e12:.3g}", f"{2 * size**3 / f.jax / 1e12:.3g}")
        for f in figures
        if f.group == "products"
    ]
    head = (
        f"# tracefx and JAX on {device.device_kind}\n\n{date.today()}; {client.platform_version.strip()}{memory}.  \n"
    )
    text = f"{head}{machine()}.\n\n{table(figures)}\n"
    if not speeds:
        return text
    title = f"Products of matrices of {size} rows and columns, in 10¹² operations a second:"
    return f"{text}\n{title}\n\n{aligned_table([('', 'ours', 'JAX'), *speeds])}\n"


def _slug(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
