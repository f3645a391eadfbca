"""Ratios of tracefx to JAX: `make bench`, or `python -m benchmarks [--only GROUP ...] [--json FILE] [--page FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import (
    breadth,
    compiled,
    compiled_speed,
    disk,
    dispatch,
    eager,
    eager_large,
    eager_numpy,
    imports,
    jet,
    laplacian,
    loops,
    memory,
    repeats,
    sharding,
    sparsity,
    tracing,
    training,
)
from benchmarks.harness import Subject, measure
from benchmarks.report import as_json, machine, page, table

_MODULES: Final = (
    *(eager, eager_numpy, eager_large, tracing, dispatch, training, compiled, compiled_speed, breadth),
    *(loops, repeats, jet, laplacian, sparsity, disk, imports, memory, sharding),
)
GROUPS: Final[Mapping[str, Callable[[], Iterator[Subject]]]] = {module.GROUP: module.subjects for module in _MODULES}
DESCRIPTIONS: Final[Mapping[str, str]] = {m.GROUP: (m.__doc__ or "").partition("\n\n")[0] for m in _MODULES}
"""What is measured in each group: the first paragraph of the module's docstring."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Ratios of tracefx to JAX, side by side.")
    parser.add_argument("--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"some of {', '.join(GROUPS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables there, too")
    options = parser.parse_args(arguments)

    figures = []
    groups = options.only or [group for group in GROUPS if group != sharding.GROUP]
    if groups == [sharding.GROUP]:
        sharding.set_devices()
    for group in groups:
        for subject in GROUPS[group]():
            print(f"{subject.name} ...", file=sys.stderr, flush=True)
            figures.append(measure(subject))
    print(machine(), end="\n\n")
    print(table(figures))
    if compiled.GROUP in groups:
        print("\nWhat XLA makes of programs:\n\n" + compiled.report())
    if loops.GROUP in groups:
        print("\nMemory of programs with loops:\n\n" + loops.report())
    if jet.GROUP in groups:
        print("\nHow derivatives grow with their order:\n\n" + jet.report())
    if options.json is not None:
        options.json.write_text(as_json(figures) + "\n")
    if options.page is not None:
        options.page.write_text(page(figures, DESCRIPTIONS))


if __name__ == "__main__":
    main()
