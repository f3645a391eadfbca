"""The runtime: every dtype there and back, who owns memory, donation, errors, threads, and no jax."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import cast

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import CapsuleType

from tracefx.core.memory import ALIGNMENT, aligned_empty
from tracefx.xla import runtime
from tracefx.xla.runtime import Buffer, Device, Executable, ir

AnyArray = NDArray[np.generic]

DTYPES: list[np.dtype[np.generic]] = [
    np.dtype(scalar)
    for scalar in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
        *(ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
        *(ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fn),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu),
    )
]
PACKED = [dtype for dtype in DTYPES if dtype.name in ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)

SHAPES: dict[str, Callable[[AnyArray], AnyArray]] = {
    "matrix": lambda a: a,
    "scalar": lambda a: a[1, 2].reshape(()),
    "one": lambda a: a[:1, :1],
    "empty": lambda a: a[:, :0],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-2],
    "broadcast": lambda a: np.broadcast_to(a[1, 2], (2, 3)),
    "rows": lambda a: np.broadcast_to(a[:, None], (3, 2, 4)),
}


def values(dtype: np.dtype[np.generic], shape: tuple[int, ...] = (3, 4)) -> AnyArray:
    """All kinds of values: negative ones, both zeros and a NaN where the dtype has them."""
    array = np.random.default_rng(0).integers(-8, 8, shape).astype(np.complex128 if dtype.kind == "c" else np.float64)
    if dtype.kind in "fc" or dtype.name.startswith(("bfloat", "float8_e4", "float8_e5")):
        array.flat[:3] = [-0.0, np.nan, 0.5]
    if dtype.kind == "c":
        array = array + 1j * array[::-1]
    elif dtype.name.startswith(("u", "float8_e8")):
        array = np.abs(array)
    elif dtype.kind == "b":
        return np.asarray(array > 0)
    with np.errstate(all="ignore"):
        if "int" in dtype.name:
            return array.astype(np.int64).astype(dtype)
        return array.astype(dtype)


def same(got: AnyArray, want: AnyArray) -> bool:
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.fixture(scope="module")
def device() -> Device:
    return runtime.devices()[0]


def compiled(text: str, device: Device) -> Executable:
    return runtime.compile_module(runtime.parse_module(text), device=device)


def doubling(device: Device, attributes: str = "") -> Executable:
    return compiled(
        f"""func.func public @main(%a: tensor<8xf32> {attributes}) -> tensor<8xf32> {{
            %r = stablehlo.add %a, %a : tensor<8xf32>
            return %r : tensor<8xf32>
        }}""",
        device,
    )


def address(array: AnyArray) -> int:
    return array.ctypes.data


# ------------------------------------------------------------------------------------------------ devices


def test_a_device_says_what_it_is(device: Device) -> None:
    assert (device.id, device.platform, device.device_kind, device.process_index) == (0, "cpu", "cpu", 0)
    assert repr(device) == "CpuDevice(id=0)"
    assert runtime.devices() is runtime.devices()


def test_other_platforms_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'gpu'"):
        runtime.client("gpu")


# ------------------------------------------------------------------------------------------------ buffers


@by_dtype
@pytest.mark.parametrize("view", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("copy", [False, True], ids=["borrow", "copy"])
def test_every_dtype_and_shape_there_and_back(
    dtype: np.dtype[np.generic], view: Callable[[AnyArray], AnyArray], copy: bool, device: Device
) -> None:
    array = view(values(dtype))
    buffer = runtime.put(array, device, copy=copy)
    got = runtime.to_numpy(buffer)
    assert same(got, array)
    assert not got.flags.writeable
    assert buffer.aval == runtime.ArraySpec(array.shape, dtype)


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.complex128])
def test_foreign_byte_order_becomes_native(dtype: type[np.generic], device: Device) -> None:
    array = values(np.dtype(dtype))
    swapped = array.astype(np.dtype(dtype).newbyteorder())
    assert same(runtime.to_numpy(runtime.put(swapped, device)), array)


def test_a_big_array_there_and_back(device: Device) -> None:
    array = np.arange(3_000_000, dtype=np.int64).reshape(1000, 3000).T
    assert same(runtime.to_numpy(runtime.put(array, device)), array)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.zeros(2, [("float0", "V")])], ids=["str", "object", "float0"]
)
def test_dtypes_that_xla_lacks_are_refused(array: AnyArray, device: Device) -> None:
    with pytest.raises(TypeError, match="no element type"):
        runtime.put(array, device)


@by_dtype
def test_aligned_memory_is_borrowed_and_read_where_it_lies(dtype: np.dtype[np.generic], device: Device) -> None:
    array = aligned_empty((3, 4), dtype)
    array[...] = values(dtype)
    assert address(array) % ALIGNMENT == 0
    got = runtime.to_numpy(runtime.put(array, device))
    assert (address(got) == address(array)) is (dtype not in PACKED)
    assert address(runtime.to_numpy(runtime.put(array, device, copy=True))) != address(array)


def test_a_copied_array_may_be_written_to_again(device: Device) -> None:
    array = aligned_empty((1 << 20,), np.dtype(np.float32))
    array[...] = 1
    buffer = runtime.put(array, device, copy=True)
    array[...] = 2
    assert runtime.to_numpy(buffer).max() == 1


def test_borrowed_memory_lives_as_long_as_the_last_view(device: Device) -> None:
    class Owned(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
        """An array that can be weakly referred to by its own type."""

    array = aligned_empty((8,), np.dtype(np.float32)).view(Owned)
    array[...] = 3
    gone = weakref.ref(array)
    buffer = runtime.put(array, device)
    view = runtime.to_numpy(buffer)
    del array, buffer
    gc.collect()
    assert gone() is not None
    assert np.array_equal(view, np.full(8, 3, np.float32))
    del view
    gc.collect()
    runtime.to_numpy(runtime.put(np.zeros(1, np.float32), device))  # jaxlib drops references at its next call
    assert gone() is None


def test_reading_a_deleted_buffer(device: Device) -> None:
    for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.int4)):
        buffer = runtime.put(values(dtype), device)
        assert runtime.is_ready(buffer)
        assert not runtime.is_deleted(buffer)
        runtime.delete(buffer)
        assert runtime.is_deleted(buffer)
        for read in (runtime.to_numpy, runtime.block_until_ready, runtime.is_ready, runtime.to_dlpack):
            with pytest.raises(runtime.DeletedBufferError, match=dtype.name):
                read(buffer)


def test_a_view_outlives_the_deletion_of_its_buffer(device: Device) -> None:
    buffer = runtime.put(np.arange(8, dtype=np.float32), device, copy=True)
    view = runtime.to_numpy(buffer)
    runtime.delete(buffer)
    others = [runtime.put(np.full(8, 7, np.float32), device, copy=True) for _ in range(100)]
    assert np.array_equal(view, np.arange(8, dtype=np.float32))
    assert len(others) == 100


# ------------------------------------------------------------------------------------------------ DLPack


class Exporter:
    """Another library's array: DLPack and nothing else."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __dlpack__(self, **_: object) -> CapsuleType:
        return runtime.to_dlpack(self.buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@by_dtype
def test_dlpack_shares_memory_both_ways(dtype: np.dtype[np.generic], device: Device) -> None:
    buffer = runtime.put(values(dtype), device)
    if dtype in PACKED:
        with pytest.raises(BufferError, match=dtype.name):
            runtime.to_dlpack(buffer)
        return
    again = runtime.from_dlpack(Exporter(buffer), device, copy=False)
    assert same(runtime.to_numpy(again), values(dtype))
    assert address(runtime.to_numpy(again)) == address(runtime.to_numpy(buffer))
    copied = runtime.from_dlpack(Exporter(buffer), device, copy=True)
    assert same(runtime.to_numpy(copied), values(dtype))
    assert address(runtime.to_numpy(copied)) != address(runtime.to_numpy(buffer))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.bool_, jnp.int32, jnp.float8_e4m3fn])
