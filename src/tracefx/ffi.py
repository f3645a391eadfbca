"""Kernels written in other languages, under the names of `jax.ffi`.

A kernel is a function of XLA's foreign function interface, for example one compiled from C++ with the headers in
`include_dir()`. `register_ffi_target` gives it a name in this process, and `ffi_call` calls it from programs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired, Protocol, TypeAlias, TypedDict, overload

from typing_extensions import CapsuleType

from tracefx.control.callback import VmapMethod, require_vmap_method
from tracefx.control.ffi_call import FfiAttribute, FfiCall, mlir_attribute
from tracefx.core import Array, ShapedArray, Value
from tracefx.core.handler import bind
from tracefx.filtered_tracebacks import api_boundary
from tracefx.lowering import KernelLayouts
from tracefx.pytrees.trees import PyTree
from tracefx.transforms.arguments import flatten_values, to_arrays
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct, flatten_avals
from tracefx.xla.runtime import ffi_targets

Layout: TypeAlias = Sequence[int]
"""The axes of an array from the slowest to the fastest in memory."""

_PLATFORMS: Final[Mapping[str, str]] = {"cpu": "Host", "gpu": "CUDA", "cuda": "CUDA", "rocm": "ROCM"}
_TYPED_INTERFACE: Final = 4
"""The version of custom calls that XLA's foreign function interface has."""


class TypeRegistration(TypedDict):
    """The registration of a type of kernels' state.

    Args:
        type_id: A capsule with a pointer to the `XLA_FFI_TypeId`.
        type_info: A capsule with a pointer to the `XLA_FFI_TypeInfo`. None by default.
    """

    type_id: object
    type_info: NotRequired[object]


class ArrayKernel(Protocol):
    """The function that `ffi_call` returns for a kernel with one result. It takes arrays and attributes."""

    def __call__(self, *args: PyTree, **attributes: FfiAttribute) -> Array: ...


class TreeKernel(Protocol):
    """The function that `ffi_call` returns for a kernel with several results. It takes arrays and attributes."""

    def __call__(self, *args: PyTree, **attributes: FfiAttribute) -> Any: ...


def include_dir() -> str:
    """Returns the directory with jaxlib's headers, with which kernels in C++ are compiled.

    Returns:
        The directory, in which `xla/ffi/api/ffi.h` is.

    >>> from pathlib import Path
    >>> (Path(include_dir()) / "xla" / "ffi" / "api" / "ffi.h").exists()
    True
    """
    return ffi_targets.include_dir()


@api_boundary
def pycapsule(funcptr: object) -> CapsuleType:
    """Wraps the address of a function in a capsule, for `register_ffi_target`.

    Args:
        funcptr: A function of a library that `ctypes` loaded, or another pointer of `ctypes`.

    Returns:
        The capsule.

    >>> import ctypes
    >>> type(pycapsule(ctypes.c_void_p(16))).__name__
    'PyCapsule'
    """
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    address: Any = funcptr  # the type of pointers is private to ctypes
    capsule: CapsuleType = new(ctypes.cast(address, ctypes.c_void_p), None, None)
    return capsule


@api_boundary
def register_ffi_target(
    name: str, fn: CapsuleType | Mapping[str, CapsuleType], platform: str = "cpu", api_version: int = 1
) -> None:
    """Registers a kernel in this process, so that `ffi_call` can call it by name.

    Args:
        name: The name.
        fn: The capsule of the kernel (see `pycapsule`), or a dictionary of capsules by stage of an execution:
            `"instantiate"`, `"prepare"`, `"initialize"`, `"execute"`.
        platform: `"cpu"`, the default, or `"gpu"`, `"cuda"`, `"rocm"`.
        api_version: The version of the interface. 1, the default, is XLA's typed interface; `ffi_call` calls no other.

    Raises:
        TypeError: If `fn` is not a capsule or a dictionary of capsules.
        ValueError: If the platform or the version is unknown, or XLA has another kernel of this name.

    >>> from jaxlib.lapack import registrations
    >>> name, kernel, _ = registrations()["cpu"][0]
    >>> register_ffi_target("another name of " + name, kernel)
    """
    if api_version != 1:
        raise ValueError(
            f"register_ffi_target of {name!r}: api_version must be 1, XLA's typed interface, got {api_version!r}"
        )
    for capsule in fn.values() if isinstance(fn, Mapping) else (fn,):
        if type(capsule).__name__ != "PyCapsule":
            raise TypeError(
                f"register_ffi_target of {name!r}: fn must be a capsule or a dictionary of capsules, got {capsule!r}. "
                "tracefx.ffi.pycapsule makes one from a function that ctypes loaded"
            )
    xla_platform = _xla_platform(f"register_ffi_target of {name!r}", platform)
    try:
        ffi_targets.register_ffi_target(name, dict(fn) if isinstance(fn, Mapping) else fn, xla_platform)
    except RuntimeError as error:  # jaxlib's only type of errors
        raise ValueError(f"register_ffi_target of {name!r}: {error}") from error


