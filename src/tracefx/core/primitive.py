"""Primitives: operations as values. An instance holds the parameters of one application, its class all rules.

A subclass declares its parameters as attrs fields (`@frozen(eq=False)`) and its capabilities as base classes:

    @frozen(eq=False)
    class Scale(Primitive, Differentiable, Batchable, Lowerable):
        name = "scale"
        factor: float
        ...

A missing rule raises `MissingRuleError` when a handler first needs it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.dtypes import NDArray
from tracefx.core.effects import NO_EFFECTS, Effects
from tracefx.core.equality import strict_key
from tracefx.core.rule_arguments import MappedAxis as MappedAxis
from tracefx.core.rule_arguments import Tangent as Tangent
from tracefx.core.rule_arguments import UndefinedPrimal as UndefinedPrimal
from tracefx.core.rule_arguments import Zero as Zero
from tracefx.core.rule_checks import (
    RULE_PARAMETERS,
    add_checks,
    check_call,
    show_avals_or_any,
    show_result,
    wrong_results_error,
)
from tracefx.core.type_sharding import Spec
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.errors import MissingRuleError, NotLinearError, ShardingTypeError
from tracefx.source_location import at_location, current_provenance

BatchDims: TypeAlias = Sequence[int | None]
"""The position of the batch axis of each value; `None` if it is not batched."""


class Recorder(Protocol):
    """The interface of partial evaluation that a primitive's `partial_eval` rule calls."""

    def record(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Defers a primitive: records it as an equation of the unknown half, and returns tracers for its results.

        Args:
            prim: The primitive.
            args: The operands, known or unknown.

        Returns:
            The tracers.
        """

    def evaluate(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Binds a primitive now, in the known half.

        Args:
            prim: The primitive.
            args: The operands, all of which are known.

        Returns:
            The results.
        """


# ------------------------------------------------------------------ primitives


@frozen(eq=False)
class Primitive:
    """Base class of all primitives.

    The methods are the rules that every primitive may define: `impl` for eager evaluation, `abstract_eval` for tracing,
    `partial_eval`, and `effects`. Other rules belong to capabilities: `jvp` to `Differentiable`, `transpose` to
    `Transposable`, `batch` to `Batchable`, `expand` to `Expandable`.

    Primitives are compared by class and parameters, and parameters strictly: `1`, `1.0` and `True` differ.

    Attributes:
        name: The name of the primitive in jaxprs and messages.
        multiple_results: Whether it may have other than one result, apart from those with sub-jaxprs, which all may. It
            says only what `bind` returns to programs for JAX. False by default.

    >>> from tracefx.extend import Primitive, bind1
    >>> @frozen(eq=False)
    ... class Scale(Primitive):
    ...     name = "scale"
    ...     factor: float
    ...     def impl(self, x):
    ...         return [x * np.float32(self.factor)]
    ...     def abstract_eval(self, x):
    ...         return [x]
    >>> bind1(Scale(2.0), np.ones(2, np.float32))
    Array([2., 2.], dtype=float32)
    >>> Scale(2.0) == Scale(2.0), Scale(2.0) == Scale(2)
    (True, False)
    """

    name: ClassVar[str]
    multiple_results: ClassVar[bool] = False

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:  # those of tracefx have tests instead
            add_checks(cls, has_types=cls.abstract_eval is not Primitive.abstract_eval)

    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        """Computes the results eagerly with NumPy.

        Args:
            args: The operands as NumPy arrays, which must not be written to.

        Returns:
            One NumPy array per result, with the shapes and dtypes that `abstract_eval` returns.

        Raises:
            MissingRuleError: By default: the primitive cannot be evaluated eagerly.
        """
        raise missing_rule_error(self, "impl", "define impl(self, *args: numpy arrays)")

    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        """Returns the avals of the results.

        Args:
            avals: The avals of the operands.

        Raises:
            TypeError: If the number or dtypes of the operands are not accepted.
            ValueError: If their shapes are not accepted.
        """
        raise missing_rule_error(self, "abstract_eval", "define abstract_eval(self, *avals)")

    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        """Returns how the results are sharded over explicit mesh axes. Called only if an operand is.

        Args:
            avals: The avals of the operands.
            outs: The avals of the results, without shardings.

        Returns:
            For each result, the mesh axes over which each of its axes is sharded.

        Raises:
            ShardingTypeError: If operands with these shardings are not accepted; by default always.
        """
        raise ShardingTypeError(
            f"primitive {self.name!r} has no sharding_rule for operands whose types have shardings, got "
            f"{show_avals(avals)}: call it in a function of tracefx.sharding.auto_axes, or define "
            f"sharding_rule(self, avals, outs) in class {type(self).__name__}"
        )

    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        """Applies the primitive when only some operands are known. By default it is deferred to the unknown half.

        Args:
            recorder: Records deferred primitives and evaluates known ones.
            unknown: For each operand, whether it is unknown.
            args: The operands.

        Returns:
            The results; those from `recorder.record` are unknown.
        """
        return recorder.record(self, args)

    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        """Evaluates the primitive on concrete values: calls `impl` and checks the results against `abstract_eval`.

        Families of primitives override this with fast paths where the avals of the results are known without a check.

        Args:
            args: The operands: literals and concrete arrays.

        Returns:
            The results.

        Raises:
            TypeError: If `impl` returns anything else than arrays with the expected shapes and dtypes.
        """
        avals = self.expected_avals([a.aval for a in args])
        arrays = [to_numpy(a) for a in args]
        try:
            results = self.impl(*arrays)
        except TypeError:
            check_call(type(self).impl, self.name, (self, *arrays), RULE_PARAMETERS["impl"])
            raise
        if isinstance(results, list | tuple):
            outs = [np.asarray(out) for out in results]
            if avals is None:
                return [ConcreteArray(ShapedArray(out.shape, out.dtype), out) for out in outs]
            if [(out.shape, out.dtype) for out in outs] == [(aval.shape, aval.dtype) for aval in avals]:
                return [ConcreteArray(aval, out) for aval, out in zip(avals, outs, strict=True)]
        raise wrong_results_error(self.impl, self.name, show_result(results), f"the list {show_avals_or_any(avals)}")

    def expected_avals(self, avals: Sequence[ShapedArray]) -> Sequence[ShapedArray] | None:
        """Returns what `abstract_eval` returns, or None if the class does not define it.

        Args:
            avals: The avals of the operands.
        """
        return None if type(self).abstract_eval is Primitive.abstract_eval else self.abstract_eval(*avals)

    @property
    def effects(self) -> Effects:
        """The side effects and dependencies of the primitive beyond computing its results, e.g. on a named axis."""
        return NO_EFFECTS

    @property
    def profile_name(self) -> str:
        """The name of the equation in profiles. Call primitives return the name of the called function."""
        return self.name

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and strict_key(self) == strict_key(other))

    @override
    def __hash__(self) -> int:
        return hash(strict_key(self))


