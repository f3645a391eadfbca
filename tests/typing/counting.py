"""Static types of cost counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array
from tracefx.extend import ShapedArray
from tracefx.handlers import COST_RULES, Cost, CostRules, OperationCost, Work, count
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.indexing.gather_scatter_add import ScatterOperation


def loss(w: Array, x: Array) -> Array:
    return fnp.sum(x @ w)


def free(prim: DotGeneral, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> OperationCost:
    return OperationCost(flops=len(prim.dimension_numbers))


def counts(w: Array, x: Array) -> None:
    cost = count(loss)(w, fx.ShapeDtypeStruct((2, 3), "float32"))
    assert_type(cost, Cost)
    assert_type(cost.flops, int)
    assert_type(cost.by_operation, Mapping[str, Work])
    assert_type(count(fx.jit(fx.grad(loss)), branches="sum", while_steps=3)(w, x), Cost)
    assert_type(COST_RULES.adding(DotGeneral, free), CostRules)
    COST_RULES.adding(
        ScatterOperation, lambda scatter, ins, outs: OperationCost(flops=scatter.arity)
    )  # an abstract class of primitives
    count(loss, branches="mean")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    COST_RULES.adding(ScatterOperation, free)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
