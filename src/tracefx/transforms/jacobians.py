"""`jacfwd`, `jacrev` and `hessian`: full Jacobians, computed for all basis vectors at once by `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Concatenate, TypeAlias, TypeVar, final, overload

import numpy as np
from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes, float0
from tracefx.core.handler import as_array
from tracefx.core.primitive import Zero
from tracefx.ops.annotations.reshard import with_type_of
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.shape.shape import slice_axis
from tracefx.ops.structural import convert, instantiate, move_axis, reshape
from tracefx.transforms.arguments import fun_label, require_callable
from tracefx.transforms.derivative_checks import check_differentiable, check_output
from tracefx.transforms.differentiation import ArgumentDerivative
from tracefx.transforms.function_types import GradientFunction, HessianFunction, Pair, Untyped, WrappedFunction
from tracefx.transforms.linearization import Linearization
from tracefx.transforms.transform import L0, L1, No, SameArguments, Yes, validate_flag
from tracefx.transforms.transformed_function import wrap_transformed
from tracefx.transforms.vmap import vmap

P = ParamSpec("P")
# Without the bound, pyright reports an error for every operation on the arguments of a lambda.
A = TypeVar("A", bound=Any)
B = TypeVar("B", bound=Any)
Aux = TypeVar("Aux")


@overload
def jacfwd(
    fun: Callable[P, Untyped],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> GradientFunction[P, Any]: ...
@overload
def jacfwd(
    fun: Callable[Concatenate[A, P], ArrayLike],
    argnums: L0 = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> GradientFunction[Concatenate[A, P], A]: ...
@overload
def jacfwd(
    fun: Callable[Concatenate[A, B, P], ArrayLike],
    argnums: L1,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], B]: ...
@overload
def jacfwd(
    fun: Callable[Concatenate[A, B, P], ArrayLike],
    argnums: tuple[L0, L1],
    has_aux: No = False,
    holomorphic: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], Pair[A, B]]: ...
@overload
def jacfwd(
    fun: Callable[P, object],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> GradientFunction[P, Any]: ...
@overload
def jacfwd(
    fun: Callable[P, tuple[object, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Yes,
    holomorphic: bool = ...,
) -> WrappedFunction[P, tuple[Any, Aux]]: ...
def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `fun`, column by column, by forward-mode differentiation.

    Forward mode is the better choice if `fun` has no more inputs than outputs. The columns are computed in one batch,
    as by `vmap`, so the memory grows with the number of inputs.

    Args:
        fun: The function to differentiate. It takes and returns pytrees of arrays; the differentiated arguments are
            floating-point.
        argnums: The position, or a sequence of positions, of the arguments to differentiate with respect to. The
            default is the first argument.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.
        holomorphic: Whether `fun` is a holomorphic function: its differentiated arguments and its output are then
            complex. False by default.

    Returns:
        A function with the signature of `fun` that returns the Jacobian, or `(jacobian, aux)` with `has_aux`. For an
        argument `f32[n]` and an output `f32[m]` the Jacobian is `f32[m, n]`: the axes of the output come first. For
        pytrees it has the structure of the output, with that of the argument at each leaf; a sequence of `argnums`
        counts as a tuple of arguments. For an integer or boolean output it consists of zeros of that dtype.

    Raises:
        TypeError: If `fun` is not callable. When the result is called: if a differentiated argument is not
            floating-point, or, without `holomorphic`, is complex.
        ValueError: When the result is called, if `argnums` does not fit the call.

    >>> import tracefx.numpy as fnp
    >>> jacfwd(lambda x: x * x)(fnp.arange(3.0)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]

    The Jacobian of a pytree is a pytree of blocks, here `f32[3]` for a scalar and `f32[3, 2]` for a vector:

    >>> f = lambda params: fnp.array([params["a"], params["b"][0], params["b"].sum()])
    >>> jacobian = jacfwd(f)({"a": 1.0, "b": fnp.ones(2)})
    >>> jacobian["a"].tolist(), jacobian["b"].tolist()
    ([1.0, 0.0, 0.0], [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    """
    return JacFwd(argnums, has_aux, holomorphic)(fun)


@overload
def jacrev(
    fun: Callable[P, Untyped],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[P, Any]: ...
@overload
def jacrev(
    fun: Callable[Concatenate[A, P], ArrayLike],
    argnums: L0 = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, P], A]: ...
@overload
def jacrev(
    fun: Callable[Concatenate[A, B, P], ArrayLike],
    argnums: L1,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], B]: ...
