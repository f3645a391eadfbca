"""Exported functions in JAX, and as bytes: JAX's format, hostile ones, those of older versions."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.core.test_wire import Found
from tests.transforms.exported import PARAMS, WEIGHTS, Pair, Scaled, X, exported, model, same
from tests.versions import EXPORTS_SAY_HAS_NAMED_SHARDINGS
from tracefx.errors import ParseError, SerializationError
from tracefx.pytrees.trees import TreeDef
from tracefx.serialization.byte_format import encode_envelope
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.transforms.exporting import EXPORT_MAGIC, EXPORT_VERSION

FILES: Final = Path(__file__).parent / "files"
HEAD: Final = 26
CHECKSUM: Final = 4


# ------------------------------------------------------------------ JAX


def in_jax(it: fx.Exported[..., Any]) -> jax.export.Exported:
    """What `jax.export` has, of our fields."""

    def tree(ours: TreeDef) -> Any:
        return jax.tree.structure(ours.unflatten(range(ours.num_leaves)))

    def avals(ours: Any) -> Any:
        return tuple([jax.core.ShapedArray(a.shape, a.dtype) for a in ours])

    return jax.export.Exported(
        fun_name=it.fun_name,
        in_tree=tree(it.in_tree),
        in_avals=avals(it.in_avals),
        out_tree=tree(it.out_tree),
        out_avals=avals(it.out_avals),
        in_shardings_hlo=(None,) * len(it.in_avals),
        out_shardings_hlo=(None,) * len(it.out_avals),
        **({"_has_named_shardings": True} if EXPORTS_SAY_HAS_NAMED_SHARDINGS else {}),
        _in_named_shardings=(None,) * len(it.in_avals),
        _out_named_shardings=(None,) * len(it.out_avals),
        nr_devices=1,
        platforms=it.platforms,
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=it.mlir_module_serialized,
        calling_convention_version=9,
        module_kept_var_idx=it.module_kept_var_idx,
        uses_global_constants=len(it.platforms) > 1,
        _get_vjp=None,
    )


def check_in_jax(theirs: jax.export.Exported) -> None:
    want = model(PARAMS, X, scale=2.0)
    for call in (theirs.call, jax.jit(theirs.call)):
        got = call(PARAMS, X, scale=2.0)  # type: ignore[no-untyped-call]  # JAX leaves it unannotated
        assert repr(jax.tree.structure(got)) == repr(fx.tree.structure(want))
        for x, y in zip(jax.tree.leaves(got), fx.tree.leaves(want), strict=True):
            assert x.dtype == np.asarray(y).dtype
            assert_near(x, np.asarray(y), ELEMENTARY)


@pytest.mark.parametrize("platforms", [None, ["cpu"], ["tpu", "cpu", "cuda"]], ids=str)
def test_jax_runs_it(platforms: list[str] | None) -> None:
    check_in_jax(in_jax(fx.export(model, platforms=platforms)(PARAMS, X, scale=2.0)))


def test_the_slots_of_jaxs_format() -> None:
    it = exported()
    found = Found.root(it.to_jax())
    assert (found.number(0, "<H"), found.text(1), found.number(14, "<H"), found.number(18, "<I")) == (3, "model", 9, 1)
    assert bytes(found.numbers(13, "<B")) == it.mlir_module_serialized
    assert tuple(found.numbers(15, "<H")) == it.module_kept_var_idx
    assert [len(found.tables(slot)) for slot in (3, 5, 19)] == [4, 5, 5]
    assert found.numbers(22, "<I") == [0, 0, 1, 2]  # the types of the arguments: weakness doesn't count
    assert [found.numbers(slot, "<I") for slot in (24, 25)] == [[0] * 4, [0] * 5]


@pytest.mark.parametrize("platforms", [None, ["tpu", "cpu", "cuda"]], ids=str)
def test_jax_reads_it(platforms: list[str] | None) -> None:
    data = fx.export(model, platforms=platforms)(PARAMS, X, scale=2.0).to_jax()
    theirs = jax.export.deserialize(bytearray(data))
    check_in_jax(theirs)
    assert theirs.fun_name == "model"
    again = jax.export.deserialize(theirs.serialize())
    assert again.in_avals == theirs.in_avals
    check_in_jax(again)


def test_what_jaxs_format_lacks() -> None:
    for tree, message in (
        (Pair(1.0, 2.0), "the arguments of <lambda>: JAX's format does not support Pair"),
        ({1: 2.0}, r"only strings as dict keys, got \[1\]"),
    ):
        with pytest.raises(SerializationError, match=message):
            fx.export(fx.jit(lambda x: 0))(tree).to_jax()
    with pytest.raises(SerializationError, match="JAX's format does not support the dtype int2"):
        fx.export(fx.jit(lambda x: x.astype("int2")))(X).to_jax()


# ------------------------------------------------------------------ hostile bytes


@functools.cache
def small() -> bytes:
    it = fx.export(fx.jit(lambda p: {"a": Pair(fnp.sin(p.left) + WEIGHTS[0], p.right)}))(
        Pair(np.ones(2, np.float32), Scaled(1.0, 2.0, "x"))
    )
    return it.serialize()


def function_or_error(content: bytes) -> None:
    try:
        loaded = fx.load(encode_envelope(EXPORT_MAGIC, EXPORT_VERSION, content))
    except ParseError:
        return
    assert fx.load(loaded.serialize()).jaxpr == loaded.jaxpr


@given(st.data())
def test_damaged_functions(data: st.DataObject) -> None:
    content = small()[HEAD:-CHECKSUM]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        match data.draw(st.integers(0, 3)):
            case 0 if at < len(content):
                content = content[:at] + bytes([content[at] ^ 1 << data.draw(st.integers(0, 7))]) + content[at + 1 :]
            case 1:
                content = content[:at] + content[at + data.draw(st.integers(1, 5)) :]
            case 2:
                content = content[:at] + b"\x80" * 8 + b"\x10" + content[at + 1 :]
            case _:
                content = content[:at] + data.draw(st.binary(max_size=5)) + content[at:]
    function_or_error(content)


def test_every_byte_of_the_head() -> None:
    content = small()[HEAD:-CHECKSUM]
    for at in range(150):  # the name, the trees, the platforms
        for value in (0, 1, 2, 6, 7, 15, 127, 128, 255):
            function_or_error(content[:at] + bytes([value]) + content[at + 1 :])


def test_a_flipped_bit_and_a_cut_are_found() -> None:
    data = small()
    for at in range(0, len(data), 7):
        with pytest.raises(ParseError):
            fx.load(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ParseError):
            fx.load(data[:at])
    with pytest.raises(ParseError, match="these 9 bytes are not an exported function, which begins with b'tracefx exp"):
        fx.load(b"something")
    with pytest.raises(ParseError, match="a serialized program|not an exported function"):
        fx.load(fx.programs.serialize(fx.make_jaxpr(lambda x: x)(1.0)))


def rewritten(it: fx.Exported[..., Any], **changes: Any) -> bytes:
    """The bytes of an exported function with other fields, which need not fit each other."""
    return evolve(it, **changes).serialize()


def test_parts_that_do_not_fit() -> None:
    it = exported()
    other = fx.export(fx.jit(lambda x: (x, x)))(1.0)
    with pytest.raises(ParseError, match="the arguments have 1 leaves, but the program has 4"):
        fx.load(rewritten(it, in_tree=other.in_tree))
    with pytest.raises(ParseError, match="is not a structure of arguments: a tuple, and a dict with names"):
        fx.load(rewritten(it, in_tree=fx.tree.structure(([1, 2, 3, 4], {}))))
    with pytest.raises(ParseError, match="is not a structure of arguments"):
        fx.load(rewritten(it, in_tree=fx.tree.structure(((1, 2, 3), {5: 4}))))
    with pytest.raises(ParseError, match="the platforms .* are not some of cpu, cuda, rocm, tpu, each once"):
        fx.load(rewritten(it, platforms=("cpu", "abacus")))
    for kept in ((0, 4), (1, 0), (0, 0)):
        with pytest.raises(ParseError, match="the inputs that the module takes, .* are not some of 4 in their order"):
            fx.load(rewritten(it, module_kept_var_idx=kept))


def test_programs_with_effects() -> None:
    found: list[fx.ClosedJaxpr] = []

    def inside(x: fx.Array) -> fx.Array:
        found.append(fx.make_jaxpr(lambda x: fx.lax.psum(x, "i"))(x))
        return x

    fx.vmap(inside, axis_name="i")(fnp.asarray(X))
    it = fx.export(fx.jit(lambda x: x))(X[0])
    trace = it._trace
    with pytest.raises(ParseError, match="the program has effects: axis 'i'"):
        fx.load(rewritten(it, trace=evolve(trace, jaxpr=found[0].jaxpr)))


def test_modules_that_are_none() -> None:
    loaded = fx.load(rewritten(exported(), mlir_module_serialized=b"ML\xefRnothing"))
    same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
    with pytest.raises(ParseError, match="the StableHLO module of model cannot be read"):
        loaded.mlir_module()


# ------------------------------------------------------------------ files of older versions


def test_files_of_version_1() -> None:
    data = (FILES / "exported-1.bin").read_bytes()
    loaded = fx.load(data)
    same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
    assert "stablehlo.tanh" in loaded.mlir_module()
    assert loaded.serialize() == data
