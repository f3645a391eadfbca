"""`grad` and `value_and_grad`, as functions and as transformation values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, TypeVar, final, overload

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import Array, ShapedArray, Value
from tracefx.core.handler import as_array
from tracefx.ops.structural import constant_like_aval
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.derivative_checks import check_differentiable, require_scalar_output, tangent_to_array
from tracefx.transforms.differentiation import ArgumentDerivative
from tracefx.transforms.function_types import GradientAndAux, GradientFunction, Pair, Several, ValueAndGradient
from tracefx.transforms.transform import (
    L0,
    L1,
    L2,
    L3,
    Argnum,
    Argnum2,
    Gradients,
    No,
    UnknownArgnum,
    UnknownArgnums,
    ValuesAndGradients,
    Yes,
    validate_flag,
)
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
A = TypeVar("A", bound=Any)
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
D = TypeVar("D", bound=Any)
X = TypeVar("X")
N = TypeVar("N")
H = TypeVar("H")


@overload
def value_and_grad(
    fun: Callable[Concatenate[A, P], object],
    argnums: L0 = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, P], Array, A]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, P], object],
    argnums: L1,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, P], Array, B]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, C, P], object],
    argnums: L2,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, C, P], Array, C]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, C, D, P], object],
    argnums: L3,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, C, D, P], Array, D]: ...
@overload
def value_and_grad(  # type: ignore[overload-overlap]  # more precise than for a sequence
    fun: Callable[Concatenate[A, B, P], object],
    argnums: tuple[L0, L1],
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, P], Array, Pair[A, B]]: ...
@overload
def value_and_grad(
    fun: Callable[P, object], argnums: int, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
) -> ValueAndGradient[P, Array, Any]: ...
@overload
def value_and_grad(
    fun: Callable[P, object],
    argnums: Sequence[int],
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[P, Array, Several]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, P], tuple[object, X]],
    argnums: L0 = 0,
    *,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, P], tuple[Array, X], A]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, P], tuple[object, X]],
    argnums: L1,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, P], tuple[Array, X], B]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, C, P], tuple[object, X]],
    argnums: L2,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, C, P], tuple[Array, X], C]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[A, B, C, D, P], tuple[object, X]],
    argnums: L3,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, C, D, P], tuple[Array, X], D]: ...
@overload
def value_and_grad(  # type: ignore[overload-overlap]  # more precise than for a sequence
    fun: Callable[Concatenate[A, B, P], tuple[object, X]],
    argnums: tuple[L0, L1],
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[Concatenate[A, B, P], tuple[Array, X], Pair[A, B]]: ...
@overload
def value_and_grad(
    fun: Callable[P, tuple[object, X]], argnums: int, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
) -> ValueAndGradient[P, tuple[Array, X], Any]: ...
@overload
def value_and_grad(
    fun: Callable[P, tuple[object, X]],
    argnums: Sequence[int],
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> ValueAndGradient[P, tuple[Array, X], Several]: ...
def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes both the value of `fun` and its gradient, by reverse-mode differentiation.

    `fun` is evaluated once for both. The arguments, the conventions for complex numbers and the errors are those of
    `grad`.

    Args:
        fun: The function to differentiate. Its output is a real scalar, such as `f32[]`; with `has_aux` it is a pair
            `(output, aux)`.
        argnums: The position, or a sequence of positions, of the arguments to differentiate with respect to. The
            default is the first argument.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.
        holomorphic: Whether `fun` is a holomorphic function of complex arguments. False by default.
        allow_int: Whether integer and boolean arguments may be differentiated. False by default.

    Returns:
        A function with the signature of `fun` that returns `(value, gradient)`, or `((value, aux), gradient)` with
        `has_aux`.

    Raises:
        TypeError: If `fun` is not callable, or, when the result is called, for the reasons given at `grad`.
        ValueError: When the result is called, if `argnums` does not fit the call.

    >>> value, gradient = value_and_grad(lambda x: x * x)(3.0)
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """
    return ValueAndGrad(argnums, has_aux, holomorphic, allow_int)(fun)


