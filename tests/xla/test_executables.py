"""The runtime: executables, donation, errors, threads, other processes, and no jax."""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import numpy as np
import pytest

from tests.errors import assert_errors
from tests.subprocesses import output_of, refusing, run_python
from tests.xla.samples import address, compiled, doubling, same
from tracefx.core.host_memory import aligned_empty
from tracefx.errors import CompilationError, ExecutionError
from tracefx.xla.runtime import bindings, buffers, executables, mlir
from tracefx.xla.runtime.bindings import Buffer, Device
from tracefx.xla.runtime.mlir import ir

pytestmark = pytest.mark.usefixtures("optimised")

# ------------------------------------------------------------------------------------------------ executables


def test_executable_properties(device: Device) -> None:
    executable = doubling(device)
    spec = bindings.ArraySpec((8,), np.dtype(np.float32))
    assert executable.parameters == executable.results == (spec,)
    assert executable.device is device
    assert "f32[8]" in executable.hlo_text()
    costs = executable.cost_analysis()
    assert costs["flops"] == 8
    assert costs["bytes accessed"] >= 64  # operands and results; more without XLA's optimizations
    memory = executable.memory_analysis()
    assert (memory.argument_bytes, memory.output_bytes, memory.alias_bytes) == (32, 32, 0)
    assert min(memory.temp_bytes, memory.generated_code_bytes) >= 0
    assert executable.fingerprint == doubling(device).fingerprint is not None


def test_several_results_and_no_results(device: Device) -> None:
    executable = compiled(
        """func.func public @main(%a: tensor<2xf32>, %b: tensor<i32>) -> (tensor<i32>, tensor<2xf32>) {
            return %b, %a : tensor<i32>, tensor<2xf32>
        }""",
        device,
    )
    a, b = np.array([1, 2], np.float32), np.array(3, np.int32)
    got = [
        buffers.buffer_to_numpy(each)
        for each in executable.execute([buffers.buffer_from_numpy(a, device), buffers.buffer_from_numpy(b, device)])
    ]
    assert same(got[0], b)
    assert same(got[1], a)
    assert compiled("func.func public @main() { return }", device).execute([]) == []


def test_serialized_executable_runs(device: Device) -> None:
    loaded = executables.load_executable(doubling(device).serialize(), device)
    assert loaded.results == (bindings.ArraySpec((8,), np.dtype(np.float32)),)
    ones = buffers.buffer_from_numpy(np.ones(8, np.float32), device)
    assert same(buffers.buffer_to_numpy(loaded.execute([ones])[0]), np.full(8, 2, np.float32))


