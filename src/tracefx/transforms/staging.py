"""`make_jaxpr`, `eval_shape`, `named_call`, `jaxpr_as_fun`: tracing functions to programs, without running them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar, final, overload

from attrs import Attribute, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import Array, as_value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import NamedAxis, current, handling
from tracefx.core.jaxpr import ClosedJaxpr
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.named_axes import NamedAxes
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.source_location import named_scope
from tracefx.transforms.arguments import (
    ArgumentNames,
    argument_names,
    check_argnums,
    fun_label,
    fun_name,
    python_integers,
    require_callable,
    to_arrays,
)
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.jit import BoundJitted, Jitted
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct, flatten_avals_and_refs, struct_of
from tracefx.transforms.static_arguments import NO_STATIC_ARGUMENTS, StaticArguments
from tracefx.transforms.tracing import Trace, trace
from tracefx.transforms.transform import No, Preserving, Transform, TransformOf, Yes
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
AxisEnv: TypeAlias = Sequence[tuple[Hashable, int]]


@overload
def make_jaxpr(
    fun: Callable[P, object],
    static_argnums: int | Sequence[int] = (),
    axis_env: AxisEnv | None = None,
    return_shape: No = False,
) -> WrappedFunction[P, ClosedJaxpr]: ...
@overload
def make_jaxpr(
    fun: Callable[P, Array],
    static_argnums: int | Sequence[int] = (),
    axis_env: AxisEnv | None = None,
    *,
    return_shape: Yes,
) -> WrappedFunction[P, tuple[ClosedJaxpr, ShapeDtypeStruct]]: ...
@overload
def make_jaxpr(
    fun: Callable[P, object],
    static_argnums: int | Sequence[int] = (),
    axis_env: AxisEnv | None = None,
    *,
    return_shape: Yes,
) -> WrappedFunction[P, tuple[ClosedJaxpr, Any]]: ...
def make_jaxpr(
    fun: Callable[..., object],
    static_argnums: int | Sequence[int] = (),
    axis_env: AxisEnv | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """Returns a function that traces `fun` and returns its program.

    The program (jaxpr) is what `jit` compiles, before any optimization: one equation per primitive, with the types of
    all values. It can be printed, and evaluated by `jaxpr_as_fun`; its transformations are programs, too. Nothing is
    computed.

    Args:
        fun: The function. It takes and returns pytrees of arrays.
        static_argnums: Positions of arguments that are not traced; they must be hashable. Empty by default.
        axis_env: Named axes that collectives in `fun` may use: pairs of a name and a size. None by default.
        return_shape: Whether the shapes and dtypes of the outputs are returned, too. False by default.

    Returns:
        A function that takes the arguments of `fun`, or `ShapeDtypeStruct` in place of arrays, and returns a
        `ClosedJaxpr`; with `return_shape` a pair of it and a pytree of `ShapeDtypeStruct`.

    Raises:
        TypeError: If `fun` is not callable or `static_argnums` are not integers.

    >>> import tracefx.numpy as fnp
    >>> print(make_jaxpr(lambda x: fnp.sin(x))(ShapeDtypeStruct((3,), "float32")))
    { lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }

    The program of a derivative:

    >>> from tracefx import grad
    >>> print(make_jaxpr(grad(lambda x: x * x))(1.0))
    { lambda ; a:f32[]*. let
        _:f32[]* = mul a a
        c:f32[]* = mul a 1:f32[]*
        d:f32[]* = mul 1:f32[]* a
        e:f32[]* = add c d
      in (e,) }
    """
    require_callable("make_jaxpr", fun)
    numbers = python_integers(static_argnums if isinstance(static_argnums, Iterable) else (static_argnums,))
    check_argnums(numbers, "make_jaxpr", "static_argnums")
    return MakeJaxpr(numbers, return_shape, tuple([(name, size) for name, size in axis_env or ()]))(fun)


@final
@frozen(eq=False, repr=False)
class MakeJaxpr(Transform):
    """`make_jaxpr` with its options, as a transformation value, so that its results can be pickled."""

    title: ClassVar[str] = "make_jaxpr"
    static_argnums: tuple[int, ...] = ()
    return_shape: bool = False
    axis_env: tuple[tuple[Hashable, int], ...] = ()

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        static = StaticArguments.of(fun, self.static_argnums, None, "static")

        @wrap_transformed(self, fun)
        def traced(*args: Any, **kwargs: Any) -> Any:
            if self.axis_env:
                with handling(NamedAxes(current(), {name: NamedAxis(size) for name, size in self.axis_env})):
                    fun_trace = _trace_abstractly("make_jaxpr", fun, static, args, kwargs)
            else:
                fun_trace = _trace_abstractly("make_jaxpr", fun, static, args, kwargs)
            closed = fun_trace.closed()
            return (closed, _out_shapes(fun_trace)) if self.return_shape else closed

        return traced


@overload
def eval_shape(fun: Callable[P, Array], *args: PyTree, **kwargs: PyTree) -> ShapeDtypeStruct: ...
@overload
def eval_shape(fun: Callable[P, object], *args: PyTree, **kwargs: PyTree) -> Any: ...
@api_boundary
def eval_shape(fun: Callable[..., object], *args: PyTree, **kwargs: PyTree) -> Any:
    """Returns the shapes and dtypes of the outputs of `fun`, without computing anything.

    `fun` is traced and neither compiled nor run, so arguments and outputs may be larger than the memory. All arguments
    are traced: bind those that decide about shapes, for example by `functools.partial`. A `ShapeDtypeStruct` in the
    output of `fun` is returned as it is.

    Args:
        fun: The function. It takes and returns pytrees of arrays.
        *args: Its positional arguments, with arrays or `ShapeDtypeStruct` as leaves.
        **kwargs: Its keyword arguments, likewise.

    Returns:
        A pytree of `ShapeDtypeStruct`, of the structure of the output. It has the `out_shardings` of a jitted function.

    Raises:
        TypeError: If `fun` is not callable or a leaf is not an array.

    >>> eval_shape(lambda x: x @ x.T, ShapeDtypeStruct((2, 3), "float32"))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    >>> import tracefx.numpy as fnp
    >>> from functools import partial
    >>> eval_shape(partial(fnp.zeros, (4, 5)))
    ShapeDtypeStruct(shape=(4, 5), dtype=float32)
    """
    require_callable("eval_shape", fun)
    if isinstance(fun, Jitted | BoundJitted):  # it may request shardings
        return fun.eval_shape(*args, **kwargs)
    given: dict[int, ShapeDtypeStruct] = {}

    @functools.wraps(fun)  # messages name the user's function
    def of_arrays(*args: PyTree, **kwargs: PyTree) -> PyTree:
        leaves, tree = trees.flatten(fun(*args, **kwargs))
        given.update({i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, ShapeDtypeStruct)})
        return tree.unflatten([0 if i in given else leaf for i, leaf in enumerate(leaves)])

    shapes, tree = trees.flatten(
        _out_shapes(_trace_abstractly("eval_shape", of_arrays, NO_STATIC_ARGUMENTS, args, kwargs))
    )
    return tree.unflatten([given.get(i, leaf) for i, leaf in enumerate(shapes)])


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """Returns a function that runs `fun` inside a `named_scope`, whose name appears in profiles and lowered programs.

    Args:
        fun: The function.
        name: The name of the scope. None, the default, means the name of the function.

    Returns:
        A function with the signature of `fun`.

    Raises:
        TypeError: If `fun` is not callable or `name` is not a string.

    >>> float(named_call(lambda x: x * 2, name="double")(3.0))
    6.0
    """
    return NamedCall(name)(fun)


def _check_name(transform: NamedCall, option: Attribute[str | None], name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"named_call: name must be a string or None, got {name!r}")


@final
@frozen(eq=False, repr=False)
class NamedCall(TransformOf[Preserving]):
    """`named_call` with its option, as a transformation value.

    >>> NamedCall("encoder")
    NamedCall(name='encoder')
    """

    title: ClassVar[str] = "named_call"
    name: str | None = field(default=None, validator=_check_name)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable("named_call", fun)
        scope = fun_name(fun) if self.name is None else self.name

        @wrap_transformed(self, fun)
        def named(*args: Any, **kwargs: Any) -> Any:
            with named_scope(scope):
                return fun(*args, **kwargs)

        return named


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns a program as a function of flat arguments.

    Args:
        closed: The program, as returned by `make_jaxpr`.

    Returns:
        A function that takes one array per input, and returns the list of outputs.

    Raises:
        TypeError: If `closed` is not a `ClosedJaxpr`.

    >>> closed = make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> jaxpr_as_fun(closed)(3.0)
    [Array(6., dtype=float32, weak_type=True)]
    """
    if not isinstance(closed, ClosedJaxpr):
        raise TypeError(f"jaxpr_as_fun takes a ClosedJaxpr, such as make_jaxpr returns, got {closed!r}")

    def run(*args: Any) -> list[Any]:
        return to_arrays(eval_jaxpr(closed.jaxpr, closed.consts, [as_value(a) for a in args]))

    return run


def _trace_abstractly(
    transform: str, fun: Callable[..., Any], static: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Trace:
    """Traces `fun` for the types of its arguments."""
    label = f"{transform} of {fun_label(fun)}"
    dynamic, _ = static.split(f"{label}: arguments", args, kwargs)
    positions = static.dynamic_positions(len(args))
    avals, in_tree, refs = flatten_avals_and_refs(
        dynamic, lambda i: f"{label}: {ArgumentNames(fun, *dynamic, positions)[i]}", label
    )
    origins = argument_names(fun, fun_name(fun), *dynamic, positions)
    bound = static.bind_static(fun, args, kwargs)
    return trace(bound, in_tree, tuple(avals), origins, fun_name(fun), writes_refs=True, refs=refs)


def _out_shapes(fun_trace: Trace) -> Any:
    structs = list(map(struct_of, fun_trace.out_avals))
    return fun_trace.out_tree.unflatten(structs)