@overload
def grad(
    fun: Callable[Concatenate[A, P], object],
    argnums: L0 = 0,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, P], A]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, P], object],
    argnums: L1,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], B]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, C, P], object],
    argnums: L2,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, C, P], C]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, C, D, P], object],
    argnums: L3,
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, C, D, P], D]: ...
@overload
def grad(  # type: ignore[overload-overlap]  # more precise than for a sequence
    fun: Callable[Concatenate[A, B, P], object],
    argnums: tuple[L0, L1],
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[Concatenate[A, B, P], Pair[A, B]]: ...
@overload
def grad(
    fun: Callable[P, object], argnums: int, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
) -> GradientFunction[P, Any]: ...
@overload
def grad(
    fun: Callable[P, object],
    argnums: Sequence[int],
    has_aux: No = False,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientFunction[P, Several]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, P], tuple[object, X]],
    argnums: L0 = 0,
    *,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[Concatenate[A, P], A, X]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, P], tuple[object, X]],
    argnums: L1,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[Concatenate[A, B, P], B, X]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, C, P], tuple[object, X]],
    argnums: L2,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[Concatenate[A, B, C, P], C, X]: ...
@overload
def grad(
    fun: Callable[Concatenate[A, B, C, D, P], tuple[object, X]],
    argnums: L3,
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[Concatenate[A, B, C, D, P], D, X]: ...
@overload
def grad(  # type: ignore[overload-overlap]  # more precise than for a sequence
    fun: Callable[Concatenate[A, B, P], tuple[object, X]],
    argnums: tuple[L0, L1],
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[Concatenate[A, B, P], Pair[A, B], X]: ...
@overload
def grad(
    fun: Callable[P, tuple[object, X]], argnums: int, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
) -> GradientAndAux[P, Any, X]: ...
@overload
def grad(
    fun: Callable[P, tuple[object, X]],
    argnums: Sequence[int],
    has_aux: Yes,
    holomorphic: bool = ...,
    allow_int: bool = ...,
) -> GradientAndAux[P, Several, X]: ...
def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `fun`, by reverse-mode differentiation.

    The gradient of all arguments together costs a small multiple of one evaluation of `fun`, however many elements they
    have; the residuals that the backward pass needs are stored (`checkpoint` stores fewer). The result can be
    transformed again: `grad(grad(fun))` is the second derivative of a function of one scalar, `vmap(grad(fun), (None,
    0))` gives one gradient per example, and `jit(grad(fun))` compiles it.

    `fun` is evaluated with tracers that have concrete values, so its Python control flow may depend on them, unless an
    enclosing `jit` traces it. For an output that is not a scalar there are `jacrev`, `jacfwd` and `vjp`. The derivative
    of `tracefx.lax.stop_gradient(x)` is zero, and `custom_vjp` sets other derivatives.

    Args:
        fun: The function to differentiate. Its output is a real scalar, such as `f32[]`; with `has_aux` it is a pair
            `(output, aux)`. Its differentiated arguments are pytrees of floating-point or complex arrays; all other
            arguments may be anything.
        argnums: The position, or a sequence of positions, of the arguments to differentiate with respect to. Negative
            ones count from the last argument of a call. Keyword arguments are not differentiated. The default is the
            first argument.
        has_aux: Whether `fun` returns a pair `(output, aux)`, whose second part is a pytree that is not differentiated.
            False by default.
        holomorphic: Whether `fun` is a holomorphic function: its differentiated arguments and its output are then
            complex, and the gradient is its complex derivative. False by default: the gradient of a real output with
            respect to a complex argument `x + iy` is `df/dx - i df/dy`.
        allow_int: Whether integer and boolean arguments may be differentiated. Their gradients are NumPy arrays of
            dtype `float0`. False by default.

    Returns:
        A function with the signature of `fun` that returns the gradient, or `(gradient, aux)` with `has_aux`. The
        gradient has the structure, shapes and dtypes of the argument at `argnums`. If `argnums` is a sequence, it is a
        tuple with one gradient per position.

    Raises:
        TypeError: If `fun` is not callable. When the result is called: if the output is not a scalar of a real dtype (a
            complex one with `holomorphic`), if a differentiated leaf is not a floating-point or complex array, or if
            `fun` does not return a pair although `has_aux` is True.
        ValueError: When the result is called: if `argnums` names an argument that the call does not have, or one twice.

    >>> float(grad(lambda x: x * x)(3.0))
    6.0
    >>> import numpy as np
    >>> loss = lambda params, x: ((params["w"] * x + params["b"]) ** 2).sum()
    >>> grad(loss)({"w": 2.0, "b": 1.0}, np.arange(3.0))
    {'b': Array(18., dtype=float32, weak_type=True), 'w': Array(26., dtype=float32, weak_type=True)}

    Several arguments, and an auxiliary output:

    >>> [float(g) for g in grad(lambda x, y: x * y, argnums=(0, 1))(3.0, 4.0)]
    [4.0, 3.0]
    >>> slope, predicted = grad(lambda w, x: ((w * x - 1.0) ** 2, w * x), has_aux=True)(2.0, 3.0)
    >>> float(slope), float(predicted)
    (30.0, 6.0)
    """
    return Grad(argnums, has_aux, holomorphic, allow_int)(fun)


@final
@frozen(init=False, eq=False, repr=False)
class ValueAndGrad(ArgumentDerivative[ValuesAndGradients[N, H]]):
    """`value_and_grad` with its options, as a transformation value. The options are described at `grad`.

    >>> ValueAndGrad(argnums=[0, 1], has_aux=True)
    ValueAndGrad(argnums=(0, 1), has_aux=True)
    """

    title: ClassVar[str] = "value_and_grad"
    allow_int: bool = field(default=False, validator=validate_flag)

    @overload
    def __init__(
        self: ValueAndGrad[L0, No], argnums: L0 = 0, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[Argnum, No],
        argnums: Argnum,
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[tuple[Argnum, Argnum2], No],
        argnums: tuple[Argnum, Argnum2],
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[UnknownArgnum, No],
        argnums: int,
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[UnknownArgnums, No],
        argnums: Sequence[int],
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[L0, Yes], argnums: L0 = 0, *, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[Argnum, Yes], argnums: Argnum, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[tuple[Argnum, Argnum2], Yes],
        argnums: tuple[Argnum, Argnum2],
        has_aux: Yes,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[UnknownArgnum, Yes],
        argnums: int,
        has_aux: Yes,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[UnknownArgnums, Yes],
        argnums: Sequence[int],
        has_aux: Yes,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueAndGrad[UnknownArgnum, bool],
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> None: ...
    def __init__(
        self,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> None:
        self.__attrs_init__(argnums, has_aux, holomorphic, allow_int)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("value_and_grad", fun)
        at, has_aux = _gradient(fun, self), self.has_aux

        @wrap_transformed(self, fun)
        def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
            value, gradient, aux = at(args, kwargs)
            return ((as_array(value), aux), gradient) if has_aux else (as_array(value), gradient)

        return value_and_gradient


@final
@frozen(init=False, eq=False, repr=False)
class Grad(ArgumentDerivative[Gradients[N, H]]):
    """`grad` with its options, as a transformation value. The options are described at `grad`.

    >>> float((Grad() @ Grad())(lambda x: x**3)(2.0))
    12.0
    """

    title: ClassVar[str] = "grad"
    allow_int: bool = field(default=False, validator=validate_flag)

    @overload
    def __init__(
        self: Grad[L0, No], argnums: L0 = 0, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[Argnum, No], argnums: Argnum, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[tuple[Argnum, Argnum2], No],
        argnums: tuple[Argnum, Argnum2],
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[UnknownArgnum, No], argnums: int, has_aux: No = False, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[UnknownArgnums, No],
        argnums: Sequence[int],
        has_aux: No = False,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[L0, Yes], argnums: L0 = 0, *, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[Argnum, Yes], argnums: Argnum, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[tuple[Argnum, Argnum2], Yes],
        argnums: tuple[Argnum, Argnum2],
        has_aux: Yes,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[UnknownArgnum, Yes], argnums: int, has_aux: Yes, holomorphic: bool = ..., allow_int: bool = ...
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[UnknownArgnums, Yes],
        argnums: Sequence[int],
        has_aux: Yes,
        holomorphic: bool = ...,
        allow_int: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: Grad[UnknownArgnum, bool],
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> None: ...
    def __init__(
        self,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        holomorphic: bool = False,
        allow_int: bool = False,
    ) -> None:
        self.__attrs_init__(argnums, has_aux, holomorphic, allow_int)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("grad", fun)
        at, has_aux = _gradient(fun, self), self.has_aux

        @wrap_transformed(self, fun)
        def gradient(*args: Any, **kwargs: Any) -> Any:
            _, slope, aux = at(args, kwargs)
            return (slope, aux) if has_aux else slope

        return gradient


def _gradient(
    fun: Callable[..., Any], options: ValueAndGrad[Any, Any] | Grad[Any, Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Value, Any, Any]]:
    """Returns a function of `(args, kwargs)` that gives `(value, gradient, aux)`; `aux` is None without `has_aux`."""

    def check(aval: ShapedArray, argument: Callable[[], str]) -> None:
        check_differentiable("grad", fun, aval.dtype, argument, options.holomorphic, options.allow_int)

    def at(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Value, Any, Any]:
        linear, in_tree, out_tree, aux = options.linearize("grad", fun, check, args, kwargs)
        value = require_scalar_output(fun, linear.outs, out_tree, options.holomorphic)
        cts = linear.pull([constant_like_aval(value.aval, 1)])
        return value, in_tree.unflatten([tangent_to_array(ct) for ct in cts]), aux

    return at
