"""tracefx: transformations of NumPy-style functions: derivatives, batching, compilation, and user-defined handlers."""

import importlib as _importlib
from collections.abc import Callable as _Callable
from types import MappingProxyType as _MappingProxyType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Final as _Final

from tracefx import errors as errors
from tracefx import lax as lax
from tracefx import numpy as numpy
from tracefx import tree as tree
from tracefx.core.array import ARRAY_METHODS as _METHODS
from tracefx.core.array import Array as Array
from tracefx.core.backend import BACKEND as _BACKEND
from tracefx.core.backend import PLUGINS as _PLUGINS
from tracefx.core.backend import Backend as _Backend
from tracefx.core.backend import Plugins as _Plugins
from tracefx.core.device import MEMORY as _MEMORY
from tracefx.core.device import Device as Device
from tracefx.core.dtypes import float0 as float0
from tracefx.core.evaluation import eval_jaxpr as eval_jaxpr
from tracefx.core.handler import bind as bind
from tracefx.core.handler import current as current
from tracefx.core.handler import ensure_compile_time_eval as ensure_compile_time_eval
from tracefx.core.handler import handling as handling
from tracefx.core.jaxpr import JAXPR_FORMATTER as _JAXPR_FORMATTER
from tracefx.core.jaxpr import NOTEBOOK_HTML as _NOTEBOOK
from tracefx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from tracefx.core.jaxpr import Jaxpr as Jaxpr
from tracefx.core.settings import compilation_cache as compilation_cache
from tracefx.core.settings import disable_jit as disable_jit
from tracefx.core.settings import enable_x64 as enable_x64
from tracefx.core.source_location import named_scope as named_scope
from tracefx.core.values import ARRAY_IMPORTER as _ARRAY_IMPORTER
from tracefx.core.version import __version__ as __version__
from tracefx.jaxlib_support import incomplete_jaxlib_error as _incomplete_jaxlib
from tracefx.jaxlib_support import jaxlib_version as _jaxlib_version
from tracefx.ops.duck_typing import typeof as typeof
from tracefx.shardings.meshes import Mesh as Mesh
from tracefx.shardings.meshes import PartitionSpec as PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding as NamedSharding
from tracefx.text.printer import format_jaxpr as _format_jaxpr
from tracefx.transforms.devices import block_until_ready as block_until_ready
from tracefx.transforms.devices import default_backend as default_backend
from tracefx.transforms.devices import default_device as default_device
from tracefx.transforms.devices import device_count as device_count
from tracefx.transforms.devices import device_get as device_get
from tracefx.transforms.devices import device_put as device_put
from tracefx.transforms.devices import devices as devices
from tracefx.transforms.devices import local_device_count as local_device_count
from tracefx.transforms.devices import local_devices as local_devices
from tracefx.transforms.devices import process_count as process_count
from tracefx.transforms.devices import process_index as process_index
from tracefx.transforms.devices import process_indices as process_indices
from tracefx.transforms.differentiation import Jvp as Jvp
from tracefx.transforms.differentiation import jvp as jvp
from tracefx.transforms.differentiation import linear_transpose as linear_transpose
from tracefx.transforms.differentiation import linearize as linearize
from tracefx.transforms.differentiation import vjp as vjp
from tracefx.transforms.gradients import Grad as Grad
from tracefx.transforms.gradients import ValueAndGrad as ValueAndGrad
from tracefx.transforms.gradients import grad as grad
from tracefx.transforms.gradients import value_and_grad as value_and_grad
from tracefx.transforms.jit import Jit as Jit
from tracefx.transforms.jit import jit as jit
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct as ShapeDtypeStruct
from tracefx.transforms.shardings import get_mesh as get_mesh
from tracefx.transforms.shardings import make_array_from_callback as make_array_from_callback
from tracefx.transforms.shardings import make_array_from_process_local_data as make_array_from_process_local_data
from tracefx.transforms.shardings import make_array_from_single_device_arrays as make_array_from_single_device_arrays
from tracefx.transforms.shardings import make_mesh as make_mesh
from tracefx.transforms.shardings import set_mesh as set_mesh
from tracefx.transforms.staging import NamedCall as NamedCall
from tracefx.transforms.staging import eval_shape as eval_shape
from tracefx.transforms.staging import jaxpr_as_fun as jaxpr_as_fun
from tracefx.transforms.staging import make_jaxpr as make_jaxpr
from tracefx.transforms.staging import named_call as named_call
from tracefx.transforms.transform import HandlerTransform as HandlerTransform
from tracefx.transforms.transform import IdentityTransform as IdentityTransform
from tracefx.transforms.transform import Transform as Transform
from tracefx.transforms.vmap import Vmap as Vmap
from tracefx.transforms.vmap import vmap as vmap

P = PartitionSpec

