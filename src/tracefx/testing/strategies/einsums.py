"""Specifications of `einsum`, with operands that fit them."""

from __future__ import annotations

from typing import final

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tracefx.testing.generated_programs import Shape


@final
@frozen
class Einsum:
    """A specification and the shapes of its operands."""

    spec: str
    shapes: tuple[Shape, ...]


@st.composite
def einsums(draw: DrawFn, max_operands: int = 3, max_side: int = 3) -> Einsum:
    """Contractions, diagonals, sums, outer products, with and without `->` and `...`, e.g. `ij,jk->ik`."""
    letters = "ijkl"
    sizes = dict(zip(letters, draw(st.tuples(*[st.integers(1, max_side) for _ in letters])), strict=True))
    count = draw(st.integers(1, max_operands))
    dots: list[Shape | None] = [None] * count
    if draw(st.booleans()):
        whole = draw(st.lists(st.integers(1, max_side), max_size=2).map(tuple))
        for i in range(count):
            if draw(st.booleans()):
                kept = whole[draw(st.integers(0, len(whole))) :]
                dots[i] = tuple([n if draw(st.booleans()) else 1 for n in kept])
    terms, shapes = [], []
    for extra in dots:
        term = "".join(draw(st.lists(st.sampled_from(letters), max_size=3)))
        shape = tuple([sizes[letter] for letter in term])
        place = draw(st.integers(0, len(term)))
        terms.append(term if extra is None else f"{term[:place]}...{term[place:]}")
        shapes.append(shape if extra is None else (*shape[:place], *extra, *shape[place:]))
    spec = ",".join(terms)
    used = sorted({letter for term in terms for letter in term if letter != "."})
    if draw(st.booleans()):
        out = "".join(draw(st.permutations(used)))[: draw(st.integers(0, len(used)))]
        place = draw(st.integers(0, len(out)))
        has_dots = any(extra is not None for extra in dots)
        spec += f"->{out[:place]}...{out[place:]}" if has_dots else f"->{out}"
    return Einsum(spec, tuple(shapes))
