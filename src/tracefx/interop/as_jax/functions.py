"""Functions and classes that JAX's libraries use and that tracefx does not have, in terms of those that it has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any, Final, TypeAlias, final

import numpy as np
from typing_extensions import override

from tracefx.core import Array, DTypeLike, get_aval
from tracefx.core import ShapedArray as TracefxShapedArray
from tracefx.core.device import Device
from tracefx.core.dtypes import as_dtype
from tracefx.core.effects import NO_EFFECTS, Effect, Effects
from tracefx.core.handler import ROOT, Handler, Tracer, as_array, current
from tracefx.interop.as_jax.primitive import make_shaped_array
from tracefx.interop.as_jax.unsupported import unsupported
from tracefx.numpy import zeros
from tracefx.pytrees.registry import NODE_REGISTRY
from tracefx.pytrees.trees import broadcast_prefix
from tracefx.transforms.devices import devices
from tracefx.tree_util import tree_leaves, tree_map
from tracefx.xla.runtime.bindings import CLIENT_STATE

__version__: Final = version("jax")
__version_info__: Final = tuple([int(part) for part in __version__.split(".")[:3]])

Shape: TypeAlias = Sequence[int]
no_effects: Final = NO_EFFECTS

# ------------------------------------------------------------------ values and types


class _ShapedArrayType(type):
    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TracefxShapedArray)

    @override
    def __call__(cls, shape: Sequence[int], dtype: Any, weak_type: bool = False, **options: Any) -> Any:
        return make_shaped_array(shape, dtype, weak_type, **options)


class AbstractValue(metaclass=_ShapedArrayType):
    """`jax.core.AbstractValue`: the instances are the avals of tracefx."""


class ShapedArray(AbstractValue):
    """`jax.core.ShapedArray`: the instances are the avals of tracefx, made from any dtype."""


def valid_jaxtype(x: object) -> bool:
    """Whether an object can be an argument of an operation."""
    return isinstance(x, Array | np.ndarray | np.generic | bool | int | float | complex) or hasattr(x, "__jax_array__")


def mapped_aval(size: int, axis: int | None, aval: TracefxShapedArray) -> TracefxShapedArray:
    """Returns the aval of one element of a batch."""
    return aval if axis is None else aval.without_axis(axis)


def unmapped_aval(size: int, axis: int | None, aval: TracefxShapedArray, *names: object) -> TracefxShapedArray:
    """Returns the aval of a batch."""
    return aval if axis is None else aval.with_axis(size, axis)


def concrete_or_error(convert: Callable[[Any], Any] | None, x: Any, context: str = "") -> Any:
    """Returns a concrete value, converted by `convert` unless that is None; raises an error if it is traced."""
    if isinstance(x, Tracer):
        return convert(x) if convert is not None else x.__array__()
    return x if convert is None else convert(x)


def is_concrete(x: object) -> bool:
    """Whether a value is not traced."""
    return not isinstance(x, Tracer)


def zeros_like_aval(aval: TracefxShapedArray) -> Array:
    """Returns an array of zeros."""
    return zeros(aval.shape, aval.dtype)


def add_jaxvals(x: Any, y: Any) -> Array:
    """Returns the sum of two cotangents."""
    return as_array(as_array(x) + y)


def raise_to_shaped(aval: TracefxShapedArray, weak_type: bool | None = None) -> TracefxShapedArray:
    """Returns the aval."""
    return aval


def full_lower(x: Any) -> Any:
    """Returns the value."""
    return x


def supports_inf(dtype: DTypeLike) -> bool:
    """Whether a floating-point dtype has infinities."""
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.asarray(np.inf).astype(as_dtype(dtype, exact=True))))


# ------------------------------------------------------------------ the trace


@final
class OpaqueTraceState:
    """The identity of the current trace: equal for code that runs in the same trace."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._handler is other._handler

    @override
    def __hash__(self) -> int:
        return id(self._handler)


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """Returns a value that is equal for calls in the same trace."""
    return OpaqueTraceState(current())


