"""Donated arguments: which arrays are deleted, and which are not donated."""

from __future__ import annotations

import copy
import functools
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.errors import DeletedArrayError

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def test_a_donated_array_is_deleted() -> None:
    x: Any = fx.device_put(fnp.asarray(X) + 0)
    y = fx.jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(y), X + 1)
    with pytest.raises(RuntimeError, match="donated|deleted"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match="donated|deleted"):
        x + 1  # raises


def _deleted_after_donation(F: Any, N: Any, name: str) -> tuple[bool, ...]:
    """Returns which arrays are deleted after a donating call: the argument, then its outputs or copies."""
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
def test_donation_deletes_the_same_arrays_as_jax(name: str, on_device: bool) -> None:
    class DeviceNumpy:
        """`fnp` with functions that return arrays with device buffers."""

        def __getattr__(self, attribute: str) -> Any:
            function = getattr(fnp, attribute)
            return function if attribute in ("sum", "copy", "array") else lambda *args: fx.device_put(function(*args))

    assert _deleted_after_donation(fx, DeviceNumpy() if on_device else fnp, name) == _deleted_after_donation(
        jax, jnp, name
    )


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
def test_donating_an_array_twice_in_one_call_raises(donated: int | tuple[int, ...], on_device: bool) -> None:
    def call(F: Any, N: Any) -> None:
        x = F.device_put(N.ones(3) + 1) if on_device else N.ones(3) + 1
        F.jit(lambda x, y: (x * 2 + y, y * 2), donate_argnums=donated)(x, x)

    with pytest.raises(RuntimeError, match="previously donated|donate a buffer|donate the same"):
        call(jax, jnp)
    with pytest.raises(RuntimeError, match="was given one array, .*pass a copy of the array"):
        call(fx, fnp)


def test_use_of_donated_eager_array_raises_as_in_jax() -> None:
    def uses(F: Any, N: Any) -> list[type[Exception]]:
        f = F.jit(lambda x: x * 2, donate_argnums=0)
        x = N.ones(3) + 1
        f(x)
        errors = []
        for use in (np.asarray, repr, lambda x: x + 1, f):
            with pytest.raises((RuntimeError, ValueError)) as caught:
                use(x)
            errors.append(caught.type)
        return errors

    tracefx_errors, jax_errors = uses(fx, fnp), uses(jax, jnp)
    assert all(issubclass(a, b) for a, b in zip(tracefx_errors, jax_errors, strict=True)), (tracefx_errors, jax_errors)


def test_undonated_argument_is_not_deleted() -> None:
    x, y = fx.device_put(fnp.asarray(X) + 0), fx.device_put(fnp.asarray(X) + 1)
    fx.jit(lambda x, y: x + y, donate_argnums=1)(x, y)
    np.testing.assert_array_equal(np.asarray(x), X)


@pytest.mark.parametrize("size", [3, 4096, 1 << 20])
def test_numpy_arguments_are_never_donated(size: int) -> None:
    argument = np.arange(size, dtype=np.float32)
    original = argument.copy()
    f = fx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(f(argument)), original * 2 + 1)
    np.testing.assert_array_equal(argument, original)


@pytest.mark.parametrize("size", [3, 4096, 1 << 20])
def test_writing_to_numpy_argument_after_call_keeps_results(size: int) -> None:
    argument = np.arange(size, dtype=np.float32)
    original = argument.copy()
    same, more = fx.jit(lambda x: (x, x + 1))(argument)
    argument[:] = -1
    np.testing.assert_array_equal(np.asarray(same), original)
    np.testing.assert_array_equal(np.asarray(more), original + 1)


def test_donating_array_of_numpy_memory_keeps_the_numpy_array() -> None:
    source = np.arange(1 << 16, dtype=np.float32)
    array = fnp.asarray(source)
    fx.jit(lambda x: x * 2, donate_argnums=0)(array)
    np.testing.assert_array_equal(source, np.arange(1 << 16, dtype=np.float32))


def test_transformed_calls_do_not_donate() -> None:
    x = fx.device_put(fnp.asarray(X) + 0)
    f = fx.jit(lambda x: fnp.sum(x * x), donate_argnums=0)
    fx.grad(f)(x)
    fx.vmap(f)(x)
    fx.jit(lambda x: f(x) + 1)(x)
    np.testing.assert_array_equal(np.asarray(x), X)


def _step(x: Any) -> Any:
    return x + 1.0


