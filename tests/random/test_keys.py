"""Keys: values of a dtype that goes where arrays go and that nothing computes with; the same words as in JAX."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.export
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.ops.harness import host_of
from tracefx import lax, random
from tracefx.core.array import Array
from tracefx.core.values import as_value, to_numpy
from tracefx.errors import TypePromotionError
from tracefx.programs import parse_jaxpr
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")

IMPLEMENTATIONS: Final = ("threefry2x32", "rbg", "unsafe_rbg")
KEYS: Final = random.split(random.key(7), 6)


def words(keys: Any) -> Any:
    return np.asarray(random.key_data(keys)).tolist()


def words_in_jax(keys: jax.Array) -> Any:
    return np.asarray(jax.random.key_data(keys)).tolist()


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("seed", [0, 3, -1, (1 << 31) + 5, 1 << 40, -(1 << 40), np.uint8(7), True])
def test_seeds_give_the_words_of_jax(seed: Any, impl: str) -> None:
    if seed is True:
        with pytest.raises(TypeError, match="single integer as the seed"):
            random.key(seed, impl=impl)
        return
    assert words(random.key(seed, impl=impl)) == words_in_jax(jax.random.key(seed, impl=impl))
    assert np.asarray(random.PRNGKey(seed, impl=impl)).tolist() == words(random.key(seed, impl=impl))
    with fx.enable_x64(), jax.enable_x64(True):
        assert words(random.key(seed, impl=impl)) == words_in_jax(jax.random.key(seed, impl=impl))


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_new_keys_are_those_of_jax(impl: str) -> None:
    ours, theirs = random.key(5, impl=impl), jax.random.key(5, impl=impl)
    for num in (2, 3, (2, 3), (), 0):
        assert words(random.split(ours, num)) == words_in_jax(jax.random.split(theirs, num))
    for data in (0, 9, 1 << 31, np.uint32(4), np.int8(-3)):
        assert words(random.fold_in(ours, data)) == words_in_jax(jax.random.fold_in(theirs, data))
    assert random.key_impl(ours) == str(jax.random.key_impl(theirs)) == impl
    assert words(random.clone(ours)) == words(ours)
    assert words(random.wrap_key_data(random.key_data(ours), impl=impl)) == words(ours)


def test_words_are_taken_for_keys() -> None:
    old, new = random.PRNGKey(3), random.key(3)
    assert np.asarray(random.split(old)).tolist() == words(random.split(new))
    assert random.split(old).dtype == np.uint32
    assert np.asarray(random.fold_in(old, 1)).tolist() == words(random.fold_in(new, 1))
    assert random.uniform(old) == random.uniform(new)
    assert random.key_impl(old) == "threefry2x32"
    assert random.key_impl(random.PRNGKey(0, impl="rbg")) == "rbg"


def test_keys_move_as_arrays_do() -> None:
    def moved(ks: Array) -> tuple[Any, ...]:
        return (
            ks[1:3], ks[::-2], ks[fnp.array([1, 1])], ks.reshape(2, 3).T, fnp.stack([ks, ks], 1), ks.at[0].set(ks[1]),
            fnp.where(fnp.arange(6) > 2, ks, ks[::-1]), fnp.take(ks, fnp.array([0, 5])), fnp.broadcast_to(ks, (2, 6)),
            fnp.split(ks, 2), fnp.tile(ks, 2), fnp.roll(ks, 1), fnp.pad(ks, 1, mode="edge"), fnp.concatenate([ks, ks]),
            lax.dynamic_slice(ks, (2,), (2,)), lax.dynamic_update_slice(ks, ks[:2], (3,)), fnp.expand_dims(ks, 0),
            lax.optimization_barrier((ks,)), fnp.squeeze(ks[None], 0), lax.stop_gradient(ks),
        )  # fmt: skip

    eager: list[Any] = fx.tree.leaves(moved(KEYS))
    compiled: list[Any] = fx.tree.leaves(fx.jit(moved)(KEYS))
    numbers = fx.tree.leaves(moved(fnp.arange(6)))
    original = words(KEYS)
    for one, two, places in zip(eager, compiled, numbers, strict=True):
        assert one.dtype == two.dtype == KEYS.dtype
        expected = np.array(original, np.uint32)[np.asarray(places)].tolist()
        assert words(one) == words(two) == expected


def test_keys_are_compared() -> None:
    assert (KEYS == KEYS).all()
    assert not (KEYS[1:] == KEYS[0]).any()
    assert fx.jit(lambda ks: ks != ks[2])(KEYS).tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_keys_go_through_transformations(impl: str) -> None:
    key = random.key(1, impl=impl)
    keys = random.split(key, 3)

    def draw(key: Array) -> Array:
        return random.uniform(key, (2,))

    one_by_one = np.stack([np.asarray(draw(each)) for each in keys])
    np.testing.assert_array_equal(fx.vmap(draw)(keys), one_by_one)
    np.testing.assert_array_equal(fx.jit(fx.vmap(draw))(keys), one_by_one)
    np.testing.assert_array_equal(fx.vmap(fx.vmap(draw))(keys[None])[0], one_by_one)
    np.testing.assert_array_equal(lax.map(draw, keys), one_by_one)

    def step(carry: Array, each: Array) -> tuple[Array, tuple[Array, Array]]:
        carry, now = random.split(carry)
        return carry, (draw(now) + draw(each), now)

    last, (drawn, used) = lax.scan(step, key, keys)
    carry = key
    for i, each in enumerate(keys):
        carry, (number, now) = step(carry, each)
        np.testing.assert_array_equal(drawn[i], number)
        assert words(used[i]) == words(now)
    assert words(last) == words(carry)

    chosen = fx.vmap(lambda i, k: lax.cond(i > 1, lambda k: k, lambda k: random.fold_in(k, 0), k))
    assert words(chosen(fnp.arange(3), keys))[2] == words(keys)[2]
    _, end = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, random.split(s[1])[0]), (0, key))
    assert words(end) == words(random.split(random.split(key)[0])[0])

    slope = fx.grad(lambda x, k: (x * draw(k)).sum())(2.0, key)
    assert_near(slope, one_by_one.dtype.type(np.asarray(draw(key)).sum()), ELEMENTARY)
    tree = fx.tree.map(lambda x: x, {"key": key})
    assert words(tree["key"]) == words(key)
    assert fx.eval_shape(lambda k: random.split(k), key).dtype == key.dtype


def test_keys_are_written_and_read() -> None:
    assert words(pickle.loads(pickle.dumps(KEYS))) == words(KEYS)
    assert words(copy.deepcopy(KEYS)) == words(KEYS)
    program = fx.make_jaxpr(lambda k: (random.bits(random.split(k)[0]), random.key(3)))(random.key(0))
    assert "a:key<fry>[]" in str(program)
    assert str(parse_jaxpr(str(program))) == str(program)
    closed = fx.make_jaxpr(lambda i: KEYS[i])(0)
    again = fx.programs.deserialize(fx.programs.serialize(closed))
    assert words(fx.jaxpr_as_fun(again)(2)[0]) == words(KEYS[2])
    shown = "Array(key<fry>[], words=[0, 3])"
    assert repr(random.key(3)) == fnp.array_repr(random.key(3)) == fnp.array_str(random.key(3)) == shown
    assert repr(fx.eval_shape(random.key, 3)) == "ShapeDtypeStruct(shape=(), dtype=key<fry>)"


def test_programs_on_keys_leave_the_process() -> None:
    def draw(keys: Array) -> tuple[Array, Array]:
        return random.normal(keys[0], (2,)), random.split(keys[1])

    exported = fx.export(fx.jit(draw))(KEYS)
    numbers, new = fx.load(exported.serialize()).call(KEYS)
    np.testing.assert_array_equal(numbers, draw(KEYS)[0])
    assert words(new) == words(draw(KEYS)[1])
    theirs = jax.random.wrap_key_data(jax.numpy.asarray(np.asarray(random.key_data(KEYS))))
    in_jax = jax.export.deserialize(bytearray(exported.to_jax())).call(theirs)
    np.testing.assert_array_equal(in_jax[0], numbers)
    assert words_in_jax(in_jax[1]) == words(new)


def test_keys_are_handed_to_the_host_and_back() -> None:
    def reverse(keys: Array) -> Array:
        return keys[::-1]

    def through(keys: Array) -> Array:
        out: Array = fx.pure_callback(reverse, fx.ShapeDtypeStruct((6,), keys.dtype), keys)
        return out

    assert words(through(KEYS)) == words(fx.jit(through)(KEYS)) == words(KEYS[::-1])
    shown: list[Any] = []
    fx.jit(lambda k: fx.debug.callback(lambda x: shown.append(words(x)), k))(KEYS[0])
    fx.effects_barrier()
    assert shown == [words(KEYS[0])]


NO_NUMBERS: Final[dict[str, Callable[[Array], Any]]] = {
    "add": lambda k: k + 1,
    "neg": lambda k: -k,
    "less": lambda k: k < k,
    "larger": lambda k: lax.max(k, k),
    "larger, traced": lambda k: fx.make_jaxpr(lax.max)(k, k),
    "bits of others": lambda k: lax.bitcast_convert_type(fnp.ones(3), k.dtype),
    "view": lambda k: fnp.ones(2).view(k.dtype),
    "sum": fnp.sum,
    "max": fnp.max,
    "argmax": fnp.argmax,
    "dot": lambda k: fnp.dot(k, k),
    "cumsum": fnp.cumsum,
    "astype": lambda k: k.astype(int),
    "from numbers": lambda k: fnp.arange(6).astype(k.dtype),
    "bits": lambda k: lax.bitcast_convert_type(k, np.uint32),
    "array": np.asarray,
    "float": lambda k: float(k[0]),
    "bool": lambda k: bool(k[0]),
    "item": lambda k: k[0].item(),
    "list": lambda k: k.tolist(),
    "dlpack": lambda k: np.from_dlpack(k),
    "grad": lambda k: fx.grad(lambda key: random.uniform(key))(k[0]),
    "sin": fnp.sin,
    "sort": lax.sort,
    "fft": lambda k: lax.fft(k, "FFT", (6,)),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_keys_are_no_numbers(name: str) -> None:
    with pytest.raises((TypeError, TypePromotionError), match="key<fry>|random keys"):
        NO_NUMBERS[name](KEYS)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: random.key(1.5), TypeError, "single integer as the seed, got f32"),
        (lambda: random.key(fnp.arange(2)), TypeError, "for several keys use tracefx.vmap"),
        (lambda: random.key(random.key(0)), TypeError, "got a key"),
        (lambda: random.key(0, impl="mersenne"), ValueError, "expected one of threefry2x32, rbg, unsafe_rbg"),
        (lambda: random.key(0, impl="rbg", dtype="rbg"), ValueError, "are synonyms"),
        (lambda: random.split(3), TypeError, "split takes a random key, got i32"),
        (lambda: random.split(KEYS), ValueError, "map it over them with tracefx.vmap"),
        (lambda: random.normal(fnp.zeros(2)), TypeError, r"normal takes a random key, got f32\[2\]"),
        (lambda: random.fold_in(random.key(0), 1.0), TypeError, "single integer as data"),
        (lambda: random.wrap_key_data(fnp.zeros(3, np.uint32)), ValueError, "has 2 words"),
        (lambda: random.uniform(random.key(0), (-1,)), ValueError, "negative size"),
        (lambda: random.uniform(random.key(0), (2,), int), ValueError, "must be a float dtype, got int32"),
        (lambda: random.gamma(random.key(0), fnp.ones(3), (2,)), ValueError, "don't broadcast to shape"),
        (lambda: random.choice(random.key(0), 3, (4,), replace=False), ValueError, "4 elements can't be drawn from 3"),
    ],
)
def test_what_is_wrong_is_said(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_gamma_has_the_derivatives_of_jax() -> None:
    shapes = np.array([0.3, 1.0, 4.5], np.float32)

    def total(r: Any, a: Any) -> Any:
        return (r.gamma(r.key(2), a) + r.loggamma(r.key(3), a)).sum()

    ours = fx.grad(lambda a: total(random, a))(fnp.asarray(shapes))
    assert_near(ours, jax.grad(lambda a: total(jax.random, a))(shapes))


def test_keys_are_chosen() -> None:
    places = random.choice(random.key(1), 6, (2, 2))
    assert words(random.choice(random.key(1), KEYS, (2, 2))) == words(KEYS[places])
    assert random.choice(random.key(1), KEYS, (0, 2)).aval.shape == (0, 2)


def test_keys_are_put_in_another_order() -> None:
    order = random.permutation(random.key(1), 6)
    assert words(random.permutation(random.key(1), KEYS)) == words(KEYS[order])


def test_host_of_reads_jaxs_keys() -> None:
    """The comparisons of keys with JAX's in the laws of operations rest on it."""
    assert host_of(jax.random.key(3)).tobytes() == to_numpy(as_value(random.key(3))).tobytes()


