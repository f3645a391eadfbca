"""Programs lowered for GPUs call the same kernels as JAX's, with the same types, layouts and attributes.

Lowering needs no GPU: both libraries lower for the platform, and their custom calls are compared.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import jax
import numpy as np
import pytest
from attrs import field, frozen
from jax.lax import linalg as jax_linalg
from typing_extensions import override

import tracefx as fx
from tests.comparison import JAX_TOLERANCE, assert_near
from tests.laws.examples import sampled
from tracefx.core import NDArray
from tracefx.lax import linalg
from tracefx.ops.linalg.eigen import unpack_eigenvectors
from tracefx.xla.emitter import Emitter
from tracefx.xla.runtime import bindings, buffers, callbacks, executables, gpu_kernels, mlir, platforms

REAL: Final = ("float32", "float64")
ALL: Final = (*REAL, "complex64", "complex128")
GPUS: Final = ("cuda", "rocm")

# ------------------------------------------------------------------ the custom calls of a program


def calls_of(text: str) -> list[tuple[str, str, Mapping[str, str]]]:
    """Returns the target, types and attributes of each custom call, without its sharding rule."""
    found = []
    for line in text.splitlines():
        match = re.search(r"stablehlo\.custom_call @(\w+)\([^)]*\) \{(.*)\} : (.*?)(?: loc\(.*)?$", line)
        if match:
            attributes = dict(_attributes(match[2]))
            attributes["backend_config"] = attributes.pop("mhlo.backend_config", attributes.get("backend_config", "{}"))
            for name in ("api_version", "mhlo.frontend_attributes", "sdy.sharding_rule"):
                attributes.pop(name, None)
            found.append((match[1], match[3], attributes))
    return sorted(found, key=lambda call: (call[0], call[1], sorted(call[2].items())))


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Yields the names and values of an MLIR attribute dictionary, split at top-level commas."""
    depth, start = 0, 0
    for i, character in enumerate(text + ","):
        if character in "[{<(":
            depth += 1
        elif character in "]})" or (character == ">" and text[i - 1] != "-"):
            depth -= 1
        elif character == "," and not depth:
            name, _, value = text[start:i].partition(" = ")
            yield name.strip(), value
            start = i + 1


