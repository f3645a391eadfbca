"""`custom_jvp` and `custom_vjp`: functions with user-defined derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, final

from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.control.callables import derive, resolve_closed_over
from tracefx.control.custom_jvp import CustomJVPCall
from tracefx.control.custom_vjp import CustomVJPCall, ForwardResult
from tracefx.control.custom_vjp_in_shard_map import wrap_vjp_for_shard_map
from tracefx.control.jvp_rules import HasJVPRule, JVPRule, RuleOf
from tracefx.core import ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes, float0, get_aval, is_arraylike
from tracefx.core.handler import Tracer
from tracefx.core.primitive import Tangent, Zero
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.masks import Mask
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.structural import instantiate
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef, keystr
from tracefx.transforms.arguments import flatten_values, fun_label, leaf_value, require_callable, to_arrays
from tracefx.transforms.body_tracing import require_matching_types
from tracefx.transforms.custom_functions import (
    CustomFunction,
    NondiffArguments,
    OutputSignature,
    call_untyped,
    flatten_custom_function,
    hashable_key,
    require_pair,
    user_code_boundary,
)
from tracefx.transforms.derivative_checks import convert_tangent, is_valid_tangent, leaf_tangent, tangent_to_array

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@final
@frozen
class SymbolicZero:
    """A tangent or cotangent that is known to be zero, in rules defined with `symbolic_zeros=True`.

    It has `shape`, `dtype`, `weak_type`, `ndim` and `size` like an array, but no elements.

    Args:
        aval: The type of the tangent.

    >>> zero = SymbolicZero.from_primal_value(2.0)
    >>> zero.shape, zero.ndim, zero.size
    ((), 0, 1)
    """

    aval: ShapedArray

    @property
    def shape(self) -> Shape:
        """The shape of the tangent."""
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the tangent."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak."""
        return self.aval.weak_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @staticmethod
    def from_primal_value(val: ArrayLike) -> SymbolicZero:
        """Returns the zero tangent of a value.

        Args:
            val: An array or a number.

        Returns:
            The `SymbolicZero` of the shape of the value, and of the dtype of its tangents.

        >>> SymbolicZero.from_primal_value(2.0).shape
        ()
        """
        return SymbolicZero(get_aval(val).tangent())


