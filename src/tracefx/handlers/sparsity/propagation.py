"""`SparsityPropagation`: computes equation by equation which inputs the values of a linear program depend on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import CallPrimitive
from tracefx.control.cond import Cond
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.scan import Scan
from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.control.while_loop import While
from tracefx.core import ConcreteArray, Literal, NDArray, ShapedArray, Value, from_numpy, to_numpy
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Expandable, Primitive
from tracefx.handlers.sparsity.dependence import (
    Dependence,
    all_known,
    known_dependence,
    same_dependence,
    unknown_dependence,
)
from tracefx.handlers.sparsity.index_sets import IndexSets
from tracefx.handlers.sparsity.rules import SPARSITY_RULES, sparsity_rule
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.stage import stage
from tracefx.ops.operation import Operation

MAX_UNROLLED_EQUATIONS: Final = 20_000
"""The number of equations that are interpreted in unrolled loops before loops are treated as a whole."""
MAX_FIXED_POINT_ITERATIONS: Final = 12
"""The number of iterations to a fixed point of a loop's carry, before it is taken to depend on all its operands."""


@memoize_on_object
def unrolled_size(jaxpr: Jaxpr) -> int:
    """Returns the number of equations in a jaxpr, with those of scans multiplied by their lengths."""
    size = 1
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        inner = sum(map(unrolled_size, prim.jaxprs())) if isinstance(prim, HasSubjaxprs) else 1
        size += inner * prim.length if isinstance(prim, Scan) else inner
    return size


@final
class SparsityPropagation:
    """One sparsity analysis for `n` inputs."""

    def __init__(self, n: int) -> None:
        self.sets = IndexSets(n)
        self._steps_left = MAX_UNROLLED_EQUATIONS

    def run(self, jaxpr: Jaxpr, args: Sequence[Dependence]) -> list[Dependence]:
        """Returns the dependences of the outputs of a jaxpr without constants."""
        values = dict(zip(jaxpr.invars, args, strict=True))

        def read(atom: Atom) -> Dependence:
            return known_dependence(atom.aval, to_numpy(atom)) if isinstance(atom, Literal) else values[atom]

        for eqn in jaxpr.eqns:
            outs = self._apply(eqn, [read(a) for a in eqn.inputs])
            values.update(zip(eqn.outs, outs, strict=True))
        return [read(a) for a in jaxpr.outs]

    def _apply(self, eqn: Eqn, args: Sequence[Dependence]) -> Sequence[Dependence]:
        prim, avals = eqn.prim, [out.aval for out in eqn.outs]
        if isinstance(prim, ShardMapPrimitive):
            body, consts_values = prim.emulated([a.aval for a in args])
            return self.run(body, [*map(constant_dependence, consts_values), *args])
        if isinstance(prim, CallPrimitive | CustomRuleProgram):
            return self.run(prim.jaxpr, args)
        if all(a.ids is None for a in args):
            return _evaluate_known(prim, avals, args)
        if isinstance(prim, Cond):
            return self._branch(prim, args)
        if isinstance(prim, Scan):
            return self._scan(prim, avals, args)
        if isinstance(prim, While):
            return self._while(prim, args)
        if (
            isinstance(prim, Expandable)
            and type(prim) not in SPARSITY_RULES
            and not isinstance(prim, HasSubjaxprs | Operation)
        ):
            jaxpr, consts = stage(prim.expand, [a.aval for a in args])
            return self.run(jaxpr.closed(), [*map(constant_dependence, consts), *args])
        sets = sparsity_rule(prim)(self.sets, prim, avals, *args)
        return [Dependence(aval, ids) for aval, ids in zip(avals, sets, strict=True)]

    # -------------------------------------------------------------- branches

    def _branch(self, prim: Cond, args: Sequence[Dependence]) -> list[Dependence]:
        index, *operands = args
        known_index = index.value()
        if known_index is not None:
            return self.run(prim.branches[min(max(int(known_index), 0), len(prim.branches) - 1)], operands)
        outs = self.run(prim.branches[0], operands)
        for branch in prim.branches[1:]:
            outs = [self._join(x, y) for x, y in zip(outs, self.run(branch, operands), strict=True)]
        return outs

    def _join(self, x: Dependence, y: Dependence) -> Dependence:
        """Returns the dependence of a value that may be either of two."""
        if x.ids is None and y.ids is None:
            return x if x is y else unknown_dependence(x.aval)
        return Dependence(x.aval, self.sets.join(x.sets(), y.sets()))

    # -------------------------------------------------------------- loops

    def _scan(self, prim: Scan, avals: Sequence[ShapedArray], args: Sequence[Dependence]) -> list[Dependence]:
        consts, carry, arrays = [list(part) for part in prim.split_operands(args)]
        cost = prim.length * unrolled_size(prim.jaxpr)
        if cost <= self._steps_left:
            self._steps_left -= cost
            return self._unroll_scan(prim, avals, consts, carry, arrays)
        # One step for all: the union of the slices of all steps.
        slices = [self._union_of_slices(a) for a in arrays]
        count = prim.num_carry
        carry = self._fixed_point(
            lambda c: self.run(prim.jaxpr, [*consts, *c, *slices])[:count], carry, [*consts, *slices]
        )
        outs = self.run(prim.jaxpr, [*consts, *carry, *slices])
        rows = [
            Dependence(aval, np.broadcast_to(out.sets(), aval.shape))
            for out, aval in zip(outs[count:], avals[count:], strict=True)
        ]
        return [*carry, *rows]

    def _unroll_scan(
        self,
        prim: Scan,
        avals: Sequence[ShapedArray],
        consts: Sequence[Dependence],
        carry: list[Dependence],
        arrays: Sequence[Dependence],
    ) -> list[Dependence]:
        count = prim.num_carry
        rows: list[list[Dependence]] = []
        order = range(prim.length - 1, -1, -1) if prim.reverse else range(prim.length)
        for i in order:
            outs = self.run(prim.jaxpr, [*consts, *carry, *[_slice_of(a, i) for a in arrays]])
            carry = outs[:count]
            rows.append(outs[count:])
        if prim.reverse:
            rows.reverse()
        columns = zip(*rows, strict=True) if rows else [() for _ in avals[count:]]
        stacked = [_stack(column, aval) for column, aval in zip(columns, avals[count:], strict=True)]
        return [*carry, *stacked]

    def _union_of_slices(self, x: Dependence) -> Dependence:
        aval = x.aval.without_axis(0)
        if x.ids is None:
            return unknown_dependence(aval)
        count = len(x.ids)
        flat = x.ids.reshape(count, -1)
        groups = np.broadcast_to(np.arange(flat.shape[1], dtype=np.int64), flat.shape)
        return Dependence(
            aval, self.sets.union(groups.reshape(-1), flat.reshape(-1), flat.shape[1]).reshape(aval.shape)
        )

    def _while(self, prim: While, args: Sequence[Dependence]) -> list[Dependence]:
        cond_consts, consts, carry = [list(part) for part in prim.split_operands(args)]
        cost = unrolled_size(prim.cond_jaxpr) + unrolled_size(prim.body_jaxpr)
        while cost <= self._steps_left:
            self._steps_left -= cost
            condition = self.run(prim.cond_jaxpr, [*cond_consts, *carry])[0].value()
            if condition is None:
                break
            if not condition:
                return carry
            carry = self.run(prim.body_jaxpr, [*consts, *carry])
        return self._fixed_point(lambda c: self.run(prim.body_jaxpr, [*consts, *c]), carry, consts)

    def _fixed_point(
        self,
        step: Callable[[list[Dependence]], list[Dependence]],
        carry: list[Dependence],
        operands: Sequence[Dependence],
    ) -> list[Dependence]:
        """Returns what the carry depends on after any number of iterations."""
        for _ in range(MAX_FIXED_POINT_ITERATIONS):
            after = [self._join(x, y) for x, y in zip(carry, step(carry), strict=True)]
            if all(same_dependence(x, y) for x, y in zip(carry, after, strict=True)):
                return after
            carry = after
        everything = self._union_of_all([*carry, *operands])
        while True:  # ends: each iteration adds at least one carry that depends on inputs
            carry = [
                x if x.ids is None else Dependence(x.aval, np.full(x.aval.shape, everything, np.int64)) for x in carry
            ]
            after = [self._join(x, y) for x, y in zip(carry, step(carry), strict=True)]
            if all(same_dependence(x, y) for x, y in zip(carry, after, strict=True)):
                return carry
            carry = after

    def _union_of_all(self, xs: Sequence[Dependence]) -> int:
        flat = np.concatenate([np.zeros(1, np.int64), *[np.unique(x.ids) for x in xs if x.ids is not None]])
        return int(self.sets.union(np.zeros(len(flat), np.int64), flat, 1)[0])


