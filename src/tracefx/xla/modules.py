"""What an emitter gives and works with: a module, its values, its blocks and its names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.builder import Ir
from tracefx.core.jaxpr import Eqn
from tracefx.xla import runtime


@final
@frozen(eq=False)
class Lowered:
    """A module, and whether it calls code by the address that code has in this process: kernels, Python functions.

    jaxlib's own kernels are none of these: they have names, by which other processes find them.
    """

    module: runtime.Module
    calls_host: bool
    calls_kernels: bool
    host_functions: tuple[runtime.HostFunction, ...]
    host_results: tuple[tuple[runtime.ArraySpec, ...], ...]
    """The types of what each of them gives."""


@final
class Node:
    """A value of the module and its type. A plain class, since every operation makes one."""

    __slots__ = ("aval", "value")

    def __init__(self, value: runtime.Value, aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval


def type_of(aval: ShapedArray) -> runtime.Type:
    return runtime.tensor_type(aval.shape, aval.dtype)


def values_of(xs: Sequence[Ir]) -> list[runtime.Value]:
    values = []
    for x in xs:
        assert type(x) is Node  # a program's values are all the emitter's own
        values.append(x.value)
    return values


def block_in(space: runtime.Space, args: Sequence[ShapedArray], token: bool = False) -> runtime.Block:
    """The one block of a region, whose first argument may be a token."""
    return space.blocks.append(*[runtime.token_type()] * token, *map(type_of, args), arg_locs=None)


def path_of(eqn: Eqn) -> str:
    """The scopes of an equation and its name."""
    scopes = () if eqn.source is None else eqn.source.scope
    return "/".join([*scopes, eqn.prim.profile_name]) if scopes else eqn.prim.profile_name


def symbol_of(name: str) -> str:
    return re.sub(r"\W", "_", name) or "anonymous"