def test_arrays_of_jax_come_in(dtype: type[np.generic], device: Device) -> None:
    theirs = jnp.arange(6).reshape(2, 3).astype(dtype)
    assert same(runtime.to_numpy(runtime.from_dlpack(cast(runtime.SupportsDLPack, theirs), device)), np.asarray(theirs))


def test_a_read_only_array_of_numpy_comes_in(device: Device) -> None:
    array = aligned_empty((4,), np.dtype(np.float32))
    array[...] = 5
    array.flags.writeable = False
    assert address(runtime.to_numpy(runtime.from_dlpack(array, device, copy=False))) == address(array)


def test_sharing_that_would_need_a_copy_is_refused(device: Device) -> None:
    array = aligned_empty((5,), np.dtype(np.float32))
    array[...] = 5
    with pytest.raises(BufferError, match="64 bytes"):
        runtime.from_dlpack(array[1:], device, copy=False)
    assert same(runtime.to_numpy(runtime.from_dlpack(array[1:], device)), array[1:])


def test_a_capsule_is_read_once(device: Device) -> None:
    capsule = runtime.to_dlpack(runtime.put(np.zeros(3, np.float32), device))

    class Used:
        def __dlpack__(self) -> CapsuleType:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    runtime.from_dlpack(Used(), device)
    with pytest.raises(ValueError, match="consumed"):
        runtime.from_dlpack(Used(), device)


