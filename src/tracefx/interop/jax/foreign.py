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

from tracefx.control.bodies import chosen, linear, merged, nonzero, others, present
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.handler import bind
from tracefx.core.jaxpr import eval_jaxpr
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    Expandable,
    Linear,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    Zero,
)
from tracefx.core.values import Value
from tracefx.interop.jax.translating import Equation, Program, Translation, given_types, opened
from tracefx.interop.jax.values import JaxType, type_to_jax
from tracefx.interpreters.derived import Mask
from tracefx.ops.basis import instantiate


def foreign(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    """Do what a primitive does that neither JAX nor tracefx has by itself."""
    theirs = Application(translation, eqn.primitive, eqn.params, eqn.primitive.impl)
    if eqn.effects or not theirs.is_traceable([x.aval for x in args]):
        raise translation.untranslated(eqn.primitive.name)
    return bind(Foreign(eqn.primitive.name, theirs, tuple(given_types(eqn))), *args)


@final
class Application:
    """A primitive of JAX with its parameters, and the programs that are made of it, by how."""

    def __init__(
        self,
        translation: Translation,
        primitive: jax_core.Primitive,
        parameters: Mapping[str, object],
        implementation: Callable[..., Any],
    ) -> None:
        self._translation = translation
        self._primitive: Any = primitive  # whose methods have no types
        self._implementation = implementation
        self._parameters = dict(parameters)
        self._known: dict[Hashable, tuple[Program, Any]] = {}

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Application)
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
        return self._several(self._primitive.bind(*args, **self._parameters))

    def done(self, *args: Any) -> list[Any]:
        """What its implementation does."""
        return self._several(self._implementation(*args, **self._parameters))

    def _several(self, found: Any) -> list[Any]:
        return list(found) if self._primitive.multiple_results else [found]

    def is_traceable(self, avals: Sequence[ShapedArray]) -> bool:
        """Whether the implementation is made of other primitives."""
        try:
            traced = self._translation.traced(self.done, list(map(type_to_jax, avals)))
        except Exception:  # whatever a function says that wants the numbers
            return False
        return self._primitive not in _primitives(opened(traced)[0])

    def made(
        self, how: Hashable, f: Callable[..., Sequence[Any]], avals: Sequence[ShapedArray], more: Any = None
    ) -> tuple[Program, Any]:
        """What a function of JAX does with the primitive, `how` being all that it depends on besides."""
        key = how, tuple(avals)
        if (known := self._known.get(key)) is None:
            traced = self._translation.traced(f, list(map(type_to_jax, avals)))
            known = self._known[key] = self._translation.program(traced, avals), more
        return known

    def implementation(self, avals: Sequence[ShapedArray]) -> Program:
        return self.made("done", self.done, avals)[0]

    def derivative(self, mask: Mask, avals: Sequence[ShapedArray]) -> Program:
        """Results, and the tangents of those that have any, from operands and tangents of those in the mask."""
        n = len(avals)

        def both(*values: Any) -> list[Any]:
            def f(*moved: Any) -> list[Any]:
                return self.call(*merged(mask, moved, others(values[:n], mask)))

            outs, tangents = jax.jvp(f, chosen(values[:n], mask), list(values[n:]))
            return [*outs, *[t for t in tangents if t.dtype != dtypes.float0]]

        return self.made(("jvp", mask), both, [*avals, *[a.tangent() for a in chosen(avals, mask)]])[0]

    def transposed(self, mask: Mask, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Program:
        """Cotangents of the operands in the mask, from the other operands and those of the results that have any."""
        live = [dtypes.is_inexact(a.dtype) for a in outs]
        known = len(avals) - sum(mask)
        inputs = list(map(_struct, map(type_to_jax, chosen(avals, mask))))

        def back(*values: Any) -> list[Any]:
            def f(*given: Any) -> list[Any]:
                return chosen(self.call(*merged(mask, given, values[:known])), live)

            return list(jax.linear_transpose(f, *inputs)(list(values[known:])))

        return self.made(("transpose", mask), back, [*others(avals, mask), *[a.strong() for a in chosen(outs, live)]])[
            0
        ]

    def batched(
        self, size: int, dims: tuple[int | None, ...], avals: Sequence[ShapedArray], count: int
    ) -> tuple[Program, tuple[int | None, ...]]:
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
        program, _ = self.made(("batch", size, dims), mapped(self.call, out_dims), avals)
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
class Foreign(Primitive, Expandable, Differentiable, Transposable, Batchable):
    """A primitive of another library, by its name in JAX, or a `HiPrim`, by the name of its class."""

    name = "jax_primitive"
    label: str = field(alias="label", metadata={"print": "name"})
    theirs: Application = field(metadata={"print": "parameters"})
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
        program = self.theirs.implementation([x.aval for x in args])
        return BACKEND.value.run(program.jaxpr, [*program.consts, *args], self.label)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return _run(self.theirs.implementation([x.aval for x in args]), args)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        program = self.theirs.derivative(nonzero(tangents), [x.aval for x in primals])
        found = _run(program, [*primals, *present(tangents)])
        n = len(self.out_avals)
        moved = iter(found[n:])
        return found[:n], [next(moved) if dtypes.is_inexact(a.dtype) else Zero(a.tangent()) for a in self.out_avals]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | Linear) -> Sequence[Tangent | None]:
        mask = linear(args)
        program = self.theirs.transposed(mask, [x.aval for x in args], self.out_avals)
        given = [instantiate(ct) for ct in cts if ct.aval.dtype != dtypes.float0]
        known = [x for x in args if not isinstance(x, Linear)]
        return merged(mask, _run(program, [*known, *given]), [None] * len(known))

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        avals = [x.aval for x in args]
        program, out_dims = self.theirs.batched(axis.size, tuple(dims), avals, len(self.out_avals))
        return _run(program, args), out_dims


def _run(program: Program, args: Sequence[Value]) -> list[Value]:
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])
