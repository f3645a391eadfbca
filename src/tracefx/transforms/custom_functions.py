"""The base of functions with user-defined rules: resolution of calls, execution of rules, checks of results."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Self, TypeVar, final, overload

from attrs import frozen
from typing_extensions import ParamSpec, override

from tracefx.control.callables import derive, match_weak_types, resolve_closed_over
from tracefx.core import ShapedArray, Value
from tracefx.core.equality import strict_key
from tracefx.core.handler import Tracer, bind
from tracefx.core.primitive import Primitive
from tracefx.errors import ClosedOverTracerError, EscapedTracerError
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.source_location import SOURCE, current_scopes
from tracefx.transforms.arguments import flatten_values, fun_name, python_integers, require_callable, to_arrays
from tracefx.transforms.body_tracing import require_matching_types

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


def user_code_boundary(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for functions that call the user's function `name`, or a rule of it.

    It resets the location of the current equation, and explains errors about closed-over tracers.
    """

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            token = SOURCE.set(current_scopes())  # a rule may call the function, with the location of an equation
            try:
                return f(*args, **kwargs)
            except ClosedOverTracerError:
                raise
            except EscapedTracerError as error:
                raise ClosedOverTracerError(
                    f"{name}, or a rule of it, uses a tracer that is none of its arguments, so its rule cannot depend "
                    "on it: if it is a closed-over value, make it an argument (tracefx.closure_convert does that for "
                    "functions that are arguments), or apply tracefx.lax.stop_gradient to it. In detail: "
                    f"{error}"
                ) from error
            finally:
                SOURCE.reset(token)

        return run

    return decorate


def hashable_key(x: object) -> Hashable:
    """Returns the cache key of an object that a rule holds: by content, or by identity if it is not hashable."""
    try:
        hash(x)
    except TypeError:
        return id(x)
    return strict_key(x)


@final
@frozen(eq=False)
class NondiffArguments:
    """The non-differentiated arguments of a call, by position. They are passed to the user's functions unchanged."""

    values: dict[int, Any]

    @property
    def key(self) -> tuple[object, ...]:
        return tuple([(i, hashable_key(x)) for i, x in self.values.items()])

    def merge(self, dynamic: Sequence[Any]) -> list[Any]:
        """Returns all arguments in order, given the differentiated ones."""
        remaining: Iterator[Any] = iter(dynamic)
        count = len(self.values) + len(dynamic)
        return [self.values[i] if i in self.values else next(remaining) for i in range(count)]