# ------------------------------------------------------------------------------------------------ building programs


@by_dtype
@pytest.mark.parametrize("view", SHAPES.values(), ids=SHAPES)
def test_a_constant_is_the_array_it_was_made_of(
    dtype: np.dtype[np.generic], view: Callable[[AnyArray], AnyArray], device: Device
) -> None:
    array = view(values(dtype))
    kind = runtime.tensor_type(array.shape, dtype)
    module = runtime.new_module("constant")
    with runtime.lowering():
        block = runtime.function(module, "main", [], [kind])
        with ir.InsertionPoint(block):
            constant = runtime.create("stablehlo.constant", [kind], [], {"value": runtime.dense(array)})
            runtime.create("func.return", [], [constant.result])
    runtime.verify(module)
    executable = runtime.compile_module(module, device=device)
    assert executable.results == (runtime.ArraySpec(array.shape, dtype),)
    assert same(runtime.to_numpy(executable.execute([])[0]), array)


@by_dtype
def test_a_type_says_its_dtype(dtype: np.dtype[np.generic]) -> None:
    assert runtime.spec_of(runtime.tensor_type((2, 0), dtype)) == runtime.ArraySpec((2, 0), dtype)


def test_a_scalar_becomes_a_splat_of_a_shape() -> None:
    assert str(runtime.dense(np.array(2, ">i4"), (1000, 1000))) == "dense<2> : tensor<1000x1000xi32>"
    assert str(runtime.dense(np.broadcast_to(np.uint8(2), (9, 9)))) == "dense<2> : tensor<9x9xui8>"
    with pytest.raises(ValueError, match="one element"):
        runtime.dense(np.arange(2), (2, 2))


def test_attributes_read_as_they_should() -> None:
    assert str(runtime.integer_attr(3)) == "3 : i64"
    assert str(runtime.integer_attr(0, 32)) == "0 : i32"
    assert str(runtime.float_attr(1.5, np.dtype(np.float32))) == "1.500000e+00 : f32"
    assert str(runtime.bool_attr(True)) == "true"
    assert str(runtime.i64_array_attr((1, 0))) == "array<i64: 1, 0>"
    assert str(runtime.i64_array_attr(())) == "array<i64>"
    assert str(runtime.bool_array_attr((True, False))) == "array<i1: true, false>"
    assert str(runtime.symbol_attr("f")) == "@f"
    both = runtime.array_attr([runtime.string_attr("a"), runtime.dict_attr({"b": runtime.integer_attr(1)})])
    assert str(both) == '["a", {b = 1 : i64}]'
    less = runtime.attribute("#stablehlo<comparison_direction LT>")
    assert runtime.hlo.ComparisonDirectionAttr(less).value == "LT"
    with pytest.raises(runtime.InvalidModuleError, match="LESS"):
        runtime.attribute("#stablehlo<comparison_direction LESS>")