def missing_rule_error(prim: object, rule: str, remedy: str, other: str = "") -> MissingRuleError:
    """Returns the error for a rule that a primitive lacks, whether or not it declares the capability.

    `remedy` says what to add to the class; a class of tracefx cannot be changed, so its errors contain only `other`.
    """
    name = prim.name if isinstance(prim, Primitive) else "?"
    source = current_provenance()
    applied = "" if source is None else f" (applied{at_location(source)})"
    in_class = "" if other and is_builtin(prim) else f"in class {type(prim).__name__}, {remedy}"
    return MissingRuleError(f"primitive {name!r} has no {rule} rule: {in_class}{other}{applied}")


def is_builtin(prim: object) -> bool:
    """Whether the class of a primitive is defined by tracefx."""
    return type(prim).__module__.partition(".")[0] == "tracefx"


def not_linear_error(prim: Primitive) -> NotLinearError:
    """Returns the error of a transpose rule for operands in which the primitive is not jointly linear."""
    return NotLinearError(
        f"the transposed function is not linear in its inputs: {prim.name}{at_location(current_provenance())} is not "
        "linear in all of the operands that depend on them"
    )


Vocabulary: TypeAlias = Mapping[str, type[Primitive]]
"""Primitives by name, as parsers and loaders find them."""


# ------------------------------------------------------------------ capabilities


