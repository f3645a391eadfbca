"""Provides the objects that the core declares and other layers define."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracefx import numpy
from tracefx.control.remat import CALL_WITHIN_BUDGET
from tracefx.core.abstract_array import NUMPY
from tracefx.core.backend import BACKEND, PLUGINS, Backend, Plugins
from tracefx.core.device import MEMORY
from tracefx.core.jaxpr import JAXPR_FORMATTER, NOTEBOOK_HTML, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.core.values import ARRAY_IMPORTER
from tracefx.dimensions.symbolic_dimensions import DIMENSION_AS_ARRAY
from tracefx.jaxlib_support import incomplete_jaxlib_error, jaxlib_version
from tracefx.lazy_stubs import CALL_WITH_OUT_SHARDING
from tracefx.ops.shape.dimension_value import dimension_as_array
from tracefx.sparse.operators import SPARSIFY
from tracefx.text.printer import format_jaxpr


def _load_backend() -> Backend:
    """Loads XLA for the first program that is compiled: neither the import of tracefx nor eager evaluation needs it."""
    try:
        from tracefx.xla.backend import XlaBackend
    except AttributeError as error:  # a module of jaxlib lacks a name, for example in a stub of jaxlib
        raise incomplete_jaxlib_error(jaxlib_version(), error) from error
    return XlaBackend()


def _load_plugins() -> Plugins:
    """Loads jax, if there is a plug-in or one is requested."""
    from tracefx.interop.jax.plugins import JaxPlugins

    return JaxPlugins()


def _load_notebook() -> Callable[[object], str | None]:
    """Loads the HTML representation of programs, for the first one that a notebook displays."""
    from tracefx.pictures import notebook_html

    return notebook_html


def _load_call_with_out_sharding() -> Callable[..., object]:
    """Loads the function that calls others with results of a given sharding, for the first `out_sharding`."""
    from tracefx.transforms.shardings import call_with_out_sharding

    return call_with_out_sharding


def _load_checkpoint_planner() -> Callable[[Jaxpr, int, str], tuple[Primitive, int]]:
    """Loads the planner of checkpoints, with the cost model, for the first memory budget."""
    from tracefx.handlers.cost_analysis.checkpoint_planning import call_within_budget

    return call_within_budget


def _load_sparsify() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Loads the handler of sparse arrays, for the first operator of one."""
    from tracefx.sparse.handler import sparsify

    return sparsify


def provide_all() -> None:
    """Provides every late-bound object. `tracefx/__init__.py` calls it, once."""
    NUMPY.provide(lambda: numpy)
    BACKEND.provide(_load_backend)
    DIMENSION_AS_ARRAY.provide(lambda: dimension_as_array)
    JAXPR_FORMATTER.provide(lambda: format_jaxpr)
    MEMORY.provide(lambda: BACKEND.value)
    ARRAY_IMPORTER.provide(lambda: BACKEND.value)
    PLUGINS.provide(_load_plugins)
    NOTEBOOK_HTML.provide(_load_notebook)
    CALL_WITH_OUT_SHARDING.provide(_load_call_with_out_sharding)
    CALL_WITHIN_BUDGET.provide(_load_checkpoint_planner)
    SPARSIFY.provide(_load_sparsify)
