"""The result of lowering, and the values, blocks and names that the emitter works with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

from attrs import field, frozen

from tracefx.core import ShapedArray
from tracefx.core.jaxpr import Eqn
from tracefx.core.repeated_blocks import RepeatedBlocks
from tracefx.lowering import IrValue
from tracefx.xla.runtime import bindings, callbacks, mlir


@final
@frozen(eq=False)
class EmittedModule:
    """A lowered module, and whether it calls host code by address: user-registered kernels or Python functions.

    `calls_kernels` is about jaxlib's own kernels, which other processes can find by name.
    """

    module: mlir.Module
    calls_host: bool
    calls_kernels: bool
    host_functions: tuple[callbacks.FfiCallback, ...]
    host_results: tuple[tuple[bindings.ArraySpec, ...], ...]
    """The result types of each host function."""
    repeats: RepeatedBlocks = field(factory=RepeatedBlocks)
    """The repeated blocks of the program. Those that are shared are functions that the module calls."""


@final
class EmittedValue:
    """A value of the module with its aval. A plain class for speed, since every operation creates one."""

    __slots__ = ("aval", "value")

    def __init__(self, value: mlir.MlirValue, aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval


def aval_to_ir_type(aval: ShapedArray) -> mlir.Type:
    return mlir.tensor_type(aval.shape, aval.dtype)


def unwrap_values(xs: Sequence[IrValue]) -> list[mlir.MlirValue]:
    values = []
    for x in xs:
        assert type(x) is EmittedValue  # all values of a module are created by the emitter
        values.append(x.value)
    return values


def append_block(space: mlir.MlirRegion, args: Sequence[ShapedArray], token: bool = False) -> mlir.Block:
    """Appends the only block of a region; its first argument may be a token."""
    return space.blocks.append(*[mlir.token_type()] * token, *map(aval_to_ir_type, args), arg_locs=None)


def scoped_name(eqn: Eqn) -> str:
    """Returns the name of an equation with its name scopes in front; either can be empty."""
    scopes, name = () if eqn.source is None else eqn.source.scope, eqn.prim.profile_name
    return "/".join([*scopes, name] if name else scopes) if scopes else name


def symbol_name(name: str) -> str:
    return re.sub(r"\W", "_", name) or "anonymous"
