"""`jax.extend.core.Primitive`: primitives whose rules are registered one by one, as one primitive of tracefx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, final

import numpy as np
from attrs import field, fields, frozen
from typing_extensions import override

from tracefx.control.custom_jvp import CustomJVP
from tracefx.control.custom_vjp import CustomVJP
from tracefx.control.vocabulary import vocabulary
from tracefx.core import Array, ShapedArray, Value, as_value, dtypes, primitive
from tracefx.core.avals import NOT_VARYING
from tracefx.core.handler import as_array, bind
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    Expandable,
    MappedAxis,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.type_sharding import TypeSharding, type_sharding
from tracefx.errors import MissingRuleError
from tracefx.interop.as_jax.unsupported import unsupported
from tracefx.ops.structural import instantiate
from tracefx.source_location import at_location, current_provenance
from tracefx.text.printer import HasJaxParams

Rule: TypeAlias = Callable[..., Any]
"""A rule as JAX defines it, which is untyped there."""


class Primitive:
    """A primitive as JAX defines it: a name, and rules that are registered one by one.

    Args:
        name: The name of the primitive.
    """

    multiple_results: bool = False
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False
    impl: Rule
    abstract_eval: Rule

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, Rule] = {}

    def def_impl(self, impl: Rule) -> Rule:
        """Registers the function that evaluates the primitive on concrete arrays; returns it."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Rule) -> Rule:
        """Registers the function from the avals of the operands to those of the results; returns it."""
        self.abstract_eval = lambda *avals, **params: (abstract_eval(*avals, **params), frozenset())
        return abstract_eval

    def def_effectful_abstract_eval(self, abstract_eval: Rule) -> Rule:
        """Registers a function from avals to the avals of the results and the effects; returns it."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def def_bind_with_trace(self, bind_with_trace: Rule) -> Rule:
        """Raises `UnsupportedJaxError`: such a rule receives a `Trace`."""
        raise unsupported("Primitive.def_bind_with_trace", "handlers replace custom traces")

    def bind(self, *args: Any, **params: Any) -> Any:
        """Applies the primitive.

        Args:
            *args: The operands.
            **params: The parameters.

        Returns:
            The result, or a list of the results if `multiple_results`.
        """
        outs = [as_array(out) for out in bind(AppliedPrimitive(self, Parameters(params)), *args)]
        return outs if self.multiple_results else outs[0]

    def get_bind_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters with which `bind` applies an equation with these parameters."""
        return dict(params)

    @override
    def __repr__(self) -> str:
        return self.name


