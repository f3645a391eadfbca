"""tracefx: array programs traced, differentiated, batched and compiled by typed effect handlers."""

import importlib as _importlib
from collections.abc import Callable as _Callable
from types import MappingProxyType as _MappingProxyType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Final as _Final

from tracefx import custom_derivatives as custom_derivatives
from tracefx import lax as lax
from tracefx import nn as nn
from tracefx import numpy as numpy
from tracefx import tree as tree
from tracefx.core import errors as errors
from tracefx.core.array import METHODS as _METHODS
from tracefx.core.array import Array as Array
from tracefx.core.backend import BACKEND as _BACKEND
from tracefx.core.backend import Backend as _Backend
from tracefx.core.check import check_jaxpr as check_jaxpr
from tracefx.core.dtypes import float0 as float0
from tracefx.core.handler import bind as bind
from tracefx.core.handler import current as current
from tracefx.core.handler import handling as handling
from tracefx.core.handler import typeof as typeof
from tracefx.core.jaxpr import NOTEBOOK as _NOTEBOOK
from tracefx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from tracefx.core.jaxpr import Jaxpr as Jaxpr
from tracefx.core.jaxpr import eval_jaxpr as eval_jaxpr
from tracefx.core.meshes import Mesh as Mesh
from tracefx.core.meshes import PartitionSpec as PartitionSpec
from tracefx.core.settings import compilation_cache as compilation_cache
from tracefx.core.settings import disable_jit as disable_jit
from tracefx.core.settings import enable_x64 as enable_x64
from tracefx.core.shardings import NamedSharding as NamedSharding
from tracefx.core.source import named_scope as named_scope
from tracefx.transforms import checkpoint_policies as checkpoint_policies
from tracefx.transforms.checkpointing import Checkpoint as Checkpoint
from tracefx.transforms.checkpointing import checkpoint as checkpoint
from tracefx.transforms.checkpointing import checkpoint_name as checkpoint_name
from tracefx.transforms.checkpointing import remat as remat
from tracefx.transforms.custom_derivatives import closure_convert as closure_convert
from tracefx.transforms.custom_derivatives import custom_gradient as custom_gradient
from tracefx.transforms.custom_derivatives import custom_jvp as custom_jvp
from tracefx.transforms.custom_derivatives import custom_vjp as custom_vjp
from tracefx.transforms.devices import block_until_ready as block_until_ready
from tracefx.transforms.devices import default_backend as default_backend
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
from tracefx.transforms.handle import Handle as Handle
from tracefx.transforms.handle import handle as handle
from tracefx.transforms.jacobians import Hessian as Hessian
from tracefx.transforms.jacobians import JacFwd as JacFwd
from tracefx.transforms.jacobians import JacRev as JacRev
from tracefx.transforms.jacobians import hessian as hessian
from tracefx.transforms.jacobians import jacfwd as jacfwd
from tracefx.transforms.jacobians import jacrev as jacrev
from tracefx.transforms.jit import Jit as Jit
from tracefx.transforms.jit import jit as jit
from tracefx.transforms.pipelines import HandlerTransform as HandlerTransform
from tracefx.transforms.pipelines import Identity as Identity
from tracefx.transforms.pipelines import Transform as Transform
from tracefx.transforms.shapes import ShapeDtypeStruct as ShapeDtypeStruct
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
from tracefx.transforms.vmap import Vmap as Vmap
from tracefx.transforms.vmap import vmap as vmap

jacobian = jacrev
P = PartitionSpec

if _TYPE_CHECKING:
    from tracefx import custom_batching as custom_batching
    from tracefx import debug as debug
    from tracefx import distributed as distributed
    from tracefx import dtypes as dtypes
    from tracefx import extend as extend
    from tracefx import flatten_util as flatten_util
    from tracefx import handlers as handlers
    from tracefx import image as image
    from tracefx import pictures as pictures
    from tracefx import programs as programs
    from tracefx import random as random
    from tracefx import rewriting as rewriting
    from tracefx import scipy as scipy
    from tracefx import sharding as sharding
    from tracefx import testing as testing
    from tracefx import tree_util as tree_util
    from tracefx.handlers import derivatives as derivatives
    from tracefx.handlers import jet as jet
    from tracefx.pictures import show as show
    from tracefx.programs import parse_jaxpr as parse_jaxpr
    from tracefx.transforms.callbacks import effects_barrier as effects_barrier
    from tracefx.transforms.callbacks import io_callback as io_callback
    from tracefx.transforms.callbacks import pure_callback as pure_callback
    from tracefx.transforms.exporting import Exported as Exported
    from tracefx.transforms.exporting import export as export
    from tracefx.transforms.exporting import load as load
    from tracefx.transforms.residuals import print_saved_residuals as print_saved_residuals
    from tracefx.transforms.residuals import saved_residuals as saved_residuals
    from tracefx.transforms.shard_maps import Pmap as Pmap
    from tracefx.transforms.shard_maps import ShardMap as ShardMap
    from tracefx.transforms.shard_maps import pmap as pmap
    from tracefx.transforms.shard_maps import shard_map as shard_map


def _load_backend() -> _Backend:
    """XLA is loaded by the first program that is compiled: importing tracefx and eager work do without it."""
    from tracefx.xla.backend import XlaBackend

    return XlaBackend()


def _load_notebook() -> _Callable[[Jaxpr | ClosedJaxpr], str]:
    """Few programs are looked at in notebooks."""
    from tracefx.pictures import notebook_html

    return notebook_html


_METHODS.provide(lambda: numpy)
_BACKEND.provide(_load_backend)
_NOTEBOOK.provide(_load_notebook)

_LATE: _Final = _MappingProxyType(
    {
        "custom_batching": "",
        "debug": "",
        "derivatives": "tracefx.handlers",
        "distributed": "",
        "dtypes": "",
        "effects_barrier": "tracefx.transforms.callbacks",
        "export": "tracefx.transforms.exporting",
        "Exported": "tracefx.transforms.exporting",
        "extend": "",
        "flatten_util": "",
        "handlers": "",
        "image": "",
        "io_callback": "tracefx.transforms.callbacks",
        "jet": "tracefx.handlers",
        "load": "tracefx.transforms.exporting",
        "parse_jaxpr": "tracefx.programs",
        "pictures": "",
        "Pmap": "tracefx.transforms.shard_maps",
        "pmap": "tracefx.transforms.shard_maps",
        "print_saved_residuals": "tracefx.transforms.residuals",
        "programs": "",
        "pure_callback": "tracefx.transforms.callbacks",
        "random": "",
        "rewriting": "",
        "saved_residuals": "tracefx.transforms.residuals",
        "scipy": "",
        "shard_map": "tracefx.transforms.shard_maps",
        "sharding": "",
        "ShardMap": "tracefx.transforms.shard_maps",
        "show": "tracefx.pictures",
        "testing": "",
        "tree_util": "",
    }
)
"""What is loaded when it is first asked for, with the module that has it; without one it is a module itself."""


def __getattr__(name: str) -> object:
    where = _LATE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = _importlib.import_module(where or f"tracefx.{name}")
    if where:
        found = getattr(found, name)
        globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