def trace_state_clean() -> bool:
    """Whether nothing is being traced or transformed."""
    return current() is ROOT


def unsafe_get_axis_names() -> list[Any]:
    """Returns the named axes in scope."""
    return list(current().axes)


def nonempty_axis_env() -> bool:
    """Whether named axes are in scope."""
    return bool(current().axes)


def find_top_trace(xs: Iterable[Any]) -> Handler:
    """Returns the innermost handler."""
    return current()


# ------------------------------------------------------------------ processes, devices, events


def clear_caches() -> None:
    """Does nothing: the caches of tracefx are bounded and depend on all that they are computed from."""


def live_arrays(platform: str | None = None) -> list[Array]:
    """Raises `UnsupportedJaxError`: arrays are not listed."""
    raise unsupported("jax.live_arrays", "tracefx keeps no list of its arrays")


def copy_to_host_async(tree: Any) -> Any:
    """Starts to copy the arrays of a tree to the host; returns the tree."""
    for leaf in tree_leaves(tree):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return tree


def wait_for_tokens() -> None:
    """Does nothing: ordered effects run when they are called."""


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Device] | None = None, **options: object
) -> np.ndarray[Any, Any]:
    """Returns the devices as an array of a shape.

    Args:
        mesh_shape: The shape.
        devices: The devices; None, the default, means all.
        **options: Ignored: the order of the devices is kept.
    """
    chosen = _all_devices() if devices is None else devices
    mesh = np.empty(len(chosen), object)
    mesh[:] = list(chosen)
    return mesh.reshape(tuple(mesh_shape))


def _all_devices() -> Sequence[Device]:
    return devices()


def record_event(event: str, *values: object, **metadata: object) -> None:
    """Does nothing: `jax.monitoring` has no listeners."""


def register_exclusion(path: str) -> None:
    """Does nothing: tracebacks and source locations leave out the frames of tracefx only."""


def include_frame(frame: object) -> bool:
    """Whether a traceback shows a frame: all but those of tracefx."""
    return True


def api_boundary(fun: Callable[..., Any], **options: object) -> Callable[..., Any]:
    """Returns the function."""
    return fun


def summarize(source_info: object, num_frames: int = 1) -> str:
    """Returns a source location as text."""
    return str(source_info)


def user_context(traceback: object = None, **options: object) -> AbstractContextManager[None]:
    """Returns a context manager that does nothing: equations have the source location of the current line."""
    return nullcontext()


def sync_global_devices(name: str) -> None:
    """Waits for the other processes."""
    if _process_count() > 1:
        raise unsupported("multihost_utils.sync_global_devices in several processes", "use a collective")


def process_allgather(tree: Any, tiled: bool = False) -> Any:
    """Gathers the arrays of a tree from all processes as NumPy arrays."""
    if _process_count() > 1:
        raise unsupported("multihost_utils.process_allgather in several processes", "use a collective")
    return tree_map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], tree)


def broadcast_one_to_all(tree: Any, is_source: bool | None = None) -> Any:
    """Returns the arrays of a tree of one process in all."""
    if _process_count() > 1:
        raise unsupported("multihost_utils.broadcast_one_to_all in several processes", "use a collective")
    return tree_map(np.asarray, tree)


def _process_count() -> int:
    return len({device.process_index for device in devices()})


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes are to save their state because one is preempted: False, since no notices are received."""
    return False


@final
class DistributedState:
    """`jax._src.distributed.global_state`: the index and number of the processes, and the client that connects them."""

    @property
    def client(self) -> object:
        """jaxlib's client of the coordinator; None for a single process."""
        group = CLIENT_STATE.process_group
        return None if group is None else group.distributed_client

    @property
    def process_id(self) -> int:
        """The index of this process."""
        group = CLIENT_STATE.process_group
        return 0 if group is None else group.index

    @property
    def num_processes(self) -> int:
        """The number of processes."""
        group = CLIENT_STATE.process_group
        return 1 if group is None else group.count