@final
class Parameters:
    """The parameters of an application, compared by value where they can be, else by identity."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    @override
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Parameters) or self.values.keys() != other.values.keys():
            return False
        return all(_equal(x, other.values[name]) for name, x in self.values.items())

    @override
    def __hash__(self) -> int:
        return hash(frozenset(self.values))

    @override
    def __repr__(self) -> str:
        return ", ".join([f"{name}={value}" for name, value in self.values.items()])


def _equal(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    try:
        return bool(x == y)
    except (TypeError, ValueError):  # e.g. arrays, whose comparison is no bool
        return False


@final
@frozen(eq=False)
class AppliedPrimitive(primitive.Primitive, Expandable, Differentiable, Transposable, Batchable):
    """An application of a primitive that a library has defined for JAX: its rules are those that are registered."""

    name = "jax_primitive"
    owner: Primitive = field(metadata={"print": "name"})
    params: Parameters = field(metadata={"print": "parameters"})

    @property
    @override
    def profile_name(self) -> str:
        return self.owner.name

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if not hasattr(self.owner, "abstract_eval"):
            raise self._missing("abstract evaluation", "prim.def_abstract_eval")
        out, effects = self.owner.abstract_eval(*avals, **self.params.values)
        if effects:
            raise unsupported("effects of primitives", f"the primitive {self.owner.name} has the effects {effects}")
        return [_as_aval(aval) for aval in self._list(out)]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if not hasattr(self.owner, "impl"):
            return self.expand(*args)
        return self._values(self.owner.impl(*map(as_array, args), **self.params.values))

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        lowering = self.owner.rules.get(LOWERING)
        if lowering is not None:
            if not isinstance(lowering, LoweredFunction):
                reason = "lowerings are made of operations: register mlir.lower_fun(function)"
                raise unsupported(f"the MLIR lowering of the primitive {self.owner.name}", reason)
            out = lowering.fun(*map(as_array, args), **self.params.values)
            return _as_values(list(out) if lowering.multiple_results else [out])
        if not hasattr(self.owner, "impl"):
            raise self._missing("lowering", "mlir.register_lowering(prim, mlir.lower_fun(...))")
        return self._values(self.owner.impl(*map(as_array, args), **self.params.values))

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        rule = self._rule(JVP)
        arrays = [t if isinstance(t, Zero) else as_array(t) for t in tangents]
        outs, out_tangents = rule(list(map(as_array, primals)), arrays, **self.params.values)
        return self._values(outs), [_as_tangent(t) for t in self._list(out_tangents)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        rule = self._rule(TRANSPOSE)
        cotangents = [ct if isinstance(ct, Zero) else as_array(ct) for ct in cts]
        operands = [x if isinstance(x, UndefinedPrimal) else as_array(x) for x in args]
        out = rule(cotangents if self.owner.multiple_results else cotangents[0], *operands, **self.params.values)
        return [
            (Zero(x.aval.tangent()) if ct is None else _as_tangent(ct)) if isinstance(x, UndefinedPrimal) else None
            for x, ct in zip(args, out, strict=True)
        ]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        arrays = list(map(as_array, args))
        if (fancy := self.owner.rules.get(FANCY_BATCH)) is not None:
            data = AxisData(axis.name, axis.size, axis.spmd_name, None)
            out, out_dims = fancy(data, arrays, tuple(dims), **self.params.values)
        elif (of_axis := self.owner.rules.get(AXIS_BATCH)) is not None:
            out, out_dims = of_axis(axis.size, axis.name, None, arrays, tuple(dims), **self.params.values)
        else:
            out, out_dims = self._rule(BATCH)(arrays, tuple(dims), **self.params.values)
        outs = self._values(out)
        if not self.owner.multiple_results or out_dims is None or isinstance(out_dims, int):
            out_dims = [out_dims] * len(outs)
        return outs, list(out_dims)

    def _rule(self, kind: str) -> Rule:
        rule = self.owner.rules.get(kind)
        if rule is None:
            raise self._missing(kind, f"{_TABLE_NAMES[kind]}[prim] = rule")
        return rule

    def _missing(self, rule: str, remedy: str) -> MissingRuleError:
        source = current_provenance()
        applied = "" if source is None else f" (applied{at_location(source)})"
        return MissingRuleError(f"primitive {self.owner.name!r} has no {rule} rule: register it, {remedy}{applied}")

    def _list(self, out: Any) -> list[Any]:
        return list(out) if self.owner.multiple_results else [out]

    def _values(self, out: Any) -> list[Value]:
        return _as_values(self._list(out))


def _as_values(outs: Sequence[Any]) -> list[Value]:
    return [out if isinstance(out, Array) else as_value(out) for out in outs]


def _as_tangent(x: Any) -> Tangent:
    return x if isinstance(x, Zero) else as_value(x)


def _as_aval(aval: Any) -> ShapedArray:
    return make_shaped_array(aval.shape, aval.dtype, getattr(aval, "weak_type", False))


def make_shaped_array(
    shape: Sequence[int],
    dtype: Any,
    weak_type: bool = False,
    *,
    sharding: object = None,
    vma: frozenset[str] = NOT_VARYING,
    memory_space: object = None,
) -> ShapedArray:
    """Returns an aval, as the constructor of JAX's `ShapedArray` does.

    Args:
        shape: The shape.
        dtype: Anything that names a dtype.
        weak_type: Whether the dtype is weak; False by default.
        sharding: None, the default, or the sharding of another aval, which says nothing.
        vma: The mesh axes over which the value varies; none by default.
        memory_space: None, the only one.

    Raises:
        UnsupportedJaxError: If the type has an explicit sharding or a memory space.
    """
    if memory_space is not None or not (sharding is None or isinstance(sharding, TypeSharding)):
        raise unsupported("ShapedArray with sharding or memory_space", "types have a shape, a dtype and a weak type")
    explicit = None if sharding is None else type_sharding(sharding.mesh, sharding.spec.partitions, len(shape))
    return ShapedArray(tuple(shape), dtypes.as_dtype(dtype, exact=True), bool(weak_type), vma, explicit)


# ------------------------------------------------------------------ rule tables

JVP: Final = "jvp"
TRANSPOSE: Final = "transpose"
BATCH: Final = "batching"
FANCY_BATCH: Final = "batching with the axis"
AXIS_BATCH: Final = "batching with the size and name of the axis"
LOWERING: Final = "lowering"
_TABLE_NAMES: Final[Mapping[str, str]] = {
    JVP: "ad.primitive_jvps",
    TRANSPOSE: "ad.primitive_transposes",
    BATCH: "batching.primitive_batchers",
}


@final
class RuleTable(MutableMapping[Primitive, Rule]):
    """A rule table of JAX, such as `ad.primitive_jvps`. The rules are in the primitives."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @override
    def __getitem__(self, prim: Primitive) -> Rule:
        return prim.rules[self.kind]

    @override
    def __setitem__(self, prim: Primitive, rule: Rule) -> None:
        prim.rules[self.kind] = rule

    @override
    def __delitem__(self, prim: Primitive) -> None:
        del prim.rules[self.kind]

    @override
    def __iter__(self) -> Iterator[Primitive]:
        raise unsupported(f"iteration over the table of {self.kind} rules", "the rules are stored in the primitives")

    @override
    def __len__(self) -> int:
        raise unsupported(f"the length of the table of {self.kind} rules", "the rules are stored in the primitives")


