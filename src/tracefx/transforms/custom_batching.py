"""`custom_vmap` and `sequential_vmap`: functions that bring along what `vmap` makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from typing_extensions import ParamSpec, override

from tracefx.control.callables import derive, resolve_closed_over
from tracefx.control.custom_batching import CustomVmapCall
from tracefx.core.handler import bind, current
from tracefx.core.primitive import MappedAxis
from tracefx.core.values import Value
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import keystr
from tracefx.transforms import scans
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.custom_functions import (
    CustomFunction,
    Outputs,
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
    """A function for which a rule that `def_vmap` gives does what `vmap` would do.

    It is differentiable, in reverse mode too, where JAX refuses it: the derivative is that of the function, and under
    `vmap` that of the rule. The linear part of the derivative computes what it needs of the function again.
    Values that the function closes over can neither differ along the batch nor be differentiated; make them arguments.

    Raises AttributeError if it is called before the rule is given, ValueError or TypeError if what the rule gives is
    not what the function gives.

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
        """Give the rule: `vmap_rule(axis_size, in_batched, *args)` is a pair of the outputs and of which are batched.

        `in_batched` is a list with a tree of booleans an argument; what is batched has the axis first. In the second
        result a boolean may stand for a whole tree of outputs. The rule is given back, so that this is a decorator.
        """
        require_callable("def_vmap", vmap_rule)
        self.vmap_rule = vmap_rule
        return vmap_rule

    @override
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        vmap_rule = self.vmap_rule
        if vmap_rule is None:
            raise AttributeError(f"{self._where}: no rule has been given; give one with {self._name}.def_vmap")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = Outputs(self._name)
        what = f"the batching rule {fun_name(vmap_rule)} of {self._name}"
        function = flatten_custom_function(self, statics, in_tree, outputs)

        @derive(vmap_rule, self, in_tree)
        @user_code_boundary(self._name)
        def rule(axis: MappedAxis, batched: Mask, operands: Sequence[Value]) -> tuple[list[Value], Mask]:
            if not outputs.known:  # the rule's output is compared with the function's
                avals = [x.aval.without_axis(0) if b else x.aval for x, b in zip(operands, batched, strict=True)]
                stage(function, avals, current())
            in_batched, trees_of = list(in_tree.unflatten(batched)), in_tree.unflatten(to_arrays(operands))
            pair = vmap_rule(axis.size, in_batched, *trees_of)
            out, out_batched = require_pair(what, pair, "output, which of it is batched")
            outs, out_tree = flatten_values(out, what)
            flags = trees.broadcast_prefix(
                out_batched, out_tree, what=f"what {what} says is batched", of="the output of it"
            )
            avals = []
            for x, flag, (path, _) in zip(outs, flags, trees.flatten_with_path(out)[0], strict=True):
                if not isinstance(flag, bool):
                    raise TypeError(
                        f"{what} says whether {keystr(path) or 'the output'} is batched by {flag!r}, no bool"
                    )
                if flag and (not x.aval.shape or x.aval.shape[0] != axis.size):
                    raise ValueError(
                        f"{what}: {keystr(path) or 'the output'} is said to be batched, but its type {x.aval} does not "
                        f"begin with the axis of size {axis.size}"
                    )
                avals.append(x.aval.without_axis(0) if flag else x.aval)
            outputs.check_or_record(out_tree, avals, what)
            return resolve_closed_over(outs), tuple([flag is True for flag in flags])

        outs = bind(CustomVmapCall(self._name, function, rule), *values)
        result: R = outputs.tree.unflatten(to_arrays(outs))
        return result


def sequential_vmap(f: Callable[P, R]) -> custom_vmap[P, R]:
    """A function that `vmap` calls for one example after the other, in a loop: for one that knows no batches.

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
            rest = iter(examples)
            one: R = call_untyped(
                custom, tree.unflatten([next(rest) if b else x for x, b in zip(leaves, batched, strict=True)])
            )
            return one

        return scans.map(step, [x for x, b in zip(leaves, batched, strict=True) if b]), True

    return custom
