"""A strategy for `einsum` specifications with matching operand shapes."""

from __future__ import annotations

from typing import final

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tracefx.core import Shape


@final
@frozen
class Einsum:
    """An `einsum` specification, and the shapes of its operands.

    Attributes:
        spec: the specification.
        shapes: the shapes.

    >>> Einsum("ij,jk->ik", ((2, 3), (3, 4)))
    Einsum(spec='ij,jk->ik', shapes=((2, 3), (3, 4)))
    """

    spec: str
    shapes: tuple[Shape, ...]


@st.composite
def einsums(draw: DrawFn, max_operands: int = 3, max_side: int = 3) -> Einsum:
    """Draws specifications with contractions, diagonals, sums and outer products, with and without `->` and `...`.

    Args:
        max_operands: the maximum number of operands.
        max_side: the maximum size of an axis.

    Returns:
        A strategy for `Einsum`.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=3, deadline=None)
    ... @given(einsums(max_operands=2))
    ... def test(einsum):
    ...     assert len(einsum.shapes) <= 2
    >>> test()
    """
    letters = "ijkl"
    sizes = dict(zip(letters, draw(st.tuples(*[st.integers(1, max_side) for _ in letters])), strict=True))
    count = draw(st.integers(1, max_operands))
    ellipsis_shapes: list[Shape | None] = [None] * count
    if draw(st.booleans()):
        broadcast_shape = draw(st.lists(st.integers(1, max_side), max_size=2).map(tuple))
        for i in range(count):
            if draw(st.booleans()):
                suffix = broadcast_shape[draw(st.integers(0, len(broadcast_shape))) :]
                ellipsis_shapes[i] = tuple([n if draw(st.booleans()) else 1 for n in suffix])
    terms, shapes = [], []
    for ellipsis_shape in ellipsis_shapes:
        term = "".join(draw(st.lists(st.sampled_from(letters), max_size=3)))
        shape = tuple([sizes[letter] for letter in term])
        position = draw(st.integers(0, len(term)))
        terms.append(term if ellipsis_shape is None else f"{term[:position]}...{term[position:]}")
        shapes.append(shape if ellipsis_shape is None else (*shape[:position], *ellipsis_shape, *shape[position:]))
    spec = ",".join(terms)
    used = sorted({letter for term in terms for letter in term if letter != "."})
    if draw(st.booleans()):
        out = "".join(draw(st.permutations(used)))[: draw(st.integers(0, len(used)))]
        position = draw(st.integers(0, len(out)))
        has_dots = any(ellipsis_shape is not None for ellipsis_shape in ellipsis_shapes)
        spec += f"->{out[:position]}...{out[position:]}" if has_dots else f"->{out}"
    return Einsum(spec, tuple(shapes))
