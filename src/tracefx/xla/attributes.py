"""Attributes of StableHLO operations, converted from those that `lower` rules pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracefx.core import ShapedArray
from tracefx.core.key_data import key_data_aval
from tracefx.core.partition_spec import PartitionEntry, Unconstrained, entry_axis_names
from tracefx.lowering import Attr, CompositeAttr, DenseI64Array, KernelLayouts, MlirText, WindowPadding
from tracefx.xla.runtime import mlir


def to_mlir_attribute(attr: Attr | mlir.Attribute) -> mlir.Attribute:
    if isinstance(attr, DenseI64Array):
        return mlir.i64_array_attr(attr.values)
    if isinstance(attr, WindowPadding):
        return mlir.padding_attr(attr.pairs)
    if isinstance(attr, MlirText):
        return mlir.parse_attribute(attr.mlir)
    if isinstance(attr, bool):
        return mlir.bool_attr(attr)
    if isinstance(attr, int):
        return mlir.integer_attr(attr)
    if isinstance(attr, mlir.Attribute):
        return attr
    raise TypeError(f"an attribute is a bool, an int, a DenseI64Array, a WindowPadding or an MlirText, got {attr!r}")


def custom_call_attributes(target: str, config: Mapping[str, Attr], has_side_effect: bool) -> dict[str, mlir.Attribute]:
    return {
        "call_target_name": mlir.string_attr(target),
        "api_version": mlir.integer_attr(4, 32),
        "has_side_effect": mlir.bool_attr(has_side_effect),
        "backend_config": mlir.dict_attr({k: to_mlir_attribute(v) for k, v in config.items()}),
    }


def row_major_layouts(operands: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> KernelLayouts:
    """Returns the layouts of a call whose operands and results are row-major, as in NumPy."""
    operand_layouts, result_layouts = [
        tuple([tuple(range(key_data_aval(aval).ndim))[::-1] for aval in avals]) for avals in (operands, outs)
    ]
    return KernelLayouts(operand_layouts, result_layouts)


def layout_attributes(layouts: KernelLayouts, ordered: bool = False) -> dict[str, mlir.Attribute]:
    """Returns the attributes that fix the layouts; without them XLA may choose any layout for a call.

    The first operand and result of an `ordered` call are tokens.
    """
    token = [()] if ordered else []

    def of(axes: tuple[int, ...]) -> str:
        return f"dense<{list(axes) if axes else ''}> : tensor<{len(axes)}xindex>"

    aliases = [
        f"#stablehlo.output_operand_alias<output_tuple_indices = {[out] if len(layouts.results) > 1 else []}, "
        f"operand_index = {operand}, operand_tuple_indices = []>"
        for operand, out in layouts.aliases
    ]
    return {
        "operand_layouts": mlir.parse_attribute(f"[{', '.join(map(of, [*token, *layouts.operands]))}]"),
        "result_layouts": mlir.parse_attribute(f"[{', '.join(map(of, [*token, *layouts.results]))}]"),
        "output_operand_aliases": mlir.parse_attribute(f"[{', '.join(aliases)}]"),
    }


def batch_partitioning_attributes(
    operands: Sequence[ShapedArray], outs: Sequence[ShapedArray], core_ndim: int
) -> dict[str, mlir.Attribute]:
    """Returns the attributes that allow partitioning a kernel on a batch of matrices along the batch axes.

    The last `core_ndim` axes of the operand with the most axes are not batch axes.
    """
    count = max([aval.ndim for aval in operands]) - core_ndim
    batch = operands[0].shape[: max(count, 0)]
    if not batch or any(aval.shape[:count] != batch for aval in (*operands, *outs)):
        return {}
    sizes = list(batch)

    def factors_of(aval: ShapedArray) -> str:
        first = len(sizes)
        sizes.extend(aval.shape[count:])
        return f"[{', '.join([_factor_name(i) for i in (*range(count), *range(first, len(sizes)))])}]"

    operand_factors, result_factors = ", ".join(list(map(factors_of, operands))), ", ".join(list(map(factors_of, outs)))
    factors = ", ".join([f"{_factor_name(i)}={n}" for i, n in enumerate(sizes)])
    return {
        "mhlo.frontend_attributes": mlir.dict_attr({"num_batch_dims": mlir.string_attr(str(count))}),
        "sdy.sharding_rule": mlir.parse_attribute(
            f"#sdy.op_sharding_rule<({operand_factors})->({result_factors}) {{{factors}}}, custom>"
        ),
    }


def _factor_name(i: int) -> str:
    """Returns Shardy's name of a factor: i to z, then z_1 and on."""
    return chr(ord("i") + i) if i < 18 else f"z_{i - 17}"


def composite_attribute(value: CompositeAttr) -> mlir.Attribute:
    if isinstance(value, tuple):
        return mlir.array_attr(list(map(composite_attribute, value)))
    if isinstance(value, bool):
        return mlir.bool_attr(value)
    if isinstance(value, int):
        return mlir.integer_attr(value)
    if isinstance(value, float):
        return mlir.float_attr(value, np.dtype(np.float64))
    return mlir.string_attr(value) if isinstance(value, str) else mlir.dense_attr(value)


def shardy_dim_sharding(part: PartitionEntry, is_open: bool = False) -> str:
    """Returns Shardy's text for the mesh axes that one axis of an array is sharded along.

    Args:
        part: The mesh axes.
        is_open: Whether the compiler may shard it along others too. False by default.
    """
    names = [f'"{name}"' for name in entry_axis_names(part)]
    return "{" + ", ".join([*names, "?"] if is_open or isinstance(part, Unconstrained) else names) + "}"
