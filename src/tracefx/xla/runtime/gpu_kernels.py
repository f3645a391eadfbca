"""The kernels that plug-ins for GPUs bring beside XLA: their names, and what XLA has to be told to find them.

Names can be known without the plug-in, so programs for GPUs can be built, and sent away, from where there is none.
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
"""Modules of a plug-in that list kernels."""
_BATCH_PARTITIONABLE: Final = ("solver_", "hybrid_", "sparse_gtsv2_", "_lu_pivots_")
"""How the names of those begin, after their platform's letters, that take matrices of a batch in whatever number."""

_MIN_VERSIONS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"cusolver_geev_ffi": ("cusolver_get_version", 11701)}
)
"""Kernels that not all versions of their library have: what says the version, and from which one on."""

KernelHandler: TypeAlias = object
"""A capsule with the address of a function, or a dict of such by the stage of an execution that they are for."""


@final
@frozen(eq=False)
class GpuKernel:
    handler: KernelHandler
    api_version: int
    batch_partitionable: bool
    """Whether devices may take a part of a batch each."""


class _Extension(Protocol):
    """The plug-in's module that speaks to XLA inside of it, as far as it is used here."""

    def register_custom_call_target(
        self, c_api: object, fn_name: str, fn: KernelHandler, xla_platform_name: str, api_version: int, traits: int, /
    ) -> None: ...
    def register_custom_type(self, c_api: object, type_name: str, type_id: object, /) -> None: ...
    def ffi_handlers(self) -> Mapping[str, KernelHandler]: ...
    def ffi_types(self) -> Mapping[str, object]: ...


class _Library(Protocol):
    def registrations(self) -> Mapping[str, KernelHandler]: ...


def is_gpu_kernel(target: str) -> bool:
    """Whether this is the name of a kernel that every process with a plug-in for GPUs finds by it.

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


@functools.cache
def is_kernel_available(target: str) -> bool:
    """Whether the library of a kernel that is not in all of its versions is installed, and new enough.

    >>> is_kernel_available("cusolver_getrf_ffi")  # of which no version need be known
    False
    """
    if target not in _MIN_VERSIONS:
        return False
    versions = _import_from_plugin("cuda", "_versions")
    asked, least = _MIN_VERSIONS[target]
    try:
        return versions is not None and getattr(versions, asked)() >= least
    except RuntimeError:  # there is the plug-in, and no library
        return False


def is_hybrid_kernel(target: str) -> bool:
    """Whether a kernel computes partly on the host."""
    return is_gpu_kernel(target) and "hybrid_" in target


@functools.cache
def initialize_hybrid_kernels() -> None:
    """Finds the LAPACK that kernels call which compute partly on the host; nothing where no plug-in is installed."""
    for platform in _PREFIXES:
        hybrid = _import_from_plugin(platform, "_hybrid")
        if hybrid is not None:
            hybrid.initialize()


def plugin_kernels(platform: str) -> Mapping[str, GpuKernel]:
    """The kernels of the plug-in for `"cuda"` or `"rocm"` by their names; none of a plug-in that isn't installed.

    Raises ValueError for another platform.
    """
    _xla_platform_name(platform)
    found: dict[str, GpuKernel] = {}
    for name in _LIBRARIES:
        library = _import_from_plugin(platform, name)
        if library is None:
            continue
        beginnings = tuple([_PREFIXES[platform] + each for each in _BATCH_PARTITIONABLE])
        for target, handler in cast(_Library, library).registrations().items():
            found[target] = GpuKernel(handler, 1, target.startswith(beginnings))
    extension = _extension(platform)
    if extension is not None:
        found |= {target: GpuKernel(handler, 1, False) for target, handler in extension.ffi_handlers().items()}
    return found


def register_plugin_kernels(platform: str, c_api: object) -> int:
    """Tells XLA in the plug-in whose interface is `c_api` of all these kernels; how many there are.

    What jaxlib gives for the plug-in when it loads it is its interface. To be called once, before a client is made.

    Raises ValueError for a platform without such a plug-in installed.
    """
    name = _xla_platform_name(platform)
    extension = _extension(platform)
    if extension is None:
        raise ValueError(
            f"there are no kernels for {platform!r}: install jax[cuda12] or jax[cuda13] for it, of jaxlib's version"
        )
    for kind, identity in extension.ffi_types().items():
        extension.register_custom_type(c_api, kind, identity)
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
