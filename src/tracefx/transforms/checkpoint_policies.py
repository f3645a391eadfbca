"""What `checkpoint` may keep for the backward pass: policies to give it as `policy=`.

A policy is a function of an operation and the types of its operands, `policy(prim, *avals)`, that says whether the
results are kept; whatever is not is computed again. Yours may look at the operation's class and parameters:

>>> from tracefx.ops.elementwise.transcendental import Exp
>>> def keep_exponentials(prim, *avals):
...     return isinstance(prim, Exp)
"""

from __future__ import annotations

from typing import final

from attrs import frozen

from tracefx.control.checkpoint import CheckpointName
from tracefx.control.remat import CheckpointPolicy
from tracefx.core.avals import ShapedArray
from tracefx.core.primitive import Primitive
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated


def everything_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Keep all that the backward pass needs, as without `checkpoint`."""
    return True


def nothing_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Keep the arguments alone, as without a policy."""
    return False


def dots_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Keep the results of matrix products, other contractions, and convolutions."""
    return isinstance(prim, DotGeneral | ConvGeneralDilated)


def dots_with_no_batch_dims_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Keep the results of contractions without batch dimensions: those with weights, as a rule."""
    return isinstance(prim, DotGeneral) and prim.dimension_numbers[1] == ((), ())


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@final
@frozen
class _NamePolicy:
    """Decides by the name that `checkpoint_name` gave."""

    names: frozenset[str]
    listed: bool
    others: bool

    def __call__(self, prim: Primitive, *avals: ShapedArray) -> bool:
        if not isinstance(prim, CheckpointName):
            return self.others
        return (prim.label in self.names) is self.listed


def save_only_these_names(*names_which_can_be_saved: str) -> CheckpointPolicy:
    """Keep the values that `checkpoint_name` gave one of these names."""
    return _NamePolicy(frozenset(names_which_can_be_saved), listed=True, others=False)


def save_any_names_but_these(*names_not_to_save: str) -> CheckpointPolicy:
    """Keep the values that `checkpoint_name` gave a name, unless it is one of these."""
    return _NamePolicy(frozenset(names_not_to_save), listed=False, others=False)


def save_anything_except_these_names(*names_not_to_save: str) -> CheckpointPolicy:
    """Keep everything but the values that `checkpoint_name` gave one of these names."""
    return _NamePolicy(frozenset(names_not_to_save), listed=False, others=True)


@final
@frozen
class _UnionPolicy:
    first: CheckpointPolicy
    second: CheckpointPolicy

    def __call__(self, prim: Primitive, *avals: ShapedArray) -> bool:
        return self.first(prim, *avals) or self.second(prim, *avals)


def save_from_both_policies(policy_1: CheckpointPolicy, policy_2: CheckpointPolicy) -> CheckpointPolicy:
    """Keep what one policy or the other keeps."""
    return _UnionPolicy(policy_1, policy_2)