USES: Final[dict[str, Any]] = {
    "operator": lambda x: x + 1,
    "function": fnp.sin,
    "NumPy": np.asarray,
    "repr": repr,
    "jit": fx.jit(_step),
    "vmap": fx.vmap(fnp.sin),
    "copy": lambda x: x.copy(),
    "wait": lambda x: x.block_until_ready(),
    "ready": lambda x: x.is_ready(),
    "shards": lambda x: x.addressable_shards[0].data + 1,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("committed", [False, True])
def test_use_of_a_donated_array_names_the_argument_that_it_was(use: str, committed: bool) -> None:
    x = fx.device_put(X, fx.devices()[0] if committed else None)
    fx.jit(_step, donate_argnums=0)(x)
    with pytest.raises(
        DeletedArrayError, match=r"f32\[3\] is used after it was donated as the argument `x` of _step"
    ) as caught:
        USES[use](x)
    error: BaseException = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def _is_deleted_after_forwarding(F: Any, name: str, committed: bool) -> list[Any]:
    """Returns which of an array and the outputs that have its elements are deleted, and the elements of the others."""
    x = F.device_put(X + 0, F.devices()[0] if committed else None)
    donate = F.jit(lambda x: x * 2, donate_argnums=0)
    same = F.jit(lambda x: x)
    outs = list(F.jit(lambda x: (x, x))(x)) if name.startswith("two") else [same(x)]
    if name == "in a tuple with a result":
        outs = list(F.jit(lambda x: (x, x + 1))(x))
    elif name == "the same result twice":
        outs = list(F.jit(lambda x: [x + 1] * 2)(x))
        outs[0].delete()
    elif name == "compiled ahead of time":
        outs = [same.lower(x).compile()(x)]
        x.delete()
    elif name == "a donated argument is deleted":
        donate(x)
    elif name == "a donated output is deleted":
        donate(outs[0])
    elif name == "an output is deleted":
        outs[0].delete()
    elif name == "forwarded twice":
        outs.append(same(outs[0]))
        donate(outs[0])
    elif name.startswith("two"):
        outs[0].delete()
    else:
        x.delete()
    arrays = [x, *outs]
    assert len(set(map(id, arrays))) == len(arrays)
    return [None if y.is_deleted() else y.tolist() for y in arrays]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "the argument is deleted",
        "an output is deleted",
        "a donated argument is deleted",
        "a donated output is deleted",
        "in a tuple with a result",
        "two outputs",
        "forwarded twice",
        "the same result twice",
        "compiled ahead of time",
    ],
)
def test_returned_arguments_are_independent_arrays_as_in_jax(name: str, committed: bool) -> None:
    actual, expected = [_is_deleted_after_forwarding(F, name, committed) for F in (fx, jax)]
    assert actual == expected


@pytest.mark.parametrize("committed", [False, True])
def test_closed_over_arrays_can_be_donated_and_deleted(committed: bool) -> None:
    c = fx.device_put(X, fx.devices()[0] if committed else None)
    f = fx.jit(lambda x: x + c, donate_argnums=0)
    compiled = fx.jit(lambda x: x * c).lower(X).compile()
    np.testing.assert_array_equal(f(c), X + X)
    assert c.is_deleted()
    np.testing.assert_array_equal(f(fnp.asarray(X)), X + X)
    np.testing.assert_array_equal(compiled(X), X * X)


def _loss(params: Any, x: Any) -> Any:
    return fnp.sum(params["w"] * x)


@pytest.mark.parametrize("stage", ["call", "lower"])
def test_unusable_donations_are_warned_of_once_with_their_names(stage: str) -> None:
    arguments = {"w": fnp.ones((2, 3))}, fnp.ones(3)
    f = fx.jit(_loss, donate_argnums=(0,))
    with pytest.warns(
        UserWarning, match=r"Some donated buffers were not usable: the argument `params\['w'\]`"
    ) as caught:
        f(*arguments) if stage == "call" else f.lower(*arguments)
    (warning,) = caught
    assert warning.filename == __file__
    assert "`params['w']` of _loss (f32[2,3])." in str(warning.message)
    if stage == "call":
        f(*arguments)  # a warning would be an error


@pytest.mark.parametrize("name", ["used", "unused", "unused but kept", "forwarded"])
def test_usable_donations_are_not_warned_of(name: str) -> None:
    functions: dict[str, Any] = {
        "used": lambda x, y: x + y,
        "unused": lambda x, y: y.sum(),
        "unused but kept": lambda x, y: y + 1,
        "forwarded": lambda x, y: (y, x),
    }
    fx.jit(functions[name], donate_argnums=0, keep_unused=name == "unused but kept")(fnp.ones(3), fnp.ones(3))


def test_repeated_calls_delete_the_donated_arrays() -> None:
    scale = fnp.asarray([2.0, 3.0])

    @functools.partial(fx.jit, donate_argnums=1)
    def step(rate: Any, state: Any) -> Any:
        return {"w": state["w"] * scale - rate, "b": state["b"] + rate}

    rate, state = fnp.asarray(1.0), {"w": fnp.asarray([1.0, 1.0]), "b": fnp.asarray(0.0)}
    expected = [[1, 2], [1, 5], [1, 14], [1, 41]]
    for k, values in enumerate(expected):
        used, state = state, step(rate, state)
        assert state["w"].tolist() == values
        assert state["b"].tolist() == k + 1
        assert not rate.is_deleted()
        for name in used:
            with pytest.raises(DeletedArrayError, match=rf"donated as .*state\['{name}'\]"):
                used[name] + 1


def test_a_copy_is_donated_for_an_array_that_shares_its_buffer() -> None:
    add = fx.jit(lambda x: x + 1, donate_argnums=0)
    x = add(add(add(fnp.asarray(X))))
    copied = copy.copy(x)
    assert add(x).tolist() == (X + 4).tolist()
    assert x.is_deleted()
    assert copied.tolist() == (X + 3).tolist()