def test_new_arrays_of_keys_have_jaxs_words() -> None:
    ours, theirs = random.split(random.key(1), 3), jax.random.split(jax.random.key(1), 3)

    def same(case: Callable[..., Any]) -> None:
        got, want = case(fx, fnp, ours), case(jax, jax.numpy, theirs)
        assert np.array_equal(random.key_data(got), np.asarray(jax.random.key_data(want)))

    for name in ("zeros", "ones", "empty"):
        same(lambda fx, fnp, keys, n=name: getattr(fnp, n)((2, 3), dtype=keys.dtype))
        same(lambda fx, fnp, keys, n=name: getattr(fnp, n + "_like")(keys))
        same(lambda fx, fnp, keys, n=name: fx.jit(getattr(fnp, n + "_like"))(keys))
        same(lambda fx, fnp, keys, n=name: fx.vmap(getattr(fnp, n + "_like"))(keys))
    same(lambda fx, fnp, keys: fnp.full((2,), 0, dtype=keys.dtype))
    same(lambda fx, fnp, keys: fx.lax.full_like(keys, 0))
    same(lambda fx, fnp, keys: fx.lax.empty((2,), keys.dtype))
    for index in (np.array([0, 7]), np.array([1, -1])):
        same(lambda fx, fnp, keys, i=index: keys.at[i].get(mode="fill"))
        same(lambda fx, fnp, keys, i=index: fx.jit(lambda k: k.at[i].get(mode="fill"))(keys))
        same(lambda fx, fnp, keys, i=index: fnp.take(keys, i, axis=0))
        same(lambda fx, fnp, keys, i=index: keys.at[i].get(mode="fill", fill_value=0))