class CustomFunction(Generic[P, R]):
    """A function with a user-defined rule.

    It is called, and binds to instances, like the function that it wraps. If that is itself a function with another
    kind of rule, its `def...` methods are available here, too.
    """

    __name__: str
    __wrapped__: Callable[P, R]
    title: str

    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        require_callable(self.title, fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self._name = fun_name(fun)
        if str(getattr(fun, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]:
            self._name = self._name.lstrip("_")  # in programs, a helper of tracefx has the name of the public function
        self._where = f"{self.title} of {self._name}"
        try:
            self._signature: inspect.Signature | None = inspect.signature(fun)
        except (TypeError, ValueError):
            self._signature = None
        self.nondiff_argnums = self._nondiff_positions(nondiff_argnums, nondiff_argnames)

    def _nondiff_positions(self, numbers: int | Sequence[int], names: str | Sequence[str]) -> tuple[int, ...]:
        numbers = python_integers(numbers if isinstance(numbers, Iterable) else (numbers,))
        names = (names,) if isinstance(names, str) else tuple(names)
        parameters = [] if self._signature is None else list(self._signature.parameters.values())
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        has_var_positional = self._signature is None or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        for n in numbers:
            if isinstance(n, bool) or not isinstance(n, int):
                raise TypeError(f"{self._where}: nondiff_argnums must be integers, got {numbers!r}")
            if (n >= len(positional) and not has_var_positional) or n < -len(positional):
                raise ValueError(
                    f"{self._where}: nondiff_argnums names argument {n}, but the function takes {len(positional)}"
                )
        for name in names:
            if name not in positional:
                raise ValueError(
                    f"{self._where}: nondiff_argnames names {name!r}, but the function's positional arguments are "
                    f"{', '.join(positional) or 'none'}"
                )
        positions = {n % len(positional) if n < 0 else n for n in numbers}
        return tuple(sorted(positions | {positional.index(name) for name in names}))

    def _split_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[NondiffArguments, tuple[Any, ...]]:
        """Returns the non-differentiated and the differentiated arguments of a call, by position and with defaults."""
        if self._signature is None:
            if kwargs:
                raise TypeError(f"{self._where}: {', '.join(kwargs)} passed by keyword, but its signature is unknown")
        else:
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._where}: {error}") from error
            bound.apply_defaults()
            named = [name for name in bound.kwargs if name in kwargs]
            if named:
                raise TypeError(
                    f"{self._where}: {', '.join(named)} can be passed by keyword only, but rules take arguments by "
                    "position; make them positional, or bind them with functools.partial"
                )
            args = bound.args
        statics = {i: _stop_gradients(args[i]) for i in self.nondiff_argnums if i < len(args)}
        return NondiffArguments(statics), tuple([x for i, x in enumerate(args) if i not in statics])

    def _bind(self, prim: Primitive, values: Sequence[Value], outputs: OutputSignature) -> R:
        """Binds the primitive of a call, and returns its results as the output of the function."""
        outs = bind(prim, *values)  # which calls the function, so that the structure of its output is known
        result: R = outputs.tree.unflatten(to_arrays(outs))
        return result

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise NotImplementedError

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            """Returns the `def...` method of the wrapped function, if that has a user-defined rule itself."""
            fun = self.__dict__.get("fun")
            if isinstance(fun, CustomFunction) and name.startswith("def"):
                return getattr(fun, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self: Callable[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> Callable[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else MethodType(self, instance)

    @override
    def __repr__(self) -> str:
        return f"<{self.title} {self.fun!r}>"


def _stop_gradients(x: PyTree) -> Any:
    """Applies `stop_gradient` to all tracers of a pytree."""
    return trees.map(lambda leaf: stop_gradient(leaf) if isinstance(leaf, Tracer) else leaf, x)


def require_pair(what: str, out: object, parts: str) -> tuple[Any, Any]:
    """Returns the two elements of `out`; raises TypeError unless it is a pair. `parts` names them in the message."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(
            f"{what} must return a pair ({parts}), got {trees.show_structure(trees.structure(out), 'one array')}"
        )
    first, second = out
    return first, second


@final
class OutputSignature:
    """The structure and types of a function's output, recorded at the first call of the function or its rule."""

    __slots__ = ("_avals", "_name", "_tree", "_what")

    def __init__(self, name: str) -> None:
        self._name = name
        self._what = ""
        self._tree: TreeDef | None = None
        self._avals: list[ShapedArray] = []

    @property
    def known(self) -> bool:
        """Whether the function or a rule of it has been called."""
        return self._tree is not None

    @property
    def tree(self) -> TreeDef:
        assert self._tree is not None, f"{self._name} has not been called"
        return self._tree

    def flatten(self, out: PyTree, what: str) -> list[Value]:
        """Flattens the output `out` of `what`; checks that its structure and types are those recorded before."""
        values, tree = flatten_values(out, what)
        values = resolve_closed_over(values)
        self.check_or_record(tree, [x.aval for x in values], what)
        return match_weak_types(values, self._avals)

    def check_or_record(self, tree: TreeDef, avals: list[ShapedArray], what: str) -> None:
        """Records structure and types of the output of `what`, or compares them with those recorded before."""
        if self._tree is None:
            self._tree, self._avals, self._what = tree, avals, what
            return
        subject = f"{self._name}: the output of its rule"
        trees.require_same_structure(subject, self._tree, tree, self._what, what)
        fits = [(a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(avals, self._avals, strict=True)]
        remedy = "The rule must compute the same output as the function."
        require_matching_types(subject, tree, (self._what, self._avals), (what, avals), fits, remedy)


def flatten_custom_function(
    custom: CustomFunction[..., Any], statics: NondiffArguments, in_tree: TreeDef, outputs: OutputSignature
) -> Callable[..., list[Value]]:
    """Returns the function as one of flat values."""

    name = fun_name(custom.fun)

    @derive(custom.fun, *statics.key, in_tree)
    @user_code_boundary(name)
    def flat(*values: Value) -> list[Value]:
        out = custom.fun(*statics.merge(in_tree.unflatten(to_arrays(values))))
        return outputs.flatten(out, f"the output of {name}")

    return flat


def call_untyped(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls `f`, without static types."""
    return f(*args)
