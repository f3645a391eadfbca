"""The runtime: transfers of every dtype, ownership of memory, DLPack, construction of MLIR modules."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import cast

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from typing_extensions import CapsuleType

from tests.xla.samples import PACKED, SHAPES, AnyArray, address, by_dtype, same, values
from tracefx.core.device import SupportsDLPack
from tracefx.core.host_memory import ALIGNMENT, aligned_empty
from tracefx.errors import DeletedArrayError, PlatformError
from tracefx.xla.runtime import bindings, buffers, executables, mlir, platforms
from tracefx.xla.runtime.bindings import Buffer, Device
from tracefx.xla.runtime.mlir import ir

# ------------------------------------------------------------------------------------------------ devices


def test_device_properties(device: Device) -> None:
    assert (device.id, device.platform, device.device_kind, device.process_index) == (0, "cpu", "cpu", 0)
    assert repr(device) == "CpuDevice(id=0)"
    assert platforms.devices() is platforms.devices()


def test_unknown_platform_raises() -> None:
    with pytest.raises(PlatformError, match="'gpu'"):
        platforms.client("gpu")


# ------------------------------------------------------------------------------------------------ buffers


@by_dtype
@pytest.mark.parametrize("view", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("copy", [False, True], ids=["borrow", "copy"])
def test_transfer_round_trip_of_every_dtype_and_shape(
    dtype: np.dtype[np.generic], view: Callable[[AnyArray], AnyArray], copy: bool, device: Device
) -> None:
    array = view(values(dtype))
    buffer = buffers.buffer_from_numpy(array, device, copy=copy)
    got = buffers.buffer_to_numpy(buffer)
    assert same(got, array)
    assert not got.flags.writeable
    assert buffer.aval == bindings.ArraySpec(array.shape, dtype)


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.complex128])
def test_non_native_byte_order_becomes_native(dtype: type[np.generic], device: Device) -> None:
    array = values(np.dtype(dtype))
    swapped = array.astype(np.dtype(dtype).newbyteorder())
    assert same(buffers.buffer_to_numpy(buffers.buffer_from_numpy(swapped, device)), array)


def test_transfer_round_trip_of_a_large_array(device: Device) -> None:
    array = np.arange(3_000_000, dtype=np.int64).reshape(1000, 3000).T
    assert same(buffers.buffer_to_numpy(buffers.buffer_from_numpy(array, device)), array)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.zeros(2, [("float0", "V")])], ids=["str", "object", "float0"]
)
def test_dtypes_without_an_xla_type_raise(array: AnyArray, device: Device) -> None:
    with pytest.raises(TypeError, match="no element type"):
        buffers.buffer_from_numpy(array, device)


@by_dtype
def test_aligned_memory_is_borrowed_without_a_copy(dtype: np.dtype[np.generic], device: Device) -> None:
    array = aligned_empty((3, 4), dtype)
    array[...] = values(dtype)
    assert address(array) % ALIGNMENT == 0
    got = buffers.buffer_to_numpy(buffers.buffer_from_numpy(array, device))
    assert (address(got) == address(array)) is (dtype not in PACKED)
    assert address(buffers.buffer_to_numpy(buffers.buffer_from_numpy(array, device, copy=True))) != address(array)


def test_copied_array_can_be_modified(device: Device) -> None:
    array = aligned_empty((1 << 20,), np.dtype(np.float32))
    array[...] = 1
    buffer = buffers.buffer_from_numpy(array, device, copy=True)
    array[...] = 2
    assert buffers.buffer_to_numpy(buffer).max() == 1


def test_borrowed_memory_is_released_after_the_last_view(device: Device) -> None:
    class Owned(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
        """An array type that supports weak references."""

    array = aligned_empty((8,), np.dtype(np.float32)).view(Owned)
    array[...] = 3
    reference = weakref.ref(array)
    buffer = buffers.buffer_from_numpy(array, device)
    view = buffers.buffer_to_numpy(buffer)
    del array, buffer
    gc.collect()
    assert reference() is not None
    assert np.array_equal(view, np.full(8, 3, np.float32))
    del view
    gc.collect()
    buffers.buffer_to_numpy(
        buffers.buffer_from_numpy(np.zeros(1, np.float32), device)
    )  # jaxlib drops references at its next call
    assert reference() is None


def test_reading_a_deleted_buffer_raises(device: Device) -> None:
    for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.int4)):
        buffer = buffers.buffer_from_numpy(values(dtype), device)
        assert buffers.is_ready(buffer)
        assert not buffers.is_deleted(buffer)
        buffers.delete_buffer(buffer)
        assert buffers.is_deleted(buffer)
        for read in (buffers.buffer_to_numpy, buffers.block_until_ready, buffers.is_ready, buffers.to_dlpack):
            with pytest.raises(DeletedArrayError, match=dtype.name):
                read(buffer)


def test_view_outlives_the_deletion_of_its_buffer(device: Device) -> None:
    buffer = buffers.buffer_from_numpy(np.arange(8, dtype=np.float32), device, copy=True)
    view = buffers.buffer_to_numpy(buffer)
    buffers.delete_buffer(buffer)
    others = [buffers.buffer_from_numpy(np.full(8, 7, np.float32), device, copy=True) for _ in range(100)]
    assert np.array_equal(view, np.arange(8, dtype=np.float32))
    assert len(others) == 100


# ------------------------------------------------------------------------------------------------ DLPack


class Exporter:
    """An array of another library, which supports only DLPack."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __dlpack__(self, **_: object) -> CapsuleType:
        return buffers.to_dlpack(self.buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@by_dtype
def test_dlpack_import_and_export_share_memory(dtype: np.dtype[np.generic], device: Device) -> None:
    buffer = buffers.buffer_from_numpy(values(dtype), device)
    if dtype in PACKED:
        with pytest.raises(BufferError, match=dtype.name):
            buffers.to_dlpack(buffer)
        return
    again = buffers.from_dlpack(Exporter(buffer), device, copy=False)
    assert same(buffers.buffer_to_numpy(again), values(dtype))
    assert address(buffers.buffer_to_numpy(again)) == address(buffers.buffer_to_numpy(buffer))
    copied = buffers.from_dlpack(Exporter(buffer), device, copy=True)
    assert same(buffers.buffer_to_numpy(copied), values(dtype))
    assert address(buffers.buffer_to_numpy(copied)) != address(buffers.buffer_to_numpy(buffer))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.bool_, jnp.int32, jnp.float8_e4m3fn])
