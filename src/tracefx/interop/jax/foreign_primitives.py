"""Primitives that other libraries define for JAX, as tracefx primitives with the rules registered with JAX.

Such a primitive is evaluated by its implementation, a JAX function, if JAX can trace that. Its jvp, transpose and
batching rules are those registered with JAX. Each is imported as a program when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, final

import jax
from attrs import field, frozen
from jax.extend import core as jax_core
from typing_extensions import override

from tracefx.bounded_cache import BoundedCache
from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.backend import BACKEND
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, JaxEquation, open_jaxpr, result_types
from tracefx.interop.jax.values import JaxType, type_to_jax
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_zeros,
    known_values,
    linear_mask,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.ops.structural import instantiate


def bind_foreign(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Binds a primitive that neither JAX nor tracefx defines; raises `MissingRuleError` if it cannot be traced."""
    foreign = ParameterizedPrimitive(importer, eqn.primitive, eqn.params, eqn.primitive.impl)
    if eqn.effects or not foreign.is_traceable([x.aval for x in args]):
        raise importer.missing_rule_error(eqn.primitive.name)
    return bind(ForeignPrimitive(eqn.primitive.name, foreign, tuple(result_types(eqn))), *args)


@final
class ParameterizedPrimitive:
    """A primitive of JAX with its parameters, and a cache of the programs derived from it."""

    def __init__(
        self,
        importer: Importer,
        primitive: jax_core.Primitive,
        parameters: Mapping[str, object],
        implementation: Callable[..., Any],
    ) -> None:
        self._translation = importer
        self._primitive: Any = primitive  # its methods are untyped
        self._implementation = implementation
        self._parameters = dict(parameters)
        self._programs = BoundedCache[Hashable, ImportedProgram](256)

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
        """Binds the primitive in JAX."""
        return self._as_list(self._primitive.bind(*args, **self._parameters))

    def call_implementation(self, *args: Any) -> list[Any]:
        """Calls the primitive's implementation."""
        return self._as_list(self._implementation(*args, **self._parameters))

    def _as_list(self, result: Any) -> list[Any]:
        return list(result) if self._primitive.multiple_results else [result]

    def is_traceable(self, avals: Sequence[ShapedArray]) -> bool:
        """Whether JAX can trace the implementation to other primitives."""
        try:
            traced = self._translation.trace(self.call_implementation, list(map(type_to_jax, avals)))
        except Exception:  # a function that needs concrete values may raise anything
            return False
        return self._primitive not in _primitives(open_jaxpr(traced)[0])

    def build_program(
        self, how: Hashable, f: Callable[..., Sequence[Any]], avals: Sequence[ShapedArray]
    ) -> ImportedProgram:
        """Imports a function that uses the primitive, memoized by `how` (what else it depends on) and `avals`."""
        key = how, tuple(avals)
        if (cached := self._programs.get(key)) is None:
            traced = self._translation.trace(f, list(map(type_to_jax, avals)))
            cached = self._programs.insert(key, self._translation.program(traced, avals))
        return cached

    def implementation_program(self, avals: Sequence[ShapedArray]) -> ImportedProgram:
        return self.build_program("done", self.call_implementation, avals)

    def jvp_program(self, mask: Mask, avals: Sequence[ShapedArray]) -> ImportedProgram:
        """Imports the jvp: from operands and tangents in the mask to results and the tangents of inexact results."""
        n = len(avals)

        def both(*values: Any) -> list[Any]:
            def f(*perturbed: Any) -> list[Any]:
                return self.call(*merge_masked(mask, perturbed, select_unmasked(values[:n], mask)))

            outs, tangents = jax.jvp(f, select_masked(values[:n], mask), list(values[n:]))
            return [*outs, *[t for t in tangents if t.dtype != dtypes.float0]]

        return self.build_program(("jvp", mask), both, [*avals, *[a.tangent() for a in select_masked(avals, mask)]])

    def transpose_program(
        self, mask: Mask, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]
    ) -> ImportedProgram:
        """Imports the transpose: from the other operands and the result cotangents to the cotangents in the mask."""
        is_inexact = [dtypes.is_inexact(a.dtype) for a in outs]
        num_known = len(avals) - sum(mask)
        inputs = list(map(_struct, map(type_to_jax, select_masked(avals, mask))))

        def back(*values: Any) -> list[Any]:
            def f(*linear: Any) -> list[Any]:
                return select_masked(self.call(*merge_masked(mask, linear, values[:num_known])), is_inexact)

            return list(jax.linear_transpose(f, *inputs)(list(values[num_known:])))

        return self.build_program(
            ("transpose", mask),
            back,
            [*select_unmasked(avals, mask), *[a.strong() for a in select_masked(outs, is_inexact)]],
        )

    def batch_program(
        self, size: int, dims: tuple[int | None, ...], avals: Sequence[ShapedArray], count: int
    ) -> tuple[ImportedProgram, tuple[int | None, ...]]:
        """Imports the batched primitive; returns the program and, for each result, batch axis 0 or None."""
        inputs = list(map(_struct, map(type_to_jax, avals)))

        def mapped(f: Callable[..., Any], out_axes: Any) -> Callable[..., Any]:
            return jax.vmap(f, in_axes=dims, out_axes=out_axes, axis_size=size)

        def is_batched(i: int) -> bool:
            try:
                jax.eval_shape(mapped(lambda *xs: self.call(*xs)[i], None), *inputs)
            except ValueError:  # JAX's error if a result is batched
                return True
            return False

        with self._translation.settings():
            out_dims = [0 if is_batched(i) else None for i in range(count)]
        program = self.build_program(("batch", size, dims), mapped(self.call, out_dims), avals)
        return program, tuple(out_dims)


def _primitives(jaxpr: jax_core.Jaxpr) -> set[jax_core.Primitive]:
    """Returns all primitives in a jaxpr and its sub-jaxprs."""
    subjaxprs: Any = jax_core.subjaxprs  # untyped
    return {eqn.primitive for eqn in jaxpr.eqns}.union(*map(_primitives, subjaxprs(jaxpr)))


def _struct(aval: JaxType) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


@final
@frozen(eq=False)
class ForeignPrimitive(Primitive, Expandable, Differentiable, Transposable, Batchable):
    """A primitive of another library, labelled with its name in JAX; or a `HiPrim`, labelled with its class name."""

    name = "jax_primitive"
    label: str = field(alias="label", metadata={"print": "name"})
    jax_primitive: ParameterizedPrimitive = field(metadata={"print": "parameters"})
    out_avals: tuple[ShapedArray, ...] = field(eq=False, repr=False)  # determined by the rest

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
        results = _run(program, [*primals, *drop_zeros(tangents)])
        n, is_inexact = len(self.out_avals), [dtypes.is_inexact(a.dtype) for a in self.out_avals]
        return results[:n], insert_zeros(results[n:], is_inexact, self.out_avals)

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        mask = linear_mask(args)
        program = self.jax_primitive.transpose_program(mask, [x.aval for x in args], self.out_avals)
        nonzero_cts = [instantiate(ct) for ct in cts if ct.aval.dtype != dtypes.float0]
        known = known_values(args)
        return merge_masked(mask, _run(program, [*known, *nonzero_cts]), [None] * len(known))

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        avals = [x.aval for x in args]
        program, out_dims = self.jax_primitive.batch_program(axis.size, tuple(dims), avals, len(self.out_avals))
        return _run(program, args), out_dims


def _run(program: ImportedProgram, args: Sequence[Value]) -> list[Value]:
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])
