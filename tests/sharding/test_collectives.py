"""Collectives: one table of them under `vmap(axis_name=)`, `shard_map` and `pmap`, with all their derivatives."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import JAX, OURS, Library, agree
from tracefx import P, lax
from tracefx.core.dtypes import NDArray
from tracefx.testing import check_grads
from tracefx.testing.tolerances import EXACT, SUMMED, Ulps

Collective = Callable[[Any, Any], Any]
"""A program of one library's `lax` and of an operand `f32[4, 8]`, along the axis `i` of size 4."""

SIZE: Final = 4
X: Final[NDArray] = np.sin(np.arange(128, dtype=np.float32)).reshape(SIZE, 4, 8)
CYCLE: Final = [(0, 1), (1, 2), (2, 3), (3, 0)]
LINEAR: Final[dict[str, Collective]] = {
    "psum": lambda lib, x: lib.psum(x, "i"),
    "pmean": lambda lib, x: lib.pmean(x, "i"),
    "psum of a number": lambda lib, x: x * lib.psum(2, "i"),
    "psum of what is the same for all": lambda lib, x: x * lib.psum(np.float32(3), "i"),
    "axis_index": lambda lib, x: x * lib.axis_index("i"),
    "axis_size": lambda lib, x: x * lib.axis_size("i"),
    "all_gather": lambda lib, x: lib.all_gather(x, "i"),
    "all_gather behind": lambda lib, x: lib.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda lib, x: lib.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda lib, x: lib.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda lib, x: lib.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "ppermute": lambda lib, x: lib.ppermute(x, "i", CYCLE),
    "ppermute of some": lambda lib, x: lib.ppermute(x, "i", [(0, 1), (3, 0)]),
    "ppermute of none": lambda lib, x: lib.ppermute(x, "i", []),
    "pshuffle": lambda lib, x: lib.pshuffle(x, "i", [2, 0, 3, 1]),
    "pswapaxes": lambda lib, x: lib.pswapaxes(x, "i", 0),
    "pbroadcast": lambda lib, x: lib.pbroadcast(x, "i", 2),
    "all_to_all": lambda lib, x: lib.all_to_all(x, "i", 0, 0),
    "all_to_all to another axis": lambda lib, x: lib.all_to_all(x, "i", 0, 1),
    "all_to_all tiled": lambda lib, x: lib.all_to_all(x, "i", 1, 1, tiled=True),
    "all_to_all tiled, down": lambda lib, x: lib.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all tiled, up": lambda lib, x: lib.all_to_all(x, "i", 0, 1, tiled=True),
}
EXTREME: Final[dict[str, Collective]] = {
    "pmax": lambda lib, x: lib.pmax(x, "i"),
    "pmin": lambda lib, x: lib.pmin(x, "i"),
}
ALL: Final = {**LINEAR, **EXTREME}
NOT_ON_DEVICES_IN_JAX: Final = {"pbroadcast"}


def tolerance_of(name: str) -> Ulps:
    """Sums may be taken in any order; what is only moved is not changed."""
    return SUMMED if name.startswith(("psum", "pmean")) else EXACT


def whole_numbers(shape: tuple[int, ...]) -> NDArray:
    """Of which sums of products are exact."""
    return (np.arange(np.prod(shape)) * 5 % 11 - 4).astype(np.float32).reshape(shape)


WHOLE: Final = whole_numbers(X.shape)


