"""Primitives that other libraries have given JAX, as operations with the rules that they have there.

Such a primitive does what its implementation does, a function of JAX's arrays that JAX can trace. Its derivatives,
transposes and batches are those that JAX finds for it. Each is a program of JAX, imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, final

import jax
from attrs import field, frozen
from jax.extend import core as jax_core
from typing_extensions import override

from tracefx.control.control_flow import (
    drop_zeros,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.core.values import Value
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, JaxEquation, open_jaxpr, result_types
from tracefx.interop.jax.values import JaxType, type_to_jax
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.ops.structural import instantiate


def bind_foreign(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Do what a primitive does that neither JAX nor tracefx has by itself."""
    theirs = ParameterizedPrimitive(translation, eqn.primitive, eqn.params, eqn.primitive.impl)
    if eqn.effects or not theirs.is_traceable([x.aval for x in args]):
        raise translation.missing_rule_error(eqn.primitive.name)
    return bind(ForeignPrimitive(eqn.primitive.name, theirs, tuple(result_types(eqn))), *args)


@final
class ParameterizedPrimitive:
    """A primitive of JAX with its parameters, and the programs that are made of it, by how."""

    def __init__(
        self,
        translation: Importer,
        primitive: jax_core.Primitive,
        parameters: Mapping[str, object],
        implementation: Callable[..., Any],
    ) -> None:
        self._translation = translation
        self._primitive: Any = primitive  # whose methods have no types
        self._implementation = implementation
        self._parameters = dict(parameters)
        self._known: dict[Hashable, tuple[ImportedProgram, Any]] = {}

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ParameterizedPrimitive)
            and self._primitive is other._primitive
            and self._parameters == other._parameters
        )

    @override
    def __hash__(self) -> int:
        return hash((self._primitive.name, *self._parameters))

    @override
    def __repr__(self) -> str:
        return str(self._parameters)

    def call(self, *args: Any) -> list[Any]:
        """The results of the primitive in JAX."""
        return self._as_list(self._primitive.bind(*args, **self._parameters))

    def call_implementation(self, *args: Any) -> list[Any]:
        """What its implementation does."""
        return self._as_list(self._implementation(*args, **self._parameters))

    def _as_list(self, found: Any) -> list[Any]:
        return list(found) if self._primitive.multiple_results else [found]

    def is_traceable(self, avals: Sequence[ShapedArray]) -> bool:
        """Whether the implementation is made of other primitives."""
        try:
            traced = self._translation.trace(self.call_implementation, list(map(type_to_jax, avals)))
        except Exception:  # whatever a function says that wants the numbers
            return False
        return self._primitive not in _primitives(open_jaxpr(traced)[0])

    def build_program(
        self, how: Hashable, f: Callable[..., Sequence[Any]], avals: Sequence[ShapedArray], more: Any = None
    ) -> tuple[ImportedProgram, Any]:
        """What a function of JAX does with the primitive, `how` being all that it depends on besides."""
        key = how, tuple(avals)
        if (known := self._known.get(key)) is None:
            traced = self._translation.trace(f, list(map(type_to_jax, avals)))
            known = self._known[key] = self._translation.program(traced, avals), more
        return known

    def implementation_program(self, avals: Sequence[ShapedArray]) -> ImportedProgram:
        return self.build_program("done", self.call_implementation, avals)[0]

    def jvp_program(self, mask: Mask, avals: Sequence[ShapedArray]) -> ImportedProgram:
        """Results, and the tangents of those that have any, from operands and tangents of those in the mask."""
        n = len(avals)

        def both(*values: Any) -> list[Any]:
            def f(*moved: Any) -> list[Any]:
                return self.call(*merge_masked(mask, moved, select_unmasked(values[:n], mask)))

            outs, tangents = jax.jvp(f, select_masked(values[:n], mask), list(values[n:]))
            return [*outs, *[t for t in tangents if t.dtype != dtypes.float0]]

        return self.build_program(("jvp", mask), both, [*avals, *[a.tangent() for a in select_masked(avals, mask)]])[0]

    def transpose_program(
        self, mask: Mask, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]
    ) -> ImportedProgram:
        """Cotangents of the operands in the mask, from the other operands and those of the results that have any."""
        live = [dtypes.is_inexact(a.dtype) for a in outs]
        known = len(avals) - sum(mask)
        inputs = list(map(_struct, map(type_to_jax, select_masked(avals, mask))))

        def back(*values: Any) -> list[Any]:
            def f(*given: Any) -> list[Any]:
                return select_masked(self.call(*merge_masked(mask, given, values[:known])), live)

            return list(jax.linear_transpose(f, *inputs)(list(values[known:])))

        return self.build_program(
            ("transpose", mask), back, [*select_unmasked(avals, mask), *[a.strong() for a in select_masked(outs, live)]]
        )[0]

    def batch_program(
        self, size: int, dims: tuple[int | None, ...], avals: Sequence[ShapedArray], count: int
    ) -> tuple[ImportedProgram, tuple[int | None, ...]]:
        """Results for a whole batch, and which of them have its axis, then in front."""
        inputs = list(map(_struct, map(type_to_jax, avals)))

        def mapped(f: Callable[..., Any], out_axes: Any) -> Callable[..., Any]:
            return jax.vmap(f, in_axes=dims, out_axes=out_axes, axis_size=size)

        def differs(i: int) -> bool:
            try:
                jax.eval_shape(mapped(lambda *xs: self.call(*xs)[i], None), *inputs)
            except ValueError:  # by which JAX says that a result differs along the batch
                return True
            return False

        with self._translation.settings():
            out_dims = [0 if differs(i) else None for i in range(count)]
        program, _ = self.build_program(("batch", size, dims), mapped(self.call, out_dims), avals)
        return program, tuple(out_dims)


