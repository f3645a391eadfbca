"""`custom_jvp`, `custom_vjp`, `custom_gradient`, `closure_convert`: functions that bring their derivative along."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.control.callables import derive, resolve_closed_over
from tracefx.control.custom_jvp import CustomJVPCall
from tracefx.control.custom_vjp import CustomVJPCall, ForwardResult
from tracefx.control.custom_vjp_in_shard_map import wrap_jvp_for_shard_map, wrap_vjp_for_shard_map
from tracefx.core import dtypes
from tracefx.core.array import ArrayLike, is_arraylike
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType, float0
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import Tracer, bind, current, varies
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value, as_value, get_aval
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.structural import convert_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef, keystr
from tracefx.transforms.arguments import flatten_values, fun_name, leaf_value, require_callable, to_arrays
from tracefx.transforms.body_tracing import require_matching_types
from tracefx.transforms.custom_functions import (
    CustomFunction,
    Outputs,
    call_untyped,
    flatten_custom_function,
    hashable_key,
    is_valid_tangent,
    require_pair,
    user_code_boundary,
)
from tracefx.transforms.differentiation import tangent_to_array

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@final
@frozen
class SymbolicZero:
    """Stands, in rules defined with `symbolic_zeros=True`, for a tangent or cotangent that is known to be zero."""

    aval: ShapedArray

    @property
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    @staticmethod
    def from_primal_value(val: ArrayLike) -> SymbolicZero:
        """The zero tangent of a value.

        >>> SymbolicZero.from_primal_value(2.0).shape
        ()
        """
        return SymbolicZero(get_aval(val).tangent())


@final
@frozen
class CustomVJPPrimal:
    """An argument as a forward rule defined with `symbolic_zeros=True` gets it: is it differentiated?"""

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: PyTree) -> Any:
    """The values of a tree of `CustomVJPPrimal`.

    >>> custom_vjp_primal_tree_values([CustomVJPPrimal(2.0, True)])
    [2.0]
    """

    def value(leaf: object) -> object:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"custom_vjp_primal_tree_values: {leaf!r} is no CustomVJPPrimal")
        return leaf.value

    return trees.map(value, tree)


def zero_from_primal(val: PyTree, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of a tree of values: arrays, of dtype float0 for integers, or `SymbolicZero`s.

    >>> zero_from_primal({"w": 2.0})
    {'w': Array(0., dtype=float32, weak_type=True)}
    """
    return trees.map(lambda x: _to_user_tangent(Zero(get_aval(x).tangent()), symbolic_zeros), val)


def _to_user_tangent(t: Tangent, symbolic: bool) -> object:
    """A tangent as a rule gets it."""
    return SymbolicZero(t.aval) if symbolic and isinstance(t, Zero) else tangent_to_array(t)


# ------------------------------------------------------------------ custom_jvp


