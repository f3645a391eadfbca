"""Attributes of StableHLO operations, from what `lower` rules say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracefx.core.builder import Attr, CompositeAttr, Dims, Layouts, Text
from tracefx.xla import runtime


def attribute(attr: Attr | runtime.Attribute) -> runtime.Attribute:
    if isinstance(attr, Dims):
        return runtime.i64_array_attr(attr.values)
    if isinstance(attr, Text):
        return runtime.attribute(attr.mlir)
    if isinstance(attr, bool):
        return runtime.bool_attr(attr)
    return runtime.integer_attr(attr) if isinstance(attr, int) else attr


def call_of(target: str, config: Mapping[str, Attr], has_side_effect: bool) -> dict[str, runtime.Attribute]:
    return {
        "call_target_name": runtime.string_attr(target),
        "api_version": runtime.integer_attr(4, 32),
        "has_side_effect": runtime.bool_attr(has_side_effect),
        "backend_config": runtime.dict_attr({k: attribute(v) for k, v in config.items()}),
    }


def layout_attributes(layouts: Layouts) -> dict[str, runtime.Attribute]:
    def of(axes: tuple[int, ...]) -> str:
        return f"dense<{list(axes) if axes else ''}> : tensor<{len(axes)}xindex>"

    aliases = [
        f"#stablehlo.output_operand_alias<output_tuple_indices = {[out] if len(layouts.results) > 1 else []}, "
        f"operand_index = {operand}, operand_tuple_indices = []>"
        for operand, out in layouts.aliases
    ]
    return {
        "operand_layouts": runtime.attribute(f"[{', '.join(map(of, layouts.operands))}]"),
        "result_layouts": runtime.attribute(f"[{', '.join(map(of, layouts.results))}]"),
        "output_operand_aliases": runtime.attribute(f"[{', '.join(aliases)}]"),
    }


def composite_attribute(value: CompositeAttr) -> runtime.Attribute:
    if isinstance(value, tuple):
        return runtime.array_attr(list(map(composite_attribute, value)))
    if isinstance(value, bool):
        return runtime.bool_attr(value)
    if isinstance(value, int):
        return runtime.integer_attr(value)
    if isinstance(value, float):
        return runtime.float_attr(value, np.dtype(np.float64))
    return runtime.string_attr(value) if isinstance(value, str) else runtime.dense(value)
