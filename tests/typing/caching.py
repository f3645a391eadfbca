"""Static types of caches: what is computed on a miss has the type of a hit."""

from __future__ import annotations

from typing import assert_type

import tracefx as fx
from tracefx.bounded_cache import BoundedCache, CachePerObject, MemoKey, memoize, memoize_on_object

jaxpr = fx.make_jaxpr(fx.numpy.sin)(1.0).jaxpr

# ------------------------------------------------------------------ caches

cache = BoundedCache[str, int](3)
assert_type(cache.insert("one", 1), int)
assert_type(cache.get("one"), int | None)
assert_type(cache.compute_once("two", lambda: 2), int)
assert_type(CachePerObject[type, str, int](3).of(float), BoundedCache[str, int])

# ------------------------------------------------------------------ memos

LENGTH = MemoKey[int]("length")
assert_type(jaxpr.memo.get(LENGTH, (), lambda: len(jaxpr.eqns)), int)
assert_type(jaxpr.memo.get_once(LENGTH, ("again",), lambda: len(jaxpr.eqns)), int)


@memoize_on_object
def count(jaxpr: fx.Jaxpr, name: str, limit: int = 3) -> int:
    return min(limit, sum(eqn.prim.name == name for eqn in jaxpr.eqns))


assert_type(count(jaxpr, "sin"), int)
assert_type(count(jaxpr, "sin", limit=2), int)


# ------------------------------------------------------------------ functions


@memoize(10)
def repeat(text: str, count: int) -> list[str]:
    return [text] * count


assert_type(repeat("a", 3), list[str])


# ------------------------------------------------------------------ expected errors


def wrong_types() -> None:
    cache.insert(1, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jaxpr.memo.get(LENGTH, (), lambda: "one")  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    count(jaxpr, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    count(jaxpr)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    count("sin", "sin")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    repeat("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
