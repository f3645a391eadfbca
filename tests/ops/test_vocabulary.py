"""The tuple of all first-order primitives, and the functions of `tracefx.lax` that bind them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax import lax as jax_lax

import tracefx as fx
from tests.versions import ABSENT_LAX_FUNCTIONS
from tracefx import lax, ops
from tracefx.core.primitive import Batchable, Expandable
from tracefx.lazy_stubs import exports
from tracefx.lowering import Lowerable
from tracefx.ops.vocabulary import OPERATIONS
from tracefx.passes.check import check_jaxpr
from tracefx.text.parser import parse_jaxpr

VOCABULARY = {op.name: op for op in OPERATIONS}


def test_primitive_names_are_unique() -> None:
    assert len(VOCABULARY) == len(OPERATIONS)


def test_vocabulary_is_complete() -> None:
    """Every class in `tracefx.ops` that defines a primitive name is listed."""
    named = set()
    for path in Path(ops.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id == "name"
                for s in node.body
            ):
                named.add(node.name)
    not_listed = {"PVary"}  # part of SPMD programs, like the call primitives
    assert {op.__name__ for op in OPERATIONS} | not_listed == named


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_every_primitive_has_batch_and_lowering_rules(operation: type) -> None:
    assert issubclass(operation, Batchable)
    assert issubclass(operation, Lowerable) or issubclass(operation, Expandable)


def test_lax_names_exist_in_jax() -> None:
    for name in exports("tracefx.lax"):
        assert hasattr(lax, name)
        # JAX defines only the aliases for annotations elsewhere.
        assert hasattr(jax_lax, name) == (name not in ABSENT_LAX_FUNCTIONS), name


def test_programs_are_parsed() -> None:
    def program(x: Any, i: Any) -> Any:
        rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
        into = lax.ScatterDimensionNumbers((1,), (0,), (0,))
        x = lax.gather(x, i, rows, (1, 4), mode="fill")
        x = lax.scatter_add(x, i, x, into, mode="clip")
        x = lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,))), "high", np.float64)
        x = lax.pad(lax.rev(lax.concatenate([x, x], 0), (0,)), 1.0, [(1, -1, 2)])
        a, b = lax.split(lax.slice(x, (0,), (6,), (2,)), (1, 2))
        x = lax.stack([lax.squeeze(a, (0,)), lax.reduce_max(b, (0,)), lax.reduce_prod(b, (0,))])
        return lax.add(lax.argmax(x, 0, np.int32), lax.reduce_sum(lax.iota(int, 3), (0,)))

    x, i = np.ones((3, 4), np.float32), np.array([[0], [2], [7]], np.int32)
    jaxpr = fx.make_jaxpr(program)(x, i).jaxpr
    check_jaxpr(jaxpr)
    assert parse_jaxpr(str(jaxpr), VOCABULARY) == jaxpr