def tracefx_text(f: Callable[..., Any], args: Sequence[Any], platform: str) -> str:
    given = [fx.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    return fx.export(fx.jit(f), platforms=[platform])(*given).mlir_module()


def jax_text(f: Callable[..., Any], args: Sequence[Any], platform: str) -> str:
    with jax.enable_x64(True):
        return str(jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text())


# ------------------------------------------------------------------ linear algebra


@final
@frozen
class Case:
    name: str
    shapes: tuple[tuple[int, ...], ...]
    keywords: Mapping[str, Any] = field(factory=dict)
    dtypes: tuple[str, ...] = ALL
    platforms: tuple[str, ...] = GPUS

    @override
    def __str__(self) -> str:
        options = [f"{k}={getattr(v, 'name', v)}" for k, v in self.keywords.items()]
        return f"{self.name}-{'-'.join(['x'.join(map(str, s)) for s in self.shapes])}-{','.join(options)}"


def case(name: str, *shapes: tuple[int, ...], **keywords: Any) -> Case:
    return Case(name, shapes, keywords)


CASES: Final = (
    *[case("lu", shape) for shape in ((4, 4), (3, 5), (2, 5, 3), (2, 3, 4, 4))],
    *[Case("lu_pivots_to_permutation", (shape,), {"permutation_size": 6}, ("int32",)) for shape in ((3,), (2, 2, 6))],
    *[case("qr", shape, full_matrices=full) for shape in ((5, 3), (3, 5), (2, 4, 4)) for full in (True, False)],
    *[case("qr", (2, 5, 3), pivoting=True, use_magma=magma) for magma in (None, True, False)],
    *[case("householder_product", (*stack, 5, 3), (*stack, 2)) for stack in ((), (2,))],
    *[case("ormqr", (5, 3), (3,), (5, 4), left=True, transpose=turned) for turned in (True, False)],
    case("ormqr", (2, 5, 3), (2, 3), (2, 4, 5), left=False),
    *[case("eigh", shape, lower=lower) for shape in ((4, 4), (2, 3, 3)) for lower in (True, False)],
    *[case("eigh", (4, 4), implementation=each) for each in ("QR", "JACOBI")],
    *[
        case("eig", (2, 4, 4), compute_left_eigenvectors=left, compute_right_eigenvectors=right)
        for left in (True, False)
        for right in (True, False)
    ],
    *[case("eig", (4, 4), implementation=each) for each in ("MAGMA", "LAPACK")],
    *[
        case("svd", shape, full_matrices=full, compute_uv=vectors, algorithm=algorithm)
        for shape in ((3, 5), (2, 5, 3), (40, 50))
        for full, vectors in ((True, True), (False, True), (False, False))
        for algorithm in (None, "QR", "JACOBI", "POLAR")
    ],
    *[case("svd", shape, full_matrices=False) for shape in ((1200, 3), (2, 3, 1200))],
    Case("svd", ((3, 5),), {"algorithm": "DIVIDE_AND_CONQUER"}, platforms=("rocm",)),
    *[case("cholesky", shape) for shape in ((4, 4), (2, 3, 3))],
    Case("cholesky_update", ((4, 4), (4,)), {}, REAL, platforms=("cuda",)),
    *[case("tridiagonal", shape, lower=lower) for shape in ((4, 4), (2, 3, 3)) for lower in (True, False)],
    *[
        case("tridiagonal_solve", *[(*stack, n)] * 3, (*stack, n, 2), perturb_singular=perturbed)
        for stack in ((), (3,))
        for n, perturbed in ((5, False), (2, True), (2, False))
    ],
    *[case("triangular_solve", (2, 4, 4), (2, 4, 3), left_side=True, transpose_a=turned) for turned in (True, False)],
)


def in_library(keywords: Mapping[str, Any], library: Any) -> dict[str, Any]:
    """Converts names of implementations to the enum members of a library."""
    kinds = {"eig": library.EigImplementation, "eigh": library.EighImplementation, "svd": library.SvdAlgorithm}
    members = {**kinds["eig"].__members__, **kinds["eigh"].__members__}
    return {
        k: (kinds["svd"] if k == "algorithm" else members)[v] if isinstance(v, str) else v for k, v in keywords.items()
    }


def programs_of(case: Case, dtype: str, platform: str) -> tuple[str, str]:
    """Returns the program lowered for a GPU by tracefx and by JAX."""
    with jax.enable_x64(True):
        args = [jax.ShapeDtypeStruct(shape, dtype) for shape in case.shapes]
    f, g = [
        functools.partial(getattr(library, case.name), **in_library(case.keywords, library))
        for library in (linalg, jax_linalg)
    ]
    return tracefx_text(f, args, platform), jax_text(g, args, platform)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_linear_algebra_calls_the_kernels_of_jax(case: Case) -> None:
    # Every dtype once, with alternating platforms: the two affect a call independently.
    for i, dtype in sampled(enumerate(case.dtypes), 3):
        text, jax_text_of_case = programs_of(case, dtype, case.platforms[i % len(case.platforms)])
        assert calls_of(text) == calls_of(jax_text_of_case)


def sharding_rules_of(text: str) -> list[tuple[str, str, str]]:
    """Returns the sharding rule of each batched custom call: target, number of batch axes, and equal sizes."""
    found = []
    for line in text.splitlines():
        match = re.search(
            r"custom_call @(\w+)\(.*num_batch_dims = \"(\d+)\".*#sdy.op_sharding_rule<(.*?), custom>", line
        )
        if match and match[2] != "0":
            found.append((match[1], match[2], match[3]))
    return sorted(found)


@pytest.mark.parametrize("name", ["lu", "qr", "eigh", "svd", "cholesky", "tridiagonal"])
def test_sharding_rules_of_batched_calls_match_jax(name: str) -> None:
    _, jax_text_of_case = programs_of(case(name, (6, 5, 5)), "float32", "cuda")
    jaxpr = fx.make_jaxpr(getattr(linalg, name))(np.ones((6, 5, 5), np.float32)).jaxpr
    emitter = Emitter(mlir.new_module("batch"), "cuda", platforms.devices()[:1] * 2)
    emitter.function("main", jaxpr)
    assert sharding_rules_of(jax_text_of_case)
    assert sharding_rules_of(str(emitter.module)) == sharding_rules_of(jax_text_of_case)


# ------------------------------------------------------------------ postprocessing of kernel results

MADE: Final = (
    *[case("lu", shape) for shape in ((3, 5), (3, 3, 3))],
    *[case("qr", (2, 5, 3), full_matrices=full) for full in (True, False)],
    case("qr", (3, 5), pivoting=True),
    case("eigh", (2, 3, 3), lower=False),
    case("eig", (2, 3, 3)),
    *[
        case("svd", shape, full_matrices=full, algorithm=algorithm)
        for shape in ((2, 5, 3), (40, 50))
        for full, algorithm in ((True, None), (False, None), (False, "QR"), (False, "POLAR"))
    ],
    case("svd", (2, 3, 5), compute_uv=False),
    case("cholesky", (2, 3, 3)),
    case("tridiagonal", (2, 3, 3)),
    case("tridiagonal_solve", (4,), (4,), (4,), (4, 2)),
)


def fake_kernel(target: str, outs: Sequence[bindings.ArraySpec], *arrays: NDArray) -> list[NDArray]:
    """A fake kernel: returns numbers that depend only on the operands, and reports that some matrices failed."""
    rng = np.random.default_rng(zlib.crc32(b"".join([target.encode(), *[x.tobytes() for x in arrays]])))
    found: list[NDArray] = []
    for out in outs:
        numbers = rng.integers(1, 1000, (2, *out.shape))
        if out.dtype.kind == "c":
            found.append((numbers[0] + 1j * numbers[1]).astype(out.dtype))
        else:
            found.append(numbers[0].astype(out.dtype))
    if len(outs) > 1 and outs[-1].shape == outs[0].shape[:-2]:  # the status of each matrix
        found[-1] = (np.arange(found[-1].size).reshape(found[-1].shape) % 3 - 1).astype(np.int32)
        if not found[-1].shape:
            found[-1] = np.zeros_like(found[-1])
    return found


def run_here(text: str, args: Sequence[NDArray]) -> list[NDArray]:
    """Runs a program for a GPU on the CPU, with fake kernels."""
    functions: list[Any] = []

    def calling(match: re.Match[str]) -> str:
        results = match[4].removeprefix("(").removesuffix(")").split(", ")
        functions.append(functools.partial(fake_kernel, match[1], list(map(spec, results))))
        return (
            f"stablehlo.custom_call @{callbacks.host_call_target('cpu')}({match[2]}) {{api_version = 4 : i32, "
            f"backend_config = {{index = {len(functions) - 1} : ui64}}}} : {match[3]} -> {match[4]}"
        )

    cpu_text = re.sub(
        r"stablehlo\.custom_call @(\w+)\(([^)]*)\) \{.*\} : (\(.*?\)) -> (.*?)$", calling, text, flags=re.MULTILINE
    )
    assert functions
    with mlir.unknown_location():
        module = mlir.parse_module(cpu_text)
    device = platforms.devices()[0]
    program = executables.compile_host_calling_module(module, functions, device=device)
    return [
        buffers.buffer_to_numpy(out) for out in program.execute([buffers.buffer_from_numpy(x, device) for x in args])
    ]


def spec(tensor: str) -> bindings.ArraySpec:
    """Parses an MLIR type such as `tensor<2x3xcomplex<f32>>`."""
    *shape, element = (
        tensor.removeprefix("tensor<").removesuffix(">").split("x", tensor.count("x") - ("complex" in tensor))
    )
    dtypes = {"f32": "f4", "f64": "f8", "complex<f32>": "c8", "complex<f64>": "c16", "i32": "i4"}
    return bindings.ArraySpec(tuple(map(int, shape)), np.dtype(dtypes[element]))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    real, imaginary = rng.normal(size=(2, *shape))
    return np.asarray(real + 1j * imaginary if np.dtype(dtype).kind == "c" else real).astype(dtype)


@pytest.mark.parametrize("case", MADE, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_postprocessing_of_kernel_results_matches_jax(case: Case, dtype: str) -> None:
    rng = np.random.default_rng(1)
    given = [numbers(rng, shape, dtype) for shape in case.shapes]
    got, want = [run_here(text, given) for text in programs_of(case, dtype, "cuda")]
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


# ------------------------------------------------------------------ computations without kernels


@pytest.mark.parametrize("dtype", REAL)
def test_eigenvectors_in_conjugate_pairs_are_unpacked(dtype: str) -> None:
    rng = np.random.default_rng(0)
    found = [np.linalg.eig(rng.normal(size=(7, 7)).astype(dtype)) for _ in range(3)]
    values, vectors = [np.stack(list(map(np.asarray, parts))) for parts in zip(*found, strict=True)]
    assert (values.imag > 0).any()
    assert (values.imag == 0).any()
    # As returned by LAPACK and cuSOLVER: a conjugate pair takes two columns, the real and then the imaginary part.
    packed = np.where(values.imag[:, None, :] < 0, -vectors.imag, vectors.real)
    with fx.enable_x64():
        np.testing.assert_array_equal(unpack_eigenvectors(fx.numpy.asarray(values), fx.numpy.asarray(packed)), vectors)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("n", [1, 2])
def test_small_tridiagonal_systems_are_solved_without_a_kernel(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    dl, d, du, b = [numbers(rng, shape, dtype) for shape in (*[(4, n)] * 3, (4, n, 3))]
    if n == 2:
        d[0, 0] = 0  # elimination needs to exchange rows
    with fx.enable_x64():
        exported = fx.export(fx.jit(linalg.tridiagonal_solve), platforms=["cuda"])(dl, d, du, b)
        assert "custom_call" not in exported.mlir_module()
        want = linalg.tridiagonal_solve(dl, d, du, b)
    with jax.enable_x64(True):
        got = dataclasses.replace(jax.export.deserialize(bytearray(exported.to_jax())), platforms=("cpu",)).call(
            *map(jax.numpy.asarray, (dl, d, du, b))
        )
    assert_near(got, want, JAX_TOLERANCE)


@pytest.mark.parametrize(
    ("name", "platform"), [("schur", "cuda"), ("hessenberg", "cuda"), ("qr", "tpu"), ("svd", "tpu")]
)
def test_missing_kernel_raises(name: str, platform: str) -> None:
    x = np.ones((3, 3), np.float32)
    with pytest.raises(NotImplementedError, match=f"calls LAPACK.*can't be compiled for '{platform}'"):
        fx.export(fx.jit(getattr(linalg, name)), platforms=[platform])(x)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: linalg.eigh(x, implementation=linalg.EighImplementation.QDWH), "QDWH is not supported on GPUs"),
        (
            lambda x: linalg.eig(x, implementation=linalg.EigImplementation.CUSOLVER),
            "cuSOLVER does not compute left eigenvectors",
        ),
        (
            lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.DIVIDE_AND_CONQUER),
            "DIVIDE_AND_CONQUER is not supported on",
        ),
    ],
)
def test_implementation_unsupported_on_gpus_raises(f: Callable[..., Any], message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        fx.export(fx.jit(f), platforms=["cuda"])(np.ones((3, 3), np.float32))


@pytest.mark.parametrize("named", [True, False])
def test_cusolver_computes_eigenvalues_if_requested_or_available(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernels, "is_kernel_available", lambda target: target == "cusolver_geev_ffi")
    implementation = linalg.EigImplementation.CUSOLVER if named else None

    def f(x: Any) -> Any:
        return linalg.eig(x, compute_left_eigenvectors=False, implementation=implementation)

    if not named:
        ((target, *_),) = calls_of(tracefx_text(f, [np.ones((2, 3, 3), np.float32)], "rocm"))
        assert target == "hiphybrid_eig_real"
    ((target, types, attributes),) = calls_of(tracefx_text(f, [np.ones((2, 3, 3), np.float32)], "cuda"))
    assert target == "cusolver_geev_ffi"
    real, whole, info = "tensor<2x3x3xf32>", "tensor<2x3xcomplex<f32>>", "tensor<2xi32>"
    assert types == f"({real}) -> ({real}, {whole}, {real}, {real}, {info})"
    assert attributes["backend_config"] == "{left = false, right = true}"


# ------------------------------------------------------------------ calls of Python functions


@pytest.mark.parametrize("platform", GPUS)
def test_callback_target_on_gpus(platform: str) -> None:
    assert callbacks.host_call_target(platform) == "xla_ffi_python_gpu_callback"
    with pytest.raises(NotImplementedError, match="programs for 'tpu' can't call Python functions"):
        callbacks.host_call_target("tpu")


def test_missing_plugin_has_no_kernels() -> None:
    with pytest.raises(ValueError, match="there are plug-ins with kernels for cuda, rocm, got 'tpu'"):
        gpu_kernels.plugin_kernels("tpu")
    assert gpu_kernels.is_gpu_kernel("cusolver_getrf_ffi")
    assert gpu_kernels.is_gpu_kernel("hipsparse_gtsv2_ffi")
    assert not gpu_kernels.is_gpu_kernel("lapack_sgetrf_ffi")
    assert gpu_kernels.is_hybrid_kernel("cuhybrid_geqp3")
    assert not gpu_kernels.is_hybrid_kernel("cusolver_getrf_ffi")


def test_program_records_kernels_that_run_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(gpu_kernels, "initialize_hybrid_kernels", lambda: prepared.append("there"))
    for name, calls in (("lu", False), ("eig", True)):
        emitter = Emitter(mlir.new_module(name), "cuda")
        emitter.function("main", fx.make_jaxpr(getattr(linalg, name))(np.ones((3, 3), np.float32)).jaxpr)
        lowered = emitter.lowered()
        assert lowered.calls_kernels is calls
        assert not lowered.calls_host
        assert bool(prepared) is calls