NOT_MAPPED: Final = None
"""The position of the batch axis of operands without one."""
primitive_jvps: Final = RuleTable(JVP)
primitive_transposes: Final = RuleTable(TRANSPOSE)
primitive_batchers: Final = RuleTable(BATCH)
fancy_primitive_batchers: Final = RuleTable(FANCY_BATCH)
axis_primitive_batchers: Final = RuleTable(AXIS_BATCH)


@final
class AxisData(NamedTuple):
    """The batch axis, as fancy batching rules receive it."""

    name: Any
    size: int
    spmd_name: Any
    explicit_mesh_axis: Any


def deflinear2(prim: Primitive, transpose_rule: Rule) -> None:
    """Registers a linear primitive by its transpose rule, which receives the cotangents, operands and parameters."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Tangent], **params: Any) -> tuple[Any, Any]:
        return prim.bind(*primals, **params), prim.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[prim] = jvp
    primitive_transposes[prim] = transpose_rule


def deflinear(prim: Primitive, transpose_rule: Rule) -> None:
    """Registers a linear primitive by a transpose rule that receives the cotangents and parameters."""
    deflinear2(prim, lambda ct, *operands, **params: transpose_rule(ct, **params))


def defjvp(prim: Primitive, *rules: Rule | None) -> None:
    """Registers the derivative with respect to each operand: a rule from its tangent, the operands and parameters."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Tangent], **params: Any) -> tuple[Any, Any]:
        terms = [
            rule(t, *primals, **params)
            for rule, t in zip(rules, tangents, strict=True)
            if rule is not None and not isinstance(t, Zero)
        ]
        out = prim.bind(*primals, **params)
        return out, sum(terms[1:], terms[0]) if terms else Zero(out.aval.tangent())

    primitive_jvps[prim] = jvp


def defvectorized(prim: Primitive) -> None:
    """Registers a primitive that applies to each element of its operand: it keeps the batch axis."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        return prim.bind(*args, **params), list(dims) if prim.multiple_results else dims[0]

    primitive_batchers[prim] = batch


def defbroadcasting(prim: Primitive) -> None:
    """Registers an elementwise primitive of several operands, whose batch axes are moved to the front."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        size = next(x.shape[dim] for x, dim in zip(args, dims, strict=True) if dim is not None)
        outs = prim.bind(*[bdim_at_front(x, dim, size) for x, dim in zip(args, dims, strict=True)], **params)
        return outs, [0] * len(outs) if prim.multiple_results else 0

    primitive_batchers[prim] = batch


def moveaxis(x: Array, source: int, destination: int) -> Array:
    """Returns the array with the axis `source` at the position `destination`."""
    return x if source == destination else x.transpose(_moved(x.ndim, source, destination))


def _moved(ndim: int, source: int, destination: int) -> list[int]:
    axes = [i for i in range(ndim) if i != source]
    axes.insert(destination % ndim, source)
    return axes


def bdim_at_front(x: Any, dim: int | None, size: int) -> Array:
    """Returns an operand of a batching rule with its batch axis first, which is added if it has none."""
    array = as_array(x)
    if dim is None:
        return array[None].repeat(size, axis=0)
    return moveaxis(array, dim, 0)


def instantiate_zeros(tangent: Any) -> Any:
    """Returns the array of zeros in the place of a symbolic zero, and other tangents unchanged."""
    if not isinstance(tangent, Zero):
        return tangent
    if tangent.aval.dtype == dtypes.float0:
        return np.zeros(tangent.aval.shape, dtypes.float0)
    return as_array(instantiate(tangent))


