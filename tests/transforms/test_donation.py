"""Donated arguments: which arrays are deleted, and what may not be donated."""

from __future__ import annotations

import copy
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def test_a_donated_array_is_deleted() -> None:
    x: Any = fx.device_put(fnp.asarray(X) + 0)
    y = fx.jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(y), X + 1)
    with pytest.raises(RuntimeError, match="donated|deleted"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match="donated|deleted"):
        x + 1  # raises


def _donating(F: Any, N: Any, name: str) -> tuple[bool, ...]:
    """Which arrays are deleted after calls that donate: of an array, of what else came of it."""
    x = N.ones(3) + 1
    if name == "made eagerly":
        F.jit(lambda x: x * 2, donate_argnums=0)(x)
    elif name == "by name":
        F.jit(lambda x: x * 2, donate_argnames="x")(x=x)
    elif name == "without axes":
        x = N.asarray(3.0)
        F.jit(lambda x: x + 1, donate_argnums=0)(x)
    elif name == "empty":
        x = N.zeros((0, 3)) + 1
        F.jit(lambda x: x + 1, donate_argnums=0)(x)
    elif name == "key":
        x = F.random.key(0)
        F.jit(lambda k: F.random.split(k)[0], donate_argnums=0)(x)
    elif name == "no result of the type":
        F.jit(lambda x: N.sum(x), donate_argnums=0)(x)
    elif name == "unused":
        F.jit(lambda x, y: y + 1, donate_argnums=0)(x, x)
    elif name == "returned":
        y = F.jit(lambda x: x, donate_argnums=0)(x)
        return x.is_deleted(), y.is_deleted()
    elif name == "returned twice, and used":
        ys = F.jit(lambda x: (x, x + 1, x), donate_argnums=0)(x)
        assert [y.tolist() for y in ys] == [[2, 2, 2], [3, 3, 3], [2, 2, 2]]
        return (x.is_deleted(), *[y.is_deleted() for y in ys])
    elif name == "compiled in advance":
        F.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()(x)
    elif name == "without jit":
        with F.disable_jit():
            F.jit(lambda x: x + 1, donate_argnums=0)(x)
    elif name == "copied before":
        copies = [x.copy(), N.copy(x), N.array(x), copy.copy(x), copy.deepcopy(x)]
        F.jit(lambda x, *ys: sum(ys, x), donate_argnums=0)(x, *copies)
        assert all(y.tolist() == [2, 2, 2] for y in copies)
        return (x.is_deleted(), *[y.is_deleted() for y in copies])
    return (x.is_deleted(),)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "made eagerly",
        "by name",
        "without axes",
        "empty",
        "key",
        "no result of the type",
        "unused",
        "returned",
        "returned twice, and used",
        "compiled in advance",
        "without jit",
        "copied before",
    ],
)
def test_donation_deletes_what_jaxs_deletes_wherever_it_was_made(name: str, on_device: bool) -> None:
    class Put:
        """`fnp` whose arrays have device buffers."""

        def __getattr__(self, attribute: str) -> Any:
            made = getattr(fnp, attribute)
            return made if attribute in ("sum", "copy", "array") else lambda *args: fx.device_put(made(*args))

    assert _donating(fx, Put() if on_device else fnp, name) == _donating(jax, jnp, name)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
def test_an_array_is_donated_once(donated: int | tuple[int, ...], on_device: bool) -> None:
    def call(F: Any, N: Any) -> None:
        x = F.device_put(N.ones(3) + 1) if on_device else N.ones(3) + 1
        F.jit(lambda x, y: (x * 2 + y, y * 2), donate_argnums=donated)(x, x)

    with pytest.raises(RuntimeError, match="previously donated|donate a buffer|donate the same"):
        call(jax, jnp)
    with pytest.raises(RuntimeError, match="was given one array, .*pass a copy of the array"):
        call(fx, fnp)


def test_a_donated_array_made_eagerly_can_not_be_used_again() -> None:
    def uses(F: Any, N: Any) -> list[type[Exception]]:
        f = F.jit(lambda x: x * 2, donate_argnums=0)
        x = N.ones(3) + 1
        f(x)
        found = []
        for use in (np.asarray, repr, lambda x: x + 1, f):
            with pytest.raises((RuntimeError, ValueError)) as caught:
                use(x)
            found.append(caught.type)
        return found

    ours, jaxs = uses(fx, fnp), uses(jax, jnp)
    assert all(issubclass(a, b) for a, b in zip(ours, jaxs, strict=True)), (ours, jaxs)


def test_what_was_not_donated_is_not_deleted() -> None:
    x, y = fx.device_put(fnp.asarray(X) + 0), fx.device_put(fnp.asarray(X) + 1)
    fx.jit(lambda x, y: x + y, donate_argnums=1)(x, y)
    np.testing.assert_array_equal(np.asarray(x), X)


@pytest.mark.parametrize("size", [3, 4096, 1 << 20])
def test_numpy_arguments_are_never_given_away(size: int) -> None:
    given = np.arange(size, dtype=np.float32)
    kept = given.copy()
    f = fx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(f(given)), kept * 2 + 1)
    np.testing.assert_array_equal(given, kept)


@pytest.mark.parametrize("size", [3, 4096, 1 << 20])
def test_writing_to_a_numpy_argument_afterwards_changes_no_result(size: int) -> None:
    given = np.arange(size, dtype=np.float32)
    kept = given.copy()
    same, more = fx.jit(lambda x: (x, x + 1))(given)
    given[:] = -1
    np.testing.assert_array_equal(np.asarray(same), kept)
    np.testing.assert_array_equal(np.asarray(more), kept + 1)


def test_arrays_made_from_numpy_arrays_are_given_away_safely() -> None:
    source = np.arange(1 << 16, dtype=np.float32)
    array = fnp.asarray(source)
    fx.jit(lambda x: x * 2, donate_argnums=0)(array)
    np.testing.assert_array_equal(source, np.arange(1 << 16, dtype=np.float32))


def test_a_transformed_call_donates_nothing() -> None:
    x = fx.device_put(fnp.asarray(X) + 0)
    f = fx.jit(lambda x: fnp.sum(x * x), donate_argnums=0)
    fx.grad(f)(x)
    fx.vmap(f)(x)
    fx.jit(lambda x: f(x) + 1)(x)
    np.testing.assert_array_equal(np.asarray(x), X)
