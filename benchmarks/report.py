"""Figures as a table, and the machine they come from."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.harness import Figure

COLUMNS: Final = ("", "ours", "JAX", "ours / JAX", "middle half", "at most", "")
UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def duration(seconds: float) -> str:
    """Three digits with a unit.

    >>> duration(0.0000123), duration(1.5)
    ('12.3 µs', '1.50 s')
    """
    size, unit = next((u for u in UNITS if seconds >= u[0]), UNITS[-1])
    value = seconds / size
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        duration(figure.ours),
        duration(figure.jax),
        f"{figure.ratio:.2f}",
        f"{figure.low:.2f}-{figure.high:.2f}",
        "" if figure.bound is None else f"{figure.bound:.2f}",
        figure.verdict,
    )


def table(figures: Iterable[Figure]) -> str:
    """A table that reads well as text and as Markdown."""
    return aligned_table([COLUMNS, *map(row, figures)])


def aligned_table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    head, *body = ["| " + " | ".join(_aligned(r, widths)) + " |" for r in rows]
    return "\n".join([head, rule, *body])


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = cells
    return [first.ljust(widths[0]), *[c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]]


def machine() -> str:
    """The processor and the versions, in a line."""
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