def test_dlpack_import_of_jax_arrays(dtype: type[np.generic], device: Device) -> None:
    jax_array = jnp.arange(6).reshape(2, 3).astype(dtype)
    assert same(
        buffers.buffer_to_numpy(buffers.from_dlpack(cast(SupportsDLPack, jax_array), device)),
        np.asarray(jax_array),
    )


def test_dlpack_import_of_a_read_only_numpy_array(device: Device) -> None:
    array = aligned_empty((4,), np.dtype(np.float32))
    array[...] = 5
    array.flags.writeable = False
    assert address(buffers.buffer_to_numpy(buffers.from_dlpack(array, device, copy=False))) == address(array)


def test_dlpack_import_that_needs_a_copy_raises(device: Device) -> None:
    array = aligned_empty((5,), np.dtype(np.float32))
    array[...] = 5
    with pytest.raises(BufferError, match="64 bytes"):
        buffers.from_dlpack(array[1:], device, copy=False)
    assert same(buffers.buffer_to_numpy(buffers.from_dlpack(array[1:], device)), array[1:])


def test_dlpack_capsule_is_consumed_once(device: Device) -> None:
    capsule = buffers.to_dlpack(buffers.buffer_from_numpy(np.zeros(3, np.float32), device))

    class Used:
        def __dlpack__(self) -> CapsuleType:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    buffers.from_dlpack(Used(), device)
    with pytest.raises(ValueError, match="consumed"):
        buffers.from_dlpack(Used(), device)


# ------------------------------------------------------------------------------------------------ building programs


@by_dtype
@pytest.mark.parametrize("view", SHAPES.values(), ids=SHAPES)
def test_constant_has_the_value_of_its_array(
    dtype: np.dtype[np.generic], view: Callable[[AnyArray], AnyArray], device: Device
) -> None:
    array = view(values(dtype))
    kind = mlir.tensor_type(array.shape, dtype)
    module = mlir.new_module("constant")
    with mlir.unknown_location():
        block = mlir.add_function(module, "main", [], [kind])
        with ir.InsertionPoint(block):
            constant = mlir.create("stablehlo.constant", [kind], [], {"value": mlir.dense_attr(array)})
            mlir.create("func.return", [], [constant.result])
    mlir.verify(module)
    executable = executables.compile_module(module, device=device)
    assert executable.results == (bindings.ArraySpec(array.shape, dtype),)
    assert same(buffers.buffer_to_numpy(executable.execute([])[0]), array)


