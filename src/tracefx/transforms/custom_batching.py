"""`custom_vmap` and `sequential_vmap`: functions with a user-defined batching rule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from typing_extensions import ParamSpec, override

from tracefx.control.callables import derive, resolve_closed_over
from tracefx.control.custom_batching import CustomVmapCall
from tracefx.core import Value
from tracefx.core.handler import current
from tracefx.core.primitive import MappedAxis
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.masks import Mask
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import keystr
from tracefx.transforms import scans
from tracefx.transforms.arguments import flatten_values, fun_label, require_callable, to_arrays
from tracefx.transforms.custom_functions import (
    CustomFunction,
    OutputSignature,
    call_untyped,
    flatten_custom_function,
    require_pair,
    user_code_boundary,
)

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@final
class custom_vmap(CustomFunction[P, R]):
    """A function with a user-defined batching rule, which `def_vmap` sets.

    It is differentiable in both modes: the derivative is that of the function, and under `vmap` that of the rule. The
    linear part of the derivative recomputes what it needs of the function. Closed-over values can be neither batched
    nor differentiated: make them arguments.

    Args:
        fun: The function. It takes and returns pytrees of arrays.

    Raises:
        TypeError: If `fun` is not callable. Under `vmap`: if the output of the rule does not have the structure and
            types of that of the function.
        ValueError: Under `vmap`: if an output that is declared as batched has no batch axis.
        AttributeError: When called before the rule is set.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import vmap
    >>> @custom_vmap
    ... def solve(a, b):
    ...     return b / a
    >>> @solve.def_vmap
    ... def solve_all(axis_size, in_batched, a, b):
    ...     return b / a, True  # a solver for the whole batch
    >>> vmap(solve, in_axes=(None, 0))(2.0, fnp.arange(3.0))
    Array([0. , 0.5, 1. ], dtype=float32)
    """

    title = "custom_vmap"

    def __init__(self, fun: Callable[P, R]) -> None:
        super().__init__(fun)
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: F) -> F:
        """Sets the batching rule.

        Args:
            vmap_rule: The rule `vmap_rule(axis_size, in_batched, *args)`. `in_batched` is a list with one pytree of
                booleans per argument; a batched argument has the batch axis first. The rule returns the pair `(output,
                out_batched)`, where `out_batched` is a boolean, or a pytree of booleans that is a prefix of the output.

        Returns:
            `vmap_rule`, so that this method can be used as a decorator.
        """
        require_callable("def_vmap", vmap_rule)
        self.vmap_rule = vmap_rule
        return vmap_rule

    @override
    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        vmap_rule = self.vmap_rule
        if vmap_rule is None:
            raise AttributeError(f"{self._where}: no rule has been set; set one with {self._name}.def_vmap")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = OutputSignature(self._name)
        what = f"the batching rule {fun_label(vmap_rule)} of {self._name}"
        function = flatten_custom_function(self, statics, in_tree, outputs)

        @derive(vmap_rule, self, in_tree)
        @user_code_boundary(self._name)
        def rule(axis: MappedAxis, batched: Mask, operands: Sequence[Value]) -> tuple[list[Value], Mask]:
            if not outputs.known:  # to compare the output of the rule with that of the function
                avals = [x.aval.without_axis(0) if b else x.aval for x, b in zip(operands, batched, strict=True)]
                stage(function, avals, current())
            in_batched, trees_of = list(in_tree.unflatten(batched)), in_tree.unflatten(to_arrays(operands))
            pair = vmap_rule(axis.size, in_batched, *trees_of)
            out, out_batched = require_pair(what, pair, "output, out_batched")
            outs, out_tree = flatten_values(out, what)
            flags = trees.broadcast_prefix(out_batched, out_tree, what=f"out_batched of {what}", of="its output")
            avals = []
            for x, flag, (path, _) in zip(outs, flags, trees.flatten_with_path(out)[0], strict=True):
                if not isinstance(flag, bool):
                    raise TypeError(
                        f"{what}: whether {keystr(path) or 'the output'} is batched must be a bool, got {flag!r}"
                    )
                if flag and (not x.aval.shape or x.aval.shape[0] != axis.size):
                    raise ValueError(
                        f"{what}: {keystr(path) or 'the output'} is declared as batched, but the first axis of its "
                        f"type {x.aval} does not have the size {axis.size}"
                    )
                avals.append(x.aval.without_axis(0) if flag else x.aval)
            outputs.check_or_record(out_tree, avals, what)
            return resolve_closed_over(outs), tuple([flag is True for flag in flags])

        return self._bind(CustomVmapCall(self._name, function, rule), values, outputs)


def sequential_vmap(f: Callable[P, R]) -> custom_vmap[P, R]:
    """Returns a `custom_vmap` function that `vmap` applies to one batch element after the other, in a loop.

    Args:
        f: The function of one element. It takes and returns pytrees of arrays.

    Returns:
        A function with the signature of `fun`.

    Raises:
        TypeError: If `f` is not callable.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import vmap
    >>> vmap(sequential_vmap(lambda x: x + 1.0))(fnp.arange(3.0))
    Array([1., 2., 3.], dtype=float32)
    """
    custom = custom_vmap(f)

    @custom.def_vmap
    @functools.wraps(f)
    def in_sequence(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, bool]:
        leaves, tree = trees.flatten(args)
        batched = trees.leaves(in_batched)

        def step(examples: list[Any]) -> R:
            batched_leaves = iter(examples)
            one: R = call_untyped(
                custom, tree.unflatten([next(batched_leaves) if b else x for x, b in zip(leaves, batched, strict=True)])
            )
            return one

        return scans.map(step, [x for x, b in zip(leaves, batched, strict=True) if b]), True

    return custom
