"""Tables of figures, and the description of the machine."""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.harness import Figure, Unit

COLUMNS: Final = ("", "ours", "JAX", "ours / JAX", "middle half", "at most", "")
UNITS: Final[Mapping[Unit, Sequence[tuple[float, str]]]] = MappingProxyType(
    {
        "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
        "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    }
)


def quantity(value: float, unit: Unit = "s") -> str:
    """Returns a value with three digits and a unit.

    >>> quantity(0.0000123), quantity(1.5), quantity(123456.0, "B")
    ('12.3 µs', '1.50 s', '123 kB')
    """
    size, name = next((u for u in UNITS[unit] if value >= u[0]), UNITS[unit][-1])
    scaled = value / size
    return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {name}"


def row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        quantity(figure.ours, figure.unit),
        quantity(figure.jax, figure.unit),
        f"{figure.ratio:.2f}",
        f"{figure.low:.2f}-{figure.high:.2f}",
        "" if figure.bound is None else f"{figure.bound:.2f}",
        figure.verdict,
    )


def table(figures: Iterable[Figure]) -> str:
    """Returns a table in Markdown, with aligned columns."""
    return aligned_table([COLUMNS, *map(row, figures)])


_INTRODUCTION: Final = """# tracefx and JAX on a CPU with {cores} cores

`python -m benchmarks --page FILE` has written this page.
{machine}.

The *ratio* is the time of tracefx divided by the time of JAX: below 1, tracefx is faster. The *median* is that of a
group; *faster* counts ratios below 0.9, *equal* those up to 1.1, *slower* the others, and *over* those above the target
of the row, in the column *at most*. The *middle half* is the interquartile range of the ratios of single blocks: it is
wide where other work on the machine disturbed the measurement.
"""


def page(figures: Iterable[Figure], descriptions: Mapping[str, str]) -> str:
    """Returns a page in Markdown: a summary of the groups, and a table for each.

    Args:
        figures: The figures, ordered by groups.
        descriptions: What is measured in a group, by its name.
    """
    summary: list[tuple[str, ...]] = [("", "benchmarks", "median", "faster", "equal", "slower", "over")]
    sections = []
    for group, members in itertools.groupby(figures, lambda figure: figure.group):
        rows = [*members]
        ratios = [figure.ratio for figure in rows]
        faster, slower = sum(r < 0.9 for r in ratios), sum(r > 1.1 for r in ratios)
        counts = faster, len(rows) - faster - slower, slower, sum(figure.verdict == "over" for figure in rows)
        title = group.replace("_", " ").capitalize()
        link = f"[{title}](#{title.lower().replace(' ', '-')})"
        summary.append((link, str(len(rows)), f"{statistics.median(ratios):.2f}", *map(str, counts)))
        sections.append(
            f"## {title}\n\n{descriptions[group]}\n\n<details markdown>\n<summary>{len(rows)} benchmarks</summary>\n\n"
            f"{table(rows)}\n\n</details>\n"
        )
    introduction = _INTRODUCTION.format(cores=os.cpu_count(), machine=machine())
    return "\n".join([introduction, aligned_table(summary) + "\n", *sections])


def aligned_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of rows, of which the first is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    head, *body = ["| " + " | ".join(_aligned(r, widths)) + " |" for r in rows]
    return "\n".join([head, rule, *body])


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = cells
    return [first.ljust(widths[0]), *[c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]]


def machine() -> str:
    """Returns the processor and the versions in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy"))
    return f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def as_json(figures: Iterable[Figure]) -> str:
    return json.dumps(
        {
            "machine": machine(),
            "figures": [
                {
                    "group": f.group,
                    "name": f.name,
                    "unit": f.unit,
                    "ours": f.ours,
                    "jax": f.jax,
                    "ratio": f.ratio,
                    "middle_half": [f.low, f.high],
                    "at_most": f.bound,
                }
                for f in figures
            ],
        },
        indent=2,
        ensure_ascii=False,
    )