def under_vmap(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    return lib.m.vmap(f, axis_name="i")  # type: ignore[no-any-return]  # either library's


def over_devices(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    def one(*parts: Any) -> Any:
        return f(*[part[0] for part in parts])[None]

    mesh, spec = lib.mesh_of((SIZE,), ("i",)), lib.P("i")
    return lib.m.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)  # type: ignore[no-any-return]  # either library's


def by_pmap(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    return lib.m.pmap(f, axis_name="i")  # type: ignore[no-any-return]  # either library's


@pytest.mark.parametrize("name", ALL)
def test_on_devices_as_jax(name: str) -> None:
    way = under_vmap if name in NOT_ON_DEVICES_IN_JAX else over_devices
    got, want = over_devices(OURS, lambda x: ALL[name](lax, x))(X), way(JAX, lambda x: ALL[name](JAX.lax, x))(X)
    assert_near(got, want, tolerance_of(name))


@pytest.mark.parametrize("name", ALL)
def test_a_batch_is_as_devices(name: str) -> None:
    def f(x: fx.Array) -> fx.Array:
        return ALL[name](lax, x)  # type: ignore[no-any-return]  # a table for both libraries

    want = under_vmap(OURS, f)(X)
    assert_near(over_devices(OURS, f)(X), want, tolerance_of(name))
    assert_near(by_pmap(OURS, f)(X), want, tolerance_of(name))


@pytest.mark.parametrize("way", [under_vmap, over_devices], ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", LINEAR)
def test_transposed(name: str, way: Callable[..., Any]) -> None:
    # <J v, w> = <v, J' w>, with a coefficient that differs along the axis.
    f = way(OURS, lambda x: LINEAR[name](lax, x * (1 + lax.axis_index("i"))))
    out, pull = fx.vjp(f, WHOLE)
    w = whole_numbers(out.shape)
    forward = fx.jvp(f, (WHOLE,), (WHOLE + 1,))[1]
    (back,) = pull(w)
    assert float(fnp.vdot(forward, w)) == float(fnp.vdot(WHOLE + 1, back))
    assert np.array_equal(forward, f(WHOLE + 1))


@pytest.mark.parametrize("dims", [(0, 0), (1, 2)])
@pytest.mark.parametrize("name", ALL)
def test_vmap_is_a_loop(name: str, dims: tuple[int, int]) -> None:
    f = over_devices(OURS, lambda x: ALL[name](lax, x))
    batch = np.stack([X, X + 1, 2 * X], dims[1])
    got = fx.vmap(f, in_axes=dims[1], out_axes=dims[0])(batch)
    want = np.stack([f(np.take(batch, i, dims[1])) for i in range(3)], dims[0])
    assert_near(got, want, tolerance_of(name))


@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter", "ppermute of some", "all_to_all", "pbroadcast"])
def test_numeric_derivatives(name: str) -> None:
    f = over_devices(OURS, lambda x: LINEAR[name](lax, fnp.sin(x)))
    check_grads(f, X[:, :, :4])


# ------------------------------------------------------------------ dtypes


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_dtypes(name: str) -> None:
    def program(lib: Library) -> Any:
        x = lib.np.asarray((X * 10).astype(np.int8)).astype(name)

        def f(x: Any) -> tuple[Any, ...]:
            outs = [lib.lax.all_gather(x, "i"), lib.lax.ppermute(x, "i", CYCLE[:2]), lib.lax.all_to_all(x, "i", 0, 0)]
            outs.append(lib.lax.psum(x, "i"))
            if name != "complex64":
                outs += [lib.lax.pmax(x, "i"), lib.lax.pmin(x, "i")]
            if name != "bool":
                outs.append(lib.lax.psum_scatter(x, "i"))
            return tuple([lib.np.asarray(out).astype("float32") if name == "bfloat16" else out for out in outs])

        return lib.m.pmap(f, "i")(x)

    agree(program)


def test_random_keys_move() -> None:
    keys = fx.random.split(fx.random.key(0), SIZE)

    def f(key: fx.Array) -> tuple[fx.Array, ...]:
        moved = lax.ppermute(key, "i", CYCLE), lax.all_gather(key, "i")[1], lax.pbroadcast(key, "i", 3)
        return tuple([fx.random.key_data(k) for k in moved])

    words = np.asarray(fx.random.key_data(keys))
    for way in (fx.vmap(f, axis_name="i"), fx.pmap(f, "i")):
        shifted, second, last = way(keys)
        assert np.array_equal(shifted, np.roll(words, 1, 0))
        assert np.array_equal(second, words[[1] * 4])
        assert np.array_equal(last, words[[3] * 4])


# ------------------------------------------------------------------ devices that are alone

ALONE: Final[dict[str, Callable[[Any], Any]]] = {
    "psum": lambda x: lax.psum(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "all_gather tiled": lambda x: lax.all_gather(x, "i", tiled=True),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i"),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 0)]),
    "ppermute of none": lambda x: lax.ppermute(x, "i", []),
    "axis_index": lambda x: x * (1 + lax.axis_index("i")),
}


@pytest.mark.parametrize("axis_names", [{"i"}, {"i", "j"}], ids=lambda names: "".join(sorted(names)))
@pytest.mark.parametrize("sizes", [(1, 1), (4, 1)], ids=str)
@pytest.mark.parametrize("name", ALONE)
def test_alone_along_an_axis(name: str, sizes: tuple[int, int], axis_names: set[str]) -> None:
    f, x = ALONE[name], X[:1, 0]
    mesh = OURS.mesh_of(sizes, ("j", "i"))
    mapped = fx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P(), axis_names=axis_names, check_vma=False)
    want = fx.vmap(f, axis_name="i")(x[None])[0]
    assert np.array_equal(mapped(x), want)
    assert np.array_equal(fx.jit(mapped)(x), want)
    assert np.array_equal(fx.grad(lambda x: fnp.sum(mapped(x) ** 2))(x), 2 * mapped(x).reshape(x.shape))


# ------------------------------------------------------------------ groups

GROUPS: Final = [[0, 2], [3, 1]]
IN_GROUPS: Final[dict[str, Collective]] = {
    "psum": lambda lib, x: lib.psum(x, "i", axis_index_groups=GROUPS),
    "psum of booleans": lambda lib, x: lib.psum(x > 0, "i", axis_index_groups=GROUPS),
    "pmean": lambda lib, x: lib.pmean(x, "i", axis_index_groups=GROUPS),
    "pmax": lambda lib, x: lib.pmax(x, "i", axis_index_groups=GROUPS),
    "pmin": lambda lib, x: lib.pmin(x, "i", axis_index_groups=GROUPS),
    "all_gather": lambda lib, x: lib.all_gather(x, "i", axis=1, axis_index_groups=GROUPS),
    "all_gather tiled": lambda lib, x: lib.all_gather(x, "i", axis=1, axis_index_groups=GROUPS, tiled=True),
    "psum_scatter": lambda lib, x: lib.psum_scatter(x[:2], "i", axis_index_groups=GROUPS),
    "psum_scatter tiled": lambda lib, x: lib.psum_scatter(
        x, "i", scatter_dimension=1, axis_index_groups=GROUPS, tiled=True
    ),
    "all_to_all": lambda lib, x: lib.all_to_all(x[:2], "i", 0, 1, axis_index_groups=GROUPS),
    "all_to_all tiled": lambda lib, x: lib.all_to_all(x, "i", 1, 0, axis_index_groups=GROUPS, tiled=True),
    "pswapaxes": lambda lib, x: lib.pswapaxes(x[:2], "i", 0, axis_index_groups=GROUPS),
}


@pytest.mark.parametrize("name", IN_GROUPS)
def test_groups(name: str) -> None:
    # JAX has no groups under vmap.
    f, want = IN_GROUPS[name], by_pmap(JAX, lambda x: IN_GROUPS[name](JAX.lax, x))(X)
    for way in (under_vmap, over_devices, by_pmap):
        assert_near(way(OURS, lambda x: f(lax, x))(X), want, tolerance_of(name))


@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter tiled", "all_to_all"])
def test_groups_are_transposed(name: str) -> None:
    f = over_devices(OURS, lambda x: IN_GROUPS[name](lax, x))
    out, pull = fx.vjp(f, WHOLE)
    w = whole_numbers(out.shape)
    assert float(fnp.vdot(out, w)) == float(fnp.vdot(WHOLE, pull(w)[0]))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([[0, 1], [2]], "must contain each of 0 to 3 once"),
        ([[0, 1], [1, 2]], "must contain each of 0 to 3 once"),
        ([[0, 1, 2], [3]], "must have equal sizes"),
    ],
)
def test_refused_groups(groups: list[list[int]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        under_vmap(OURS, lambda x: lax.psum(x, "i", axis_index_groups=groups))(X)


def test_pcast() -> None:
    agree(lambda lib: over_devices(lib, lambda x: lib.lax.pcast(lib.lax.psum(x, "i"), "i", to="varying"))(X))
    with pytest.raises(ValueError, match="to must be 'varying'"):
        under_vmap(OURS, lambda x: lax.pcast(x, "i", to="elsewhere"))(X)
    with pytest.raises(NameError, match="pcast: unbound axis name 'k'"):
        under_vmap(OURS, lambda x: lax.pcast(x, "k", to="varying"))(X)


# ------------------------------------------------------------------ uneven pieces

ROWS: Final = 9
SENT: Final = np.array([[2, 1, 0, 3], [1, 1, 2, 0], [0, 4, 1, 1], [3, 0, 2, 1]], np.int32)
"""How many rows each member sends to each."""
STARTS: Final = (np.cumsum(SENT, 1) - SENT).astype(np.int32)
PLACES: Final = (np.cumsum(SENT, 0) - SENT).astype(np.int32)
OPERANDS: Final = np.arange(4 * 6 * 2, dtype=np.float32).reshape(4, 6, 2) + 1


def exchanged(x: Any, starts: Any, sent: Any, places: Any, received: Any) -> Any:
    into = fnp.zeros((ROWS, 2)) - 1
    return lax.ragged_all_to_all(x, into, starts, sent, places, received, axis_name="i")


@pytest.mark.parametrize("way", [under_vmap, over_devices, by_pmap], ids=lambda way: way.__name__)
def test_ragged_all_to_all(way: Callable[..., Any]) -> None:
    # JAX's runs on few platforms, of which the CPU is none.
    want = np.full((SIZE, ROWS, 2), -1, np.float32)
    for source, target in np.ndindex(SIZE, SIZE):
        n, start, place = SENT[source, target], STARTS[source, target], PLACES[source, target]
        want[target, place : place + n] = OPERANDS[source, start : start + n]
    f = way(OURS, exchanged)
    args = STARTS, SENT, PLACES, SENT.T.copy()
    assert np.array_equal(f(OPERANDS, *args), want)
    # What is linear in the rows is its own derivative, and each row that is sent has its cotangent back.
    back = fx.grad(lambda x: fnp.sum(f(x, *args) * np.arange(ROWS, dtype=np.float32)[:, None]))(OPERANDS)
    rows = np.zeros_like(OPERANDS)
    for source, target in np.ndindex(SIZE, SIZE):
        n, start, place = SENT[source, target], STARTS[source, target], PLACES[source, target]
        rows[source, start : start + n] += np.arange(int(place), int(place + n), dtype=np.float32)[:, None]
    assert np.array_equal(back, rows)


def test_ragged_all_to_all_in_groups() -> None:
    def f(x: Any, n: Any) -> Any:
        i = lax.axis_index("i") // 2
        zeros = np.zeros(2, np.int32)
        return lax.ragged_all_to_all(
            x, x * 0, zeros, zeros + n, zeros + i, zeros + 1, axis_name="i", axis_index_groups=[[0, 2], [1, 3]]
        )

    got = fx.vmap(f, axis_name="i")(np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]), np.ones(4, np.int32))
    assert got.tolist() == [[1, 5], [3, 7], [1, 5], [3, 7]]


def test_refused_uneven_pieces() -> None:
    for wrong, words in ((np.zeros(3, np.int32), "for each of 4 members"), (np.zeros(4, np.float32), "one integer")):
        with pytest.raises(TypeError, match=words):
            under_vmap(OURS, lambda x, w=wrong: exchanged(x, w, SENT[0], PLACES[0], SENT[0]))(OPERANDS)
    with pytest.raises(TypeError, match="must have rows of one shape and dtype"):
        under_vmap(OURS, lambda x: exchanged(x[0], SENT[0], SENT[0], PLACES[0], SENT[0]))(OPERANDS)


# ------------------------------------------------------------------ axes and errors


def test_two_axes_at_once_are_as_one() -> None:
    # Of two mapped axes each takes its turn; JAX does so on devices only.
    x = np.arange(64, dtype=np.float32).reshape(4, 2, 8)

    def f(x: Any) -> tuple[Any, ...]:
        names = ("x", "y")
        return (
            lax.psum(x, names),
            lax.all_gather(x, names),
            lax.psum_scatter(x, names, tiled=True),
            lax.all_to_all(x, names, 0, 0, tiled=True),
            lax.pbroadcast(x, names, 5),
            lax.axis_index(names),
        )

    batched = fx.vmap(fx.vmap(f, axis_name="y"), axis_name="x")(x)
    mesh = OURS.mesh
    one = fx.shard_map(
        lambda x: fx.tree.map(lambda out: out[None, None], f(x[0, 0])),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
        check_vma=False,
    )
    for got, want in zip(one(x), batched, strict=True):
        assert np.array_equal(got, want)


def test_ppermute_along_two_axes_is_for_devices() -> None:
    with pytest.raises(ValueError, match="is supported only between devices"):
        fx.vmap(fx.vmap(lambda x: lax.ppermute(x, ("x", "y"), [(0, 1)]), axis_name="y"), axis_name="x")(X)


REFUSED: Final[dict[str, tuple[Collective, type[Exception], str]]] = {
    "unbound": (lambda lib, x: lib.psum(x, "k"), NameError, "psum: unbound axis name 'k'; in scope are axis 'i'"),
    "unbound index": (lambda lib, x: lib.axis_index("k"), NameError, "'k'; in scope are axis 'i'"),
    "unbound among others": (lambda lib, x: lib.all_gather(x, ("i", "k")), NameError, "'k'; in scope are axis 'i'"),
    "twice": (lambda lib, x: lib.pmax(x, ("i", "i")), ValueError, "names an axis twice"),
    "wrong source": (lambda lib, x: lib.pbroadcast(x, "i", 4), ValueError, "source 4 must be between 0 and 3"),
    "no permutation": (lambda lib, x: lib.pshuffle(x, "i", [0, 0, 1, 2]), ValueError, "every number from 0 to 3 once"),
    "two to one": (lambda lib, x: lib.ppermute(x, "i", [(0, 1), (2, 1)]), ValueError, "destinations in perm"),
    "uneven": (
        lambda lib, x: lib.psum_scatter(x[:3], "i", tiled=True),
        ValueError,
        "must have a size that is a multiple of 4",
    ),
    "too long": (lambda lib, x: lib.all_to_all(x, "i", 1, 0), ValueError, "must have the size 4 of the named axis"),
    "uneven along two": (lambda lib, x: lib.all_to_all(x, ("i", "i"), 1, 0), ValueError, "names an axis twice"),
}


@pytest.mark.parametrize("way", [under_vmap, over_devices, by_pmap], ids=lambda way: way.__name__)
@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, way: Callable[..., Any]) -> None:
    f, kind, words = REFUSED[what]
    with pytest.raises(kind, match=words):
        way(OURS, lambda x: f(lax, x))(X)


def test_no_axis_is_in_scope() -> None:
    with pytest.raises(NameError, match="psum: unbound axis name 'i'; no axis is in scope"):
        lax.psum(X, "i")