def test_deserializing_invalid_bytes_raises(device: Device) -> None:
    data = doubling(device).serialize()
    with pytest.raises(bindings.LoadError, match="no serialized executable"):
        executables.load_executable(b"something else", device)
    installed = version("jaxlib").encode()  # the replacement has equal length: the header has a length prefix
    with pytest.raises(bindings.LoadError, match="jaxlib 000"):
        executables.load_executable(data.replace(installed, b"0" * len(installed)), device)
    with pytest.raises(bindings.LoadError, match="header"):
        executables.load_executable(data[:40], device)
    with pytest.raises(bindings.LoadError):
        executables.load_executable(data[: len(data) // 2], device)


@pytest.mark.parametrize("attributes", ["{tf.aliasing_output = 0 : i32}", "{jax.buffer_donor = true}"])
def test_donated_buffer_is_reused_and_deleted(attributes: str, device: Device) -> None:
    executable = doubling(device, attributes)
    ones = np.ones(8, np.float32)
    buffer = buffers.buffer_from_numpy(ones, device, copy=True)
    where = address(buffers.buffer_to_numpy(buffer))
    (result,) = executable.execute([buffer])
    got = buffers.buffer_to_numpy(result)
    assert address(got) == where
    assert same(got, 2 * ones)
    assert buffers.is_deleted(buffer)
    assert executable.memory_analysis().alias_bytes == 32
    with pytest.raises(ExecutionError, match="that was deleted or donated to a program"):
        executable.execute([buffer])


@pytest.mark.parametrize("attributes", ["{tf.aliasing_output = 0 : i32}", "{jax.buffer_donor = true}"])
def test_donation_does_not_write_to_borrowed_memory(attributes: str, device: Device) -> None:
    executable = doubling(device, attributes)
    array = aligned_empty((8,), np.dtype(np.float32))
    array[...] = 1
    (result,) = executable.execute([buffers.buffer_from_numpy(array, device)])
    assert np.array_equal(buffers.buffer_to_numpy(result), np.full(8, 2, np.float32))
    assert np.array_equal(array, np.ones(8, np.float32))
    viewed = buffers.buffer_from_numpy(array, device, copy=True)
    view = buffers.buffer_to_numpy(viewed)
    (result,) = executable.execute([viewed])
    assert np.array_equal(buffers.buffer_to_numpy(result), np.full(8, 2, np.float32))
    assert np.array_equal(view, np.ones(8, np.float32))


def test_compile_error(device: Device) -> None:
    text = """func.func public @main(%a: tensor<f32>) -> tensor<f32> {
        %r = stablehlo.custom_call @nobody_registered_this(%a) {api_version = 4 : i32} : (tensor<f32>) -> tensor<f32>
        return %r : tensor<f32>
    }"""
    assert_errors(
        (lambda: compiled(text, device), CompilationError, "nobody_registered_this"),
        (lambda: compiled("func.func public @other() { return }", device), bindings.InvalidModuleError, "main"),
        (lambda: compiled("func.func public @main(%a: !stablehlo.token) { return }", device), TypeError, "token"),
    )


def test_compiler_options(device: Device) -> None:
    module = mlir.parse_module("func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }")
    for good in ({"xla_cpu_enable_fast_math": True}, {"optimization_level": 1}, {"memory_fitting_level": 1}):
        executables.compile_module(module, device=device, compiler_options=good)
    for bad in ({"no_such_option": 1}, {"optimization_level": "much"}):
        with pytest.raises(CompilationError, match=next(iter(bad))):
            executables.compile_module(module, device=device, compiler_options=bad)


def test_wrong_arguments_raise(device: Device) -> None:
    executable = doubling(device)
    with pytest.raises(ExecutionError, match="0 arguments"):
        executable.execute([])
    with pytest.raises(ExecutionError, match="incompatible size"):
        executable.execute([buffers.buffer_from_numpy(np.ones(3, np.float32), device)])


CALLBACK = """func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a)
        {api_version = 4 : i32, has_side_effect = true, backend_config = {index = 0 : ui64}}
        : (tensor<f32>) -> tensor<f32>
    return %r : tensor<f32>
}"""


def fail(*_: object) -> tuple[object, ...]:
    raise ValueError("the callback's own words")


def test_error_at_enqueue_time_is_raised_by_the_call(device: Device) -> None:
    executable = executables.compile_module(mlir.parse_module(CALLBACK), device=device, host_callbacks=[fail])
    with pytest.raises(ExecutionError, match="the callback's own words"):
        executable.execute([buffers.buffer_from_numpy(np.array(1, np.float32), device)])


def test_asynchronous_error_is_raised_when_awaited(device: Device) -> None:
    kind = "tensor<1000x1000xf32>"
    slow = compiled(
        f"""func.func public @main(%a: {kind}) -> {kind} {{
            %r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}
            return %r : {kind}
        }}""",
        device,
    )
    failing = executables.compile_module(
        mlir.parse_module(
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
    start = buffers.buffer_from_numpy(np.ones((1000, 1000), np.float32), device)

    def enqueue() -> list[Buffer]:
        # XLA enqueues a program only while an argument is still being computed. If this thread does not run for that
        # long, the product is ready and the program runs immediately; then the test tries again.
        for _ in range(50):
            try:
                return failing.execute(slow.execute([start]))
            except ExecutionError:
                continue
        raise AssertionError("no program was ever enqueued")

    results = enqueue()
    dependent = negating.execute(results[:1])
    for result in (*results, *dependent):
        for wait in (buffers.buffer_to_numpy, buffers.block_until_ready, buffers.to_dlpack, buffers.buffer_to_numpy):
            with pytest.raises(ExecutionError, match="the callback's own words"):
                wait(result)
        assert buffers.is_ready(result)
        assert not buffers.is_deleted(result)
    for several in ([*dependent], [start, *results], [*results, start]):
        with pytest.raises(ExecutionError, match="the callback's own words"):
            buffers.block_until_all_ready(several)
    buffers.block_until_all_ready([start])


def test_host_callback(device: Device) -> None:
    executable = executables.compile_module(
        mlir.parse_module(CALLBACK), device=device, host_callbacks=[lambda a: (np.asarray(a) + 1,)]
    )
    (result,) = executable.execute([buffers.buffer_from_numpy(np.array(1, np.float32), device)])
    assert buffers.buffer_to_numpy(result) == 2


def test_lapack_kernels_are_registered(device: Device) -> None:
    target = executables.lapack_kernel("potrf_ffi", np.dtype(np.float64))
    text = f"""func.func public @main(%a: tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<i32>) {{
        %r:2 = stablehlo.custom_call @{target}(%a) {{api_version = 4 : i32, backend_config = {{uplo = 76 : ui8}},
            operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
            result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]}}
            : (tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<i32>)
        return %r#0, %r#1 : tensor<2x2xf64>, tensor<i32>
    }}"""
    array = np.array([[4.0, 2.0], [2.0, 5.0]])
    factor = buffers.buffer_to_numpy(compiled(text, device).execute([buffers.buffer_from_numpy(array, device)])[0])
    assert np.array_equal(np.tril(factor), np.array([[2.0, 0.0], [1.0, 2.0]]))


# ------------------------------------------------------------------------------------------------ threads


def test_eight_threads_run_one_executable(device: Device) -> None:
    executable = doubling(device)

    def work(seed: int) -> bool:
        for step in range(200):
            array = np.full(8, seed * 1000 + step, np.float32)
            if not same(
                buffers.buffer_to_numpy(executable.execute([buffers.buffer_from_numpy(array, device)])[0]),
                array + array,
            ):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_eight_threads_build_and_compile(device: Device) -> None:
    def work(seed: int) -> float:
        kind = mlir.tensor_type((seed + 1,), np.dtype(np.float32))
        module = mlir.new_module(f"m{seed}")
        with mlir.unknown_location():
            block = mlir.add_function(module, "main", [kind], [kind])
            with ir.InsertionPoint(block):
                value = block.arguments[0]
                step = mlir.dense_attr(np.array(seed, np.float32), (seed + 1,))
                for _ in range(50):
                    constant = mlir.create("stablehlo.constant", [kind], [], {"value": step})
                    value = mlir.create("stablehlo.add", [kind], [value, constant.result]).result
                mlir.create("func.return", [], [value])
        mlir.verify(module)
        executable = executables.compile_module(module, device=device)
        (result,) = executable.execute([buffers.buffer_from_numpy(np.zeros(seed + 1, np.float32), device)])
        return float(buffers.buffer_to_numpy(result).sum())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [50.0 * seed * (seed + 1) for seed in range(16)]


# ------------------------------------------------------------------------------------------------ other processes


def run_without_jax(code: str, **environment: str) -> str:
    """Runs code in a new process in which importing jax raises, and returns what it prints."""
    done = run_python("-c", refusing({"jax"}) + textwrap.dedent(code), **environment)
    return done.stdout + done.stderr


def test_jax_is_never_imported(device: Device) -> None:
    code = """
        import ml_dtypes
        import numpy as np
        from tracefx import errors
        from tracefx.xla.runtime import bindings, buffers, executables, mlir, platforms
        device = platforms.devices()[0]
        module = mlir.parse_module(
            "func.func public @main(%a: tensor<2xf32> {jax.buffer_donor = true}) -> tensor<2xf32> {"
            "  %r = stablehlo.add %a, %a : tensor<2xf32> return %r : tensor<2xf32> }"
        )
        executable = executables.compile_module(module, device=device)
        executable = executables.load_executable(executable.serialize(), device)
        for dtype in (np.float32, np.complex64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4):
            buffer = buffers.buffer_from_numpy(np.ones(2, dtype), device)
            buffers.block_until_ready(buffer), buffers.is_ready(buffer), repr(buffers.buffer_to_numpy(buffer))
            if dtype is not ml_dtypes.int4:
                buffers.from_dlpack(buffers.buffer_to_numpy(buffer), device, copy=True)
        (result,) = executable.execute([buffers.buffer_from_numpy(np.ones(2, np.float32), device)])
        total = buffers.buffer_to_numpy(result).sum()
        executable.hlo_text(), executable.cost_analysis(), executable.memory_analysis(), executable.fingerprint
        executables.lapack_kernel("potrf_ffi", np.dtype(np.float32))
        buffers.delete_buffer(result)
        try:
            buffers.buffer_to_numpy(result)
        except errors.DeletedArrayError:
            pass
        print(total, tried, "jax" in sys.modules)
    """
    assert run_without_jax(code) == "4.0 [] False\n"


def test_xla_flag_sets_the_number_of_host_devices_without_logging() -> None:
    code = """
        import ml_dtypes
        import numpy as np
        from tracefx.xla.runtime import bindings, buffers, executables, mlir, platforms
        last = platforms.devices()[-1]
        text = "func.func public @main(%a: tensor<ui4>) -> tensor<ui4> { return %a : tensor<ui4> }"
        executable = executables.compile_module(mlir.parse_module(text), device=last)
        (result,) = executable.execute([buffers.buffer_from_numpy(np.array(3, ml_dtypes.uint4), last)])
        print(len(platforms.devices()), last.id, buffers.buffer_to_numpy(result), "jax" in sys.modules)
    """
    assert run_without_jax(code, XLA_FLAGS="--xla_force_host_platform_device_count=3") == "3 2 3 False\n"


def test_executable_loads_in_another_process(device: Device) -> None:
    code = """
        import numpy as np
        from tracefx.xla.runtime import bindings, buffers, executables, mlir, platforms
        device = platforms.devices()[0]
        executable = executables.load_executable(bytes.fromhex(sys.argv[1] if len(sys.argv) > 1 else DATA), device)
        print(buffers.buffer_to_numpy(executable.execute([buffers.buffer_from_numpy(np.ones(8, np.float32),
        device)])[0])[0])
    """
    data = doubling(device).serialize().hex()
    assert run_without_jax(f"DATA = {data!r}\n" + textwrap.dedent(code)) == "2.0\n"


def test_asynchronous_executions_leave_no_memory_behind() -> None:
    """A loop that frees as much as it allocates never runs Python's garbage collector."""
    program = """
        import resource
        import numpy as np
        import tracefx as fx
        increment = fx.jit(lambda x: x + 1)
        def peak_after(x, steps):
            for _ in range(steps):
                x = increment(x)
            x.block_until_ready()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        x = increment(np.zeros(1000, np.float32))
        start = peak_after(x, 5_000)
        print(peak_after(x, 50_000) - start)
    """
    assert int(output_of(program)) < 1_000  # KiB; without `collect_garbage`, 5,000
