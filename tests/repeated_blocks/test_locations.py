"""Source lines and scopes of shared blocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tracefx.repeated_blocks.locations import divide_locations
from tracefx.source_location import LazySourceLocation, NamedScopes, Provenance, SourceLocation


def at(*scope: str, line: int = 1) -> SourceLocation:
    return SourceLocation("f.py", line, "f", scope)


def scopes(locations: Sequence[Provenance | None]) -> list[NamedScopes | None]:
    return [None if location is None else location.scope for location in locations]


def lines(locations: Sequence[Provenance | None]) -> list[int | None]:
    return [None if location is None else location.resolve().line for location in locations]


def test_common_scopes_are_those_of_the_call() -> None:
    blocks = [[at("net", f"layer_{b}", name) for name in ("a", "a", "b")] for b in range(3)]
    calls, body = divide_locations(blocks)
    assert scopes(calls) == [("net", "layer_0"), ("net", "layer_1"), ("net", "layer_2")]
    assert scopes(body) == [("a",), ("a",), ("b",)]
    assert body[0] == at("a")


@pytest.mark.parametrize("outer", [(), ("net",)])
def test_several_scopes_that_differ_from_block_to_block(outer: tuple[str, ...]) -> None:
    blocks = [[at(*outer, f"layer_{3 * b + i}", "mlp") for i in (0, 0, 1, 2)] for b in range(2)]
    calls, body = divide_locations(blocks)
    assert scopes(calls) == [(*outer, "layer_0..layer_2"), (*outer, "layer_3..layer_5")]
    assert scopes(body) == [("1_of_3", "mlp"), ("1_of_3", "mlp"), ("2_of_3", "mlp"), ("3_of_3", "mlp")]


def test_scopes_of_a_part_of_the_blocks() -> None:
    calls, body = divide_locations([[at(), at(f"layer_{b}"), at("loss"), None] for b in range(2)])
    assert scopes(calls) == [("layer_0",), ("layer_1",)]
    assert scopes(body) == [(), (), ("loss",), None]


def test_scopes_of_different_depth() -> None:
    blocks = [[at("a", "c"), at("b", "c")], [at("c"), at("b", "c")]]
    calls, body = divide_locations(blocks)
    assert scopes(calls) == [("a",), ()]
    assert scopes(body) == [("c",), ("b", "c")]


def test_lines_that_differ_are_those_of_the_call() -> None:
    blocks = [[at(line=5), at("x", line=10 * b), at(line=10 * b + 1)] for b in (1, 2)]
    calls, body = divide_locations(blocks)
    assert lines(calls) == [10, 20]
    assert lines(body) == [5, 0, 0]
    assert scopes(body) == [(), ("x",), ()]


def test_lines_that_are_equal_are_not_resolved() -> None:
    code = test_lines_that_are_equal_are_not_resolved.__code__
    blocks = [[LazySourceLocation(code, 0, (f"layer_{b}",))] for b in range(2)]
    calls, body = divide_locations(blocks)
    assert isinstance(body[0], LazySourceLocation)
    assert isinstance(calls[0], LazySourceLocation)
    assert body[0].scope == ()


def test_unknown_locations() -> None:
    assert divide_locations([[None], [None]]) == ([None, None], [None])
    calls, body = divide_locations([[None, at("a")], [at("b"), at("a")]])
    assert scopes(calls) == [None, ("b",)]
    assert lines(body) == [0, 1]
    assert scopes(body) == [(), ("a",)]
