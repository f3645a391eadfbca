"""Wrappers that put a function inside control flow or a call, without changing its results.

Each takes a function of trees of arrays and returns one of the same arguments: `in_scan(f)(*args)` computes `f(*args)`
in a loop. A handler that interprets bodies treats both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import Array
from tracefx.pytrees import trees
from tracefx.testing.subjects import array
from tracefx.transforms.checkpointing import checkpoint
from tracefx.transforms.custom_batching import custom_vmap
from tracefx.transforms.custom_derivatives import custom_jvp, custom_vjp
from tracefx.transforms.differentiation import jvp, vjp
from tracefx.transforms.jit import jit
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.transforms.staging import eval_shape
from tracefx.transforms.vmap import vmap

F: TypeAlias = Callable[..., Any]
FunctionWrapper: TypeAlias = Callable[[F], F]
"""A function from functions to functions."""


def in_jit(f: F) -> F:
    """Wraps a function in `jit`."""
    return jit(lambda *xs: f(*xs))


def in_jit_twice(f: F) -> F:
    """Wraps a function in nested `jit`."""
    return in_jit(in_jit(f))


def in_checkpoint(f: F) -> F:
    """Wraps a function in `checkpoint`."""
    wrapped: F = checkpoint(lambda *xs: f(*xs))
    return wrapped


def in_cond(f: F) -> F:
    """Wraps a function in a branch of `cond`. The other branch, which is not taken, returns zeros."""
    return lambda *xs: lax.cond(fnp.asarray(True), f, lambda *xs: trees.map(fnp.zeros_like, f(*xs)), *xs)


def in_switch(f: F) -> F:
    """Wraps a function in a branch of `switch`."""

    def another(*xs: Any) -> Any:
        return trees.map(fnp.negative, f(*xs))

    return lambda *xs: lax.switch(fnp.int32(1), [another, f, another], *xs)


def in_scan(f: F) -> F:
    """Wraps a function in a `scan` that carries the arguments, and returns the last of two equal results."""

    def run(*xs: Any) -> Any:
        _, ys = lax.scan(lambda carry, _: (carry, f(*carry)), xs, None, length=2)
        return trees.map(lambda y: y[-1], ys)

    return run


def in_scan_over_rows(f: F) -> F:
    """Wraps a function in a `scan` over two rows of equal arguments."""

    def run(*xs: Any) -> Any:
        rows = trees.map(lambda x: fnp.stack([x, x]), xs)
        _, ys = lax.scan(lambda n, row: (n + 1, f(*row)), fnp.int32(0), rows, reverse=True)
        return trees.map(lambda y: y[0], ys)

    return run


def in_while(f: F) -> F:
    """Wraps a function in a `while_loop` of one step, whose carry is the result."""

    def run(*xs: Any) -> Any:
        init = trees.map(_zeros, eval_shape(f, *xs))
        return lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(*xs)), (fnp.int32(0), init))[1]

    return run


def in_fori(f: F) -> F:
    """Wraps a function in a `fori_loop`, whose carry is the result."""

    def run(*xs: Any) -> Any:
        init = trees.map(_zeros, eval_shape(f, *xs))
        return lax.fori_loop(0, 2, lambda i, y: f(*xs), init)

    return run


def _zeros(like: ShapeDtypeStruct) -> Array:
    return array(np.zeros(like.shape), like.dtype, weak_type=like.weak_type)


def in_custom_jvp(f: F) -> F:
    """Wraps a function in `custom_jvp`, with its own derivative as the rule."""
    custom = custom_jvp(lambda *xs: f(*xs))
    custom.defjvp(lambda primals, tangents: jvp(f, primals, tangents))
    return custom


def in_custom_vjp(f: F) -> F:
    """Wraps a function in `custom_vjp`, with its own derivative as the rule."""
    custom = custom_vjp(lambda *xs: f(*xs))
    custom.defvjp(lambda *xs: (f(*xs), xs), lambda xs, ct: vjp(f, *xs)[1](ct))
    return custom


def in_custom_vmap(f: F) -> F:
    """Wraps a function in `custom_vmap`, with its own batching as the rule."""
    custom = custom_vmap(lambda *xs: f(*xs))

    @custom.def_vmap
    def rule(axis_size: int, in_batched: list[bool], *xs: Any) -> Any:
        batched = vmap(f, in_axes=tuple([0 if trees.leaves(b)[0] else None for b in in_batched]))(*xs)
        return batched, trees.map(lambda y: True, batched)

    return custom


def in_jit_of_scan_of_cond(f: F) -> F:
    """Wraps a function in a conditional in a loop in a call."""
    return in_jit(in_scan(in_cond(f)))


CONTROL_FLOW_WRAPPERS: Final[Mapping[str, FunctionWrapper]] = MappingProxyType(
    {
        "jit": in_jit,
        "jit of jit": in_jit_twice,
        "checkpoint": in_checkpoint,
        "cond": in_cond,
        "switch": in_switch,
        "scan": in_scan,
        "scan over rows": in_scan_over_rows,
        "while_loop": in_while,
        "fori_loop": in_fori,
        "custom_jvp": in_custom_jvp,
        "custom_vjp": in_custom_vjp,
        "custom_vmap": in_custom_vmap,
        "jit of scan of cond": in_jit_of_scan_of_cond,
    }
)
"""All wrappers, by name."""
