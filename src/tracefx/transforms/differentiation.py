"""`jvp`, `vjp`, `linearize` and `linear_transpose`, and the checks that all of differentiation shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeVar, final, overload

from attrs import field, frozen
from typing_extensions import ParamSpec, TypeVarTuple, override

from tracefx.core import Array, ArrayLike, ShapedArray, Value, as_value, dtypes, float0, is_arraylike, show_avals
from tracefx.core.handler import Handler, as_array, current
from tracefx.core.primitive import UndefinedPrimal, Zero
from tracefx.errors import TangentError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.jvp import JVP, JVPTracer
from tracefx.interpreters.stage import stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import (
    AnyFunction,
    ArgumentNames,
    LeafNames,
    flatten_values,
    fun_label,
    normalize_argnums,
    output_label,
    require_callable,
    to_arrays,
)
from tracefx.transforms.derivative_checks import convert_tangents, flatten_tangents, tangent_to_array
from tracefx.transforms.function_types import PullbackFunction, Untyped
from tracefx.transforms.linearization import Linearization, LinearMap, UnreducedCotangents, jvp_values, linearize_values
from tracefx.transforms.shape_dtype_struct import flatten_avals
from tracefx.transforms.transform import (
    Directional,
    HandlerTransform,
    K,
    No,
    TransformOf,
    Yes,
    to_argnums,
    validate_argnums,
    validate_flag,
)
from tracefx.transforms.transformed_function import wrap_transformed

Ts = TypeVarTuple("Ts")
P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")
H = TypeVar("H")


@overload
def jvp(
    fun: Callable[[*Ts], Untyped], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: No = False
) -> tuple[Any, Any]: ...
@overload
def jvp(
    fun: Callable[[*Ts], ArrayLike], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: No = False
) -> tuple[Array, Array]: ...
@overload
def jvp(fun: Callable[[*Ts], R], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: No = False) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[[*Ts], tuple[Untyped, X]], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: Yes
) -> tuple[Any, Any, X]: ...
@overload
def jvp(
    fun: Callable[[*Ts], tuple[ArrayLike, X]], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: Yes
) -> tuple[Array, Array, X]: ...
@overload
def jvp(
    fun: Callable[[*Ts], tuple[R, X]], primals: tuple[*Ts], tangents: Sequence[Any], has_aux: Yes
) -> tuple[R, R, X]: ...
@overload
def jvp(fun: Callable[P, R], primals: list[Any], tangents: Sequence[Any], has_aux: No = False) -> tuple[R, R]: ...
@overload
def jvp(fun: Callable[P, tuple[R, X]], primals: list[Any], tangents: Sequence[Any], has_aux: Yes) -> tuple[R, R, X]: ...
@api_boundary
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """Computes `fun(*primals)` and its directional derivative along `tangents`, by forward-mode differentiation.

    The derivative is the product of the Jacobian of `fun` at `primals` and `tangents`; the Jacobian is not formed. It
    costs a small multiple of one evaluation of `fun`, and nothing is stored for a backward pass. For many tangents at
    one point, `linearize` evaluates the nonlinear part only once.

    Args:
        fun: The function to differentiate. It takes and returns pytrees of arrays.
        primals: A tuple or list with one entry per argument of `fun`: the point at which to differentiate.
        tangents: A tuple or list of the same structure. Each leaf has the shape and dtype of its primal; for an integer
            or boolean primal the dtype is `float0`.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.

    Returns:
        The pair `(primals_out, tangents_out)`, two pytrees of the structure of the output. With `has_aux` it is the
        triple `(primals_out, tangents_out, aux)`.

    Raises:
        TypeError: If `fun` is not callable, `primals` or `tangents` is not a tuple or list, or the tangents differ from
            the primals in structure, shape or dtype.

    >>> y, dy = jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> float(y), float(dy)
    (9.0, 6.0)

    The derivative of a function of two arguments in the direction of the second; a closed-over value is a constant:

    >>> _, dz = jvp(lambda x, y: x * y, (3.0, 4.0), (0.0, 1.0))
    >>> float(dz)
    3.0
    >>> _, dz = jvp(lambda y: 3.0 * y, (4.0,), (1.0,))
    >>> float(dz)
    3.0
    """
    require_callable("jvp", fun)
    for option, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise TypeError(f"jvp: {option} must be a tuple or list with one entry per argument, got {given!r}")
    flat, treedef = flatten_values(tuple(primals), "jvp: primals")
    flat_tangents, tangent_tree = flatten_tangents(tuple(tangents), "jvp: tangents")
    trees.require_same_structure("jvp: tangents", treedef, tangent_tree, "primals", "tangents")
    types = [p.aval.tangent() for p in flat]
    checked = convert_tangents("jvp: tangents", flat_tangents, "primals", types, treedef)

    def called(values: Sequence[Value]) -> tuple[list[Value], tuple[TreeDef, Any]]:
        return _flatten_output(fun, has_aux, fun(*treedef.unflatten(to_arrays(values))))

    outs, out_tangents, (out_tree, aux), handler = jvp_values(called, flat, checked)
    primals_out = out_tree.unflatten(to_arrays(outs))
    tangents_out = out_tree.unflatten([tangent_to_array(t) for t in out_tangents])
    return (primals_out, tangents_out, _strip_tangents(aux, handler)) if has_aux else (primals_out, tangents_out)


@final
@frozen(init=False, eq=False, repr=False)
class Jvp(HandlerTransform[Directional[H]]):
    """`jvp` with its option, as a transformation value: the transformed function takes `(primals, tangents)`.

    >>> y, dy = Jvp()(lambda x: x * x)((3.0,), (1.0,))
    >>> float(y), float(dy)
    (9.0, 6.0)
    """

    title: ClassVar[str] = "jvp"
    has_aux: bool = field(default=False, validator=validate_flag)

    @overload
    def __init__(self: Jvp[No], has_aux: No = False) -> None: ...
    @overload
    def __init__(self: Jvp[Yes], has_aux: Yes) -> None: ...
    def __init__(self, has_aux: bool = False) -> None:
        self.__attrs_init__(has_aux)

    @override
    def over(self, handler: Handler, /) -> JVP:
        return JVP(handler)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("jvp", fun)
        has_aux: Any = self.has_aux

        @wrap_transformed(self, fun)
        def pushed(primals: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
            return jvp(fun, primals, tangents, has_aux)

        return pushed


@overload
def linearize(
    fun: Callable[[*Ts], Untyped], *primals: *Ts, has_aux: No = False
) -> tuple[Any, Callable[[*Ts], Any]]: ...
@overload
def linearize(
    fun: Callable[[*Ts], ArrayLike], *primals: *Ts, has_aux: No = False
) -> tuple[Array, Callable[[*Ts], Array]]: ...
@overload
def linearize(fun: Callable[[*Ts], R], *primals: *Ts, has_aux: No = False) -> tuple[R, Callable[[*Ts], R]]: ...
@overload
def linearize(
    fun: Callable[[*Ts], tuple[Untyped, X]], *primals: *Ts, has_aux: Yes
) -> tuple[Any, Callable[[*Ts], Any], X]: ...
@overload
def linearize(
    fun: Callable[[*Ts], tuple[ArrayLike, X]], *primals: *Ts, has_aux: Yes
) -> tuple[Array, Callable[[*Ts], Array], X]: ...
@overload
def linearize(fun: Callable[[*Ts], tuple[R, X]], *primals: *Ts, has_aux: Yes) -> tuple[R, Callable[[*Ts], R], X]: ...
@api_boundary
def linearize(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> tuple[Any, ...]:
    """Computes `fun(*primals)` and the derivative at that point, as a linear function.

    The linear function is the one that `jvp` computes, but it is evaluated without repeating the nonlinear part of
    `fun`: use it instead of `jvp` for many tangents at one point. The intermediate values that it needs, the residuals,
    are kept in memory as long as the function is.

    Args:
        fun: The function to differentiate. It takes and returns pytrees of arrays.
        *primals: The arguments of `fun`: the point at which to differentiate.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.

    Returns:
        The pair `(output, push)`, with `has_aux` the triple `(output, push, aux)`. `push` takes one tangent per
        argument, like those of `jvp`, and returns the tangents of the output. It is a pytree, whose leaves are the
        residuals: compiled functions can take and return it.

    Raises:
        TypeError: If `fun` is not callable or an argument is not a pytree of arrays. When `push` is called: if the
            tangents do not fit the arguments.

    >>> y, push = linearize(lambda x: x * x, 3.0)
    >>> float(y), float(push(1.0)), float(push(10.0))
    (9.0, 6.0, 60.0)

    All columns of a Jacobian, as `jacfwd` computes them:

    >>> import tracefx.numpy as fnp
    >>> from tracefx import vmap
    >>> _, push = linearize(lambda x: x**2, fnp.arange(3.0))
    >>> vmap(push, out_axes=-1)(fnp.eye(3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]
    """
    return _linearize_call("linearize", fun, primals, has_aux, Pushforward)


@overload
def vjp(
    fun: Callable[[*Ts], Untyped], *primals: *Ts, has_aux: No = False
) -> tuple[Any, PullbackFunction[Any, *Ts]]: ...
@overload
def vjp(  # type: ignore[overload-overlap]  # the value of a function that returns numbers is an array
    fun: Callable[[*Ts], ArrayLike], *primals: *Ts, has_aux: No = False
) -> tuple[Array, PullbackFunction[ArrayLike, *Ts]]: ...
@overload
def vjp(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: No = False
) -> tuple[R, PullbackFunction[R | ArrayLike, *Ts]]: ...
@overload
def vjp(
    fun: Callable[[*Ts], tuple[Untyped, X]], *primals: *Ts, has_aux: Yes
) -> tuple[Any, PullbackFunction[Any, *Ts], X]: ...
@overload
def vjp(  # type: ignore[overload-overlap]  # the value of a function that returns numbers is an array
    fun: Callable[[*Ts], tuple[ArrayLike, X]], *primals: *Ts, has_aux: Yes
) -> tuple[Array, PullbackFunction[ArrayLike, *Ts], X]: ...
@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, X]], *primals: *Ts, has_aux: Yes
) -> tuple[R, PullbackFunction[R | ArrayLike, *Ts], X]: ...
@api_boundary
def vjp(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> tuple[Any, ...]:
    """Computes `fun(*primals)` and the function from cotangents of its output to cotangents of its arguments.

    That function multiplies the transposed Jacobian of `fun` at `primals` with its argument (reverse-mode
    differentiation); the Jacobian is not formed. It may be called several times. The residuals of `fun` are kept in
    memory as long as it is. For a scalar output, `grad` is shorter.

    Args:
        fun: The function to differentiate. It takes and returns pytrees of arrays.
        *primals: The arguments of `fun`: the point at which to differentiate.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.

    Returns:
        The pair `(output, pull)`, with `has_aux` the triple `(output, pull, aux)`. `pull` takes a cotangent of the
        structure, shapes and dtypes of the output (`float0` where these are integers or booleans), and returns a tuple
        with one cotangent per argument. It is a pytree, whose leaves are the residuals: compiled functions can take and
        return it.

    Raises:
        TypeError: If `fun` is not callable or an argument is not a pytree of arrays.
        TangentError: When `pull` is called, if the cotangent does not fit the output. It is a TypeError and a
            ValueError.

    >>> y, pull = vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> [float(ct) for ct in pull(1.0)]
    [4.0, 3.0]

    The cotangent has the structure of the output, and the result is a tuple even for one argument:

    >>> import tracefx.numpy as fnp
    >>> _, pull = vjp(lambda x: {"sum": x.sum(), "squares": x**2}, fnp.arange(3.0))
    >>> pull({"sum": 1.0, "squares": fnp.ones(3)})
    (Array([1., 3., 5.], dtype=float32),)
    """
    return _linearize_call("vjp", fun, primals, has_aux, Pullback)


@frozen(eq=False, repr=False)
class LinearFunction(LinearMap):
    """A linear map between pytrees, as users get it.

    It is a pytree itself, whose leaves are its constants (the residuals): compiled functions take and return it, and it
    can be pickled.
    """

    in_tree: TreeDef
    out_tree: TreeDef

    @classmethod
    def of(cls, linear: LinearMap, in_tree: TreeDef, out_tree: TreeDef) -> Self:
        """Returns the linear map `linear` between pytrees of these structures."""
        types = linear.in_avals, linear.out_avals, linear.unreduced
        return cls(linear.jaxpr, linear.consts, linear.active_inputs, linear.active_outputs, *types, in_tree, out_tree)

    @classmethod
    def tree_unflatten(cls, static_part: tuple[Any, ...], consts: Sequence[Any]) -> Self:
        """Rebuilds the map from the static part that `tree_flatten` returned, and constants or any replacements."""
        jaxpr, *remaining = static_part
        return cls(jaxpr, tuple([as_value(c) if is_arraylike(c) else c for c in consts]), *remaining)

    def tree_flatten(self) -> tuple[tuple[Value, ...], tuple[object, ...]]:
        """Returns the constants, and everything else as the static part."""
        types = self.in_avals, self.out_avals, self.unreduced
        return self.consts, (self.jaxpr, self.active_inputs, self.active_outputs, *types, self.in_tree, self.out_tree)


@final
class Pushforward(LinearFunction):
    """The function from tangents of the arguments to tangents of the output, which `linearize` returns."""

    @api_boundary
    def __call__(self, *tangents: Any) -> Any:
        what = "the function of linearize: tangents"
        flat, tree = flatten_tangents(tangents, what)
        trees.require_same_structure(what, self.in_tree, tree, "primals", "tangents")
        checked = convert_tangents(what, flat, "primals", [a.tangent() for a in self.in_avals], tree)
        return self.out_tree.unflatten([tangent_to_array(t) for t in self.push(checked)])


@final
class Pullback(LinearFunction):
    """The function from a cotangent of the output to a tuple of cotangents of the arguments, which `vjp` returns."""

    @api_boundary
    def __call__(self, cotangents: Any, /) -> Any:
        what = "the function of vjp: the cotangent"
        flat, tree = flatten_tangents(cotangents, what)
        try:
            trees.require_same_structure(what, self.out_tree, tree, "the output", "the cotangent")
        except TypeError as error:
            raise TangentError(str(error)) from None
        types = [a.tangent() for a in self.out_avals]
        # The cotangent of an integer or boolean output is always zero, whatever its dtype.
        given = [
            Zero(a) if a.dtype == float0 and t.aval.shape == a.shape else t for a, t in zip(types, flat, strict=True)
        ]
        checked = convert_tangents(what, given, "the output", types, tree)
        self.unreduced.require("the function of vjp", checked, self.out_avals)
        return self.in_tree.unflatten([tangent_to_array(ct) for ct in self.pull(checked)])


@final
class TransposedFunction(LinearFunction):
    """The transpose of a linear function, which `linear_transpose` returns. `jaxpr` is that of the function itself."""

    @api_boundary
    def __call__(self, cotangents: Any, /) -> Any:
        what = "the transposed function: the cotangent"
        flat, tree = flatten_tangents(cotangents, what)
        trees.require_same_structure(what, self.out_tree, tree, "the output", "the cotangent")
        checked = convert_tangents(what, flat, "the output", self.out_avals, tree)
        self.unreduced.require(what, checked, self.out_avals)
        operands = [UndefinedPrimal(a) for a in self.in_avals]
        output_cts = self.unreduced.split(checked, self.out_avals)
        cts = self.unreduced.reduce(backward_pass(self.jaxpr, self.consts, operands, output_cts), self.in_avals)
        return self.in_tree.unflatten([tangent_to_array(ct) for ct in cts if ct is not None])


trees.register_pytree_node(Pushforward, LinearFunction.tree_flatten, Pushforward.tree_unflatten)
trees.register_pytree_node(Pullback, LinearFunction.tree_flatten, Pullback.tree_unflatten)
trees.register_pytree_node(TransposedFunction, LinearFunction.tree_flatten, TransposedFunction.tree_unflatten)


@api_boundary
def linear_transpose(fun: Callable[..., R], *primals: PyTree) -> Callable[[R | ArrayLike], tuple[Any, ...]]:
    """Returns the transpose of a linear function, without evaluating the function.

    The transpose of `x -> A @ x` is `y -> A.T @ y`. `vjp` of a linear function computes the same, but evaluates the
    function.

    Args:
        fun: A function that is linear in all its arguments. It takes and returns pytrees of arrays, which are all
            floating-point or complex, or all integers.
        *primals: Arguments of `fun` of which only shapes and dtypes are used: arrays, `ShapeDtypeStruct`, or other
            objects with `shape` and `dtype`.

    Returns:
        A function from a cotangent, of the structure and types of the output, to a tuple with one cotangent per
        argument. It is a pytree, whose leaves are the arrays that `fun` closes over.

    Raises:
        TypeError: If `fun` is not callable, or dtypes of arguments and outputs are neither all floating-point or
            complex nor all integers.
        NotLinearError: When the result is called, if `fun` multiplies its arguments with each other, divides by them,
            or the like. It is a TypeError.
        MissingRuleError: When the result is called, if `fun` applies an operation that is never linear, such as `sin`.
            It is a NotImplementedError.

    >>> float(linear_transpose(lambda x: 3 * x, 1.0)(2.0)[0])
    6.0
    >>> import numpy as np
    >>> pull = linear_transpose(lambda x: x[:2], np.zeros(3))
    >>> pull(np.array([1.0, 2.0]))
    (Array([1., 2., 0.], dtype=float32),)
    """
    require_callable("linear_transpose", fun)
    avals, in_tree = flatten_avals(tuple(primals), "linear_transpose: primals")
    out_tree: TreeDef | None = None

    def called(*values: Value) -> list[Value]:
        nonlocal out_tree
        outs, out_tree = flatten_values(fun(*in_tree.unflatten(to_arrays(values))), output_label(fun))
        return outs

    jaxpr, consts = stage(called, avals, current())
    assert out_tree is not None
    all_dtypes = [a.dtype for a in (*avals, *jaxpr.out_avals)]
    if not all(map(dtypes.is_inexact, all_dtypes)) and not all(map(dtypes.is_integer, all_dtypes)):
        raise TypeError(
            "linear_transpose: arguments and outputs must be all floating-point or complex, or all integers: this "
            f"function takes ({show_avals(avals)}) and returns ({show_avals(jaxpr.out_avals)})"
        )
    ins, outs = (True,) * len(avals), (True,) * len(jaxpr.outs)
    types = tuple(avals), jaxpr.out_avals, UnreducedCotangents.of(jaxpr)
    return TransposedFunction(jaxpr, tuple(consts), ins, outs, *types, in_tree, out_tree)


# ------------------------------------------------------------------ calling the function


def _flatten_output(fun: AnyFunction, has_aux: bool, out: Any) -> tuple[list[Value], tuple[TreeDef, Any]]:
    """Returns what a user's function returned as values, with their structure and the auxiliary output."""
    aux = None
    if has_aux:
        if not isinstance(out, tuple | list) or len(out) != 2:
            raise TypeError(
                f"{fun_label(fun)}: with has_aux=True the function must return a pair (output, aux), got "
                f"{trees.show_structure(trees.structure(out), 'one array')}"
            )
        out, aux = out
    values, tree = flatten_values(out, output_label(fun))
    return values, (tree, aux)


def _linearize(
    fun: AnyFunction,
    primals: PyTree,
    has_aux: bool,
    what: str | LeafNames,
    call: Callable[[Any], Any],
    check: Callable[[ShapedArray, int], None] | None = None,
) -> tuple[Linearization, TreeDef, TreeDef, Any]:
    """Linearizes `fun`. Returns the linearization, both structures, and the auxiliary output.

    Args:
        fun: The function, for messages.
        primals: The point at which to linearize.
        has_aux: Whether `fun` returns an auxiliary output.
        what: The name of `primals` in messages, or the names of its leaves.
        call: Calls `fun` with other primals.
        check: Raises for types that cannot be differentiated, given the type and the number of a leaf.
    """
    flat, in_tree = flatten_values(primals, what)
    if check is not None:
        for i, v in enumerate(flat):
            check(v.aval, i)

    def called(values: Sequence[Value]) -> tuple[list[Value], tuple[TreeDef, Any]]:
        return _flatten_output(fun, has_aux, call(in_tree.unflatten(to_arrays(values))))

    linear, (out_tree, aux), handler = linearize_values(called, flat)
    return linear, in_tree, out_tree, _strip_tangents(aux, handler) if has_aux else None


def _linearize_call(
    title: str, fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, kind: type[LinearFunction]
) -> tuple[Any, ...]:
    """Returns the output of a function, its linear map, an instance of `kind`, and with `has_aux` the other output."""
    require_callable(title, fun)
    what = f"{title} of {fun_label(fun)}: primals"
    linear, in_tree, out_tree, aux = _linearize(fun, primals, has_aux, what, lambda xs: fun(*xs))
    out, linear_map = out_tree.unflatten(to_arrays(linear.outs)), kind.of(linear, in_tree, out_tree)
    return (out, linear_map, aux) if has_aux else (out, linear_map)


@frozen(eq=False, repr=False)
class ArgumentDerivative(TransformOf[K]):
    """A derivative with respect to the arguments at `argnums`, as a transformation value."""

    argnums: int | tuple[int, ...] = field(default=0, converter=to_argnums, validator=validate_argnums)
    has_aux: bool = field(default=False, validator=validate_flag)
    holomorphic: bool = field(default=False, validator=validate_flag)

    def linearize(
        self,
        title: str,
        fun: AnyFunction,
        check: Callable[[ShapedArray, Callable[[], str]], None],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> tuple[Linearization, TreeDef, TreeDef, Any]:
        """Linearizes `fun` in the arguments of a call.

        Args:
            title: The name of the transformation in messages.
            fun: The function.
            check: Raises for types that cannot be differentiated, given the type and the name of an argument.
            args: The positional arguments.
            kwargs: The other arguments.

        Returns:
            The linearization, the structures of the differentiated arguments and of the output, and the auxiliary
            output.
        """
        positions = normalize_argnums(self.argnums, len(args), title, fun)
        is_single = isinstance(self.argnums, int)

        def call(primals: Any) -> Any:
            full_args = list(args)
            for i, x in zip(positions, (primals,) if is_single else primals, strict=True):
                full_args[i] = x
            return fun(*full_args, **kwargs)

        given = tuple([args[i] for i in positions])

        def name(leaf: int) -> str:
            return ArgumentNames(fun, given, {}, positions)[leaf]

        return _linearize(
            fun,
            given[0] if is_single else given,
            self.has_aux,
            lambda leaf: f"{title} of {fun_label(fun)}: {name(leaf)}",
            call,
            lambda aval, leaf: check(aval, lambda: name(leaf)),
        )


def _strip_tangents(aux: PyTree, handler: JVP) -> Any:
    """Returns an auxiliary output with each tracer of `handler` replaced by its primal."""

    def primal(x: object) -> object:
        return as_array(x.primal) if isinstance(x, JVPTracer) and x.handler is handler else x

    return trees.map(primal, aux)