def _primitives(jaxpr: jax_core.Jaxpr) -> set[jax_core.Primitive]:
    """All those in a program and in the programs inside."""
    inside: Any = jax_core.subjaxprs  # which has no types
    return {eqn.primitive for eqn in jaxpr.eqns}.union(*map(_primitives, inside(jaxpr)))


def _struct(aval: JaxType) -> jax.ShapeDtypeStruct:
    # JAX leaves the class without types.
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)  # type: ignore[no-untyped-call]


@final
@frozen(eq=False)
class ForeignPrimitive(Primitive, Expandable, Differentiable, Transposable, Batchable):
    """A primitive of another library, by its name in JAX, or a `HiPrim`, by the name of its class."""

    name = "jax_primitive"
    label: str = field(alias="label", metadata={"print": "name"})
    jax_primitive: ParameterizedPrimitive = field(metadata={"print": "parameters"})
    out_avals: tuple[ShapedArray, ...] = field(eq=False, repr=False)  # which follow from the rest

    @property
    @override
    def profile_name(self) -> str:
        return self.label

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.out_avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        program = self.jax_primitive.implementation_program([x.aval for x in args])
        return BACKEND.value.run(program.jaxpr, [*program.consts, *args], self.label)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return _run(self.jax_primitive.implementation_program([x.aval for x in args]), args)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        program = self.jax_primitive.jvp_program(nonzero_mask(tangents), [x.aval for x in primals])
        found = _run(program, [*primals, *drop_zeros(tangents)])
        n = len(self.out_avals)
        moved = iter(found[n:])
        return found[:n], [next(moved) if dtypes.is_inexact(a.dtype) else Zero(a.tangent()) for a in self.out_avals]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        mask = linear_mask(args)
        program = self.jax_primitive.transpose_program(mask, [x.aval for x in args], self.out_avals)
        given = [instantiate(ct) for ct in cts if ct.aval.dtype != dtypes.float0]
        known = [x for x in args if not isinstance(x, UndefinedPrimal)]
        return merge_masked(mask, _run(program, [*known, *given]), [None] * len(known))

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        avals = [x.aval for x in args]
        program, out_dims = self.jax_primitive.batch_program(axis.size, tuple(dims), avals, len(self.out_avals))
        return _run(program, args), out_dims


def _run(program: ImportedProgram, args: Sequence[Value]) -> list[Value]:
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])