def is_undefined_primal(x: object) -> bool:
    """Whether an operand of a transpose rule is one in which the primitive is linear."""
    return isinstance(x, UndefinedPrimal)


@final
@frozen(eq=False)
class LoweredFunction:
    """The result of `mlir.lower_fun`: the function that defines the primitive by operations."""

    fun: Callable[..., Any]
    multiple_results: bool = True

    def __call__(self, *args: object, **params: object) -> Any:
        """Raises `UnsupportedJaxError`: a lowering is not called by hand-written lowerings."""
        raise unsupported("a call of the result of mlir.lower_fun", "it can only be registered as a lowering")


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweredFunction:
    """Returns the lowering of a primitive that is defined by a function of other operations.

    Args:
        fun: The function, of the operands and parameters.
        multiple_results: Whether it returns a sequence of results, which is the default.
    """
    return LoweredFunction(fun, multiple_results)


def register_lowering(
    prim: Primitive, rule: Rule | None = None, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> Any:
    """Registers the lowering of a primitive: `lower_fun(...)`. Others raise an error when the primitive is compiled.

    Args:
        prim: The primitive.
        rule: The lowering. None, the default, returns a decorator.
        platform: The platform that the lowering is for; None, the default, for all.
        inline: Ignored: XLA decides about inlining.
        cacheable: Ignored: the function is traced where it is used.

    Returns:
        The lowering.
    """
    if rule is None:
        return lambda decorated: register_lowering(prim, decorated, platform, inline, cacheable)
    if platform in (None, "cpu") or LOWERING not in prim.rules:
        prim.rules[LOWERING] = rule
    return rule


# ------------------------------------------------------------------ primitives of tracefx


@final
class BuiltinPrimitive(Primitive):
    """A primitive class of tracefx as a primitive of JAX: `jax.lax.sin_p`, or the primitive of an equation.

    Args:
        primitive_class: The class.
    """

    def __init__(self, primitive_class: type[primitive.Primitive]) -> None:
        super().__init__(primitive_class.name)
        self.primitive_class = primitive_class
        self.multiple_results = primitive_class.multiple_results or issubclass(primitive_class, HasSubjaxprs)

    @override
    def bind(self, *args: Any, **params: Any) -> Any:
        outs = [as_array(out) for out in bind(self.with_params(params), *args)]
        return outs if self.multiple_results else outs[0]

    def with_params(self, params: Mapping[str, Any]) -> primitive.Primitive:
        """Returns the primitive with the parameters of an equation, by their names.

        Raises:
            UnsupportedJaxError: If a parameter that only JAX has is neither the default of the primitive nor empty.
        """
        declared: Any = self.primitive_class
        names = {f.alias for f in fields(declared) if f.init} if hasattr(declared, "__attrs_attrs__") else set()
        made: primitive.Primitive = declared(**{n: as_parameter(x) for n, x in params.items() if n in names})
        others = made.jax_params() if isinstance(made, HasJaxParams) else {}
        for name, x in params.items():
            if name not in names and not (x is None or x is False or _equal(x, ()) or _is_view(x, others.get(name))):
                raise unsupported(
                    f"{self.name}_p.bind({name}={x!r})", f"its parameters are {', '.join(sorted(names)) or 'none'}"
                )
        return made


BUILTIN_PRIMITIVES: Final[Mapping[str, BuiltinPrimitive]] = MappingProxyType(
    {name: BuiltinPrimitive(cls) for name, cls in vocabulary((CustomJVP, CustomVJP)).items()}
)
"""The primitives of tracefx by name; each is one object, since libraries compare primitives by identity."""


def _is_view(x: object, parameter: object) -> bool:
    """Whether a parameter of an equation is equal to that of the primitive; programs are compared as text."""
    return str(x.as_parameter()) == str(parameter) if isinstance(x, AsParameter) else _equal(x, parameter)


class AsParameter:
    """A capability: a value of JAX that stands for another in the parameters of a primitive of tracefx."""

    __slots__ = ()

    def as_parameter(self) -> Jaxpr:
        """Returns the value that the primitive has."""
        raise NotImplementedError


def as_parameter(x: object) -> object:
    """Returns a parameter of an equation as the primitive of tracefx has it: programs in the place of their views."""
    if isinstance(x, AsParameter):
        return x.as_parameter()
    if isinstance(x, tuple) and type(x) is tuple:
        return tuple(map(as_parameter, x))
    return x
