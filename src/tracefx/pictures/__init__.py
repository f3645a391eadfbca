"""Pictures of programs: `show` renders a program as an interactive HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.filtered_tracebacks import api_boundary
from tracefx.pictures.page import Page as Page
from tracefx.pictures.page import render_page
from tracefx.pictures.stages import build_stages
from tracefx.transforms.stages import CallInfo


@api_boundary
def show(
    program: Callable[..., Any] | Jaxpr | ClosedJaxpr | CallInfo,
    *args: Any,
    steps: str | Sequence[str | Callable[..., Any]] = ("program",),
    title: str | None = None,
    **kwargs: Any,
) -> Page:
    """Renders a program as an interactive HTML page.

    The page shows the program as code with foldable bodies, beside the source lines that it comes from, and as a graph;
    for each equation it shows types, cost and live memory as computed by `tracefx.handlers.count`. The page is one
    self-contained HTML document. A notebook displays it; elsewhere `.open()` shows it in a browser and `.save(path)`
    writes it to a file. `show` itself writes no file.

    Args:
        program: a function, which is traced for `args` and `kwargs`; a `Jaxpr` or `ClosedJaxpr`; or the result of
            `jit(f).trace(...)`, of its `lower()`, shown as StableHLO, or of `compile()`, shown as compiled.
        *args: arguments of the function: arrays, or shapes and dtypes (`ShapeDtypeStruct`).
        steps: what to show, side by side; each step is derived from the one before. `"program"`: the jaxpr, the
            default; `"grad"`: the jaxpr of the gradient; `"simplified"`: the result of `tracefx.rewriting.optimize`;
            `"stablehlo"`: the module that `jit` passes to XLA; `"compiled"`: the module that XLA compiles it to; or any
            transformation of functions, such as `fx.Grad(1)`. `"all"` stands for all named steps that apply.
        title: the title of the page. None means the name of the function.
        **kwargs: keyword arguments of the function.

    Returns:
        A `Page`.

    Raises:
        TypeError: `program` is neither a function nor a program.
        ValueError: a step is unknown. Errors of tracing and of the transformations are raised as well.

    >>> import tracefx as fx
    >>> page = show(lambda x: fx.numpy.sin(x) * 2.0, fx.ShapeDtypeStruct((4,), "float32"), title="wave")
    >>> page.title, "<script" in page.html, "http://" in page.html.replace("http://www.w3.org/2000/svg", "")
    ('wave', True, False)
    """
    name, stages = build_stages(program, args, kwargs, (steps,) if isinstance(steps, str) else tuple(steps))
    return render_page(name if title is None else title, stages)


_MAX_LINES_OF_TEXT: Final = 16


def notebook_html(program: object) -> str | None:
    """Returns the HTML that a notebook displays for a program.

    Args:
        program: A jaxpr, or a call of a jitted function that is traced, lowered or compiled.

    Returns:
        An HTML fragment, which loads nothing; None for a jaxpr of a few lines, which is displayed as text.

    Raises:
        TypeError: If `program` is something else.

    >>> import tracefx as fx
    >>> program = fx.make_jaxpr(lambda x: [fx.numpy.sin(i * x) for i in range(20)])(1.0)
    >>> "sin" in (notebook_html(program) or "")
    True
    """
    if not isinstance(program, Jaxpr | ClosedJaxpr | CallInfo):
        raise TypeError(f"a notebook displays programs as HTML, got {program!r}")
    if isinstance(program, Jaxpr | ClosedJaxpr) and program.text().count("\n") < _MAX_LINES_OF_TEXT:
        return None
    return show(program)._repr_html_()
