"""Pictures of programs: pages to look at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.pictures.page import Page as Page
from tracefx.pictures.page import render_page
from tracefx.pictures.stages import build_stages
from tracefx.transforms.stages import TracedCall


def show(
    program: Callable[..., Any] | Jaxpr | ClosedJaxpr | TracedCall[..., Any],
    *args: Any,
    steps: str | Sequence[str | Callable[..., Any]] = ("program",),
    title: str | None = None,
    **kwargs: Any,
) -> Page:
    """A page that shows a program: a function's, for arguments that may be arrays or only types, or one in hand.

    The page has the program as code whose bodies fold, beside the lines of the source that it comes from, and as a
    graph; for each equation the types, what it costs and how much memory is held after it, as `tracefx.handlers.count`
    has them. It is one document that loads nothing. A notebook shows it; elsewhere `.open()` shows it in a browser and
    `.save(path)` writes it. By itself `show` writes nothing.

    `steps` are shown side by side, each made of the one before: `"program"`; `"grad"`, the program of the gradient;
    `"simplified"`, what `tracefx.rewriting.optimize` makes of the program; `"stablehlo"` and `"compiled"`, what `jit`
    gives to XLA, and what XLA makes of it; and any transformation of functions, such as `fx.Grad(1)`. `"all"` stands
    for those of these names that the program has. Other keyword arguments are the function's.

    TypeError if `program` is neither a function nor a program, ValueError for a step that there is not; what tracing
    and the transformations raise, they raise here.

    >>> import tracefx as fx
    >>> page = show(lambda x: fx.numpy.sin(x) * 2.0, fx.ShapeDtypeStruct((4,), "float32"), title="wave")
    >>> page.title, "<script" in page.html, "http://" in page.html.replace("http://www.w3.org/2000/svg", "")
    ('wave', True, False)
    """
    name, stages = build_stages(program, args, kwargs, (steps,) if isinstance(steps, str) else tuple(steps))
    return render_page(name if title is None else title, stages)


def notebook_html(program: Jaxpr | ClosedJaxpr) -> str:
    """What a notebook shows of a program."""
    return show(program)._repr_html_()