global_state: Final = DistributedState()


@final
class StartedPlatforms(Mapping[str, Sequence[Device]]):
    """`jax._src.xla_bridge._backends`: the devices of the default platform, once it has been started."""

    @override
    def __getitem__(self, platform: str) -> Sequence[Device]:
        if platform not in list(self):
            raise KeyError(platform)
        return devices(platform)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter([devices()[0].platform] if CLIENT_STATE.started else [])

    @override
    def __len__(self) -> int:
        return int(CLIENT_STATE.started)


started_platforms: Final = StartedPlatforms()


# ------------------------------------------------------------------ small helpers of JAX


def safe_map(f: Callable[..., Any], *sequences: Iterable[Any]) -> list[Any]:
    """Returns the list of `f` of the elements of sequences, which have the same length."""
    return [f(*xs) for xs in zip(*sequences, strict=True)]


def safe_zip(*sequences: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns the list of tuples of the elements of sequences, which have the same length."""
    return list(zip(*sequences, strict=True))


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the first and the second elements of pairs."""
    firsts, seconds = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    return firsts, seconds


def wraps(wrapped: Callable[..., Any], **options: object) -> Callable[..., Any]:
    """Returns `functools.wraps(wrapped)`."""
    return functools.wraps(wrapped)


def flatten_axes(name: str, tree: Any, axes: Any, **options: object) -> list[Any]:
    """Returns one leaf of a prefix of a tree structure for each leaf of the structure."""
    from_structure = tree.unflatten([0] * tree.num_leaves)
    found: list[Any] = []
    tree_map(lambda axis, below: found.extend([axis] * len(tree_leaves(below))), axes, from_structure, is_leaf=_is_none)
    return found


def prefix_errors(prefix: Any, tree: Any, is_leaf: Any = None) -> list[Callable[[str], ValueError]]:
    """Returns functions from the name of a prefix to the errors that say why it is no prefix of a tree."""
    try:
        broadcast_prefix(prefix, tree, is_leaf, what="<prefix>")
    except ValueError as error:
        message = str(error)
        return [lambda name: ValueError(message.replace("<prefix>", name))]
    return []


def _is_none(x: object) -> bool:
    return x is None


class DebugInfo:
    """The name and the argument names of a traced function, for messages."""

    def __init__(self, *parts: object, **named: object) -> None:
        self.parts, self.named = parts, named


def debug_info(*parts: object, **named: object) -> DebugInfo:
    """Returns a `DebugInfo`."""
    return DebugInfo(*parts, **named)


class EffectTypeSet:
    """A set of effect types that JAX allows in control flow: all are."""

    def add_type(self, effect_type: type[Any]) -> None:
        """Adds a type."""

    def contains(self, effect: object) -> bool:
        """Whether an effect is allowed: True."""
        return True

    def filter_not_in(self, effects: Iterable[Effect]) -> list[Effect]:
        """Returns the effects that are not allowed: none."""
        return []


control_flow_allowed_effects: Final = EffectTypeSet()
EffectsType: TypeAlias = Effects


@final
class NodeTypes:
    """`jax._src.tree_util._registry`: the types that are nodes of pytrees."""

    def __contains__(self, node_type: type[Any]) -> bool:
        return node_type in (tuple, list, dict, type(None)) or NODE_REGISTRY.load().registry.is_node(node_type)


node_types: Final = NodeTypes()


@final
class RegisteredTypes:
    """A table in which libraries register their types of arguments, which have `__jax_array__` or are refused."""

    def __getitem__(self, registered: type[Any]) -> Callable[[Any], Any]:
        return get_aval

    def __setitem__(self, registered: type[Any], handler: Callable[[Any], Any]) -> None:
        """Does nothing: whether a value is an array does not depend on the table."""


registered_types: Final = RegisteredTypes()