@api_boundary
def register_ffi_type(name: str, type_registration: TypeRegistration, platform: str = "cpu") -> None:
    """Registers a type of the state that a kernel keeps between the stages of an execution.

    Args:
        name: The name of the type, unique in the process.
        type_registration: The type's identity and functions, as capsules.
        platform: As for `register_ffi_target`; `"cpu"` by default.

    Raises:
        ValueError: If the platform is unknown, or XLA refuses the type.

    >>> type_id = (ctypes.c_int64 * 1)(0)  # in a library: `ffi::TypeId MyState::id = {}`
    >>> register_ffi_type("my_state", {"type_id": pycapsule(type_id)})
    >>> type_id[0] > 0  # XLA has chosen the number
    True
    """
    xla_platform = _xla_platform(f"register_ffi_type of {name!r}", platform)
    try:
        ffi_targets.register_ffi_type(name, type_registration, xla_platform)
    except RuntimeError as error:  # as above
        raise ValueError(f"register_ffi_type of {name!r}: {error}") from error


@api_boundary
def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Declares that the elements of a kernel's batches are independent, so that several devices can share them.

    The axes that `vmap` adds with `"expand_dims"` and `"broadcast_all"` are batch axes.

    Args:
        name: The name of the kernel.

    >>> register_ffi_target_as_batch_partitionable("my_kernel")
    """
    ffi_targets.register_batch_partitionable_ffi_target(name)


def _xla_platform(where: str, platform: str) -> str:
    found = _PLATFORMS.get(platform.lower())
    if found is None:
        raise ValueError(f"{where}: platform must be one of {', '.join(map(repr, _PLATFORMS))}, got {platform!r}")
    return found


@overload
def ffi_call(
    target_name: str,
    result_shape_dtypes: ShapeDtypeStruct | Array,
    *,
    has_side_effect: bool = False,
    vmap_method: VmapMethod | None = None,
    input_layouts: Sequence[Layout | None] | None = None,
    output_layouts: Layout | Sequence[Layout | None] | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: None = None,
) -> ArrayKernel: ...
@overload
def ffi_call(
    target_name: str,
    result_shape_dtypes: PyTree,
    *,
    has_side_effect: bool = False,
    vmap_method: VmapMethod | None = None,
    input_layouts: Sequence[Layout | None] | None = None,
    output_layouts: Layout | Sequence[Layout | None] | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: None = None,
) -> TreeKernel: ...
@api_boundary
def ffi_call(
    target_name: str,
    result_shape_dtypes: PyTree,
    *,
    has_side_effect: bool = False,
    vmap_method: VmapMethod | None = None,
    input_layouts: Sequence[Layout | None] | None = None,
    output_layouts: Layout | Sequence[Layout | None] | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: None = None,
) -> ArrayKernel | TreeKernel:
    """Returns a function that calls a registered kernel, in compiled programs and eagerly.

    The function takes arrays as positional arguments and the kernel's attributes as keyword arguments. An integer or
    float of Python is an attribute of 64 bits; a NumPy scalar has its dtype. The call has no derivative unless
    `custom_jvp` or `custom_vjp` defines one. A program on several devices computes it with whole arrays on each device;
    inside `shard_map` each device calls with its shards.

    Args:
        target_name: The name under which `register_ffi_target` registered the kernel.
        result_shape_dtypes: A pytree of `ShapeDtypeStruct`, arrays, or other objects with `shape` and `dtype`.
        has_side_effect: Whether the call is kept if its results are unused. False by default.
        vmap_method: How `vmap` transforms the call, as in `pure_callback`; None, the default, makes `vmap` an error.
        input_layouts: For each argument the axes from the slowest to the fastest in memory, or None for NumPy's order;
            XLA transposes where needed. None, the default, means NumPy's order for all.
        output_layouts: The same for the results.
        input_output_aliases: For arguments, the indices of the results that use their memory. XLA copies an argument
            first if it is needed afterwards. None by default.
        custom_call_api_version: Only 4, the default: the typed interface.
        legacy_backend_config: Only None, the default.

    Returns:
        The function. It returns results in the structure of `result_shape_dtypes`.

    Raises:
        TypeError: From the function, if an argument is not an array or an attribute has no counterpart in the
            interface.
        ValueError: If `vmap_method` is unknown, or a layout or alias does not fit the arguments and results.
        NotImplementedError: For another `custom_call_api_version` or a `legacy_backend_config`.

    >>> import numpy as np
    >>> from tracefx import ShapeDtypeStruct, make_jaxpr
    >>> scaled = lambda x: ffi_call("scaled", ShapeDtypeStruct(x.shape, x.dtype))(x, times=np.float32(2))
    >>> make_jaxpr(scaled)(np.ones(3, np.float32))
    { lambda ; a:f32[3]. let
        b:f32[3] = ffi_call[
          target='scaled'
          result_avals=(f32[3],)
          attributes=(('times', '0x40000000 : f32'),)
          has_side_effect=False
          vmap_method=None
        ] a
      in (b,) }
    """
    where = f"ffi_call of {target_name!r}"
    require_vmap_method(where, vmap_method)
    if custom_call_api_version != _TYPED_INTERFACE or legacy_backend_config is not None:
        raise NotImplementedError(
            f"{where}: custom calls before XLA's typed interface (custom_call_api_version=4, no legacy_backend_config) "
            "are not supported; write the kernel with the headers in tracefx.ffi.include_dir()"
        )
    avals, out_tree = flatten_avals(result_shape_dtypes, f"{where}: result_shape_dtypes")
    results = tuple([ShapedArray(a.shape, a.dtype) for a in avals])

    def call(*args: PyTree, **attributes: FfiAttribute) -> Any:
        values, _ = flatten_values(args, f"{where}: arguments")
        layouts = _layouts(where, values, results, input_layouts, output_layouts, input_output_aliases or {})
        texts = [
            (name, mlir_attribute(x, f"{where}: the attribute {name!r}")) for name, x in sorted(attributes.items())
        ]
        prim = FfiCall(target_name, results, tuple(texts), has_side_effect, vmap_method, layouts)
        return out_tree.unflatten(to_arrays(bind(prim, *values)))

    return call


def _layouts(
    where: str,
    values: Sequence[Value],
    results: Sequence[ShapedArray],
    input_layouts: Sequence[Layout | None] | None,
    output_layouts: Layout | Sequence[Layout | None] | None,
    aliases: Mapping[int, int],
) -> KernelLayouts | None:
    """Checks the layouts and aliases of a call and converts them."""
    if input_layouts is None and output_layouts is None and not aliases:
        return None
    operands = [x.aval for x in values]
    outs: object = output_layouts
    if len(results) == 1 and isinstance(outs, Sequence) and all(isinstance(axis, int) for axis in outs):
        outs = [outs]
    in_layouts = _minor_to_major(f"{where}: input_layouts", input_layouts, operands)
    out_layouts = _minor_to_major(f"{where}: output_layouts", outs, results)
    for i, j in aliases.items():
        if not (0 <= i < len(operands) and 0 <= j < len(results)):
            raise ValueError(
                f"{where}: input_output_aliases has {i}: {j}, but there are {len(operands)} arguments and "
                f"{len(results)} results"
            )
        arrays = [
            (a.strong(), layout[::-1]) for a, layout in ((operands[i], in_layouts[i]), (results[j], out_layouts[j]))
        ]
        if arrays[0] != arrays[1]:
            (operand, one), (result, other) = arrays
            raise ValueError(
                f"{where}: input_output_aliases has {i}: {j}, but argument {i} is {operand} with layout {one} and "
                f"result {j} is {result} with layout {other}"
            )
    rank = max([a.ndim for a in (*operands, *results)], default=0)
    return KernelLayouts(in_layouts, out_layouts, tuple(sorted(aliases.items())), rank)


def _minor_to_major(where: str, layouts: object, avals: Sequence[ShapedArray]) -> tuple[tuple[int, ...], ...]:
    """Returns the layouts with the fastest axis first, as XLA writes them."""
    given = [None] * len(avals) if layouts is None else layouts
    if not isinstance(given, Sequence) or len(given) != len(avals):
        raise ValueError(f"{where} must be a sequence of {len(avals)} layouts, got {layouts!r}")
    converted = []
    for layout, aval in zip(given, avals, strict=True):
        axes = tuple(range(aval.ndim)) if layout is None else tuple(layout)
        if sorted(axes) != list(range(aval.ndim)):
            raise ValueError(f"{where} has {layout!r}, which is not a permutation of the axes of {aval}")
        converted.append(axes[::-1])
    return tuple(converted)
