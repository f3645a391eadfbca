"""`checkpoint`: recomputes intermediate values in the backward pass instead of storing them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeVar, final, overload

from attrs import Attribute, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control import checkpoint as operation
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.remat import CALL_WITHIN_BUDGET, CheckpointPolicy
from tracefx.core import is_arraylike
from tracefx.core.handler import bind, bind1
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.errors import MemoryBudgetError
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.settings import DISABLE_JIT
from tracefx.transforms.arguments import (
    argument_names,
    flatten_values_and_refs,
    fun_label,
    fun_name,
    require_callable,
    to_arrays,
)
from tracefx.transforms.static_arguments import StaticArguments
from tracefx.transforms.tracing import TRACES, cache_trace, check_not_closed_over, trace, trace_key
from tracefx.transforms.transform import (
    Preserving,
    TransformOf,
    to_argnames,
    to_positions,
    validate_argnames,
    validate_argnums,
)
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _to_flags(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


def _to_bytes(given: int | str | None) -> int | None:
    if given is None or (type(given) is int and given > 0):
        return given
    parts = _MEMORY.fullmatch(given) if isinstance(given, str) else None
    if parts is None:
        raise ValueError(
            f"checkpoint: memory must be a positive number of bytes, or a text such as '200MB' or '1.5 GiB', got "
            f"{given!r}"
        )
    base = 1024 if parts[3] else 1000
    return int(float(parts[1]) * base ** "_KMGT".index(parts[2].upper() or "_"))


def _check_memory(transform: Checkpoint, option: Attribute[int | None], memory: int | None) -> None:
    if memory is not None and transform.policy is not None:
        raise ValueError("checkpoint: memory and policy both choose what is stored: pass one of them")


def _check_flags(transform: Checkpoint, option: Attribute[bool], given: object) -> None:
    if not isinstance(given, bool) and not (
        isinstance(given, tuple) and all(isinstance(x, bool) for x in trees.leaves(given))
    ):
        raise TypeError(f"checkpoint: {option.alias} must be True, False, or a tuple of booleans, got {given!r}")


def _check_policy(checkpoint: Checkpoint, option: Attribute[CheckpointPolicy | None], policy: object) -> None:
    if policy is not None and not callable(policy):
        raise TypeError(
            f"checkpoint: policy must be a function, e.g. of tracefx.checkpoint_policies, or None, got {policy!r}"
        )


@final
@frozen(eq=False, repr=False, kw_only=True)
class Checkpoint(TransformOf[Preserving]):
    """`checkpoint` with its options, as a transformation value. The options are described at `checkpoint`.

    >>> Checkpoint(static_argnums=1) == Checkpoint(static_argnums=(1,))
    True
    """

    title: ClassVar[str] = "checkpoint"
    prevent_cse: bool | tuple[PyTree, ...] = field(default=True, converter=_to_flags, validator=_check_flags)
    policy: CheckpointPolicy | None = field(default=None, validator=_check_policy)
    memory: int | None = field(default=None, converter=_to_bytes, validator=_check_memory)
    static_argnums: tuple[int, ...] = field(default=(), converter=to_positions, validator=validate_argnums)
    static_argnames: tuple[str, ...] = field(default=(), converter=to_argnames, validator=validate_argnames)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("checkpoint", fun)
        static = StaticArguments.of(fun, self.static_argnums or None, self.static_argnames or None, "static")
        where = f"checkpoint of {fun_label(fun)}: arguments"
        traces = TRACES.of(fun)

        @wrap_transformed(self, fun)
        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            if DISABLE_JIT.value:
                return fun(*args, **kwargs)
            dynamic, statics = static.split_or_none(args, kwargs)
            values, in_tree, refs = flatten_values_and_refs(dynamic, where)
            prevents_cse = self.prevent_cse
            if isinstance(prevents_cse, tuple):
                prevents_cse = any(trees.broadcast_prefix(prevents_cse, dynamic[0], what=f"{where}: prevent_cse"))
            avals = tuple([v.aval for v in values])
            key = None if statics is None else (trace_key(in_tree, avals, statics, tuple(refs)), static)
            traced = None if key is None else traces.get(key)
            if traced is None:
                name = fun_name(fun)
                origins = argument_names(fun, name, *dynamic, static.dynamic_positions(len(args)))
                bound_fun = static.bind_static(fun, args, kwargs)
                traced = trace(
                    bound_fun, in_tree, avals, origins, name, "checkpoint", writes_refs=True, refs=tuple(refs)
                )
                traced = traced if key is None else cache_trace(traces, key, traced)
            arguments = list(refs.values())
            check_not_closed_over(where, arguments, traced)
            prim = (
                _checkpoint_primitive(traced.jaxpr, False, self.policy, prevents_cse)
                if self.memory is None
                else _call_within_budget(traced.jaxpr, self.memory, fun)
            )
            return traced.output(to_arrays(traced.write_refs(bind(prim, *traced.consts, *values), arguments)))

        return checkpointed


_checkpoint_primitive: Final = memoize_on_object(operation.CheckpointPrimitive)
_MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?) ?([kKMGT]?)(i?)B")


def _call_within_budget(jaxpr: Jaxpr, budget: int, fun: Callable[..., Any]) -> Primitive:
    call, peak = CALL_WITHIN_BUDGET.value(jaxpr, budget, fun_name(fun))
    if peak > budget:
        raise MemoryBudgetError(
            f"checkpoint of {fun_label(fun)}: its backward pass does not fit memory={budget} bytes. The smallest "
            f"budget that works is memory={peak}"
        )
    return call


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool | tuple[PyTree, ...] = True,
    policy: CheckpointPolicy | None = None,
    memory: int | str | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: bool | tuple[PyTree, ...] = True,
    policy: CheckpointPolicy | None = None,
    memory: int | str | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Checkpoint: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool | tuple[PyTree, ...] = True,
    policy: CheckpointPolicy | None = None,
    memory: int | str | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Returns `fun` with rematerialization: reverse mode stores its arguments and recomputes its intermediate values.

    It trades time for memory. A long computation divided into checkpointed pieces needs, in the backward pass, the
    memory of the values between the pieces and of the residuals of one piece; each piece is computed twice. The values
    and derivatives are the same as without it, and without reverse mode it has no effect. `remat` is another name of
    this function. Without `fun`, it returns the transformation with these options, for use as a decorator.

    `fun` is traced, as by `jit`: its Python control flow cannot depend on the values of its arguments, unless they are
    static. Checkpointing a whole loss function saves little, because the recomputation needs as much memory as before:
    checkpoint its parts, such as the layers of a network or the body of a `scan` (which has an argument `checkpoint`
    for that). `print_saved_residuals` shows what is stored.

    Args:
        fun: The function. It takes and returns pytrees of arrays.
        prevent_cse: Whether the compiler is kept from merging the recomputation with the first computation by
            common-subexpression elimination, which would undo the effect. True by default. Inside the body of a `scan`
            it cannot happen, and False permits more optimizations. A tuple with a boolean, or a pytree of booleans, per
            positional argument counts as True if any leaf is.
        policy: Which intermediate values are stored nevertheless: a function of a primitive and the types of its
            operands, such as those of `checkpoint_policies`. None, the default, stores none.
        memory: The memory that one call of `fun` with its backward pass may take, with the arguments, the results and
            the gradients: a number of bytes, or a text such as "200MB" or "1.5 GiB". `fun` is divided into checkpointed
            segments, and values are stored, such that the peak memory that `tracefx.handlers.count` computes is at most
            this, with as little recomputation as possible. Under `vmap` it is the memory of one example. With a budget,
            `prevent_cse` has no effect. None, the default, sets no budget.
        static_argnums: Positions of arguments that are not traced. With one that is not hashable, such as a list, each
            call traces `fun` again. Empty by default.
        static_argnames: Names of such arguments. Empty by default.

    Returns:
        A function with the signature of `fun`; without `fun` a `Checkpoint`.

    Raises:
        TypeError: If `fun` is not callable, or an option or an argument has a wrong type.
        ValueError: If a static argument does not exist, or `memory` is no positive size or is combined with a policy.
        MemoryBudgetError: If the backward pass needs more than `memory`; the message has the budget that works.

    >>> import tracefx as fx
    >>> float(fx.grad(checkpoint(lambda x: fx.numpy.sin(fx.numpy.sin(x))))(0.0))
    1.0

    The residuals without checkpointing, with it, and with a policy that stores named values:

    >>> def layer(x):
    ...     return fx.numpy.sin(checkpoint_name(fx.numpy.sin(x), "inner"))
    >>> fx.print_saved_residuals(layer, 1.0)
    f32[] output of cos at ... (layer)
    f32[] output of cos at ... (layer)
    >>> fx.print_saved_residuals(checkpoint(layer), 1.0)
    f32[] from the argument `x` of layer
    >>> policy = fx.checkpoint_policies.save_only_these_names("inner")
    >>> fx.print_saved_residuals(checkpoint(layer, policy=policy), 1.0)
    f32[] from the argument `x` of layer
    f32[] named 'inner' at ... (layer)

    With a budget, the names of stored values say why they are stored:

    >>> def network(x):
    ...     for _ in range(8):
    ...         x = fx.numpy.tanh(x @ x)
    ...     return x.sum()
    >>> x = fx.numpy.ones((100, 100))
    >>> within = checkpoint(network, memory="450kB")
    >>> [fx.handlers.count(fx.grad(f))(x).peak_bytes for f in (network, within)]
    [720000, 400000]
    >>> fx.print_saved_residuals(within, x)
    f32[100,100] from the argument `x` of network
    f32[100,100] named 'saved: a result of the segment' at ... (network)
    f32[100,100] named 'saved: a result of the segment' at ... (network)
    f32[100,100] named 'saved: 40.0 kB avoid 2.00 M operations' at ... (network)
    ...
    """
    transform = Checkpoint(
        prevent_cse=prevent_cse,
        policy=policy,
        memory=memory,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
    )
    return transform if fun is None else transform(fun)


remat = checkpoint


def checkpoint_name(x: T, name: str) -> T:
    """Returns the arrays of a pytree, named for policies of `checkpoint` such as `save_only_these_names`.

    Args:
        x: A pytree. Leaves that are not arrays are returned unchanged.
        name: The name, a string.

    Returns:
        A pytree of the same values.

    Raises:
        TypeError: If `name` is not a string.

    >>> checkpoint_name(1.0, "activations")
    Array(1., dtype=float32, weak_type=True)
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: the name must be a string, got {name!r}")
    named: T = trees.map(lambda leaf: bind1(CheckpointName(name), leaf) if is_arraylike(leaf) else leaf, x)
    return named