@overload
def jacrev(
    fun: Callable[Concatenate[A, B, P], ArrayLike],
    argnums: tuple[L0, L1],
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], Pair[A, B]]: ...
@overload
def jacrev(
    fun: Callable[P, object],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[P, Any]: ...
@overload
def jacrev(
    fun: Callable[P, tuple[object, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> WrappedFunction[P, tuple[Any, Aux]]: ...
def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `fun`, row by row, by reverse-mode differentiation.

    Reverse mode is the better choice if `fun` has fewer outputs than inputs. The rows are computed in one batch, as by
    `vmap`, from one forward pass. `jacobian` is another name of this function.

    Args:
        fun: The function to differentiate. It takes and returns pytrees of arrays; the differentiated arguments and the
            output are floating-point.
        argnums: The position, or a sequence of positions, of the arguments to differentiate with respect to. The
            default is the first argument.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.
        holomorphic: Whether `fun` is a holomorphic function: its differentiated arguments and its output are then
            complex. False by default.
        allow_int: Whether integer and boolean arguments may be differentiated; their Jacobians are zeros of dtype
            `float0`. False by default.

    Returns:
        A function with the signature of `fun` that returns the Jacobian, or `(jacobian, aux)` with `has_aux`. Its
        structure and shapes are those described at `jacfwd`.

    Raises:
        TypeError: If `fun` is not callable. When the result is called: if a differentiated argument or an output does
            not have a dtype that the options allow.
        ValueError: When the result is called, if `argnums` does not fit the call.

    >>> import tracefx.numpy as fnp
    >>> jacrev(lambda x: (x * x).sum())(fnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    >>> jacrev(lambda x, y: fnp.array([x * y, y]), argnums=1)(2.0, 3.0).tolist()
    [2.0, 1.0]
    """
    return JacRev(argnums, has_aux, holomorphic, allow_int)(fun)


jacobian = jacrev


@overload
def hessian(
    fun: Callable[P, Untyped],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> HessianFunction[P, Any]: ...
@overload
def hessian(
    fun: Callable[Concatenate[A, P], ArrayLike],
    argnums: L0 = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> HessianFunction[Concatenate[A, P], A]: ...
@overload
def hessian(
    fun: Callable[Concatenate[A, B, P], ArrayLike],
    argnums: L1,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> HessianFunction[Concatenate[A, B, P], B]: ...
@overload
def hessian(
    fun: Callable[P, object],
    argnums: int | Sequence[int] = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
) -> HessianFunction[P, Any]: ...
@overload
def hessian(
    fun: Callable[P, tuple[object, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Yes,
    holomorphic: bool = ...,
) -> WrappedFunction[P, tuple[Any, Aux]]: ...
def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Returns a function that computes the second derivatives of `fun`, as `jacfwd(jacrev(fun))`.

    Reverse mode gives the gradient, and forward mode its derivatives along all basis vectors in one batch. For an
    argument of `n` elements this costs about `n` gradients, and the result has `n * n` elements. The product of the
    Hessian and one vector `v` costs a small multiple of one gradient: `jvp(grad(fun), (x,), (v,))[1]`.

    Args:
        fun: The function to differentiate, in general of a scalar output. Its arguments are as for `jacrev`.
        argnums: The position, or a sequence of positions, of the arguments to differentiate with respect to. The
            default is the first argument.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.
        holomorphic: Whether `fun` is a holomorphic function: its differentiated arguments and its output are then
            complex. False by default.

    Returns:
        A function with the signature of `fun` that returns the Hessian, or `(hessian, aux)` with `has_aux`. For an
        argument `f32[n]` and a scalar output it is `f32[n, n]`; the axes of the output come first, then those of the
        argument, twice.

    Raises:
        TypeError: If `fun` is not callable. When the result is called: for the reasons given at `jacfwd` and `jacrev`.
        ValueError: When the result is called, if `argnums` does not fit the call.

    >>> import tracefx.numpy as fnp
    >>> hessian(lambda x: (x**3).sum())(fnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 6.0]]
    >>> hessian(lambda x, y: x * x * y, argnums=(0, 1))(3.0, 5.0)[0][1].tolist()
    6.0
    """
    return Hessian(argnums, has_aux, holomorphic)(fun)


@final
@frozen(eq=False, repr=False)
class JacFwd(ArgumentDerivative[SameArguments]):
    """`jacfwd` with its options, as a transformation value. The options are described at `jacfwd`.

    >>> JacFwd(argnums=[0, 1])
    JacFwd(argnums=(0, 1))
    """

    title: ClassVar[str] = "jacfwd"

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        def columns(linear: Linearization) -> list[list[object]]:
            """Returns the derivatives of each output, one array per argument."""
            avals = [p.aval for p in linear.primals]
            active = [dtypes.is_inexact(o.aval.dtype) for o in linear.outs]

            def push(*tangents: Value) -> list[Value]:
                return [instantiate(t) for t, m in zip(linear.push(tangents), active, strict=True) if m]

            pushed: Iterator[Value] = iter(vmap(push)(*_basis(avals)) if any(active) else ())

            def of_output(o: Value, active: bool) -> list[object]:
                if not active:
                    blocks = [ShapedArray((*o.aval.shape, *a.shape), o.aval.dtype) for a in avals]
                    return [as_array(instantiate(Zero(block))) for block in blocks]
                parts = _split_blocks(move_axis(next(pushed), 0, o.aval.ndim), -1, avals)
                return [reshape(part, (*o.aval.shape, *a.shape)) for part, a in parts]

            return [of_output(o, m) for o, m in zip(linear.outs, active, strict=True)]

        return _jacobian(self, columns, fun, allow_int=None)


@final
@frozen(eq=False, repr=False)
class JacRev(ArgumentDerivative[SameArguments]):
    """`jacrev` with its options, as a transformation value. The options are described at `jacrev`.

    >>> JacRev(allow_int=True)
    JacRev(allow_int=True)
    """

    title: ClassVar[str] = "jacrev"
    allow_int: bool = field(default=False, validator=validate_flag)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        def rows(linear: Linearization) -> list[list[object]]:
            avals = [o.aval for o in linear.outs]

            def pull(*cts: Value) -> list[Value]:
                return [instantiate(ct) for ct, m in zip(linear.pull(cts), linear.active_inputs, strict=True) if m]

            pulled = iter(vmap(pull)(*_basis(avals)))
            by_argument: list[list[object]] = []
            for p, m in zip(linear.primals, linear.active_inputs, strict=True):
                shapes = [(*a.shape, *p.aval.shape) for a in avals]
                if m:
                    parts = _split_blocks(next(pulled), 0, avals)
                    by_argument.append([reshape(part, s) for (part, _), s in zip(parts, shapes, strict=True)])
                else:
                    by_argument.append([np.zeros(s, float0) for s in shapes])
            return [list(row) for row in zip(*by_argument, strict=True)]

        return _jacobian(self, rows, fun, self.allow_int)


@final
@frozen(eq=False, repr=False)
class Hessian(ArgumentDerivative[SameArguments]):
    """`hessian` with its options, as a transformation value: `JacFwd` of `JacRev` with these options.

    >>> float(Hessian()(lambda x: x**3)(2.0))
    12.0
    """

    title: ClassVar[str] = "hessian"

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("hessian", fun)
        forward, reverse = (
            JacFwd(self.argnums, self.has_aux, self.holomorphic),
            JacRev(self.argnums, self.has_aux, self.holomorphic),
        )
        return forward(reverse(fun))


JacobianBlocks: TypeAlias = Callable[[Linearization], list[list[object]]]


def _jacobian(
    options: JacFwd | JacRev, blocks_of: JacobianBlocks, fun: Callable[..., Any], allow_int: bool | None
) -> Callable[..., Any]:
    """Returns the transformed function of `JacFwd` or `JacRev`; `blocks_of` computes the blocks of the Jacobian."""
    title, holomorphic = options.title, options.holomorphic
    require_callable(title, fun)

    def check(aval: ShapedArray, argument: Callable[[], str]) -> None:
        check_differentiable(title, fun, aval.dtype, argument, holomorphic, allow_int)
        if dtypes.is_complex(aval.dtype) and not holomorphic and isinstance(options, JacFwd):
            # In forward mode a complex argument has two independent directions.
            raise TypeError(
                f"{title} of {fun_label(fun)}: complex arguments need holomorphic=True, for a holomorphic "
                "function; otherwise use jacrev, or differentiate with respect to real and imaginary parts"
            )

    @wrap_transformed(options, fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        linear, in_tree, out_tree, aux = options.linearize(title, fun, check, args, kwargs)
        for o in linear.outs:
            # In reverse mode one cotangent cannot select both the real and the imaginary part of a complex output.
            if holomorphic or isinstance(options, JacRev):
                check_output(title, fun, o.aval, holomorphic)
        result = out_tree.unflatten([in_tree.unflatten(row) for row in blocks_of(linear)])
        return (result, aux) if options.has_aux else result

    return jacobian


def _basis(avals: Sequence[ShapedArray]) -> list[Value]:
    """Returns the standard basis of the space of all arrays of these types together, as a batch along axis 0 for each.

    The basis is computed by primitives, so that a traced program computes it and does not take it as an input.
    """
    total = sum(a.size for a in avals)
    arrays: list[Value] = []
    start = 0
    for a in avals:
        rows, columns = [broadcasted_iota(dtypes.int32, (total, a.size), axis) for axis in (0, 1)]
        block = convert(eq(rows, add(columns, start)), a.dtype, a.weak_type)
        arrays.append(with_type_of(reshape(block, (total, *a.shape)), a.with_axis(total, 0)))
        start += a.size
    return arrays


def _split_blocks(x: Value, axis: int, avals: Sequence[ShapedArray]) -> list[tuple[Array, ShapedArray]]:
    """Splits `x` along an axis into one block per array of the basis."""
    parts = []
    start = 0
    for a in avals:
        parts.append((slice_axis(x, start, start + a.size, axis), a))
        start += a.size
    return parts