def test_a_module_prints_and_parses() -> None:
    kind = runtime.tensor_type((2,), np.dtype(np.float32))
    module = runtime.new_module("m")
    with runtime.lowering():
        block = runtime.function(module, "main", [kind], [kind], argument_attributes=[{"x.y": runtime.bool_attr(True)}])
        with ir.InsertionPoint(block):
            runtime.create("func.return", [], list(block.arguments))
    text = runtime.module_text(module)
    assert "x.y = true" in text
    assert runtime.module_text(runtime.parse_module(text)) == text
    assert "loc(" not in text
    assert "loc(" in runtime.module_text(module, locations=True)


def test_operations_stand_where_they_are_put_and_say_where_they_come_from() -> None:
    kind = runtime.tensor_type((), np.dtype(np.float32))
    module = runtime.new_module("m")
    with runtime.lowering():
        block = runtime.function(module, "main", [kind], [kind], public=False)
        with runtime.at_end(block):
            with runtime.location("scope/negate", "model.py", 7):
                negated = runtime.create("stablehlo.negate", [kind], [block.arguments[0]])
            with runtime.location("sum", None, 0):
                total = runtime.create("stablehlo.add", [kind], [negated.result, negated.result])
            runtime.create("func.return", [], [total.result])
    runtime.verify(module)
    text = runtime.module_text(module, locations=True)
    assert 'loc("model.py":7:0)' in text
    assert 'loc("scope/negate"(' in text
    assert 'loc("sum")' in text
    assert "func.func private @main" in text


def test_a_wrong_module_is_refused() -> None:
    with pytest.raises(runtime.InvalidModuleError, match="nonsense"):
        runtime.parse_module("nonsense")
    module = runtime.new_module("m")
    kinds = [runtime.tensor_type((size,), np.dtype(np.float32)) for size in (2, 3)]
    with runtime.lowering():
        block = runtime.function(module, "main", kinds, kinds[:1])
        with ir.InsertionPoint(block):
            total = runtime.create("stablehlo.add", kinds[:1], list(block.arguments))
            runtime.create("func.return", [], [total.result])
    with pytest.raises(runtime.InvalidModuleError, match="stablehlo.add"):
        runtime.verify(module)


# ------------------------------------------------------------------------------------------------ executables


def test_an_executable_knows_itself(device: Device) -> None:
    executable = doubling(device)
    spec = runtime.ArraySpec((8,), np.dtype(np.float32))
    assert executable.parameters == executable.results == (spec,)
    assert executable.device is device
    assert "f32[8]" in executable.hlo_text()
    costs = executable.cost_analysis()
    assert costs["flops"] == 8
    assert costs["bytes accessed"] == 64
    memory = executable.memory_analysis()
    assert (memory.argument_bytes, memory.output_bytes, memory.alias_bytes) == (32, 32, 0)
    assert min(memory.temp_bytes, memory.generated_code_bytes) >= 0
    assert executable.fingerprint == doubling(device).fingerprint is not None


def test_several_results_and_none(device: Device) -> None:
    executable = compiled(
        """func.func public @main(%a: tensor<2xf32>, %b: tensor<i32>) -> (tensor<i32>, tensor<2xf32>) {
            return %b, %a : tensor<i32>, tensor<2xf32>
        }""",
        device,
    )
    a, b = np.array([1, 2], np.float32), np.array(3, np.int32)
    got = [runtime.to_numpy(each) for each in executable.execute([runtime.put(a, device), runtime.put(b, device)])]
    assert same(got[0], b)
    assert same(got[1], a)
    assert compiled("func.func public @main() { return }", device).execute([]) == []


def test_a_serialized_executable_runs_again(device: Device) -> None:
    loaded = runtime.load_executable(doubling(device).serialize(), device)
    assert loaded.results == (runtime.ArraySpec((8,), np.dtype(np.float32)),)
    ones = runtime.put(np.ones(8, np.float32), device)
    assert same(runtime.to_numpy(loaded.execute([ones])[0]), np.full(8, 2, np.float32))