if _TYPE_CHECKING:
    from tracefx import custom_batching as custom_batching
    from tracefx import custom_derivatives as custom_derivatives
    from tracefx import debug as debug
    from tracefx import distributed as distributed
    from tracefx import dtypes as dtypes
    from tracefx import extend as extend
    from tracefx import flatten_util as flatten_util
    from tracefx import handlers as handlers
    from tracefx import image as image
    from tracefx import nn as nn
    from tracefx import pictures as pictures
    from tracefx import programs as programs
    from tracefx import random as random
    from tracefx import rewriting as rewriting
    from tracefx import scipy as scipy
    from tracefx import sharding as sharding
    from tracefx import testing as testing
    from tracefx import tree_util as tree_util
    from tracefx import typing as typing
    from tracefx.handlers import derivatives as derivatives
    from tracefx.handlers import jet as jet
    from tracefx.passes.check import check_jaxpr as check_jaxpr
    from tracefx.pictures import show as show
    from tracefx.programs import parse_jaxpr as parse_jaxpr
    from tracefx.transforms import checkpoint_policies as checkpoint_policies
    from tracefx.transforms.callbacks import effects_barrier as effects_barrier
    from tracefx.transforms.callbacks import io_callback as io_callback
    from tracefx.transforms.callbacks import pure_callback as pure_callback
    from tracefx.transforms.checkpointing import Checkpoint as Checkpoint
    from tracefx.transforms.checkpointing import checkpoint as checkpoint
    from tracefx.transforms.checkpointing import checkpoint_name as checkpoint_name
    from tracefx.transforms.checkpointing import remat as remat
    from tracefx.transforms.custom_derivatives import closure_convert as closure_convert
    from tracefx.transforms.custom_derivatives import custom_gradient as custom_gradient
    from tracefx.transforms.custom_derivatives import custom_jvp as custom_jvp
    from tracefx.transforms.custom_derivatives import custom_vjp as custom_vjp
    from tracefx.transforms.exporting import Exported as Exported
    from tracefx.transforms.exporting import export as export
    from tracefx.transforms.exporting import load as load
    from tracefx.transforms.handle import Handle as Handle
    from tracefx.transforms.handle import handle as handle
    from tracefx.transforms.jacobians import Hessian as Hessian
    from tracefx.transforms.jacobians import JacFwd as JacFwd
    from tracefx.transforms.jacobians import JacRev as JacRev
    from tracefx.transforms.jacobians import hessian as hessian
    from tracefx.transforms.jacobians import jacfwd as jacfwd
    from tracefx.transforms.jacobians import jacobian as jacobian
    from tracefx.transforms.jacobians import jacrev as jacrev
    from tracefx.transforms.saved_residuals import print_saved_residuals as print_saved_residuals
    from tracefx.transforms.saved_residuals import saved_residuals as saved_residuals
    from tracefx.transforms.shard_maps import Pmap as Pmap
    from tracefx.transforms.shard_maps import ShardMap as ShardMap
    from tracefx.transforms.shard_maps import pmap as pmap
    from tracefx.transforms.shard_maps import shard_map as shard_map


def _load_backend() -> _Backend:
    """Loads XLA for the first program that is compiled: neither the import of tracefx nor eager evaluation needs it."""
    try:
        from tracefx.xla.backend import XlaBackend
    except AttributeError as error:  # a module of jaxlib lacks a name, for example in a stub of jaxlib
        raise _incomplete_jaxlib(_jaxlib_version(), error) from error
    return XlaBackend()


def _load_plugins() -> _Plugins:
    """Loads jax, if there is a plug-in or one is requested."""
    from tracefx.interop.jax.plugins import JaxPlugins

    return JaxPlugins()


def _load_notebook() -> _Callable[[Jaxpr | ClosedJaxpr], str]:
    """Loads the HTML representation of programs, for the first one that a notebook displays."""
    from tracefx.pictures import notebook_html

    return notebook_html


_METHODS.provide(lambda: numpy)
_BACKEND.provide(_load_backend)
_JAXPR_FORMATTER.provide(lambda: _format_jaxpr)
_MEMORY.provide(lambda: _BACKEND.value)
_ARRAY_IMPORTER.provide(lambda: _BACKEND.value)
_PLUGINS.provide(_load_plugins)
_NOTEBOOK.provide(_load_notebook)

_LAZY_SUBMODULES: _Final = {
    "tracefx": (
        "custom_batching custom_derivatives debug distributed dtypes extend flatten_util handlers image nn pictures "
        "programs random rewriting scipy sharding testing tree_util typing"
    ),
    "tracefx.transforms": "checkpoint_policies",
}
_LAZY_MODULES: _Final = _MappingProxyType(
    {name: f"{package}.{name}" for package, names in _LAZY_SUBMODULES.items() for name in names.split()}
)
"""Submodules that are imported at their first use, because most programs do not need them."""

_LAZY_MEMBERS: _Final = {
    "passes.check": "check_jaxpr",
    "handlers": "derivatives jet",
    "pictures": "show",
    "programs": "parse_jaxpr",
    "transforms.callbacks": "effects_barrier io_callback pure_callback",
    "transforms.checkpointing": "Checkpoint checkpoint checkpoint_name remat",
    "transforms.custom_derivatives": "closure_convert custom_gradient custom_jvp custom_vjp",
    "transforms.exporting": "Exported export load",
    "transforms.handle": "Handle handle",
    "transforms.jacobians": "Hessian JacFwd JacRev hessian jacfwd jacobian jacrev",
    "transforms.saved_residuals": "print_saved_residuals saved_residuals",
    "transforms.shard_maps": "Pmap ShardMap pmap shard_map",
}
_LAZY_NAMES: _Final = _MappingProxyType(
    {name: f"tracefx.{module}" for module, names in _LAZY_MEMBERS.items() for name in names.split()}
)
"""The modules of names that are imported at their first use."""


def __getattr__(name: str) -> object:
    if name in _LAZY_MODULES:
        value: object = _importlib.import_module(_LAZY_MODULES[name])
    elif name in _LAZY_NAMES:
        value = getattr(_importlib.import_module(_LAZY_NAMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})