@by_dtype
def test_dtype_of_an_mlir_type(dtype: np.dtype[np.generic]) -> None:
    assert mlir.spec_of(mlir.tensor_type((2, 0), dtype)) == bindings.ArraySpec((2, 0), dtype)


def test_splat_constant_from_a_scalar() -> None:
    assert str(mlir.dense_attr(np.array(2, ">i4"), (1000, 1000))) == "dense<2> : tensor<1000x1000xi32>"
    assert str(mlir.dense_attr(np.broadcast_to(np.uint8(2), (9, 9)))) == "dense<2> : tensor<9x9xui8>"
    with pytest.raises(ValueError, match="one element"):
        mlir.dense_attr(np.arange(2), (2, 2))


def test_text_of_attributes() -> None:
    assert str(mlir.integer_attr(3)) == "3 : i64"
    assert str(mlir.integer_attr(0, 32)) == "0 : i32"
    assert str(mlir.float_attr(1.5, np.dtype(np.float32))) == "1.500000e+00 : f32"
    assert str(mlir.bool_attr(True)) == "true"
    assert str(mlir.i64_array_attr((1, 0))) == "array<i64: 1, 0>"
    assert str(mlir.i64_array_attr(())) == "array<i64>"
    assert str(mlir.bool_array_attr((True, False))) == "array<i1: true, false>"
    assert str(mlir.symbol_attr("f")) == "@f"
    both = mlir.array_attr([mlir.string_attr("a"), mlir.dict_attr({"b": mlir.integer_attr(1)})])
    assert str(both) == '["a", {b = 1 : i64}]'
    less = mlir.parse_attribute("#stablehlo<comparison_direction LT>")
    assert mlir.stablehlo.ComparisonDirectionAttr(less).value == "LT"
    with pytest.raises(bindings.InvalidModuleError, match="LESS"):
        mlir.parse_attribute("#stablehlo<comparison_direction LESS>")


def test_module_text_round_trip() -> None:
    kind = mlir.tensor_type((2,), np.dtype(np.float32))
    module = mlir.new_module("m")
    with mlir.unknown_location():
        block = mlir.add_function(module, "main", [kind], [kind], argument_attributes=[{"x.y": mlir.bool_attr(True)}])
        with ir.InsertionPoint(block):
            mlir.create("func.return", [], list(block.arguments))
    text = mlir.module_text(module)
    assert "x.y = true" in text
    assert mlir.module_text(mlir.parse_module(text)) == text
    assert "loc(" not in text
    assert "loc(" in mlir.module_text(module, locations=True)


def test_insertion_points_and_source_locations() -> None:
    kind = mlir.tensor_type((), np.dtype(np.float32))
    module = mlir.new_module("m")
    with mlir.unknown_location():
        block = mlir.add_function(module, "main", [kind], [kind], public=False)
        with mlir.at_end(block):
            with mlir.location("scope/negate", "model.py", 7):
                negated = mlir.create("stablehlo.negate", [kind], [block.arguments[0]])
            with mlir.location("sum", None, 0):
                total = mlir.create("stablehlo.add", [kind], [negated.result, negated.result])
            mlir.create("func.return", [], [total.result])
    mlir.verify(module)
    text = mlir.module_text(module, locations=True)
    assert 'loc("model.py":7:0)' in text
    assert 'loc("scope/negate"(' in text
    assert 'loc("sum")' in text
    assert "func.func private @main" in text


def test_invalid_module_raises() -> None:
    with pytest.raises(bindings.InvalidModuleError, match="nonsense"):
        mlir.parse_module("nonsense")
    module = mlir.new_module("m")
    kinds = [mlir.tensor_type((size,), np.dtype(np.float32)) for size in (2, 3)]
    with mlir.unknown_location():
        block = mlir.add_function(module, "main", kinds, kinds[:1])
        with ir.InsertionPoint(block):
            total = mlir.create("stablehlo.add", kinds[:1], list(block.arguments))
            mlir.create("func.return", [], [total.result])
    with pytest.raises(bindings.InvalidModuleError, match="stablehlo.add"):
        mlir.verify(module)
