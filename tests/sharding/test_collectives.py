"""Collectives under `vmap(axis_name=)`, `shard_map` and `pmap`: values, derivatives and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.ops.test_collective import EXTREME, SIZE, Collective
from tests.ops.test_collective import LINEAR as LINEAR_UNDER_VMAP
from tests.sharding.both import JAX, TRACEFX, Library, assert_agrees_with_jax
from tracefx import P, lax
from tracefx.core import NDArray
from tracefx.testing import check_grads
from tracefx.testing.tolerances import EXACT, SUMMED, Ulps

X: Final[NDArray] = np.sin(np.arange(128, dtype=np.float32)).reshape(SIZE, 4, 8)
CYCLE: Final = [(0, 1), (1, 2), (2, 3), (3, 0)]
LINEAR: Final[dict[str, Collective]] = {
    **LINEAR_UNDER_VMAP,
    "ppermute of some": lambda lib, x: lib.ppermute(x, "i", [(0, 1), (3, 0)]),
    "ppermute of none": lambda lib, x: lib.ppermute(x, "i", []),
    "pshuffle": lambda lib, x: lib.pshuffle(x, "i", [2, 0, 3, 1]),
    "pswapaxes": lambda lib, x: lib.pswapaxes(x, "i", 0),
    "pbroadcast": lambda lib, x: lib.pbroadcast(x, "i", 2),
}
ALL: Final = {**LINEAR, **EXTREME}
NOT_ON_DEVICES_IN_JAX: Final = {"pbroadcast"}


def tolerance_of(name: str) -> Ulps:
    """Sums may be taken in any order; all other collectives are exact."""
    return SUMMED if name.startswith(("psum", "pmean")) else EXACT


def integer_values(shape: tuple[int, ...]) -> NDArray:
    """Small integers, whose sums of products are exact in any order."""
    return (np.arange(np.prod(shape)) * 5 % 11 - 4).astype(np.float32).reshape(shape)


INTEGERS_X: Final = integer_values(X.shape)


def map_by_vmap(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    return lib.m.vmap(f, axis_name="i")  # type: ignore[no-any-return]  # either library's


def map_by_shard_map(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    def one(*parts: Any) -> Any:
        return f(*[part[0] for part in parts])[None]

    mesh, spec = lib.mesh_of((SIZE,), ("i",)), lib.P("i")
    return lib.m.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)  # type: ignore[no-any-return]  # either library's


def map_by_pmap(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    return lib.m.pmap(f, axis_name="i")  # type: ignore[no-any-return]  # either library's


@pytest.mark.parametrize("name", ALL)
def test_shard_map_matches_jax(name: str) -> None:
    mapping = map_by_vmap if name in NOT_ON_DEVICES_IN_JAX else map_by_shard_map
    got, want = (
        map_by_shard_map(TRACEFX, lambda x: ALL[name](lax, x))(X),
        mapping(JAX, lambda x: ALL[name](JAX.lax, x))(X),
    )
    assert_near(got, want, tolerance_of(name))


@pytest.mark.parametrize("name", ALL)
def test_vmap_matches_shard_map_and_pmap(name: str) -> None:
    def f(x: fx.Array) -> fx.Array:
        return ALL[name](lax, x)  # type: ignore[no-any-return]  # a table for both libraries

    want = map_by_vmap(TRACEFX, f)(X)
    assert_near(map_by_shard_map(TRACEFX, f)(X), want, tolerance_of(name))
    assert_near(map_by_pmap(TRACEFX, f)(X), want, tolerance_of(name))


@pytest.mark.parametrize("mapping", [map_by_vmap, map_by_shard_map], ids=lambda mapping: mapping.__name__)
@pytest.mark.parametrize("name", LINEAR)
def test_transpose(name: str, mapping: Callable[..., Any]) -> None:
    # <J v, w> = <v, J^T w>, with a coefficient that varies along the axis.
    f = mapping(TRACEFX, lambda x: LINEAR[name](lax, x * (1 + lax.axis_index("i"))))
    out, pull = fx.vjp(f, INTEGERS_X)
    w = integer_values(out.shape)
    forward = fx.jvp(f, (INTEGERS_X,), (INTEGERS_X + 1,))[1]
    (gradient,) = pull(w)
    assert float(fnp.vdot(forward, w)) == float(fnp.vdot(INTEGERS_X + 1, gradient))
    assert np.array_equal(forward, f(INTEGERS_X + 1))


@pytest.mark.parametrize("dims", [(0, 0), (1, 2)])
@pytest.mark.parametrize("name", ALL)
def test_vmap_matches_a_loop(name: str, dims: tuple[int, int]) -> None:
    f = map_by_shard_map(TRACEFX, lambda x: ALL[name](lax, x))
    batch = np.stack([X, X + 1, 2 * X], dims[1])
    got = fx.vmap(f, in_axes=dims[1], out_axes=dims[0])(batch)
    want = np.stack([f(np.take(batch, i, dims[1])) for i in range(3)], dims[0])
    assert_near(got, want, tolerance_of(name))


@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter", "ppermute of some", "all_to_all", "pbroadcast"])
def test_numeric_derivatives(name: str) -> None:
    f = map_by_shard_map(TRACEFX, lambda x: LINEAR[name](lax, fnp.sin(x)))
    check_grads(f, X[:, :, :2])


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

    assert_agrees_with_jax(program)


def test_collectives_on_random_keys() -> None:
    keys = fx.random.split(fx.random.key(0), SIZE)

    def f(key: fx.Array) -> tuple[fx.Array, ...]:
        moved = lax.ppermute(key, "i", CYCLE), lax.all_gather(key, "i")[1], lax.pbroadcast(key, "i", 3)
        return tuple([fx.random.key_data(k) for k in moved])

    words = np.asarray(fx.random.key_data(keys))
    for mapping in (fx.vmap(f, axis_name="i"), fx.pmap(f, "i")):
        shifted, second, last = mapping(keys)
        assert np.array_equal(shifted, np.roll(words, 1, 0))
        assert np.array_equal(second, words[[1] * 4])
        assert np.array_equal(last, words[[3] * 4])


# ------------------------------------------------------------------ axes of size 1

SINGLE_MEMBER: Final[dict[str, Callable[[Any], Any]]] = {
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
@pytest.mark.parametrize("name", SINGLE_MEMBER)
def test_collectives_along_an_axis_of_size_one(name: str, sizes: tuple[int, int], axis_names: set[str]) -> None:
    f, x = SINGLE_MEMBER[name], X[:1, 0]
    mesh = TRACEFX.mesh_of(sizes, ("j", "i"))
    mapped = fx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P(), axis_names=axis_names, check_vma=False)
    want = fx.vmap(f, axis_name="i")(x[None])[0]
    assert np.array_equal(mapped(x), want)
    assert np.array_equal(fx.jit(mapped)(x), want)
    assert np.array_equal(fx.grad(lambda x: fnp.sum(mapped(x) ** 2))(x), 2 * mapped(x).reshape(x.shape))


# ------------------------------------------------------------------ groups

GROUPS: Final = [[0, 2], [3, 1]]
INTEGERS_32: Final = np.arange(32, dtype=np.float32)
GROUPED: Final[dict[str, Collective]] = {
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


@pytest.mark.parametrize("name", GROUPED)
def test_axis_index_groups(name: str) -> None:
    # JAX does not support axis_index_groups under vmap.
    f, want = GROUPED[name], map_by_pmap(JAX, lambda x: GROUPED[name](JAX.lax, x))(X)
    for mapping in (map_by_vmap, map_by_shard_map, map_by_pmap):
        assert_near(mapping(TRACEFX, lambda x: f(lax, x))(X), want, tolerance_of(name))


@pytest.mark.parametrize(
    "name", ["psum", "pmean", "pmax", "all_gather tiled", "psum_scatter tiled", "all_to_all tiled"]
)
def test_axis_index_groups_along_two_axes(name: str) -> None:
    groups = [[0, 3, 5, 6], [7, 1, 2, 4]]

    def program(lib: Library) -> Any:
        function, _, tiled = name.partition(" ")
        axes = (0, 0) if function == "all_to_all" else ()
        options = {"axis_index_groups": groups, **({"tiled": True} if tiled else {})}

        def f(x: Any) -> Any:
            return getattr(lib.lax, function)(x, ("x", "y"), *axes, **options)

        return lib.m.jit(lib.shard_map(f, lib.P(("x", "y")), lib.P(("x", "y")), check_vma=False))(INTEGERS_32)

    assert_agrees_with_jax(program, EXACT)


@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter tiled", "all_to_all"])
def test_transpose_with_axis_index_groups(name: str) -> None:
    f = map_by_shard_map(TRACEFX, lambda x: GROUPED[name](lax, x))
    out, pull = fx.vjp(f, INTEGERS_X)
    w = integer_values(out.shape)
    assert float(fnp.vdot(out, w)) == float(fnp.vdot(INTEGERS_X, pull(w)[0]))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [2]], "must contain each of 0 to 3 once"),
        ([[0, 1], [1, 2]], "must contain each of 0 to 3 once"),
        ([[0, 1, 2], [3]], "must have equal sizes"),
    ],
)
def test_invalid_axis_index_groups_are_rejected(groups: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        map_by_vmap(TRACEFX, lambda x: lax.psum(x, "i", axis_index_groups=groups))(X)


def test_pcast() -> None:
    assert_agrees_with_jax(
        lambda lib: map_by_shard_map(lib, lambda x: lib.lax.pcast(lib.lax.psum(x, "i"), "i", to="varying"))(X)
    )
    with pytest.raises(ValueError, match="to must be 'varying'"):
        map_by_vmap(TRACEFX, lambda x: lax.pcast(x, "i", to="elsewhere"))(X)
    with pytest.raises(NameError, match="pcast: unbound axis name 'k'"):
        map_by_vmap(TRACEFX, lambda x: lax.pcast(x, "k", to="varying"))(X)


# ------------------------------------------------------------------ ragged_all_to_all

ROWS: Final = 9
SEND_SIZES: Final = np.array([[2, 1, 0, 3], [1, 1, 2, 0], [0, 4, 1, 1], [3, 0, 2, 1]], np.int32)
"""The number of rows that each member (first axis) sends to each other member (second axis)."""
INPUT_OFFSETS: Final = (np.cumsum(SEND_SIZES, 1) - SEND_SIZES).astype(np.int32)
OUTPUT_OFFSETS: Final = (np.cumsum(SEND_SIZES, 0) - SEND_SIZES).astype(np.int32)
OPERANDS: Final = np.arange(4 * 6 * 2, dtype=np.float32).reshape(4, 6, 2) + 1


def exchange(x: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any, recv_sizes: Any) -> Any:
    output = fnp.zeros((ROWS, 2)) - 1
    return lax.ragged_all_to_all(x, output, input_offsets, send_sizes, output_offsets, recv_sizes, axis_name="i")


@pytest.mark.parametrize("mapping", [map_by_vmap, map_by_shard_map, map_by_pmap], ids=lambda mapping: mapping.__name__)
def test_ragged_all_to_all(mapping: Callable[..., Any]) -> None:
    # The expected values are computed here: JAX's ragged_all_to_all does not run on the CPU.
    want = np.full((SIZE, ROWS, 2), -1, np.float32)
    for source, target in np.ndindex(SIZE, SIZE):
        n, start, offset = SEND_SIZES[source, target], INPUT_OFFSETS[source, target], OUTPUT_OFFSETS[source, target]
        want[target, offset : offset + n] = OPERANDS[source, start : start + n]
    f = mapping(TRACEFX, exchange)
    args = INPUT_OFFSETS, SEND_SIZES, OUTPUT_OFFSETS, SEND_SIZES.T.copy()
    assert np.array_equal(f(OPERANDS, *args), want)
    # The transpose sends the cotangent of each row back to its source.
    gradient = fx.grad(lambda x: fnp.sum(f(x, *args) * np.arange(ROWS, dtype=np.float32)[:, None]))(OPERANDS)
    rows = np.zeros_like(OPERANDS)
    for source, target in np.ndindex(SIZE, SIZE):
        n, start, offset = SEND_SIZES[source, target], INPUT_OFFSETS[source, target], OUTPUT_OFFSETS[source, target]
        rows[source, start : start + n] += np.arange(int(offset), int(offset + n), dtype=np.float32)[:, None]
    assert np.array_equal(gradient, rows)


def test_ragged_all_to_all_in_groups() -> None:
    def f(x: Any, n: Any) -> Any:
        i = lax.axis_index("i") // 2
        zeros = np.zeros(2, np.int32)
        return lax.ragged_all_to_all(
            x, x * 0, zeros, zeros + n, zeros + i, zeros + 1, axis_name="i", axis_index_groups=[[0, 2], [1, 3]]
        )

    got = fx.vmap(f, axis_name="i")(np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]), np.ones(4, np.int32))
    assert got.tolist() == [[1, 5], [3, 7], [1, 5], [3, 7]]


def test_invalid_ragged_all_to_all_arguments_are_rejected() -> None:
    for invalid, message in (
        (np.zeros(3, np.int32), "for each of 4 members"),
        (np.zeros(4, np.float32), "one integer"),
    ):
        with pytest.raises(TypeError, match=message):
            map_by_vmap(TRACEFX, lambda x, w=invalid: exchange(x, w, SEND_SIZES[0], OUTPUT_OFFSETS[0], SEND_SIZES[0]))(
                OPERANDS
            )
    with pytest.raises(TypeError, match="must have rows of one shape and dtype"):
        map_by_vmap(TRACEFX, lambda x: exchange(x[0], SEND_SIZES[0], SEND_SIZES[0], OUTPUT_OFFSETS[0], SEND_SIZES[0]))(
            OPERANDS
        )


# ------------------------------------------------------------------ several axes, errors


def test_collectives_over_two_axes() -> None:
    # vmap handles the two axes one after the other; JAX supports this on devices only.
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
    mesh = TRACEFX.mesh
    one = fx.shard_map(
        lambda x: fx.tree.map(lambda out: out[None, None], f(x[0, 0])),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
        check_vma=False,
    )
    for got, want in zip(one(x), batched, strict=True):
        assert np.array_equal(got, want)


INVALID: Final[dict[str, tuple[Collective, type[Exception], str]]] = {
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


@pytest.mark.parametrize("mapping", [map_by_vmap, map_by_shard_map, map_by_pmap], ids=lambda mapping: mapping.__name__)
@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments_are_rejected(name: str, mapping: Callable[..., Any]) -> None:
    f, exception, message = INVALID[name]
    with pytest.raises(exception, match=message):
        mapping(TRACEFX, lambda x: f(lax, x))(X)
