"""What an emitter gives and works with: a module, its values, its blocks and its names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

from attrs import frozen

from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Eqn
from tracefx.lowering import IrValue
from tracefx.xla import runtime


@final
@frozen(eq=False)
class EmittedModule:
    """A module, and whether it calls code by the address that code has in this process: kernels, Python functions.

    jaxlib's own kernels are none of these: they have names, by which other processes find them.
    """

    module: runtime.Module
    calls_host: bool
    calls_kernels: bool
    host_functions: tuple[runtime.FfiCallback, ...]
    host_results: tuple[tuple[runtime.ArraySpec, ...], ...]
    """The types of what each of them gives."""


@final
class EmittedValue:
    """A value of the module and its type. A plain class, since every operation makes one."""

    __slots__ = ("aval", "value")

    def __init__(self, value: runtime.MlirValue, aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval


def aval_to_ir_type(aval: ShapedArray) -> runtime.Type:
    return runtime.tensor_type(aval.shape, aval.dtype)


def unwrap_values(xs: Sequence[IrValue]) -> list[runtime.MlirValue]:
    values = []
    for x in xs:
        assert type(x) is EmittedValue  # a program's values are all the emitter's own
        values.append(x.value)
    return values


def append_block(space: runtime.MlirRegion, args: Sequence[ShapedArray], token: bool = False) -> runtime.Block:
    """The one block of a region, whose first argument may be a token."""
    return space.blocks.append(*[runtime.token_type()] * token, *map(aval_to_ir_type, args), arg_locs=None)


def scoped_name(eqn: Eqn) -> str:
    """The scopes of an equation and its name."""
    scopes = () if eqn.source is None else eqn.source.scope
    return "/".join([*scopes, eqn.prim.profile_name]) if scopes else eqn.prim.profile_name


def symbol_name(name: str) -> str:
    return re.sub(r"\W", "_", name) or "anonymous"
