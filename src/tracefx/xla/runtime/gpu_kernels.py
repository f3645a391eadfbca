"""The kernels in GPU plug-ins: their names, and their registration with XLA.

The names are known without a plug-in, so programs for GPUs can be lowered and exported on hosts that have none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Final, Protocol, TypeAlias, cast, final

from attrs import frozen

from tracefx.jaxlib_support import import_jaxlib

_register_batch_partitionable: Final[Callable[[str, object], None]] = import_jaxlib(
    "jaxlib._jax"
).register_custom_call_as_batch_partitionable
_import_from_plugin: Final[Callable[[str, str], ModuleType | None]] = import_jaxlib(
    "jaxlib.plugin_support"
).import_from_plugin
_PREFIXES: Final[Mapping[str, str]] = MappingProxyType({"cuda": "cu", "rocm": "hip"})
_LIBRARIES: Final = ("_linalg", "_solver", "_sparse", "_hybrid", "_prng")
"""The modules of a plug-in that list kernels."""
_BATCH_PARTITIONABLE: Final = ("solver_", "hybrid_", "sparse_gtsv2_", "_lu_pivots_")
"""Name prefixes, after the platform's, of kernels on batches of matrices, which devices can split between them."""

_MIN_VERSIONS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"cusolver_geev_ffi": ("cusolver_get_version", 11701)}
)
"""Kernels that require a version of their library: the function that returns the version, and the lowest version."""

KernelHandler: TypeAlias = object
"""A capsule with the address of a function, or a dict of such capsules by stage of an execution."""


@final
@frozen(eq=False)
class GpuKernel:
    handler: KernelHandler
    api_version: int
    batch_partitionable: bool
    """Whether devices can compute parts of a batch independently."""


class _Extension(Protocol):
    """The part of the plug-in's extension module that is used here; it registers kernels with the plug-in's XLA."""

    def register_custom_call_target(
        self, c_api: object, fn_name: str, fn: KernelHandler, xla_platform_name: str, api_version: int, traits: int, /
    ) -> None: ...
    def register_custom_type(self, c_api: object, type_name: str, type_id: object, /) -> None: ...
    def ffi_handlers(self) -> Mapping[str, KernelHandler]: ...
    def ffi_types(self) -> Mapping[str, object]: ...


class _Library(Protocol):
    def registrations(self) -> Mapping[str, KernelHandler]: ...


def is_gpu_kernel(target: str) -> bool:
    """Whether this is the name of a kernel that every process with a GPU plug-in can find by its name.

    >>> is_gpu_kernel("cusolver_getrf_ffi"), is_gpu_kernel("my_kernel")
    (True, False)
    """
    return target in _kernel_names()


@functools.cache
def _kernel_names() -> frozenset[str]:
    routines = ("getrf", "geqrf", "orgqr", "ormqr", "potrf", "syevd", "syrk", "gesvd", "gesvdj", "gesvdp", "gesdd")
    kernels = [
        *[f"solver_{name}_ffi" for name in (*routines, "sytrd", "geev")],
        *("hybrid_eig_real", "hybrid_eig_comp", "hybrid_geqp3", "sparse_gtsv2_ffi"),
        *("_lu_pivots_to_permutation", "_cholesky_update_ffi", "_tridiagonal_solve_perturbed", "_threefry2x32_ffi"),
    ]
    return frozenset([prefix + kernel for prefix in _PREFIXES.values() for kernel in kernels])


def is_kernel_available(target: str) -> bool:
    """Whether the library of a version-dependent kernel is installed and new enough.

    >>> is_kernel_available("cusolver_getrf_ffi")  # not version-dependent
    False
    """
    if target not in _MIN_VERSIONS:
        return False
    versions = _import_from_plugin("cuda", "_versions")
    version_function, min_version = _MIN_VERSIONS[target]
    try:
        return versions is not None and getattr(versions, version_function)() >= min_version
    except RuntimeError:  # the plug-in is installed, but the library is not
        return False


def is_hybrid_kernel(target: str) -> bool:
    """Whether a kernel runs partly on the host."""
    return is_gpu_kernel(target) and "hybrid_" in target


@functools.cache
def initialize_hybrid_kernels() -> None:
    """Loads the LAPACK that hybrid kernels call on the host; does nothing where no plug-in is installed."""
    for platform in _PREFIXES:
        hybrid = _import_from_plugin(platform, "_hybrid")
        if hybrid is not None:
            hybrid.initialize()


def plugin_kernels(platform: str) -> Mapping[str, GpuKernel]:
    """Returns the kernels of the plug-in for `"cuda"` or `"rocm"` by name; none if it isn't installed.

    Raises `ValueError` for other platforms.
    """
    _xla_platform_name(platform)
    kernels: dict[str, GpuKernel] = {}
    for name in _LIBRARIES:
        library = _import_from_plugin(platform, name)
        if library is None:
            continue
        prefixes = tuple([_PREFIXES[platform] + each for each in _BATCH_PARTITIONABLE])
        for target, handler in cast(_Library, library).registrations().items():
            kernels[target] = GpuKernel(handler, 1, target.startswith(prefixes))
    extension = _extension(platform)
    if extension is not None:
        kernels |= {target: GpuKernel(handler, 1, False) for target, handler in extension.ffi_handlers().items()}
    return kernels


def register_plugin_kernels(platform: str, c_api: object) -> int:
    """Registers all kernels of a plug-in with its XLA, and returns their number.

    `c_api` is the plug-in's interface, which jaxlib returns when it loads the plug-in. Call this once, before a client
    is created.

    Raises `ValueError` if no plug-in for the platform is installed.
    """
    name = _xla_platform_name(platform)
    extension = _extension(platform)
    if extension is None:
        raise ValueError(
            f"there are no kernels for {platform!r}: install jax[cuda12] or jax[cuda13], of jaxlib's version"
        )
    for type_name, identity in extension.ffi_types().items():
        extension.register_custom_type(c_api, type_name, identity)
    kernels = plugin_kernels(platform)
    for target, kernel in kernels.items():
        extension.register_custom_call_target(c_api, target, kernel.handler, name, kernel.api_version, 0)
        if kernel.batch_partitionable:
            _register_batch_partitionable(target, c_api)
    return len(kernels)


def _extension(platform: str) -> _Extension | None:
    return cast("_Extension | None", _import_from_plugin(platform, f"{platform}_plugin_extension"))


def _xla_platform_name(platform: str) -> str:
    if platform not in _PREFIXES:
        raise ValueError(f"there are plug-ins with kernels for {', '.join(_PREFIXES)}, got {platform!r}")
    return platform.upper()