@final
class custom_jvp(CustomFunction[P, R]):
    """A function whose derivative is a rule that `defjvp` or `defjvps` gives.

    Differentiation calls the rule in the place of the function, in forward and in reverse mode. Arguments named by
    `nondiff_argnums` or `nondiff_argnames` are not differentiated, need not be arrays, and come first in the rule's
    arguments. In the function and its rules, Python's control flow may depend on values wherever these are known.
    Values that the function closes over cannot be differentiated: `closure_convert` makes arguments of them.

    Raises AttributeError if it is called before a rule is given, TypeError if the rule's outputs are not the
    function's.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import grad
    >>> @custom_jvp
    ... def log1pexp(x):
    ...     return fnp.log(1.0 + fnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), (1 - 1 / (1 + fnp.exp(x))) * t
    >>> float(grad(log1pexp)(100.0))
    1.0
    """

    title = "custom_jvp"

    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: F, symbolic_zeros: bool = False) -> F:
        """Give the rule: `jvp(primals, tangents)` is the pair of the output and its tangent.

        Both arguments are tuples with an entry an argument. With `symbolic_zeros` a tangent known to be zero is a
        `SymbolicZero`, else an array of zeros. The rule is given back, so that this is a decorator.
        """
        require_callable("defjvp", jvp)
        self.jvp = jvp
        self.symbolic_zeros = bool(symbolic_zeros)
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give the rule in parts, one an argument: `jvp(tangent, output, *primals)`, or `None` for a zero derivative.

        >>> double = custom_jvp(lambda x, n: x * 2.0)
        >>> double.defjvps(lambda t, out, x, n: 2.0 * t, None)
        """
        if self.nondiff_argnums:
            raise TypeError(f"{self._where}: defjvps has a rule for every argument; use defjvp with nondiff_argnums")

        @functools.wraps(jvps[0] if jvps and jvps[0] is not None else self.fun)
        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise TypeError(
                    f"{self._where}: defjvps was given {len(jvps)} rules, but it is called with {len(primals)} "
                    "arguments; give one for each, or None"
                )
            out = call_untyped(self, primals)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            if not parts:
                return out, zero_from_primal(out)
            return out, trees.map(_sum_tangents, *parts)

        self.defjvp(jvp)

    @override
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        rule, symbolic = self.jvp, self.symbolic_zeros
        if rule is None:
            raise AttributeError(f"{self._where}: no rule has been given; give one with {self._name}.defjvp")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = Outputs(self._name)
        what = f"the rule {fun_name(rule)} of {self._name}"

        @derive(rule, self, *statics.key, in_tree, symbolic)
        @user_code_boundary(self._name)
        def jvp(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
            pushed = in_tree.unflatten([_to_user_tangent(t, symbolic) for t in tangents])
            pair = rule(*statics.values.values(), in_tree.unflatten(to_arrays(primals)), pushed)
            out, out_tangent = require_pair(what, pair, "output, tangent of the output")
            outs = outputs.flatten(out, what)
            return outs, _out_tangents(what, outs, outputs.tree, out_tangent)

        prim = CustomJVPCall(
            self._name,
            flatten_custom_function(self, statics, in_tree, outputs),
            wrap_jvp_for_shard_map(jvp, values),
            symbolic,
        )
        outs = bind(prim, *values)
        result: R = outputs.tree.unflatten(to_arrays(outs))
        return result


def _sum_tangents(*tangents: Any) -> object:
    return functools.reduce(_add_tangents, tangents)


def _add_tangents(x: Any, y: Any) -> object:
    if getattr(x, "dtype", None) == float0:
        return y
    return x if getattr(y, "dtype", None) == float0 else add_tangents(as_value(x), as_value(y))


def _out_tangents(what: str, outs: Sequence[Value], tree: TreeDef, out_tangent: PyTree) -> list[Tangent]:
    """The tangents that a rule gives, checked against its outputs."""
    leaves, tangent_tree = trees.flatten(out_tangent)
    trees.require_same_structure(f"{what}: the tangent of its output", tree, tangent_tree, "the output", "the tangent")
    tangents = [_leaf_tangent(leaf, i, out_tangent, f"the tangent from {what}") for i, leaf in enumerate(leaves)]
    expected, avals = [x.aval.tangent() for x in outs], [t.aval for t in tangents]
    fit = [is_valid_tangent(a, b) for a, b in zip(avals, expected, strict=True)]
    whose = f"{what}: its output and the tangent of that"
    remedy = "A tangent has the shape and the dtype of its output, float0 where that is an integer or a boolean."
    require_matching_types(whose, tree, ("tangent needed", expected), ("tangent given", avals), fit, remedy)
    return [_convert_tangent(t, aval) for t, aval in zip(resolve_tangents(tangents), expected, strict=True)]


def resolve_tangents(tangents: Sequence[Tangent]) -> list[Tangent]:
    return [t if isinstance(t, Zero) else resolve_closed_over([t])[0] for t in tangents]


def _leaf_tangent(leaf: object, i: int, tree: PyTree, what: str) -> Tangent:
    if isinstance(leaf, SymbolicZero):
        return Zero(leaf.aval)
    if isinstance(leaf, np.ndarray) and leaf.dtype == float0:
        return Zero(ShapedArray(leaf.shape, float0))
    return leaf_value(leaf, i, tree, what)


def _convert_tangent(t: Tangent, aval: ShapedArray) -> Tangent:
    if isinstance(t, Zero) or aval.dtype == float0:
        return Zero(aval)
    return t if t.aval == aval else convert_value(t, aval.dtype, aval.weak_type)


# ------------------------------------------------------------------ custom_vjp


@final
class custom_vjp(CustomFunction[P, R]):
    """A function whose backward pass is a pair of rules that `defvjp` gives.

    Reverse mode runs `fwd` in the place of the function and later, on the cotangents of its outputs, `bwd`, which need
    not be linear: it may clip or mask them. Forward mode works too, where JAX refuses it: the derivative is the
    transpose of `bwd`, which has to be linear then, or `NotLinearError` says that it isn't. Forward mode around
    reverse mode, as in `hessian`, differentiates the rules themselves and asks no such thing.

    Arguments named by `nondiff_argnums` or `nondiff_argnames` are not differentiated and need not be arrays; `fwd` gets
    them in their places, `bwd` first. Values that the function closes over cannot be differentiated:
    `closure_convert` makes arguments of them.

    Raises AttributeError if it is called before the rules are given, TypeError or ValueError if what they give is not
    what the function gives, or doesn't fit its arguments.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import grad
    >>> @custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda res, ct: (fnp.clip(ct, -1.0, 1.0),))
    >>> float(grad(lambda x: 5.0 * clipped(x))(3.0))
    1.0
    """

    title = "custom_vjp"

    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[P, tuple[R, Any]] | Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Give the rules: `fwd(*args)` is `(output, residuals)`, `bwd(residuals, cotangent)` a cotangent an argument.

        A cotangent that is `None` is zero. With `symbolic_zeros` the leaves of `fwd`'s arguments become
        `CustomVJPPrimal`s, which say whether they are differentiated, and cotangents known to be zero are
        `SymbolicZero`s in `bwd`.
        `optimize_remat` is accepted and changes nothing: what a program doesn't use is left out of it anyway.
        """
        require_callable("defvjp", fwd)
        require_callable("defvjp", bwd)
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, bool(symbolic_zeros)

    @override
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        fwd, bwd, symbolic = self.fwd, self.bwd, self.symbolic_zeros
        if fwd is None or bwd is None:
            raise AttributeError(f"{self._where}: no rules have been given; give them with {self._name}.defvjp")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = Outputs(self._name)
        what = f"the forward rule {fun_name(fwd)} of {self._name}"

        @derive(fwd, self, bwd, *statics.key, in_tree, symbolic)
        @user_code_boundary(self._name)
        def forward(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
            leaves = to_arrays(primals)
            if symbolic:
                leaves = list(map(CustomVJPPrimal, leaves, perturbed))
            pair = fwd(*statics.merge(in_tree.unflatten(leaves)))
            out, kept = require_pair(what, pair, "output, residuals")
            outs = outputs.flatten(out, what)
            residuals, held = _ResidualTree.of(kept, f"the residuals from {what}")
            backward = _BackwardRule(
                self._name, bwd, symbolic, tuple(statics.values.values()), residuals, outputs.tree, in_tree,
                tuple([p.aval.tangent() for p in primals]),
            )  # fmt: skip

            @derive(bwd, *backward.key)
            @user_code_boundary(self._name)
            def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
                return backward.pull(residuals, cts)

            return ForwardResult(outs, held, pull)

        flat = flatten_custom_function(self, statics, in_tree, outputs)
        whole = wrap_vjp_for_shard_map(self._name, forward, values)
        prim = CustomVJPCall(self._name, flat, whole, bwd, symbolic)
        outs = bind(prim, *values)
        result: R = outputs.tree.unflatten(to_arrays(outs))
        return result


@final
@frozen(eq=False)
class _ResidualTree:
    """The structure of what a forward rule keeps: `others` are its leaves that are no arrays, by their places."""

    tree: TreeDef
    static_leaves: dict[int, object]

    @classmethod
    def of(cls, kept: PyTree, what: str) -> tuple[_ResidualTree, list[Value]]:
        """The structure, and the arrays."""
        leaves, tree = trees.flatten(kept)
        others = {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, Tracer) and not is_arraylike(leaf)}
        values = [leaf_value(leaf, i, kept, what) for i, leaf in enumerate(leaves) if i not in others]
        return cls(tree, others), resolve_closed_over(values)

    def unflatten(self, values: Sequence[Value]) -> Any:
        rest = iter(to_arrays(values))
        return self.tree.unflatten(
            [self.static_leaves[i] if i in self.static_leaves else next(rest) for i in range(self.tree.num_leaves)]
        )