@final
@frozen
class CustomVJPPrimal:
    """An argument of a forward rule defined with `symbolic_zeros=True`: its value, and whether it is differentiated.

    Args:
        value: The value.
        perturbed: Whether its cotangent is needed. If not, the backward rule may return None for it.

    >>> CustomVJPPrimal(2.0, perturbed=True)
    CustomVJPPrimal(value=2.0, perturbed=True)
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: PyTree) -> Any:
    """Returns the values of a pytree of `CustomVJPPrimal`.

    Args:
        tree: The pytree.

    Returns:
        A pytree of the same structure.

    Raises:
        TypeError: If a leaf is not a `CustomVJPPrimal`.

    >>> custom_vjp_primal_tree_values([CustomVJPPrimal(2.0, True)])
    [2.0]
    """

    def value(leaf: object) -> object:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"custom_vjp_primal_tree_values: {leaf!r} is not a CustomVJPPrimal")
        return leaf.value

    return trees.map(value, tree)


def zero_from_primal(val: PyTree, symbolic_zeros: bool = False) -> Any:
    """Returns the zero tangents of a pytree of values.

    Args:
        val: The pytree of arrays or numbers.
        symbolic_zeros: Whether the zeros are `SymbolicZero` objects. False by default: they are arrays, of dtype
            `float0` for integers and booleans.

    Returns:
        A pytree of the same structure, whose leaves have the shapes of the values and the dtypes of their tangents.

    >>> zero_from_primal({"w": 2.0})
    {'w': Array(0., dtype=float32, weak_type=True)}
    """
    return trees.map(lambda x: _to_user_tangent(Zero(get_aval(x).tangent()), symbolic_zeros), val)


def _to_user_tangent(t: Tangent, symbolic: bool) -> object:
    """Returns a tangent as a rule gets it: an array, or a `SymbolicZero` if `symbolic` is true."""
    return SymbolicZero(t.aval) if symbolic and isinstance(t, Zero) else tangent_to_array(t)


# ------------------------------------------------------------------ custom_jvp


@final
class custom_jvp(CustomFunction[P, R], HasJVPRule):
    """A function with a user-defined JVP rule, which `defjvp` or `defjvps` sets.

    Differentiation calls the rule instead of differentiating the function: in forward mode directly, and in reverse
    mode by transposing what the rule does with the tangents. The rule therefore has to be linear in the tangents. It
    computes with arrays, so it can be differentiated again (for `grad(grad(f))`), batched and compiled like any
    function. Use it where the derivative of the program is not that of the function: formulas that overflow, iterations
    that converge, operations without derivatives. For a rule of reverse mode only there is `custom_vjp`.

    Without differentiation, the function is called as it is. Inside the function and its rules, Python control flow may
    depend on concrete values. Closed-over values cannot be differentiated: make them arguments, if need be with
    `closure_convert`.

    Args:
        fun: The function. It takes and returns pytrees of arrays.
        nondiff_argnums: Positions of arguments that are not differentiated: they may be any objects, and derivatives
            with respect to them are zero. They come before the primals and tangents in the arguments of the rule. Empty
            by default.
        nondiff_argnames: Names of such arguments. Empty by default.

    Raises:
        TypeError: If `fun` is not callable. When differentiated: if the outputs of the rule do not fit those of the
            function.
        ValueError: If `nondiff_argnums` or `nondiff_argnames` names an argument that the function does not have.
        AttributeError: When called before a rule is set.

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

    With an argument that is a function, and one rule per argument:

    >>> from functools import partial
    >>> @partial(custom_jvp, nondiff_argnums=0)
    ... def apply(f, x):
    ...     return f(x)
    >>> @apply.defjvp
    ... def apply_jvp(f, primals, tangents):
    ...     return apply(f, *primals), 10.0 * tangents[0]
    >>> float(grad(lambda x: apply(fnp.sin, x))(0.0))
    10.0
    >>> product = custom_jvp(lambda x, y: x * y)
    >>> product.defjvps(lambda t, out, x, y: t * y, lambda t, out, x, y: x * t)
    >>> [float(g) for g in grad(product, argnums=(0, 1))(3.0, 4.0)]
    [4.0, 3.0]
    """

    title = "custom_jvp"

    @api_boundary
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
        """Sets the JVP rule.

        Args:
            jvp: The rule `jvp(*nondiff_args, primals, tangents)`, which returns the pair of the output and its tangent.
                `primals` and `tangents` are tuples with one entry per differentiated argument. The tangent of the
                output has the structure, shapes and dtypes of the output (`float0` for integers and booleans).
            symbolic_zeros: Whether a tangent that is known to be zero is passed as a `SymbolicZero`. False by default:
                it is an array of zeros.

        Returns:
            `jvp`, so that this method can be used as a decorator.

        Raises:
            TypeError: If `jvp` is not callable.
        """
        require_callable("defjvp", jvp)
        self.jvp = jvp
        self.symbolic_zeros = bool(symbolic_zeros)
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Sets one JVP rule per argument; the tangent of the output is the sum of their results.

        Args:
            *jvps: For each argument a rule `jvp(tangent, output, *primals)`, which returns a tangent of the output, or
                None for a zero derivative.

        Raises:
            TypeError: If there are `nondiff_argnums`.

        >>> double = custom_jvp(lambda x, n: x * 2.0)
        >>> double.defjvps(lambda t, out, x, n: 2.0 * t, None)
        """
        if self.nondiff_argnums:
            raise TypeError(f"{self._where}: defjvps sets a rule for every argument; use defjvp with nondiff_argnums")

        @functools.wraps(jvps[0] if jvps and jvps[0] is not None else self.fun)
        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise TypeError(
                    f"{self._where}: defjvps was given {len(jvps)} rules, but it is called with {len(primals)} "
                    "arguments; pass one rule or None per argument"
                )
            out = call_untyped(self, primals)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            if not parts:
                return out, zero_from_primal(out)
            return out, trees.map(lambda *tangents: functools.reduce(_add_tangents, tangents), *parts)

        self.defjvp(jvp)

    @override
    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        rule = self.jvp
        if rule is None:
            raise AttributeError(f"{self._where}: no rule has been set; set one with {self._name}.defjvp")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = OutputSignature(self._name)
        flat = flatten_custom_function(self, statics, in_tree, outputs)
        jvp = self._flatten_rule(rule, statics, in_tree, outputs)
        return self._bind(CustomJVPCall(self._name, flat, jvp, self.symbolic_zeros), values, outputs)

    @override
    def jvp_rule(self, statics: Mapping[int, object], in_tree: TreeDef) -> JVPRule:
        assert self.jvp is not None
        return self._flatten_rule(self.jvp, NondiffArguments(dict(statics)), in_tree, OutputSignature(self._name))

    def _flatten_rule(
        self, rule: Callable[..., Any], statics: NondiffArguments, in_tree: TreeDef, outputs: OutputSignature
    ) -> JVPRule:
        """Returns the rule as one of flat values."""
        symbolic = self.symbolic_zeros
        what = f"the rule {fun_label(rule)} of {self._name}"

        @derive(rule, RuleOf(self, in_tree, symbolic, statics.key, statics.values))
        @user_code_boundary(self._name)
        def jvp(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
            user_tangents = in_tree.unflatten([_to_user_tangent(t, symbolic) for t in tangents])
            pair = rule(*statics.values.values(), in_tree.unflatten(to_arrays(primals)), user_tangents)
            out, out_tangent = require_pair(what, pair, "output, tangent of the output")
            outs = outputs.flatten(out, what)
            return outs, _out_tangents(what, outs, outputs.tree, out_tangent)

        return jvp


def _add_tangents(x: Any, y: Any) -> object:
    if getattr(x, "dtype", None) == float0:
        return y
    return x if getattr(y, "dtype", None) == float0 else add_tangents(as_value(x), as_value(y))


def _out_tangents(what: str, outs: Sequence[Value], tree: TreeDef, out_tangent: PyTree) -> list[Tangent]:
    """Returns the tangents that a rule returned, checked against its outputs and converted."""
    leaves, tangent_tree = trees.flatten(out_tangent)
    trees.require_same_structure(f"{what}: the tangent of its output", tree, tangent_tree, "the output", "the tangent")
    tangents = [_leaf_tangent(leaf, i, out_tangent, f"the tangent from {what}") for i, leaf in enumerate(leaves)]
    expected, avals = [x.aval.tangent() for x in outs], [t.aval for t in tangents]
    fit = [is_valid_tangent(a, b) for a, b in zip(avals, expected, strict=True)]
    subject = f"{what}: its output and the tangent of its output"
    remedy = "A tangent has the shape and dtype of its output; for integers and booleans, its dtype is float0."
    require_matching_types(subject, tree, ("tangent needed", expected), ("tangent given", avals), fit, remedy)
    return [convert_tangent(t, aval) for t, aval in zip(resolve_tangents(tangents), expected, strict=True)]


def resolve_tangents(tangents: Sequence[Tangent]) -> list[Tangent]:
    return [t if isinstance(t, Zero) else resolve_closed_over([t])[0] for t in tangents]


def _leaf_tangent(leaf: object, i: int, tree: PyTree, what: str) -> Tangent:
    if isinstance(leaf, SymbolicZero):
        return Zero(leaf.aval)
    return leaf_tangent(leaf, i, tree, what)


# ------------------------------------------------------------------ custom_vjp


@final
class custom_vjp(CustomFunction[P, R]):
    """A function with user-defined rules for reverse mode, which `defvjp` sets.

    Without differentiation, the function is called as it is. Reverse mode calls the forward rule instead, `fwd(*args)
    -> (output, residuals)`, and later the backward rule, `bwd(residuals, cotangent) -> cotangents`:

        def vjp(f, *args):
            output, residuals = f.fwd(*args)
            return output, lambda cotangent: f.bwd(residuals, cotangent)

    The residuals are everything that `bwd` needs to know of the forward pass; they stay in memory until then. They are
    a pytree whose leaves may be arrays or other objects; `bwd` gets Python numbers and other objects as they are. Under
    `vmap` and in loops the residuals are batched and stacked as other values are, so `bwd` must not depend on values
    that `fwd` stores elsewhere.

    `bwd` returns a tuple with one entry per differentiated argument, also if there is only one. An entry is a pytree
    like the argument; None stands for zeros, for a whole argument or a part of it. Cotangents have the shapes and
    dtypes of the arguments; those of integer and boolean arguments are ignored, so None is right for them.

    `bwd` need not be linear: it may clip or mask cotangents. Forward mode works too: the derivative is the transpose of
    `bwd`, which has to be linear. Forward mode over reverse mode, as in `hessian`, differentiates the rules themselves,
    and does not need that. Closed-over values cannot be differentiated: make them arguments, if need be with
    `closure_convert`. Inside a `shard_map`, cotangents are those of the whole computation (see `shard_map`).

    Args:
        fun: The function. It takes and returns pytrees of arrays.
        nondiff_argnums: Positions of arguments that are not differentiated: they may be any objects, and derivatives
            with respect to them are zero. `fwd` gets them at their positions, `bwd` as its first arguments. Empty by
            default.
        nondiff_argnames: Names of such arguments. Empty by default.

    Raises:
        TypeError: If `fun` is not callable. When differentiated: if the results of a rule do not fit the function.
        ValueError: If `nondiff_argnums` or `nondiff_argnames` names an argument that the function does not have. When
            differentiated: if a cotangent of `bwd` does not fit its argument.
        AttributeError: When called before the rules are set.
        NotLinearError: In forward mode, if `bwd` is not linear. It is a TypeError.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import grad
    >>> @custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda res, ct: (fnp.clip(ct, -1.0, 1.0),))
    >>> float(grad(lambda x: 5.0 * clipped(x))(3.0))
    1.0

    A fixed point `x = f(params, x)`, whose derivative comes from the implicit function theorem and does not go through
    the iteration; the function is an argument that is not differentiated:

    >>> from functools import partial
    >>> from tracefx import lax, vjp
    >>> def iterate(f, x):
    ...     return lax.fori_loop(0, 50, lambda i, x: f(x), x)
    >>> @partial(custom_vjp, nondiff_argnums=0)
    ... def fixed_point(f, params):
    ...     return iterate(lambda x: f(params, x), 1.0)
    >>> def forward(f, params):
    ...     x = fixed_point(f, params)
    ...     return x, (params, x)
    >>> def backward(f, residuals, ct):
    ...     params, x = residuals
    ...     _, pull_x = vjp(lambda x: f(params, x), x)
    ...     _, pull_params = vjp(lambda params: f(params, x), params)
    ...     return pull_params(iterate(lambda u: ct + pull_x(u)[0], ct))
    >>> fixed_point.defvjp(forward, backward)
    >>> half = lambda a, x: (x + a / x) / 2
    >>> f"{fixed_point(half, 4.0):.4f} {grad(fixed_point, argnums=1)(half, 4.0):.4f}"
    '2.0000 0.2500'
    """

    title = "custom_vjp"

    @api_boundary
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
        """Sets the rules.

        Args:
            fwd: The forward rule. It takes the arguments of the function, and returns `(output, residuals)`. The output
                has the structure, shapes and dtypes of that of the function; the residuals are a pytree of anything.
            bwd: The backward rule `bwd(*nondiff_args, residuals, cotangent)`. It returns a tuple with one cotangent per
                differentiated argument; None means zero.
            symbolic_zeros: Whether the leaves of the arguments of `fwd` are `CustomVJPPrimal` objects, and cotangents
                known to be zero `SymbolicZero` objects. False by default.
            optimize_remat: Accepted for compatibility with JAX, without effect: unused equations are always removed.

        Raises:
            TypeError: If a rule is not callable.
        """
        require_callable("defvjp", fwd)
        require_callable("defvjp", bwd)
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, bool(symbolic_zeros)

    @override
    @api_boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        fwd, bwd, symbolic = self.fwd, self.bwd, self.symbolic_zeros
        if fwd is None or bwd is None:
            raise AttributeError(f"{self._where}: no rules have been set; set them with {self._name}.defvjp")
        statics, dynamic = self._split_arguments(args, kwargs)
        values, in_tree = flatten_values(dynamic, f"{self._where}: arguments")
        outputs = OutputSignature(self._name)
        what = f"the forward rule {fun_label(fwd)} of {self._name}"

        @derive(fwd, self, bwd, *statics.key, in_tree, symbolic)
        @user_code_boundary(self._name)
        def forward(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
            leaves = to_arrays(primals)
            if symbolic:
                leaves = list(map(CustomVJPPrimal, leaves, perturbed))
            pair = fwd(*statics.merge(in_tree.unflatten(leaves)))
            out, residual_tree = require_pair(what, pair, "output, residuals")
            outs = outputs.flatten(out, what)
            residuals, closed_over = _ResidualTree.of(residual_tree, f"the residuals from {what}")
            backward = _BackwardRule(
                self._name, bwd, symbolic, tuple(statics.values.values()), residuals, outputs.tree, in_tree,
                tuple([p.aval.tangent() for p in primals]),
            )  # fmt: skip

            @derive(bwd, *backward.key)
            @user_code_boundary(self._name)
            def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
                return backward.pull(residuals, cts)

            return ForwardResult(outs, closed_over, pull)

        flat = flatten_custom_function(self, statics, in_tree, outputs)
        forward_rule = wrap_vjp_for_shard_map(self._name, forward)
        return self._bind(CustomVJPCall(self._name, flat, forward_rule, bwd, symbolic), values, outputs)


_PYTHON_NUMBERS: Final = frozenset({bool, int, float, complex})


@final
@frozen(eq=False)
class _ResidualTree:
    """The structure of the residuals of a forward rule. `static_leaves` are those that are not arrays, by index.

    Python numbers are among them, so that the backward rule can branch on them and use them as sizes.
    """

    tree: TreeDef
    static_leaves: dict[int, object]

    @classmethod
    def of(cls, residual_tree: PyTree, what: str) -> tuple[_ResidualTree, list[Value]]:
        """Returns the structure of residuals, and their arrays."""
        leaves, tree = trees.flatten(residual_tree)
        others = {
            i: leaf
            for i, leaf in enumerate(leaves)
            if type(leaf) in _PYTHON_NUMBERS or not (isinstance(leaf, Tracer) or is_arraylike(leaf))
        }
        values = [leaf_value(leaf, i, residual_tree, what) for i, leaf in enumerate(leaves) if i not in others]
        return cls(tree, others), resolve_closed_over(values)

    def unflatten(self, values: Sequence[Value]) -> Any:
        remaining = iter(to_arrays(values))
        return self.tree.unflatten(
            [self.static_leaves[i] if i in self.static_leaves else next(remaining) for i in range(self.tree.num_leaves)]
        )


@final
@frozen(eq=False)
class _BackwardRule:
    """A backward rule as a function of flat values. `avals` are the types of the cotangents that it has to return."""

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
        """Everything that the result of `pull` depends on except the rule itself and the operands."""
        residuals = self.residuals
        others = tuple([(i, hashable_key(x)) for i, x in residuals.static_leaves.items()])
        statics = tuple(map(hashable_key, self.statics))
        return self.name, self.symbolic, statics, residuals.tree, others, self.out_tree, self.in_tree, self.avals

    def pull(self, residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
        """Calls the backward rule, and returns the checked cotangents of all argument leaves."""
        ct = self.out_tree.unflatten([_to_user_tangent(t, self.symbolic) for t in cts])
        result_cts = self.bwd(*self.statics, self.residuals.unflatten(residuals), ct)
        what = f"the backward rule {fun_label(self.bwd)} of {self.name}"
        count = len(self.in_tree.children())
        if isinstance(result_cts, list):
            result_cts = tuple(result_cts)
        if not isinstance(result_cts, tuple) or len(result_cts) != count:
            raise TypeError(
                f"{what} must return a tuple with one cotangent for each of the {count} arguments, but it returned "
                f"{trees.show_structure(trees.structure(result_cts), 'one array')}"
            )
        try:
            entries = trees.broadcast_prefix(
                result_cts, self.in_tree, none_is_leaf=True, what=f"the result of {what}", of="the arguments"
            )
        except ValueError as error:
            raise TypeError(str(error)) from None
        paths = [path for path, _ in trees.flatten_with_path(self.in_tree.unflatten(range(len(self.avals))))[0]]
        return [
            self.check_cotangent(entry, aval, f"{what} at {keystr(path)}")
            for entry, aval, path in zip(entries, self.avals, paths, strict=True)
        ]

    def check_cotangent(self, entry: object, aval: ShapedArray, what: str) -> Tangent:
        """Returns a cotangent converted to the type `aval`; raises ValueError if it does not fit."""
        if aval.dtype == float0:
            return Zero(aval)
        if entry is None:
            return instantiate(Zero(aval))  # so that the backward passes of earlier functions are called, as in JAX
        ct = _leaf_tangent(entry, 0, entry, what)
        if isinstance(ct, Zero) and ct.aval.dtype == float0:
            return Zero(aval)
        numbers = dtypes.is_complex(aval.dtype) or not dtypes.is_complex(ct.aval.dtype)
        if ct.aval.shape != aval.shape or not numbers:
            raise ValueError(
                f"{what}: a cotangent must have the type of its argument:\n"
                f"  argument  : {aval}\n  cotangent : {ct.aval}"
            )
        return convert_tangent(resolve_tangents([ct])[0], aval)