class Differentiable:
    """A capability: the primitive has a forward-mode derivative.

    For reverse mode, the operations on the tangents have to be `Transposable`.

    >>> from tracefx import grad
    >>> from tracefx.core.values import as_value
    >>> from tracefx.extend import as_array, bind1
    >>> class Cube(Primitive, Differentiable):
    ...     name = "cube"
    ...     def impl(self, x):
    ...         return [x**3]
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def jvp(self, primals, tangents):
    ...         x = as_array(primals[0])
    ...         return [bind1(self, x)], [as_value(3.0 * x * x * tangents[0])]
    >>> float(grad(lambda x: bind1(Cube(), x))(2.0))
    12.0
    """

    __slots__ = ()

    @abstractmethod
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        """Returns the results and their tangents (Jacobian-vector product).

        Args:
            primals: The operands.
            tangents: Their tangents. At least one is not a symbolic `Zero`.

        Returns:
            The results, and one tangent per result: a value or a `Zero`.
        """
        raise missing_rule_error(self, "jvp", "define jvp(self, primals, tangents)")


class Transposable:
    """A capability: the primitive is linear in some operands and can be transposed with respect to them.

    >>> from tracefx import linear_transpose
    >>> from tracefx.extend import bind1
    >>> class Reverse(Primitive, Transposable):
    ...     name = "reverse"
    ...     def impl(self, x):
    ...         return [x[::-1]]
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def transpose(self, cts, x):
    ...         return [bind1(self, cts[0])]
    >>> pull = linear_transpose(lambda x: bind1(Reverse(), x), np.ones(3))
    >>> pull(np.array([1.0, 2.0, 3.0]))
    (Array([3., 2., 1.], dtype=float32),)
    """

    __slots__ = ()

    @abstractmethod
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        """Returns the cotangents of the linear operands.

        Args:
            cts: The cotangents of the results.
            args: The operands: an `UndefinedPrimal` for each one that is transposed, the value of each other one.

        Returns:
            One cotangent per `UndefinedPrimal`, `None` for each other operand.
        """
        raise missing_rule_error(self, "transpose", "define transpose(self, cts, *args)")


class ExtractsWindow:
    """A capability: the primitive returns a contiguous window of its only operand.

    The backward pass collects the cotangents of the windows of one array, and assembles them together. If `window` is
    `None` for some instances, the class also inherits from `Transposable`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def window(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """The first index along each axis, and the end (exclusive); `None` if this instance extracts no such window."""
        raise NotImplementedError


class Batchable:
    """A capability: the primitive can be applied to a whole batch at once.

    >>> from tracefx import vmap
    >>> from tracefx.extend import bind1
    >>> class Double(Primitive, Batchable):
    ...     name = "double"
    ...     def impl(self, x):
    ...         return [2 * x]
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def batch(self, axis, args, dims):
    ...         return [bind1(self, args[0])], dims
    >>> vmap(lambda x: bind1(Double(), x))(np.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """

    __slots__ = ()

    @abstractmethod
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        """Applies the primitive to batched operands.

        Args:
            axis: The size and name of the batch axis.
            args: The operands.
            dims: For each operand, the position of its batch axis; `None` if it is not batched.

        Returns:
            The results, and for each the position of its batch axis, or `None`.
        """
        raise missing_rule_error(self, "batch", "define batch(self, axis, args, dims)")


class Expandable:
    """A capability: the primitive is defined by other primitives.

    Handlers that have no rule for it interpret its expansion. So `grad`, `vmap` and `jit` need no rules of its own.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import grad
    >>> from tracefx.extend import Primitive, as_array, bind1
    >>> class Cube(Primitive, Expandable):
    ...     name = "cube"
    ...     def impl(self, x):
    ...         return [x**3]
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def expand(self, x):
    ...         return [as_array(x) ** 3]
    >>> float(bind1(Cube(), 2.0)), float(grad(lambda x: bind1(Cube(), x))(2.0))
    (8.0, 12.0)
    """

    __slots__ = ()

    @abstractmethod
    def expand(self, *args: Value) -> Sequence[Value]:
        """Computes the results by binding other primitives.

        Args:
            *args: The operands, which may be tracers.

        Returns:
            The results.
        """
        raise missing_rule_error(self, "expand", "define expand(self, *args)")