@final
@frozen(eq=False)
class _BackwardRule:
    """A backward rule as a function of values. `avals` are the types of the cotangents it has to give."""

    name: str
    bwd: Callable[..., Any]
    symbolic: bool
    statics: tuple[Any, ...]
    residuals: _ResidualTree
    out_tree: TreeDef
    in_tree: TreeDef
    avals: tuple[ShapedArray, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """All that the result of `pull` depends on besides the rule and the operands."""
        residuals = self.residuals
        others = tuple([(i, hashable_key(x)) for i, x in residuals.static_leaves.items()])
        statics = tuple(map(hashable_key, self.statics))
        return self.name, self.symbolic, statics, residuals.tree, others, self.out_tree, self.in_tree, self.avals

    def pull(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        ct = self.out_tree.unflatten([_to_user_tangent(t, self.symbolic) for t in cts])
        found = self.bwd(*self.statics, self.residuals.unflatten(residuals), ct)
        what = f"the backward rule {fun_name(self.bwd)} of {self.name}"
        count = len(self.in_tree.children())
        if isinstance(found, list):
            found = tuple(found)
        if not isinstance(found, tuple) or len(found) != count:
            raise TypeError(
                f"{what} must give a tuple with one cotangent an argument: the arguments are {self.in_tree}, and it "
                f"gave {trees.structure(found)}"
            )
        try:
            entries = trees.broadcast_prefix(
                found, self.in_tree, none_is_leaf=True, what=f"the result of {what}", of="the arguments"
            )
        except ValueError as error:
            raise TypeError(str(error)) from None
        paths = [path for path, _ in trees.flatten_with_path(self.in_tree.unflatten(range(len(self.avals))))[0]]
        return [
            self.check_cotangent(entry, aval, f"{what} at {keystr(path)}")
            for entry, aval, path in zip(entries, self.avals, paths, strict=True)
        ]

    def check_cotangent(self, entry: object, aval: ShapedArray, what: str) -> Tangent:
        if entry is None or aval.dtype == float0:
            return Zero(aval)
        ct = _leaf_tangent(entry, 0, entry, what)
        if isinstance(ct, Zero) and ct.aval.dtype == float0:
            return Zero(aval)
        numbers = dtypes.is_complex(aval.dtype) or not dtypes.is_complex(ct.aval.dtype)
        if ct.aval.shape != aval.shape or not numbers:
            raise ValueError(
                f"{what}: a cotangent must have the type of its argument:\n"
                f"  argument  : {aval}\n  cotangent : {ct.aval}"
            )
        return _convert_tangent(resolve_tangents([ct])[0], aval)


# ------------------------------------------------------------------ custom_gradient


def custom_gradient(fun: Callable[P, tuple[R, Callable[..., Any]]]) -> Callable[P, R]:
    """A function that gives its output together with its backward pass: cotangent of the output to a tuple of those
    of the arguments (for one argument, its cotangent alone).

    The backward pass may use what the function has computed. It is traced when the function is differentiated, so its
    control flow cannot depend on the values of cotangents.

    >>> from tracefx import grad
    >>> @custom_gradient
    ... def square(x):
    ...     return x**2, lambda ct: (ct * x,)
    >>> float(square(3.0)), float(grad(square)(3.0))
    (9.0, 3.0)
    """
    require_callable("custom_gradient", fun)

    @functools.wraps(fun)
    def output(*args: P.args, **kwargs: P.kwargs) -> R:
        return require_pair(f"custom_gradient of {fun_name(fun)}: the function", fun(*args, **kwargs), _PAIR)[0]  # type: ignore[no-any-return]  # an R

    def fwd(*args: Any) -> tuple[Any, trees.Partial[Any]]:
        out, pull = require_pair(f"custom_gradient of {fun_name(fun)}: the function", call_untyped(fun, args), _PAIR)
        values, out_tree = flatten_values(out, f"the output of {fun_name(fun)}")
        in_tree: TreeDef | None = None

        def pulled(*cts: Value) -> list[Value]:
            nonlocal in_tree
            found = pull(out_tree.unflatten(to_arrays(cts)))
            found = found if isinstance(found, tuple | list) else (found,)
            leaves, in_tree = flatten_values(tuple(found), f"the result of the backward pass of {fun_name(fun)}")
            return leaves

        jaxpr, consts = stage(pulled, [x.aval.tangent() for x in values], current(), along=list(map(varies, values)))
        assert in_tree is not None
        return out, trees.Partial(_TracedPullback(fun_name(fun), jaxpr, in_tree), *to_arrays(consts))

    def bwd(residuals: trees.Partial[Any], ct: Any) -> Any:
        return residuals(ct)

    custom: custom_vjp[P, R] = custom_vjp(output)
    custom.defvjp(fwd, bwd)
    return custom


_PAIR = "output, backward pass"


@final
@frozen
class _TracedPullback:
    """A traced backward pass, as a function of its constants and the cotangent."""

    name: str
    jaxpr: Jaxpr
    in_tree: TreeDef

    def __call__(self, *consts_and_ct: Any) -> Any:
        *consts, ct = consts_and_ct
        cts, _ = flatten_values(ct, f"the cotangents of {self.name}")
        return self.in_tree.unflatten(to_arrays(eval_jaxpr(self.jaxpr, list(map(as_value, consts)), cts)))


# ------------------------------------------------------------------ closure_convert


def closure_convert(fun: Callable[P, R], *example_args: PyTree) -> tuple[Callable[..., R], list[Any]]:
    """`fun` as a function that takes what it closes over as further arguments, and the values of those.

    For functions that are arguments of a function with a rule of its own: what `fun` closes over is differentiated if
    it is an argument. `fun` is traced for arguments of the types of `example_args`, and must be pure; only values that
    may have a derivative become arguments. A ValueError says so if it is called with arguments of another kind.

    >>> from tracefx import grad
    >>> def slope(scale):
    ...     converted, held = closure_convert(lambda x: x * scale, 1.0)
    ...     return converted(3.0, *held)
    >>> float(grad(slope)(2.0))
    3.0
    """
    require_callable("closure_convert", fun)
    name = fun_name(fun)
    values, in_tree = flatten_values(example_args, f"closure_convert of {name}: example_args")
    out_tree: TreeDef | None = None

    def flat(*values: Value) -> list[Value]:
        nonlocal out_tree
        outs, out_tree = flatten_values(
            call_untyped(fun, in_tree.unflatten(to_arrays(values))), f"the output of {name}"
        )
        return outs

    jaxpr, consts = stage(flat, [x.aval for x in values], current(), along=list(map(varies, values)))
    assert out_tree is not None
    structure = out_tree
    moving = [isinstance(c, Tracer) and dtypes.is_inexact(c.aval.dtype) for c in consts]
    held = to_arrays([c for c, m in zip(consts, moving, strict=True) if m])

    @functools.wraps(fun)
    def converted(*args: Any) -> R:
        count = len(args) - len(held)
        flat_args, tree = flatten_values(tuple(args[:count]), f"the converted {name}: arguments")
        what = f"the converted {name}: its arguments, the last {len(held)} aside, "
        trees.require_same_structure(what, in_tree, tree, "example_args", "the arguments")
        rest = iter([as_value(x) for x in args[count:]])
        given = [next(rest) if m else c for c, m in zip(consts, moving, strict=True)]
        result: R = structure.unflatten(to_arrays(eval_jaxpr(jaxpr, given, flat_args)))
        return result

    return converted, held