def _slice_of(x: Dependence, i: int) -> Dependence:
    aval = x.aval.without_axis(0)
    if x.ids is not None:
        return Dependence(aval, x.ids[i])
    return Dependence(aval, None, lambda: _require_known(x)[i]) if x.is_known else unknown_dependence(aval)


def _require_known(x: Dependence) -> NDArray:
    value = x.value()
    assert value is not None
    return value


def _stack(column: Sequence[Dependence], aval: ShapedArray) -> Dependence:
    if column and any(x.ids is not None for x in column):
        return Dependence(aval, np.stack([x.sets() for x in column]))
    if column and all_known(column):
        return Dependence(aval, None, lambda: np.stack([_require_known(x) for x in column]))
    return unknown_dependence(aval)


def _evaluate_known(prim: Primitive, avals: Sequence[ShapedArray], args: Sequence[Dependence]) -> list[Dependence]:
    """Evaluates an operation on operands that depend on no input: its results are known if all operands are."""
    if prim.effects or isinstance(prim, HasCallables) or not all_known(args):
        return [unknown_dependence(aval) for aval in avals]
    results: list[Sequence[Value]] = []

    def result(i: int) -> NDArray:
        if not results:
            results.append(prim.evaluate([from_numpy(_require_known(a), a.aval.dtype) for a in args]))
        return to_numpy(results[0][i])

    return [Dependence(aval, None, functools.partial(result, i)) for i, aval in enumerate(avals)]


def constant_dependence(x: Value) -> Dependence:
    """Returns the dependence of a closed-over value: known unless it is traced."""
    return (
        known_dependence(x.aval, to_numpy(x)) if isinstance(x, ConcreteArray | Literal) else unknown_dependence(x.aval)
    )
