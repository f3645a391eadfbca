"""Serialized exported functions: JAX's format, damaged bytes, files of older versions."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import flatbuffers
import jax
import numpy as np
import pytest
from attrs import evolve
from flatbuffers.number_types import Uint8Flags, Uint16Flags, Uint32Flags
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.transforms.exported import PARAMS, WEIGHTS, Pair, Scaled, X, exported, model
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


def to_jax_exported(exported_fn: fx.Exported[..., Any]) -> jax.export.Exported:
    """Returns the `jax.export.Exported` with the fields of an exported function of tracefx."""

    def tree(tracefx_side: TreeDef) -> Any:
        return jax.tree.structure(tracefx_side.unflatten(range(tracefx_side.num_leaves)))

    def avals(tracefx_side: Any) -> Any:
        return tuple([jax.core.ShapedArray(a.shape, a.dtype) for a in tracefx_side])

    return jax.export.Exported(
        fun_name=exported_fn.fun_name,
        in_tree=tree(exported_fn.in_tree),
        in_avals=avals(exported_fn.in_avals),
        out_tree=tree(exported_fn.out_tree),
        out_avals=avals(exported_fn.out_avals),
        in_shardings_hlo=(None,) * len(exported_fn.in_avals),
        out_shardings_hlo=(None,) * len(exported_fn.out_avals),
        **({"_has_named_shardings": True} if EXPORTS_SAY_HAS_NAMED_SHARDINGS else {}),
        _in_named_shardings=(None,) * len(exported_fn.in_avals),
        _out_named_shardings=(None,) * len(exported_fn.out_avals),
        nr_devices=1,
        platforms=exported_fn.platforms,
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=exported_fn.mlir_module_serialized,
        calling_convention_version=9,
        module_kept_var_idx=exported_fn.module_kept_var_idx,
        uses_global_constants=len(exported_fn.platforms) > 1,
        _get_vjp=None,
    )


def check_in_jax(jax_exported: jax.export.Exported) -> None:
    want = model(PARAMS, X, scale=2.0)
    for call in (jax_exported.call, jax.jit(jax_exported.call)):
        got = call(PARAMS, X, scale=2.0)  # type: ignore[no-untyped-call]  # JAX leaves it unannotated
        assert repr(jax.tree.structure(got)) == repr(fx.tree.structure(want))
        for x, y in zip(jax.tree.leaves(got), fx.tree.leaves(want), strict=True):
            assert x.dtype == np.asarray(y).dtype
            assert_near(x, np.asarray(y), ELEMENTARY)


@pytest.mark.parametrize("platforms", [None, ["cpu"], ["tpu", "cpu", "cuda"]], ids=str)
def test_jax_export_runs_the_module(platforms: list[str] | None) -> None:
    check_in_jax(to_jax_exported(fx.export(model, platforms=platforms)(PARAMS, X, scale=2.0)))


def test_flatbuffer_fields_of_jax_format() -> None:
    exported_fn = exported()
    table = flatbuffers.Table(exported_fn.to_jax(), int.from_bytes(exported_fn.to_jax()[:4], "little"))

    def number(slot: int, flags: Any) -> object:
        return table.Get(flags, table.Pos + table.Offset(4 + 2 * slot))

    def numbers(slot: int, flags: Any) -> list[int]:
        found: list[int] = table.GetVectorAsNumpy(flags, table.Offset(4 + 2 * slot)).tolist()
        return found

    assert (number(0, Uint16Flags), number(14, Uint16Flags), number(18, Uint32Flags)) == (3, 9, 1)
    assert table.String(table.Pos + table.Offset(4 + 2 * 1)) == b"model"
    assert bytes(numbers(13, Uint8Flags)) == exported_fn.mlir_module_serialized
    assert tuple(numbers(15, Uint16Flags)) == exported_fn.module_kept_var_idx
    assert [table.VectorLen(table.Offset(4 + 2 * slot)) for slot in (3, 5, 19)] == [4, 5, 5]
    assert numbers(22, Uint32Flags) == [0, 0, 1, 2]  # the dtypes of the arguments; weak types are not distinguished
    assert [numbers(slot, Uint32Flags) for slot in (24, 25)] == [[0] * 4, [0] * 5]


@pytest.mark.parametrize("platforms", [None, ["tpu", "cpu", "cuda"]], ids=str)
def test_jax_deserializes_to_jax(platforms: list[str] | None) -> None:
    data = fx.export(model, platforms=platforms)(PARAMS, X, scale=2.0).to_jax()
    jax_exported = jax.export.deserialize(bytearray(data))
    check_in_jax(jax_exported)
    assert jax_exported.fun_name == "model"
    again = jax.export.deserialize(jax_exported.serialize())
    assert again.in_avals == jax_exported.in_avals
    check_in_jax(again)


def test_to_jax_refuses_unsupported_trees_and_dtypes() -> None:
    for tree, message in (
        (Pair(1.0, 2.0), "the arguments of <lambda>: JAX's format does not support Pair"),
        ({1: 2.0}, r"only strings as dict keys, got \[1\]"),
    ):
        with pytest.raises(SerializationError, match=message):
            fx.export(fx.jit(lambda x: 0))(tree).to_jax()
    with pytest.raises(SerializationError, match="JAX's format does not support the dtype int2"):
        fx.export(fx.jit(lambda x: x.astype("int2")))(X).to_jax()


# ------------------------------------------------------------------ damaged bytes


@functools.cache
def small_exported_bytes() -> bytes:
    exported_fn = fx.export(fx.jit(lambda p: {"a": Pair(fnp.sin(p.left) + WEIGHTS[0], p.right)}))(
        Pair(np.ones(2, np.float32), Scaled(1.0, 2.0, "x"))
    )
    return exported_fn.serialize()


def load_or_parse_error(content: bytes) -> None:
    try:
        loaded = fx.load(encode_envelope(EXPORT_MAGIC, EXPORT_VERSION, content))
    except ParseError:
        return
    assert fx.load(loaded.serialize()).jaxpr == loaded.jaxpr


@given(st.data())
def test_damaged_bytes_load_or_raise_parse_error(data: st.DataObject) -> None:
    content = small_exported_bytes()[HEAD:-CHECKSUM]
    for _ in range(data.draw(st.integers(1, 3))):
        offset = data.draw(st.integers(0, len(content)))
        match data.draw(st.integers(0, 3)):
            case 0 if offset < len(content):
                content = (
                    content[:offset]
                    + bytes([content[offset] ^ 1 << data.draw(st.integers(0, 7))])
                    + content[offset + 1 :]
                )
            case 1:
                content = content[:offset] + content[offset + data.draw(st.integers(1, 5)) :]
            case 2:
                content = content[:offset] + b"\x80" * 8 + b"\x10" + content[offset + 1 :]
            case _:
                content = content[:offset] + data.draw(st.binary(max_size=5)) + content[offset:]
    load_or_parse_error(content)


def test_changed_header_bytes_load_or_raise_parse_error() -> None:
    content = small_exported_bytes()[HEAD:-CHECKSUM]
    for offset in range(150):  # the name, the pytrees, the platforms
        for value in (0, 1, 2, 6, 7, 15, 127, 128, 255):
            load_or_parse_error(content[:offset] + bytes([value]) + content[offset + 1 :])


def test_flipped_bits_and_truncation_raise_parse_error() -> None:
    data = small_exported_bytes()
    for offset in range(0, len(data), 7):
        with pytest.raises(ParseError):
            fx.load(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(ParseError):
            fx.load(data[:offset])
    with pytest.raises(ParseError, match="these 9 bytes are not an exported function, which begins with b'tracefx exp"):
        fx.load(b"something")
    with pytest.raises(ParseError, match="a serialized program|not an exported function"):
        fx.load(fx.programs.serialize(fx.make_jaxpr(lambda x: x)(1.0)))


def rewritten(exported_fn: fx.Exported[..., Any], **changes: Any) -> bytes:
    """Serializes an exported function with changed, possibly inconsistent fields."""
    return evolve(exported_fn, **changes).serialize()


def test_inconsistent_fields_raise_parse_error() -> None:
    exported_fn = exported()
    other_export = fx.export(fx.jit(lambda x: (x, x)))(1.0)
    with pytest.raises(ParseError, match="the arguments have 1 leaves, but the program has 4"):
        fx.load(rewritten(exported_fn, in_tree=other_export.in_tree))
    with pytest.raises(ParseError, match="is not a structure of arguments: a tuple, and a dict with names"):
        fx.load(rewritten(exported_fn, in_tree=fx.tree.structure(([1, 2, 3, 4], {}))))
    with pytest.raises(ParseError, match="is not a structure of arguments"):
        fx.load(rewritten(exported_fn, in_tree=fx.tree.structure(((1, 2, 3), {5: 4}))))
    with pytest.raises(ParseError, match="the platforms .* are not some of cpu, cuda, rocm, tpu, each once"):
        fx.load(rewritten(exported_fn, platforms=("cpu", "abacus")))
    for kept_inputs in ((0, 4), (1, 0), (0, 0)):
        with pytest.raises(ParseError, match="the inputs that the module takes, .* are not some of 4 in their order"):
            fx.load(rewritten(exported_fn, module_kept_var_idx=kept_inputs))


def test_loading_program_with_effects_raises() -> None:
    table: list[fx.ClosedJaxpr] = []

    def inside(x: fx.Array) -> fx.Array:
        table.append(fx.make_jaxpr(lambda x: fx.lax.psum(x, "i"))(x))
        return x

    fx.vmap(inside, axis_name="i")(fnp.asarray(X))
    exported_fn = fx.export(fx.jit(lambda x: x))(X[0])
    trace = exported_fn._trace
    with pytest.raises(ParseError, match="the program has effects: axis 'i'"):
        fx.load(rewritten(exported_fn, trace=evolve(trace, jaxpr=table[0].jaxpr)))


def test_invalid_module_raises_only_when_read() -> None:
    loaded = fx.load(rewritten(exported(), mlir_module_serialized=b"ML\xefRnothing"))
    assert_same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
    with pytest.raises(ParseError, match="the StableHLO module of model cannot be read"):
        loaded.mlir_module()


# ------------------------------------------------------------------ files of older versions


def test_files_of_version_1() -> None:
    data = (FILES / "exported-1.bin").read_bytes()
    loaded = fx.load(data)
    assert_same(loaded.call(PARAMS, X, scale=2.0), model(PARAMS, X, scale=2.0))
    assert "stablehlo.tanh" in loaded.mlir_module()
    assert loaded.serialize() == data
