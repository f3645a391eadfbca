"""Policies of `checkpoint`: which intermediate values are stored for the backward pass.

A policy is a function `policy(prim, *avals)` of a primitive and the types of its operands. It returns whether the
results of the primitive are stored; all others are recomputed. You can write your own, which may look at the class and
the parameters of the primitive:

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
    """Stores everything that the backward pass needs, as without `checkpoint`."""
    return True


def nothing_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores only the arguments, as without a policy."""
    return False


def dots_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores the results of matrix products, other contractions and convolutions. Also named `checkpoint_dots`."""
    return isinstance(prim, DotGeneral | ConvGeneralDilated)


def dots_with_no_batch_dims_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores the results of contractions without batch dimensions, which are typically products with weights.

    Also named `checkpoint_dots_with_no_batch_dims`.
    """
    return isinstance(prim, DotGeneral) and prim.dimension_numbers[1] == ((), ())


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@final
@frozen
class _NamePolicy:
    """A policy that decides by the names given by `checkpoint_name`."""

    names: frozenset[str]
    listed: bool
    others: bool

    def __call__(self, prim: Primitive, *avals: ShapedArray) -> bool:
        if not isinstance(prim, CheckpointName):
            return self.others
        return (prim.label in self.names) is self.listed


def save_only_these_names(*names_which_can_be_saved: str) -> CheckpointPolicy:
    """Returns a policy that stores only values with one of these names.

    Args:
        *names_which_can_be_saved: Names given by `checkpoint_name`.

    >>> import tracefx as fx
    >>> f = lambda x: fx.numpy.sin(fx.checkpoint_name(fx.numpy.sin(x), "inner"))
    >>> g = fx.checkpoint(f, policy=save_only_these_names("inner"))
    >>> len(fx.saved_residuals(g, 1.0))
    2
    """
    return _NamePolicy(frozenset(names_which_can_be_saved), listed=True, others=False)


def save_any_names_but_these(*names_not_to_save: str) -> CheckpointPolicy:
    """Returns a policy that stores only named values, except those with one of these names.

    Args:
        *names_not_to_save: Names given by `checkpoint_name`.
    """
    return _NamePolicy(frozenset(names_not_to_save), listed=False, others=False)


def save_anything_except_these_names(*names_not_to_save: str) -> CheckpointPolicy:
    """Returns a policy that stores everything except values with one of these names.

    Args:
        *names_not_to_save: Names given by `checkpoint_name`.
    """
    return _NamePolicy(frozenset(names_not_to_save), listed=False, others=True)


@final
@frozen
class _UnionPolicy:
    """A policy that stores what either of two policies stores."""

    first: CheckpointPolicy
    second: CheckpointPolicy

    def __call__(self, prim: Primitive, *avals: ShapedArray) -> bool:
        return self.first(prim, *avals) or self.second(prim, *avals)


def save_from_both_policies(policy_1: CheckpointPolicy, policy_2: CheckpointPolicy) -> CheckpointPolicy:
    """Returns a policy that stores what either policy stores.

    Args:
        policy_1: A policy.
        policy_2: Another policy.
    """
    return _UnionPolicy(policy_1, policy_2)
