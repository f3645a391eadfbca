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
from tracefx.core import ShapedArray
from tracefx.core.primitive import Primitive
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated


def everything_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores everything that the backward pass needs, as without `checkpoint`.

    Args:
        prim: A primitive.
        *avals: The types of its operands.

    Returns:
        True.

    >>> import tracefx as fx
    >>> layer = fx.checkpoint(lambda w, x: fx.numpy.sin(w @ x), policy=everything_saveable)
    >>> [residual.origin for residual in fx.saved_residuals(layer, fx.numpy.ones((2, 2)), fx.numpy.ones(2))]
    ['from the argument `w` of <lambda>', 'from the argument `x` of <lambda>', 'output of cos at ...']
    """
    return True


def nothing_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores only the arguments, as without a policy.

    Args:
        prim: A primitive.
        *avals: The types of its operands.

    Returns:
        False.

    >>> import tracefx as fx
    >>> layer = fx.checkpoint(lambda w, x: fx.numpy.sin(w @ x), policy=nothing_saveable)
    >>> [residual.origin for residual in fx.saved_residuals(layer, fx.numpy.ones((2, 2)), fx.numpy.ones(2))]
    ['from the argument `w` of <lambda>', 'from the argument `x` of <lambda>']
    """
    return False


def dots_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores the results of matrix products, other contractions and convolutions.

    Also named `checkpoint_dots`.

    Args:
        prim: A primitive.
        *avals: The types of its operands.

    Returns:
        Whether the primitive is a contraction or a convolution.

    >>> import tracefx as fx
    >>> layer = fx.checkpoint(lambda w, x: fx.numpy.sin(w @ x), policy=dots_saveable)
    >>> [residual.origin for residual in fx.saved_residuals(layer, fx.numpy.ones((2, 2)), fx.numpy.ones(2))]
    ['from the argument `w` of <lambda>', 'from the argument `x` of <lambda>', 'output of dot_general at ...']
    """
    return isinstance(prim, DotGeneral | ConvGeneralDilated)


def dots_with_no_batch_dims_saveable(prim: Primitive, *avals: ShapedArray) -> bool:
    """Stores the results of contractions without batch dimensions, which are typically products with weights.

    Also named `checkpoint_dots_with_no_batch_dims`.

    Args:
        prim: A primitive.
        *avals: The types of its operands.

    Returns:
        Whether the primitive is a contraction without batch dimensions.

    >>> import tracefx as fx
    >>> layer = fx.checkpoint(lambda w, x: fx.numpy.sin(w @ x), policy=dots_with_no_batch_dims_saveable)
    >>> [residual.origin for residual in fx.saved_residuals(layer, fx.numpy.ones((2, 2)), fx.numpy.ones(2))]
    ['from the argument `w` of <lambda>', 'from the argument `x` of <lambda>', 'output of dot_general at ...']
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

    Returns:
        A policy, for `checkpoint(policy=...)`.

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

    Returns:
        A policy, for `checkpoint(policy=...)`.

    >>> import tracefx as fx
    >>> layer = lambda x: fx.numpy.sin(fx.checkpoint_name(fx.numpy.sin(x), "large"))
    >>> policy = save_any_names_but_these("large")
    >>> len(fx.saved_residuals(fx.checkpoint(layer, policy=policy), 1.0))
    1
    """
    return _NamePolicy(frozenset(names_not_to_save), listed=False, others=False)


def save_anything_except_these_names(*names_not_to_save: str) -> CheckpointPolicy:
    """Returns a policy that stores everything except values with one of these names.

    Args:
        *names_not_to_save: Names given by `checkpoint_name`.

    Returns:
        A policy, for `checkpoint(policy=...)`.

    >>> import tracefx as fx
    >>> layer = lambda x: fx.numpy.sin(fx.checkpoint_name(fx.numpy.sin(x), "large"))
    >>> policy = save_anything_except_these_names("large")
    >>> len(fx.saved_residuals(fx.checkpoint(layer, policy=policy), 1.0))
    2
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

    Returns:
        A policy, for `checkpoint(policy=...)`.

    >>> import tracefx as fx
    >>> policy = save_from_both_policies(dots_saveable, save_only_these_names("activations"))
    >>> layer = lambda x: fx.numpy.sin(fx.checkpoint_name(fx.numpy.sin(x @ x), "activations"))
    >>> fx.print_saved_residuals(fx.checkpoint(layer, policy=policy), fx.numpy.ones((2, 2)))
    f32[2,2] from the argument `x` of <lambda>
    f32[2,2] named 'activations' at ... (<lambda>)
    f32[2,2] output of dot_general at ... (<lambda>)
    """
    return _UnionPolicy(policy_1, policy_2)