def test_device_get_returns_keys_as_they_are() -> None:
    got: Any = fx.device_get({"key": KEYS, "number": fnp.ones(2)})
    assert got["key"] is KEYS
    assert type(got["number"]) is np.ndarray


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *[(name, ()) for name in ("normal", "uniform", "exponential", "laplace", "cauchy", "gumbel", "logistic")],
        *[(name, ()) for name in ("bits", "rademacher", "maxwell")],
        *[(name, (2.0,)) for name in ("gamma", "poisson", "t", "pareto", "chisquare", "rayleigh", "bernoulli")],
        *[(name, (1.0, 2.0)) for name in ("beta", "weibull_min", "truncated_normal", "f")],
    ],
)
def test_an_integer_is_a_shape(name: str, parameters: tuple[float, ...]) -> None:
    draw = getattr(random, name)
    parameters = (0.5,) if name == "bernoulli" else parameters
    whole, short = (draw(random.key(0), *parameters, shape=shape) for shape in ((4,), 4))
    assert short.shape == (4,)
    assert np.array_equal(whole, short)
    assert getattr(jax.random, name)(jax.random.key(0), *parameters, shape=4).shape == (4,)


def test_an_integer_is_a_shape_of_choices_and_initial_parameters() -> None:
    key, theirs = random.key(0), jax.random.key(0)
    assert random.choice(key, 5, 4).shape == (4,)
    assert np.array_equal(random.randint(key, 4, 0, 9), jax.random.randint(theirs, (4,), 0, 9))
    assert random.dirichlet(key, fnp.ones(3), 4).shape == (4, 3)
    assert random.ball(key, 2, shape=4).shape == (4, 2)
    assert fx.nn.initializers.normal()(key, 4).shape == (4,)
    with pytest.raises(ValueError, match="negative"):
        random.normal(key, -1)
    with pytest.raises(TypeError):
        random.normal(key, 4.0)  # type: ignore[arg-type]  # which is the point
