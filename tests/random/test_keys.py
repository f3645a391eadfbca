"""Random keys: arrays of a key dtype that supports data movement but no arithmetic; their words match JAX."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.export
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, host_of
from tests.errors import assert_errors, untyped
from tracefx import lax, random
from tracefx.core import Array, as_value, to_numpy
from tracefx.errors import TypePromotionError
from tracefx.programs import parse_jaxpr
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")

IMPLEMENTATIONS: Final = ("threefry2x32", "rbg", "unsafe_rbg")
KEYS: Final = random.split(random.key(7), 6)


def key_words(keys: Any) -> Any:
    return np.asarray(random.key_data(keys)).tolist()


def jax_key_words(keys: jax.Array) -> Any:
    return np.asarray(jax.random.key_data(keys)).tolist()


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("seed", [0, 3, -1, (1 << 31) + 5, 1 << 40, -(1 << 40), np.uint8(7), True])
def test_keys_from_seeds_match_jax(seed: Any, impl: str) -> None:
    assert key_words(random.key(seed, impl=impl)) == jax_key_words(jax.random.key(seed, impl=impl))
    assert np.asarray(random.PRNGKey(seed, impl=impl)).tolist() == key_words(random.key(seed, impl=impl))
    with fx.enable_x64(), jax.enable_x64(True):
        assert key_words(random.key(seed, impl=impl)) == jax_key_words(jax.random.key(seed, impl=impl))


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_split_and_fold_in_match_jax(impl: str) -> None:
    key, jax_key = random.key(5, impl=impl), jax.random.key(5, impl=impl)
    for num in (2, 3, (2, 3), (), 0):
        assert key_words(random.split(key, num)) == jax_key_words(jax.random.split(jax_key, num))
    for data in (0, 9, True, 1 << 31, np.uint32(4), np.int8(-3)):
        assert key_words(random.fold_in(key, data)) == jax_key_words(jax.random.fold_in(jax_key, data))
    assert random.key_impl(key) == str(jax.random.key_impl(jax_key)) == impl
    assert key_words(random.clone(key)) == key_words(key)
    assert key_words(random.wrap_key_data(random.key_data(key), impl=impl)) == key_words(key)


def test_raw_uint32_keys_are_accepted() -> None:
    old, new = random.PRNGKey(3), random.key(3)
    assert np.asarray(random.split(old)).tolist() == key_words(random.split(new))
    assert random.split(old).dtype == np.uint32
    assert np.asarray(random.fold_in(old, 1)).tolist() == key_words(random.fold_in(new, 1))
    assert random.uniform(old) == random.uniform(new)
    assert random.key_impl(old) == "threefry2x32"
    assert random.key_impl(random.PRNGKey(0, impl="rbg")) == "rbg"


def test_data_movement_of_keys() -> None:
    def rearrange(ks: Array) -> tuple[Any, ...]:
        return (
            ks[1:3], ks[::-2], ks[fnp.array([1, 1])], ks.reshape(2, 3).T, fnp.stack([ks, ks], 1), ks.at[0].set(ks[1]),
            fnp.where(fnp.arange(6) > 2, ks, ks[::-1]), fnp.take(ks, fnp.array([0, 5])), fnp.broadcast_to(ks, (2, 6)),
            fnp.split(ks, 2), fnp.tile(ks, 2), fnp.roll(ks, 1), fnp.pad(ks, 1, mode="edge"), fnp.concatenate([ks, ks]),
            lax.dynamic_slice(ks, (2,), (2,)), lax.dynamic_update_slice(ks, ks[:2], (3,)), fnp.expand_dims(ks, 0),
            lax.optimization_barrier((ks,)), fnp.squeeze(ks[None], 0), lax.stop_gradient(ks),
        )  # fmt: skip

    eager: list[Any] = fx.tree.leaves(rearrange(KEYS))
    compiled: list[Any] = fx.tree.leaves(fx.jit(rearrange)(KEYS))
    numbers = fx.tree.leaves(rearrange(fnp.arange(6)))
    original = key_words(KEYS)
    for eager_keys, compiled_keys, positions in zip(eager, compiled, numbers, strict=True):
        assert eager_keys.dtype == compiled_keys.dtype == KEYS.dtype
        expected = np.array(original, np.uint32)[np.asarray(positions)].tolist()
        assert key_words(eager_keys) == key_words(compiled_keys) == expected


def test_format_of_keys() -> None:
    assert f"{KEYS[0]}" == str(KEYS[0])
    assert f"{KEYS}" == str(KEYS)


def test_equality_of_keys() -> None:
    assert (KEYS == KEYS).all()
    assert not (KEYS[1:] == KEYS[0]).any()
    assert fx.jit(lambda ks: ks != ks[2])(KEYS).tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_transformations_of_functions_of_keys(impl: str) -> None:
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
        carry, subkey = random.split(carry)
        return carry, (draw(subkey) + draw(each), subkey)

    last, (drawn, used) = lax.scan(step, key, keys)
    carry = key
    for i, each in enumerate(keys):
        carry, (number, subkey) = step(carry, each)
        np.testing.assert_array_equal(drawn[i], number)
        assert key_words(used[i]) == key_words(subkey)
    assert key_words(last) == key_words(carry)

    chosen = fx.vmap(lambda i, k: lax.cond(i > 1, lambda k: k, lambda k: random.fold_in(k, 0), k))
    assert key_words(chosen(fnp.arange(3), keys))[2] == key_words(keys)[2]
    _, end = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, random.split(s[1])[0]), (0, key))
    assert key_words(end) == key_words(random.split(random.split(key)[0])[0])

    slope = fx.grad(lambda x, k: (x * draw(k)).sum())(2.0, key)
    assert_near(slope, one_by_one.dtype.type(np.asarray(draw(key)).sum()), ELEMENTARY)
    tree = fx.tree.map(lambda x: x, {"key": key})
    assert key_words(tree["key"]) == key_words(key)
    assert fx.eval_shape(lambda k: random.split(k), key).dtype == key.dtype


def test_pickle_copy_and_text_round_trips_of_keys() -> None:
    assert key_words(pickle.loads(pickle.dumps(KEYS))) == key_words(KEYS)
    assert key_words(copy.deepcopy(KEYS)) == key_words(KEYS)
    program = fx.make_jaxpr(lambda k: (random.bits(random.split(k)[0]), random.key(3)))(random.key(0))
    assert "a:key<fry>[]" in str(program)
    assert str(parse_jaxpr(str(program))) == str(program)
    closed = fx.make_jaxpr(lambda i: KEYS[i])(0)
    restored = fx.programs.deserialize(fx.programs.serialize(closed))
    assert key_words(fx.jaxpr_as_fun(restored)(2)[0]) == key_words(KEYS[2])
    text = "Array(key<fry>[], words=[0, 3])"
    assert repr(random.key(3)) == fnp.array_repr(random.key(3)) == fnp.array_str(random.key(3)) == text
    assert repr(fx.eval_shape(random.key, 3)) == "ShapeDtypeStruct(shape=(), dtype=key<fry>)"


def test_export_of_programs_with_keys() -> None:
    def draw(keys: Array) -> tuple[Array, Array]:
        return random.normal(keys[0], (2,)), random.split(keys[1])

    exported = fx.export(fx.jit(draw))(KEYS)
    numbers, new = fx.load(exported.serialize()).call(KEYS)
    np.testing.assert_array_equal(numbers, draw(KEYS)[0])
    assert key_words(new) == key_words(draw(KEYS)[1])
    jax_keys = jax.random.wrap_key_data(jax.numpy.asarray(np.asarray(random.key_data(KEYS))))
    in_jax = jax.export.deserialize(bytearray(exported.to_jax())).call(jax_keys)
    np.testing.assert_array_equal(in_jax[0], numbers)
    assert jax_key_words(in_jax[1]) == key_words(new)


def test_host_callbacks_with_keys() -> None:
    def reverse(keys: Array) -> Array:
        return keys[::-1]

    def call_host(keys: Array) -> Array:
        out: Array = fx.pure_callback(reverse, fx.ShapeDtypeStruct((6,), keys.dtype), keys)
        return out

    assert key_words(call_host(KEYS)) == key_words(fx.jit(call_host)(KEYS)) == key_words(KEYS[::-1])
    seen: list[Any] = []
    fx.jit(lambda k: fx.debug.callback(lambda x: seen.append(key_words(x)), k))(KEYS[0])
    fx.effects_barrier()
    assert seen == [key_words(KEYS[0])]


UNSUPPORTED: Final[dict[str, Callable[[Array], Any]]] = {
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


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_arithmetic_and_conversion_of_keys_raise(name: str) -> None:
    with pytest.raises((TypeError, TypePromotionError), match="key<fry>|random keys"):
        UNSUPPORTED[name](KEYS)


def test_invalid_arguments_raise() -> None:
    assert_errors(
        (lambda: random.key(np.True_), TypeError, "single integer as the seed, got bool"),
        (lambda: random.key(1.5), TypeError, "single integer as the seed, got f32"),
        (lambda: random.key(fnp.arange(2)), TypeError, "for several keys use tracefx.vmap"),
        (lambda: random.key(random.key(0)), TypeError, "got a key"),
        (lambda: random.key(0, impl="mersenne"), ValueError, "expected one of threefry2x32, rbg, unsafe_rbg"),
        (lambda: random.key(0, impl="rbg", dtype="rbg"), ValueError, "are synonyms"),
        (lambda: random.split(3), TypeError, "split takes a random key, got i32"),
        (lambda: random.split(KEYS), ValueError, "map it over them with tracefx.vmap"),
        (lambda: random.normal(fnp.zeros(2)), TypeError, r"normal takes a random key, got f32\[2\]"),
        (lambda: random.fold_in(random.key(0), 1.0), TypeError, "single integer as data"),
        (lambda: random.fold_in(random.key(0), 1 << 32), OverflowError, "from 0 to 2\\*\\*32 - 1, got 4294967296"),
        (lambda: random.fold_in(random.key(0), -1), OverflowError, "got -1"),
        (lambda: random.permutation(random.key(0), 10, axis=1), ValueError, "axis 1 is out of bounds"),
        (lambda: fnp.count_nonzero(KEYS), TypeError, "keys are neither true nor false"),
        (lambda: fnp.logical_and(KEYS, True), TypeError, "keys are neither true nor false"),
        (lambda: fnp.nonzero(KEYS), TypeError, "keys are neither true nor false"),
        (lambda: fnp.argsort(KEYS), TypeError, "sort"),
        (lambda: fnp.round(KEYS), TypeError, "round takes numbers"),
        (lambda: fnp.packbits(KEYS), TypeError, "packbits takes integers and bools"),
        (lambda: fnp.signbit(KEYS), ValueError, "signbit takes real numbers"),
        (lambda: random.wrap_key_data(fnp.zeros(3, np.uint32)), ValueError, "has 2 words"),
        (lambda: random.uniform(random.key(0), (-1,)), ValueError, "negative size"),
        (lambda: random.uniform(random.key(0), (2,), int), ValueError, "must be a float dtype, got int32"),
        (lambda: random.gamma(random.key(0), fnp.ones(3), (2,)), ValueError, "don't broadcast to shape"),
        (lambda: random.choice(random.key(0), 3, (4,), replace=False), ValueError, "4 elements can't be drawn from 3"),
    )


def test_derivatives_of_gamma_match_jax() -> None:
    shapes = np.array([0.3, 1.0, 4.5], np.float32)

    def total(r: Any, a: Any) -> Any:
        return (r.gamma(r.key(2), a) + r.loggamma(r.key(3), a)).sum()

    gradient = fx.grad(lambda a: total(random, a))(fnp.asarray(shapes))
    assert_near(gradient, jax.grad(lambda a: total(jax.random, a))(shapes))


def test_choice_of_keys() -> None:
    indices = random.choice(random.key(1), 6, (2, 2))
    assert key_words(random.choice(random.key(1), KEYS, (2, 2))) == key_words(KEYS[indices])
    assert random.choice(random.key(1), KEYS, (0, 2)).aval.shape == (0, 2)


def test_closeness_of_keys_is_equality() -> None:
    assert fnp.isclose(KEYS, KEYS[0]).tolist() == fnp.equal(KEYS, KEYS[0]).tolist()
    assert bool(fnp.allclose(KEYS, KEYS))
    assert not bool(fnp.allclose(KEYS, KEYS[::-1]))


def test_permutation_of_keys() -> None:
    order = random.permutation(random.key(1), 6)
    assert key_words(random.permutation(random.key(1), KEYS)) == key_words(KEYS[order])


def test_host_of_converts_jax_keys() -> None:
    """The comparison of keys with JAX in the tests of primitives relies on `host_of`."""
    assert host_of(jax.random.key(3)).tobytes() == to_numpy(as_value(random.key(3))).tobytes()


def test_created_and_filled_key_arrays_match_jax() -> None:
    fx_keys, jax_keys = random.split(random.key(1), 3), jax.random.split(jax.random.key(1), 3)

    def assert_matches_jax(case: Callable[..., Any]) -> None:
        got, want = case(fx, fnp, fx_keys), case(jax, jax.numpy, jax_keys)
        assert np.array_equal(random.key_data(got), np.asarray(jax.random.key_data(want)))

    for name in ("zeros", "ones", "empty"):
        assert_matches_jax(lambda fx, fnp, keys, n=name: getattr(fnp, n)((2, 3), dtype=keys.dtype))
        assert_matches_jax(lambda fx, fnp, keys, n=name: getattr(fnp, n + "_like")(keys))
        assert_matches_jax(lambda fx, fnp, keys, n=name: fx.jit(getattr(fnp, n + "_like"))(keys))
        assert_matches_jax(lambda fx, fnp, keys, n=name: fx.vmap(getattr(fnp, n + "_like"))(keys))
    assert_matches_jax(lambda fx, fnp, keys: fnp.full((2,), 0, dtype=keys.dtype))
    assert_matches_jax(lambda fx, fnp, keys: fx.lax.full_like(keys, 0))
    assert_matches_jax(lambda fx, fnp, keys: fx.lax.empty((2,), keys.dtype))
    for index in (np.array([0, 7]), np.array([1, -1])):
        assert_matches_jax(lambda fx, fnp, keys, i=index: keys.at[i].get(mode="fill"))
        assert_matches_jax(lambda fx, fnp, keys, i=index: fx.jit(lambda k: k.at[i].get(mode="fill"))(keys))
        assert_matches_jax(lambda fx, fnp, keys, i=index: fnp.take(keys, i, axis=0))
        assert_matches_jax(lambda fx, fnp, keys, i=index: keys.at[i].get(mode="fill", fill_value=0))


def test_device_get_returns_keys_unchanged() -> None:
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
def test_shape_argument_may_be_an_integer(name: str, parameters: tuple[float, ...]) -> None:
    draw = getattr(random, name)
    parameters = (0.5,) if name == "bernoulli" else parameters
    by_tuple, by_integer = (draw(random.key(0), *parameters, shape=shape) for shape in ((4,), 4))
    assert by_integer.shape == (4,)
    assert np.array_equal(by_tuple, by_integer)
    jax_draw = partial(getattr(jax.random, name), shape=4)
    assert jax.eval_shape(jax_draw, jax.random.key(0), *parameters).shape == (4,)


def test_integer_shape_of_choice_randint_and_initializers() -> None:
    key, jax_key = random.key(0), jax.random.key(0)
    assert random.choice(key, 5, 4).shape == (4,)
    assert np.array_equal(random.randint(key, 4, 0, 9), jax.random.randint(jax_key, (4,), 0, 9))
    assert random.dirichlet(key, fnp.ones(3), 4).shape == (4, 3)
    assert random.ball(key, 2, shape=4).shape == (4, 2)
    assert fx.nn.initializers.normal()(key, 4).shape == (4,)
    with pytest.raises(ValueError, match="negative"):
        random.normal(key, -1)
    with pytest.raises(TypeError):
        untyped(random.normal)(key, 4.0)


@pytest.mark.parametrize("seed", [1 << 64, -(1 << 63) - 1, 1 << 80])
@pytest.mark.parametrize("make", [lambda F: F.random.key, lambda F: F.random.PRNGKey], ids=["key", "PRNGKey"])
def test_seeds_of_more_than_64_bits_are_refused(make: Callable[[Any], Callable[[int], object]], seed: int) -> None:
    for F in (fx, jax):
        with pytest.raises(OverflowError):
            make(F)(seed)


def test_formatted_keys_are_shown_like_printed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    key = random.key(0)
    assert f"{key}" == f"{key:s}" == str(key)
    fx.jit(lambda k: fx.debug.print("{}", k))(key)
    assert capsys.readouterr().out == f"{key}\n"
