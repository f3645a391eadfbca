"""Programs at given sizes of their dimension variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from attrs import evolve
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import DType, Literal, ShapedArray
from tracefx.core.custom_text import CustomText
from tracefx.core.equality import attrs_fields
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.dimensions.symbolic_dimensions import (
    SymbolicDimension,
    evaluate,
    has_symbolic_dims,
    is_symbolic_dim,
)
from tracefx.errors import ShapeError
from tracefx.pytrees.registry import TreeDef
from tracefx.text.fields import FieldVisitor, PlainValue, is_named_tuple


@memoize_on_object
def at_sizes(jaxpr: Jaxpr, sizes: tuple[tuple[str, int], ...]) -> Jaxpr:
    """Returns the program with sizes in place of its dimension variables, in all shapes and parameters."""
    return _SizeSubstitution(dict(sizes)).jaxpr(jaxpr)


@final
class _SizeSubstitution(FieldVisitor[object]):
    """Replaces the symbolic dimensions in a program. Values without any are returned unchanged."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._programs: dict[int, tuple[Jaxpr, Jaxpr]] = {}
        """By the id of the original program, the first of the pair, which keeps it alive."""

    @override
    def dimension(self, value: SymbolicDimension) -> int:
        return evaluate(value.polynomial, self._sizes)

    @override
    def aval(self, value: ShapedArray) -> ShapedArray:
        if not has_symbolic_dims(value.shape):
            return value
        shape = tuple([self.dimension(n) if is_symbolic_dim(n) else n for n in value.shape])
        if any(not is_symbolic_dim(n) and n < 0 for n in shape):
            sizes = ", ".join([f"{name} = {size}" for name, size in self._sizes.items()])
            raise ShapeError(f"the program has an array of type {value}, whose size is negative for {sizes}")
        return value.update(shape=shape)

    @override
    def jaxpr(self, value: Jaxpr) -> Jaxpr:
        entry = self._programs.get(id(value))
        if entry is None:
            entry = self._programs[id(value)] = value, self._program(value)
        return entry[1]

    def _program(self, program: Jaxpr) -> Jaxpr:
        known: dict[int, Var] = {}

        def variables(vs: Sequence[Var]) -> tuple[Var, ...]:
            for v in vs:
                known[v.index] = Var(v.index, self.aval(v.aval))
            return tuple([known[v.index] for v in vs])

        def atoms(xs: Sequence[Atom]) -> tuple[Atom, ...]:
            return tuple([x if isinstance(x, Literal) else known[x.index] for x in xs])

        consts, inputs = variables(program.constvars), variables(program.invars)
        eqns = [Eqn(self.primitive(e.prim), atoms(e.inputs), variables(e.outs), e.source) for e in program.eqns]
        return Jaxpr(consts, inputs, tuple(eqns), atoms(program.outs))

    @override
    def primitive(self, value: Primitive) -> Primitive:
        result = self.record(value)
        assert isinstance(result, Primitive)
        return result

    @override
    def record(self, value: object) -> object:
        if is_named_tuple(type(value)):
            assert isinstance(value, tuple)
            return type(value)(*cast(tuple[Any, ...], self.elements(value)))
        if not hasattr(type(value), "__attrs_attrs__"):
            return value
        changed: dict[str, object] = {}
        for field in attrs_fields(type(value)):
            old = getattr(value, field.name)
            new = self.value(old) if field.init else old
            if new is not old:
                changed[field.alias or field.name] = new
        return evolve(value, **changed) if changed else value  # type: ignore[misc]  # it is an instance of an attrs class

    @override
    def elements(self, value: tuple[object, ...]) -> tuple[object, ...]:
        new = tuple(map(self.value, value))
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value

    @override
    def set_elements(self, value: frozenset[object]) -> frozenset[object]:
        return frozenset(map(self.value, value))

    @override
    def plain(self, value: PlainValue) -> PlainValue:
        return value

    @override
    def dtype(self, value: DType) -> DType:
        return value

    @override
    def literal(self, value: Literal) -> Literal:
        return value

    @override
    def custom(self, value: CustomText) -> CustomText:
        return value

    @override
    def function(self, value: object) -> object:
        return value

    @override
    def tree(self, value: TreeDef) -> TreeDef:
        return value

    @override
    def other(self, value: object) -> object:
        return value