def test_bytes_that_are_no_executable_are_refused(device: Device) -> None:
    data = doubling(device).serialize()
    with pytest.raises(runtime.LoadError, match="no serialized executable"):
        runtime.load_executable(b"something else", device)
    with pytest.raises(runtime.LoadError, match="jaxlib 0.0"):
        runtime.load_executable(data.replace(version("jaxlib").encode(), b"0.0.00"), device)
    with pytest.raises(runtime.LoadError, match="header"):
        runtime.load_executable(data[:40], device)
    with pytest.raises(runtime.LoadError):
        runtime.load_executable(data[: len(data) // 2], device)


@pytest.mark.parametrize("attributes", ["{tf.aliasing_output = 0 : i32}", "{jax.buffer_donor = true}"])
def test_a_donated_buffer_is_reused_and_gone(attributes: str, device: Device) -> None:
    executable = doubling(device, attributes)
    ones = np.ones(8, np.float32)
    buffer = runtime.put(ones, device, copy=True)
    where = address(runtime.to_numpy(buffer))
    (result,) = executable.execute([buffer])
    got = runtime.to_numpy(result)
    assert address(got) == where
    assert same(got, 2 * ones)
    assert runtime.is_deleted(buffer)
    assert executable.memory_analysis().alias_bytes == 32
    with pytest.raises(runtime.ExecutionError, match="deleted or donated"):
        executable.execute([buffer])


@pytest.mark.parametrize("attributes", ["{tf.aliasing_output = 0 : i32}", "{jax.buffer_donor = true}"])
def test_donation_writes_to_nobody_elses_memory(attributes: str, device: Device) -> None:
    executable = doubling(device, attributes)
    array = aligned_empty((8,), np.dtype(np.float32))
    array[...] = 1
    (result,) = executable.execute([runtime.put(array, device)])
    assert np.array_equal(runtime.to_numpy(result), np.full(8, 2, np.float32))
    assert np.array_equal(array, np.ones(8, np.float32))
    viewed = runtime.put(array, device, copy=True)
    view = runtime.to_numpy(viewed)
    (result,) = executable.execute([viewed])
    assert np.array_equal(runtime.to_numpy(result), np.full(8, 2, np.float32))
    assert np.array_equal(view, np.ones(8, np.float32))


def test_a_program_that_xla_refuses(device: Device) -> None:
    text = """func.func public @main(%a: tensor<f32>) -> tensor<f32> {
        %r = stablehlo.custom_call @nobody_registered_this(%a) {api_version = 4 : i32} : (tensor<f32>) -> tensor<f32>
        return %r : tensor<f32>
    }"""
    with pytest.raises(runtime.CompilationError, match="nobody_registered_this"):
        compiled(text, device)
    with pytest.raises(runtime.InvalidModuleError, match="main"):
        compiled("func.func public @other() { return }", device)
    with pytest.raises(TypeError, match="token"):
        compiled("func.func public @main(%a: !stablehlo.token) { return }", device)


def test_compiler_options(device: Device) -> None:
    module = runtime.parse_module("func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }")
    for good in ({"xla_cpu_enable_fast_math": True}, {"optimization_level": 1}, {"memory_fitting_effort": 0.5}):
        runtime.compile_module(module, device=device, compiler_options=good)
    for bad in ({"no_such_option": 1}, {"optimization_level": "much"}):
        with pytest.raises(runtime.CompilationError, match=next(iter(bad))):
            runtime.compile_module(module, device=device, compiler_options=bad)


def test_wrong_arguments_are_refused(device: Device) -> None:
    executable = doubling(device)
    with pytest.raises(runtime.ExecutionError, match="0 arguments"):
        executable.execute([])
    with pytest.raises(runtime.ExecutionError, match="incompatible size"):
        executable.execute([runtime.put(np.ones(3, np.float32), device)])


CALLBACK = """func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
        {api_version = 4 : i32, has_side_effect = true, backend_config = {index = 0 : ui64}}
        : (tensor<f32>) -> tensor<f32>
    return %r : tensor<f32>
}"""


def fail(*_: object) -> tuple[object, ...]:
    raise ValueError("the callback's own words")


def test_an_error_while_a_program_is_enqueued_is_raised_there(device: Device) -> None:
    executable = runtime.compile_module(runtime.parse_module(CALLBACK), device=device, host_callbacks=[fail])
    with pytest.raises(runtime.ExecutionError, match="the callback's own words"):
        executable.execute([runtime.put(np.array(1, np.float32), device)])


def test_a_later_error_is_raised_by_whoever_waits(device: Device) -> None:
    kind = "tensor<1000x1000xf32>"
    slow = compiled(
        f"""func.func public @main(%a: {kind}) -> {kind} {{
            %r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}
            return %r : {kind}
        }}""",
        device,
    )
    failing = runtime.compile_module(
        runtime.parse_module(
            f"""func.func public @main(%a: {kind}) -> ({kind}, {kind}) {{
                %b = stablehlo.negate %a : {kind}
                %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%b)
                    {{api_version = 4 : i32, has_side_effect = true, backend_config = {{index = 0 : ui64}}}}
                    : ({kind}) -> {kind}
                return %b, %r : {kind}, {kind}
            }}"""
        ),
        device=device,
        host_callbacks=[fail],
    )
    negating = compiled(
        f"func.func public @main(%a: {kind}) -> {kind} {{ %r = stablehlo.negate %a : {kind} return %r : {kind} }}",
        device,
    )
    start = runtime.put(np.ones((1000, 1000), np.float32), device)

    def enqueue() -> list[Buffer]:
        # XLA enqueues a program only while an argument is still being computed. Should this thread be kept from
        # running for that long, the product is done, the program runs at once, and it is tried again.
        for _ in range(50):
            try:
                return failing.execute(slow.execute([start]))
            except runtime.ExecutionError:
                continue
        raise AssertionError("no program was ever enqueued")

    results = enqueue()
    dependent = negating.execute(results[:1])
    for result in (*results, *dependent):
        for wait in (runtime.to_numpy, runtime.block_until_ready, runtime.to_dlpack, runtime.to_numpy):
            with pytest.raises(runtime.ExecutionError, match="the callback's own words"):
                wait(result)
        assert runtime.is_ready(result)
        assert not runtime.is_deleted(result)


def test_a_host_callback_is_called(device: Device) -> None:
    executable = runtime.compile_module(
        runtime.parse_module(CALLBACK), device=device, host_callbacks=[lambda a: (np.asarray(a) + 1,)]
    )
    (result,) = executable.execute([runtime.put(np.array(1, np.float32), device)])
    assert runtime.to_numpy(result) == 2


def test_lapack_kernels_are_registered(device: Device) -> None:
    target = runtime.lapack_kernel("potrf_ffi", np.dtype(np.float64))
    text = f"""func.func public @main(%a: tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<i32>) {{
        %r:2 = stablehlo.custom_call @{target}(%a) {{api_version = 4 : i32, backend_config = {{uplo = 76 : ui8}},
            operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
            result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}}
            : (tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<i32>)
        return %r#0, %r#1 : tensor<2x2xf64>, tensor<i32>
    }}"""
    array = np.array([[4.0, 2.0], [2.0, 5.0]])
    factor = runtime.to_numpy(compiled(text, device).execute([runtime.put(array, device)])[0])
    assert np.array_equal(np.tril(factor), np.array([[2.0, 0.0], [1.0, 2.0]]))


# ------------------------------------------------------------------------------------------------ threads


def test_eight_threads_run_one_executable(device: Device) -> None:
    executable = doubling(device)

    def work(seed: int) -> bool:
        for step in range(200):
            array = np.full(8, seed * 1000 + step, np.float32)
            if not same(runtime.to_numpy(executable.execute([runtime.put(array, device)])[0]), array + array):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_eight_threads_build_and_compile(device: Device) -> None:
    def work(seed: int) -> float:
        kind = runtime.tensor_type((seed + 1,), np.dtype(np.float32))
        module = runtime.new_module(f"m{seed}")
        with runtime.lowering():
            block = runtime.function(module, "main", [kind], [kind])
            with ir.InsertionPoint(block):
                value = block.arguments[0]
                step = runtime.dense(np.array(seed, np.float32), (seed + 1,))
                for _ in range(50):
                    constant = runtime.create("stablehlo.constant", [kind], [], {"value": step})
                    value = runtime.create("stablehlo.add", [kind], [value, constant.result]).result
                runtime.create("func.return", [], [value])
        runtime.verify(module)
        executable = runtime.compile_module(module, device=device)
        (result,) = executable.execute([runtime.put(np.zeros(seed + 1, np.float32), device)])
        return float(runtime.to_numpy(result).sum())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [50.0 * seed * (seed + 1) for seed in range(16)]


# ------------------------------------------------------------------------------------------------ other processes


def run_alone(code: str, **environment: str) -> str:
    """What a fresh process prints in which importing jax raises."""
    refuse = """
        import sys
        class RefuseJax:
            def find_spec(self, name, path=None, target=None):
                if name == "jax" or name.startswith("jax."):
                    tried.append(name)
                    raise ImportError(name)
        tried = []
        sys.meta_path.insert(0, RefuseJax())
    """
    source = textwrap.dedent(refuse) + textwrap.dedent(code)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_jax_is_never_imported(device: Device) -> None:
    code = """
        import ml_dtypes
        import numpy as np
        from tracefx.xla import runtime
        device = runtime.devices()[0]
        module = runtime.parse_module(
            "func.func public @main(%a: tensor<2xf32> {jax.buffer_donor = true}) -> tensor<2xf32> {"
            "  %r = stablehlo.add %a, %a : tensor<2xf32> return %r : tensor<2xf32> }"
        )
        executable = runtime.compile_module(module, device=device)
        executable = runtime.load_executable(executable.serialize(), device)
        for dtype in (np.float32, np.complex64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4):
            buffer = runtime.put(np.ones(2, dtype), device)
            runtime.block_until_ready(buffer), runtime.is_ready(buffer), repr(runtime.to_numpy(buffer))
            if dtype is not ml_dtypes.int4:
                runtime.from_dlpack(runtime.to_numpy(buffer), device, copy=True)
        (result,) = executable.execute([runtime.put(np.ones(2, np.float32), device)])
        total = runtime.to_numpy(result).sum()
        executable.hlo_text(), executable.cost_analysis(), executable.memory_analysis(), executable.fingerprint
        runtime.lapack_kernel("potrf_ffi", np.dtype(np.float32))
        runtime.delete(result)
        try:
            runtime.to_numpy(result)
        except runtime.DeletedBufferError:
            pass
        print(total, tried, "jax" in sys.modules)
    """
    assert run_alone(code) == "4.0 [] False\n"


def test_the_number_of_host_devices_is_xlas_flag_and_nothing_is_logged() -> None:
    code = """
        import ml_dtypes
        import numpy as np
        from tracefx.xla import runtime
        last = runtime.devices()[-1]
        text = "func.func public @main(%a: tensor<ui4>) -> tensor<ui4> { return %a : tensor<ui4> }"
        executable = runtime.compile_module(runtime.parse_module(text), device=last)
        (result,) = executable.execute([runtime.put(np.array(3, ml_dtypes.uint4), last)])
        print(len(runtime.devices()), last.id, runtime.to_numpy(result), "jax" in sys.modules)
    """
    assert run_alone(code, XLA_FLAGS="--xla_force_host_platform_device_count=3") == "3 2 3 False\n"


def test_an_executable_is_loaded_in_another_process(device: Device) -> None:
    code = """
        import numpy as np
        from tracefx.xla import runtime
        device = runtime.devices()[0]
        executable = runtime.load_executable(bytes.fromhex(sys.argv[1] if len(sys.argv) > 1 else DATA), device)
        print(runtime.to_numpy(executable.execute([runtime.put(np.ones(8, np.float32), device)])[0])[0])
    """
    data = doubling(device).serialize().hex()
    assert run_alone(f"DATA = {data!r}\n" + textwrap.dedent(code)) == "2.0\n"
