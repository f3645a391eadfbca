"""Caches: eviction, threads, results of programs, decorators; and that no module has caches of another kind."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import tracefx as fx
from tracefx.bounded_cache import BoundedCache, CachePerObject, Memo, MemoKey, memoize, memoize_on_object
from tracefx.core.jaxpr import Jaxpr
from tracefx.image import resizing

SOURCE: Final = Path(fx.__file__).parent


def jaxpr_of(f: Callable[..., object]) -> Jaxpr:
    return fx.make_jaxpr(f)(1.0).jaxpr


# ------------------------------------------------------------------ bounded caches


@pytest.mark.parametrize("limit", [1, 4, 16, 100])
def test_cache_evicts_its_oldest_entries(limit: int) -> None:
    cache = BoundedCache[int, int](limit)
    for i in range(5 * limit):
        assert cache.insert(i, -i) == -i
        assert len(cache) <= limit
        assert cache.get(i) == -i
    assert list(cache) == list(range(5 * limit - len(cache), 5 * limit))


def test_first_inserted_value_stays() -> None:
    cache = BoundedCache[str, object](2)
    first = cache.insert("key", object())
    assert cache.insert("key", object()) is first
    cache.clear()
    assert cache.get("key", "nothing") == "nothing"
    assert len(cache) == 0


def test_entry_that_compute_once_uses_stays() -> None:
    cache = BoundedCache[int, int](8)
    for i in range(100):
        assert cache.compute_once(-1, lambda: 7) == 7
        cache.insert(i, i)
    assert cache.compute_once(-1, lambda: 8) == 7


def test_threads_that_compute_once_compute_each_value_once() -> None:
    cache, calls = BoundedCache[int, int](64), list[int]()

    def compute(i: int) -> int:
        calls.append(i)
        time.sleep(1e-3)
        return -i

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: cache.compute_once(i % 5, lambda: compute(i % 5)), range(100)))
    assert results == [-(i % 5) for i in range(100)]
    assert sorted(calls) == list(range(5))
    assert cache._computing == {}


def test_threads_that_insert_get_one_value() -> None:
    cache = BoundedCache[int, object](64)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: (i % 10, cache.insert(i % 10, object())), range(2000)))
    assert all(cache.get(key) is value for key, value in results)


def test_copies_and_pickles_are_empty() -> None:
    cache = BoundedCache[int, int](3)
    cache.insert(1, 2)
    for other in (copy.copy(cache), copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert (len(other), other.limit) == (0, 3)


def test_cache_of_an_object_dies_with_it() -> None:
    caches = CachePerObject[Callable[..., object], int, int](4)

    def f() -> None: ...

    for i in range(10):
        caches.of(f).insert(i, i)
    assert len(caches.of(f)) <= 4
    assert len(caches._caches) == 1
    del f
    gc.collect()
    assert len(caches._caches) == 0


def test_object_without_weak_references_has_a_new_cache_at_each_call() -> None:
    caches = CachePerObject[object, int, int](4)
    caches.of(3).insert(1, 1)
    assert len(caches.of(3)) == 0


# ------------------------------------------------------------------ memos


def test_keys_of_one_name_do_not_collide() -> None:
    jaxpr = jaxpr_of(lambda x: x)
    first, second = MemoKey[int]("name"), MemoKey[str]("name")
    assert jaxpr.memo.get(first, (), lambda: 1) == 1
    assert jaxpr.memo.get(second, (), lambda: "two") == "two"
    assert jaxpr.memo.get(first, ("argument",), lambda: 3) == 3
    assert jaxpr.memo.get(first, (), lambda: 4) == 1


def test_none_is_cached() -> None:
    calls = []
    key = MemoKey[None]("none")
    memo = Memo()
    for _ in range(3):
        memo.get(key, (), lambda: calls.append("get"))
        memo.get_once(key, 1, lambda: calls.append("get_once"))
    assert calls == ["get", "get_once"]


def test_memos_are_bounded() -> None:
    key, memo = MemoKey[int]("number"), Memo()
    for i in range(3 * Memo.LIMIT):
        assert memo.get(key, i, lambda i=i: i) == i  # type: ignore[misc]  # a default binds the loop's value
    assert len(memo.results) <= Memo.LIMIT


def test_decorated_function_caches_by_object_and_arguments() -> None:
    calls = []

    @memoize_on_object
    def scaled(jaxpr: Jaxpr, factor: int, *, shift: int = 0) -> int:
        calls.append((factor, shift))
        return len(jaxpr.eqns) * factor + shift

    one, two = jaxpr_of(lambda x: x + 1), jaxpr_of(lambda x: x + 1 + x)
    for _ in range(2):
        assert (scaled(one, 2), scaled(two, 2), scaled(one, 2, shift=1), scaled(one, 3)) == (2, 4, 3, 3)
    assert calls == [(2, 0), (2, 0), (2, 1), (3, 0)]
    assert scaled.__name__ == "scaled"


def test_failed_computation_is_not_cached() -> None:
    attempts = []

    @memoize_on_object
    def fails_once(jaxpr: Jaxpr) -> int:
        attempts.append(jaxpr)
        if len(attempts) == 1:
            raise ValueError("first")
        return len(attempts)

    jaxpr = jaxpr_of(lambda x: x)
    with pytest.raises(ValueError, match="first"):
        fails_once(jaxpr)
    assert [fails_once(jaxpr), fails_once(jaxpr)] == [2, 2]


def test_memoize_is_bounded() -> None:
    calls = []

    @memoize(2)
    def identity(x: int) -> int:
        calls.append(x)
        return x

    assert [identity(i) for i in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert calls == [1, 2, 3, 2]


# ------------------------------------------------------------------ pure results


def test_cached_resize_weights_do_not_depend_on_x64() -> None:
    with fx.enable_x64():
        x = fx.numpy.linspace(0.0, 1.0, 7)
    assert x.dtype == np.float64
    before = np.asarray(fx.image.resize(x, (5,), "linear"))
    resizing._cached_weights.cache_clear()  # type: ignore[attr-defined]  # the cache of functools
    with fx.enable_x64():
        after = np.asarray(fx.image.resize(x, (5,), "linear"))
    np.testing.assert_array_equal(before, after)


# ------------------------------------------------------------------ one mechanism

OWN_CACHES: Final = ("bounded_cache.py",)
"""Modules that may use `functools.lru_cache`."""


def _other_caches(module: str, text: str) -> Iterator[str]:
    """Yields a message for each use of `functools.lru_cache`, and of `functools.cache` on functions with parameters."""
    if module in OWN_CACHES:
        return
    tree = ast.parse(text)
    constants = {
        id(decorator)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not ast.unparse(node.args)
        for decorator in node.decorator_list
        if ast.unparse(decorator) == "functools.cache"
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="functools"), attr="cache" | "lru_cache") if id(node) not in constants:
                yield f"{module}:{node.lineno}: use `memoize` of bounded_cache.py"
            case ast.ImportFrom(module="functools", names=names) if {"cache", "lru_cache"} & {n.name for n in names}:
                yield f"{module}:{node.lineno}: use `memoize` of bounded_cache.py"


def test_all_caches_are_bounded() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    assert [each for name, path in files.items() for each in _other_caches(name, path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "@functools.cache\ndef f(x): ...",
        "@functools.lru_cache(maxsize=3)\ndef f(): ...",
        "f = functools.cache(g)",
        "from functools import cache",
    ],
)
def test_planted_cache_is_detected(text: str) -> None:
    assert len(list(_other_caches("module.py", text))) == 1


def test_cached_constant_is_permitted() -> None:
    assert list(_other_caches("module.py", "@functools.cache\ndef f() -> int: ...")) == []
