"""`export` and `load`: jitted functions as bytes, for other processes and for JAX."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NoReturn, TypeVar, final

from attrs import evolve, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.call_stablehlo import CallStableHlo, call_stablehlo
from tracefx.control.callables import match_weak_types
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.custom_jvp import CustomJVP
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.jvp_rules import named_rule
from tracefx.control.vocabulary import VOCABULARY, vocabulary
from tracefx.core import Array, Literal, ShapedArray, Value, as_value, dtypes, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.effects import SowEffect
from tracefx.core.handler import Tracer, as_array, bind
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.primitive import Primitive, Zero
from tracefx.core.sharding import RequestedShardings
from tracefx.dimensions.solving import is_symbolic, match_shapes, scope_of, solve_variables
from tracefx.dimensions.symbolic_dimensions import is_symbolic_dim
from tracefx.errors import ParseError, RefError, SerializationError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.stage import stage
from tracefx.ops.structural import BroadcastInDim
from tracefx.passes.dce import prune
from tracefx.pytrees import trees
from tracefx.pytrees.structures import describe
from tracefx.pytrees.trees import PyTree, TreeDef, keystr, require_same_structure
from tracefx.serialization import deserialize, put_tree, read_tree, serialize
from tracefx.serialization.byte_format import (
    decode_envelope,
    encode_envelope,
    put_bytes,
    put_string,
    put_uint,
)
from tracefx.shardings.meshes import MeshEffect, current_mesh
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import flatten_values, to_arrays
from tracefx.transforms.derivative_checks import tangent_to_array
from tracefx.transforms.device_remapping import add_sharding_constraints, boundary_shardings, devices_of, remap_devices
from tracefx.transforms.differentiation import vjp
from tracefx.transforms.explicit_axes import auto_axes
from tracefx.transforms.jax_export_format import JaxExport
from tracefx.transforms.jax_export_reading import decode_jax_export, fail_parsing, is_jax_export
from tracefx.transforms.jit import BoundJitted, Jitted, jit
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.transforms.size_substitution import at_sizes
from tracefx.transforms.stages import LOWERING_PLATFORMS, require_platforms
from tracefx.transforms.tracing import Trace

P = ParamSpec("P")
R = TypeVar("R")

EXPORT_MAGIC: Final = b"tracefx exported"
EXPORT_VERSION: Final = 1
_WHAT: Final = "an exported function"


@final
@frozen(eq=False, repr=False)
class Exported(Generic[P, R]):
    """A function exported for one structure, shapes and dtypes of its arguments.

    It holds the program twice: `jaxpr` is the one that `call` runs and that transformations such as `grad` and `vmap`
    transform; `mlir_module_serialized` is the same program in StableHLO, for other tools. It can be pickled. `export`
    and `load` return it.

    >>> from tracefx import jit
    >>> exported = export(jit(lambda x: 2.0 * x))(1.0)
    >>> exported.fun_name, exported.in_avals, exported.call(3.0)
    ('<lambda>', (f32[]*,), Array(6., dtype=float32, weak_type=True))
    """

    fun_name: str
    in_tree: TreeDef
    """The structure of `(args, kwargs)`, without static arguments."""
    platforms: tuple[str, ...]
    mlir_module_serialized: bytes
    """A StableHLO portable artifact, which includes the constants. `main` takes the index of the platform, if there are
    several, then the leaves of the arguments at `module_kept_var_idx`, and returns the leaves of the result."""
    module_kept_var_idx: tuple[int, ...]
    _trace: Trace[R] = field(alias="trace")

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the values that the function closes over as constants."""
        return self._trace.closed()

    @property
    def out_tree(self) -> TreeDef:
        """The structure of the result."""
        return self._trace.out_tree

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the leaves of the arguments."""
        return self._trace.jaxpr.in_avals[len(self._trace.consts) :]

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the leaves of the result."""
        return self._trace.jaxpr.out_avals

    @property
    def nr_devices(self) -> int:
        """The number of devices on which the function runs; 1 if the program uses no mesh."""
        return len(devices_of(self._trace.jaxpr)) or 1

    @property
    def in_shardings(self) -> tuple[NamedSharding | None, ...]:
        """The shardings of the leaves of the arguments, on a mesh of `nr_devices` devices; None where unspecified."""
        return boundary_shardings(self._trace.jaxpr)[0][len(self._trace.consts) :]

    @property
    def out_shardings(self) -> tuple[NamedSharding | None, ...]:
        """The shardings of the leaves of the result; None where unspecified."""
        return boundary_shardings(self._trace.jaxpr)[1]

    @api_boundary
    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function. It can be transformed and traced, and is compiled once.

        A function of several devices runs on the devices of the first sharded argument, or else of the mesh in use, or
        else on the first devices. A function of one device also takes arrays whose types have shardings; all devices of
        the mesh then have its whole results.

        Args:
            *args: The positional arguments, without static ones.
            **kwargs: The keyword arguments, without static ones.

        Returns:
            The result of the function.

        Raises:
            TypeError: If the arguments differ in structure, shape or dtype from those of the export. A Python number
                takes the exported dtype if that is of its kind.
            ValueError: If the arguments, or the mesh in use, have another number of devices, or the program runs on a
                platform that it was not exported for.
        """
        what = f"the exported {self.fun_name}: arguments"
        values, in_tree = flatten_values((args, kwargs), what)
        require_same_structure(what, self.in_tree, in_tree, "the export", "the call")
        given = [_convert_literal(x, aval) for x, aval in zip(values, self.in_avals, strict=True)]
        avals, sizes = self._avals_for_call(given, lambda i: _argument_name(args, kwargs, i))
        trace = self._trace
        program = self._jaxpr_on(self._devices_for_call(given))
        call = Call(self.fun_name, at_sizes(program, sizes) if sizes else program, self.platforms)
        operands = match_weak_types(given, avals)
        if any(x.aval.explicit_sharding is not None for x in given) and not devices_of(trace.jaxpr):
            # The program has no shardings in its types, so the compiler decides about them.
            run = auto_axes(functools.partial(bind, call, *trace.consts), out_sharding=PartitionSpec())
            return trace.output(run(*operands))
        return trace.output(to_arrays(bind(call, *trace.consts, *operands)))

    def _avals_for_call(
        self, given: Sequence[Value], name: Callable[[int], str]
    ) -> tuple[Sequence[ShapedArray], tuple[tuple[str, int], ...]]:
        """Returns the types that a call needs, and the sizes of the dimension variables; raises if they do not match.

        Args:
            given: The arguments.
            name: Returns the name of an argument for messages.
        """
        avals = self.in_avals
        for i, (x, aval) in enumerate(zip(given, avals, strict=True)):
            sizes_match = len(x.aval.shape) == len(aval.shape) and all(
                m == n or is_symbolic_dim(n) for m, n in zip(x.aval.shape, aval.shape, strict=True)
            )
            if not sizes_match or x.aval.dtype != aval.dtype:
                raise TypeError(
                    f"{self.fun_name} was exported for {name(i)} of type {aval!r}, but called with {x.aval!r}"
                )
        if not is_symbolic(avals):
            return avals, ()
        shapes = [x.aval.shape for x in given]
        sizes = match_shapes(avals, shapes, [name(i) for i in range(len(avals))], self.fun_name)
        return [aval.update(shape=shape) for aval, shape in zip(avals, shapes, strict=True)], sizes

    def _devices_for_call(self, given: Sequence[Value]) -> tuple[Device, ...]:
        """Returns the devices on which a call runs."""
        own_devices = devices_of(self._trace.jaxpr)
        if not own_devices:
            return own_devices
        sharded = [x.placed.devices for x in given if isinstance(x, ShardedArray) and x.placed.num_devices > 1]
        where = sharded[0] if sharded else current_mesh().flat or own_devices
        if len(where) != len(own_devices):
            what = "its arguments are on" if sharded else "the mesh in use has"
            raise ValueError(
                f"{self.fun_name} was exported for {len(own_devices)} devices, but {what} {len(where)}: call it "
                "with arrays on a mesh of that many devices"
            )
        return where

    def _jaxpr_on(self, devices: tuple[Device, ...]) -> Jaxpr:
        """Returns the program for these devices."""
        jaxpr = self._trace.jaxpr
        own_devices = devices_of(jaxpr)
        if devices == own_devices:
            return jaxpr
        return _on_devices(jaxpr, own_devices, devices)

    def mlir_module(self) -> str:
        """Returns the StableHLO module as text.

        This passes the bytes to the parser of MLIR, which `load` does not do: it is not specified to be safe for
        malicious input.

        Raises:
            ParseError: If `mlir_module_serialized` cannot be read.
        """
        try:
            return BACKEND.value.portable_text(self.mlir_module_serialized)
        except ValueError as error:
            raise ParseError(f"the StableHLO module of {self.fun_name} cannot be read: {error}") from error

    def serialize(self, vjp_order: int = 0) -> bytes:
        """Returns the function as bytes for `load`. Equal functions give equal bytes.

        Args:
            vjp_order: How many times the loaded function must be differentiable in reverse mode: this is checked, by
                `vjp`. The bytes are the same for every order, as the loaded function has all derivatives that the
                exported one has. 0, the default, checks nothing.
        """
        exported: Exported[..., Any] = self
        for _ in range(vjp_order):
            exported = exported.vjp()
        out = bytearray()
        put_string(out, self.fun_name)
        put_tree(out, self.in_tree, f"the arguments of {self.fun_name}")
        put_tree(out, self.out_tree, f"the result of {self.fun_name}")
        put_uint(out, len(self.platforms))
        for platform in self.platforms:
            put_string(out, platform)
        put_uint(out, len(self.module_kept_var_idx))
        for i in self.module_kept_var_idx:
            put_uint(out, i)
        put_bytes(out, self.mlir_module_serialized)
        put_bytes(
            out, serialize(self.jaxpr, VOCABULARY, provenance=True)
        )  # `export` has dropped it unless asked to keep it
        return encode_envelope(EXPORT_MAGIC, EXPORT_VERSION, out)

    def to_jax(self, vjp_order: int = 0) -> bytes:
        """Returns the function as bytes for `jax.export.deserialize`, whose `call` runs the StableHLO module.

        Args:
            vjp_order: How many times JAX can differentiate it in reverse mode. 0 by default.

        Raises:
            SerializationError: If arguments or results have other containers than tuples, lists, None, and dicts with
                string keys, or a dtype that JAX's format lacks.
        """
        return self._jax_export(vjp_order).encode()

    def _jax_export(self, vjp_order: int) -> JaxExport:
        return JaxExport(
            self.fun_name,
            self.in_tree,
            self.out_tree,
            self.in_avals,
            self.out_avals,
            self.platforms,
            self.mlir_module_serialized,
            self.module_kept_var_idx,
            self.nr_devices,
            self.vjp()._jax_export(vjp_order - 1) if vjp_order > 0 else None,
        )

    def has_vjp(self) -> bool:
        """Returns whether `vjp` is supported: not if JAX exported the function without its backward pass."""
        calls = [eqn.prim for eqn in self.jaxpr.eqns if isinstance(eqn.prim, CallStableHlo)]
        return all(call.vjp is not None for call in calls)

    @api_boundary
    def vjp(self) -> Exported[..., tuple[Array, ...]]:
        """Returns the exported backward pass.

        It takes the leaves of the arguments, then a cotangent for each leaf of the result, and returns a tuple of the
        cotangents of the arguments. Tangents of integers have the dtype float0. To differentiate `call`, `grad` and the
        other transformations do not need it.

        Raises:
            TypeError, NotImplementedError: If the program cannot be differentiated in reverse mode.

        >>> from tracefx import jit
        >>> backward = export(jit(lambda x: x * x))(3.0).vjp()
        >>> backward.in_avals, backward.call(3.0, 1.0)
        ((f32[]*, f32[]*), (Array(6., dtype=float32, weak_type=True),))
        """
        count = len(self.in_avals)

        def forward(*args: Array) -> list[Array]:
            return list(map(as_array, bind(Call(self.fun_name, self._trace.jaxpr), *self._trace.consts, *args)))

        def backward(*values: Array) -> tuple[Array, ...]:
            return vjp(forward, *values[:count])[1](list(values[count:]))

        backward.__name__ = f"{self.fun_name}_vjp"
        avals = [*self.in_avals, *[a.tangent() for a in self.out_avals]]
        types = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
        return export(jit(backward), platforms=self.platforms)(*types)

    @override
    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        return load, (self.serialize(),)

    @override
    def __repr__(self) -> str:
        types = f"({show_avals(self.in_avals)}) -> ({show_avals(self.out_avals)})"
        return f"<{self.fun_name} exported for {', '.join(self.platforms)}: {types}>"


def _argument_name(args: PyTree, kwargs: PyTree, i: int) -> str:
    """Returns the name of a leaf of the arguments for messages, such as `args[0]['w']`."""
    path, _ = trees.flatten_with_path((args, kwargs))[0][i]
    return f"args{keystr(path[1:])}" if keystr(path[:1]) == "[0]" else f"kwargs{keystr(path[1:])}"


def _convert_literal(x: Value, aval: ShapedArray) -> Value:
    """Returns a Python number converted to the type `aval`, if the dtype is of its kind; otherwise unchanged."""
    if type(x) is not Literal or not x.aval.weak_type or aval.shape or x.aval == aval:
        return x
    target_dtype, val = aval.dtype, x.val
    if not (dtypes.is_complex(target_dtype) or (dtypes.is_float(target_dtype) and type(val) is not complex)) and (
        type(val) is not int or not dtypes.is_integer(target_dtype)
    ):
        return x
    try:
        return Literal(val, aval)
    except OverflowError:
        return x


# ------------------------------------------------------------------ export


def export(
    fun: Jitted[P, R] | BoundJitted[P, R],
    *,
    platforms: Sequence[str] | None = None,
    drop_rules: bool = False,
    provenance: bool = False,
) -> Callable[..., Exported[P, R]]:
    """Returns a function that exports `fun` for the types of its arguments.

    Programs with callbacks cannot be exported, nor can user-defined rules of `custom_jvp`, `custom_vjp` and
    `custom_vmap` or policies of `checkpoint`, because these are Python functions. Derivative rules of functions of
    tracefx, such as `nn.relu`, are exported as the name of the function, which `load` looks up. A program that uses a
    mesh (by `shard_map`, `with_sharding_constraint`, shardings of `jit`, or sharded arguments) is exported for a number
    of devices; the devices themselves may differ when it is called. As many devices are needed to load it.

    Args:
        fun: A function returned by `jit`.
        platforms: The platforms for which the StableHLO module is lowered, some of `"cpu"`, `"cuda"`, `"rocm"` and
            `"tpu"`. A module for several platforms takes the index of the platform as its first input. None, the
            default, means the default platform.
        drop_rules: Whether user-defined rules and policies are dropped; the functions are then differentiated like any
            other. False by default.
        provenance: Whether source locations are included. False by default.

    Returns:
        A function that takes the arguments of `fun`, or `ShapeDtypeStruct` in place of arrays, and returns an
        `Exported`. Static arguments become part of it.

    Raises:
        TypeError: If `fun` is not jitted. When the result is called: if `fun` closes over a tracer.
        ValueError: If a platform is unknown.
        SerializationError: When the result is called: if the program contains Python functions. It is a TypeError.
        NotImplementedError: When the result is called: if an operation is not supported on a platform.

    >>> from tracefx import ShapeDtypeStruct, jit
    >>> square = export(jit(lambda x: x * x))(ShapeDtypeStruct((), "float32"))
    >>> load(square.serialize()).call(3.0)
    Array(9., dtype=float32)
    """
    if not isinstance(fun, (Jitted, BoundJitted)):
        raise TypeError(f"export takes a function returned by tracefx.jit, got {fun!r}: export(tracefx.jit(f))(*args)")
    where = _platforms(platforms)

    @api_boundary
    def exported(*args: Any, **kwargs: Any) -> Exported[P, R]:
        traced = fun.trace(*args, **kwargs)
        trace = traced.trace
        if trace.uses_refs:
            raise RefError(
                f"export of {trace.name}: it uses references, but an exported program is a function of arrays: pass "
                "their contents as arguments, and return the new ones"
            )
        for const in trace.consts:
            if isinstance(const, Tracer):
                raise TypeError(
                    f"export of {trace.name}: it closes over the tracer {const}: export it outside of the "
                    "transformation, or make the value an argument"
                )
        in_avals = trace.jaxpr.in_avals[len(trace.consts) :]
        if is_symbolic(in_avals):
            scope_of(in_avals, trace.name)
            solve_variables(in_avals, trace.name)
        normalized = _normalize_devices(trace.jaxpr, traced.requested_shardings)
        program = ProgramStripper(drop_rules, provenance=True).strip_jaxpr(normalized)
        try:
            serialize(ClosedJaxpr(program, ()), VOCABULARY)  # raises SerializationError with source locations
        except SerializationError as error:
            if not drop_rules:
                # Without its rules and policies the program may have no other Python functions.
                without_rules = ProgramStripper(drop_rules=True, provenance=True).strip_jaxpr(normalized)
                with suppress(SerializationError):
                    serialize(ClosedJaxpr(without_rules, ()), VOCABULARY)
                    error.add_note(
                        "export(f, drop_rules=True) exports the program without the user-defined rules and policies: "
                        "the functions are then differentiated and batched like any other"
                    )
            raise
        if not provenance:
            program = ProgramStripper(drop_rules, provenance).strip_jaxpr(program)
        requested = RequestedShardings(*boundary_shardings(program)) if devices_of(program) else None
        module, kept_inputs = BACKEND.value.serialize_portable(
            _without_float0(program, trace.name), trace.consts, trace.name, where, requested
        )
        return Exported(trace.name, traced.in_tree, where, module, kept_inputs, evolve(trace, jaxpr=program))

    return exported


def _without_float0(jaxpr: Jaxpr, name: str) -> Jaxpr:
    """Returns the program with booleans, as in JAX's exports, in place of outputs of float0, which StableHLO lacks."""
    eqns, outs = list(jaxpr.eqns), list(jaxpr.outs)
    for i, aval in enumerate(jaxpr.out_avals):
        if aval.dtype == dtypes.float0:
            false = Literal(False, ShapedArray((), dtypes.bool_))
            out = Var(jaxpr.var_count + len(eqns) - len(jaxpr.eqns), ShapedArray(aval.shape, dtypes.bool_))
            eqns.append(Eqn(BroadcastInDim(aval.shape, ()), (false,), (out,), None))
            outs[i] = out
    program = evolve(jaxpr, eqns=tuple(eqns), outs=tuple(outs))
    _, is_used = prune(program, (True,) * len(outs))
    for v, used in zip(program.invars, is_used, strict=True):
        if used and v.aval.dtype == dtypes.float0:
            raise TypeError(f"export of {name}: StableHLO has no arrays of float0, such as {v.aval}")
    return program


@memoize_on_object
def _on_devices(jaxpr: Jaxpr, old: tuple[Device, ...], new: tuple[Device, ...]) -> Jaxpr:
    """Returns the program on other devices: `new` in place of `old`."""
    return remap_devices(jaxpr, dict(zip(old, new, strict=True)))


def _normalize_devices(jaxpr: Jaxpr, requested: RequestedShardings | None) -> Jaxpr:
    """Returns the program with explicit sharding constraints, on the first devices."""
    program = jaxpr if requested is None else add_sharding_constraints(jaxpr, requested.inputs, requested.outputs)
    own_devices = devices_of(program)
    first = BACKEND.value.devices(BACKEND.value.platform)[: len(own_devices)]
    return program if list(own_devices) == first else remap_devices(program, dict(zip(own_devices, first, strict=True)))


def _platforms(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return (BACKEND.value.platform,)
    return require_platforms(given, "export: platforms")


@final
class ProgramStripper:
    """Removes source locations and user-defined rules from programs, and names the rules of functions of tracefx."""

    def __init__(self, drop_rules: bool, provenance: bool) -> None:
        self.drop_rules = drop_rules
        self.provenance = provenance
        self.done: dict[int, tuple[Jaxpr, Jaxpr]] = {}
        """By the id of the original program, the first of the pair, which keeps it alive."""

    def strip_jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        entry = self.done.get(id(jaxpr))
        if entry is None:
            eqns = [
                Eqn(self.strip_primitive(e.prim), e.inputs, e.outs, e.source if self.provenance else None)
                for e in jaxpr.eqns
            ]
            entry = self.done[id(jaxpr)] = jaxpr, evolve(jaxpr, eqns=tuple(eqns))
        return entry[1]

    def strip_primitive(self, prim: Primitive) -> Primitive:
        if isinstance(prim, CustomJVP) and (rule := named_rule(prim.rule)):
            prim = evolve(prim, rule=rule)
        elif self.drop_rules and isinstance(prim, CustomRuleProgram):
            return Call(prim.label, self.strip_jaxpr(prim.jaxpr))
        if self.drop_rules and isinstance(prim, CheckpointPrimitive) and prim.policy is not None:
            prim = evolve(prim, policy=None)
        return prim.with_jaxprs(*map(self.strip_jaxpr, prim.jaxprs())) if isinstance(prim, HasSubjaxprs) else prim


# ------------------------------------------------------------------ load


@api_boundary
def load(data: bytes | bytearray | memoryview, *more: type[Primitive]) -> Exported[..., Any]:
    """Returns the function that `Exported.serialize` wrote, here or in JAX.

    The bytes may be from an untrusted source, as for `tracefx.programs.deserialize`; the StableHLO module is not read.
    Calls of a function that JAX exported run this module, so its bytes must be trusted before they are called. `vmap`
    calls such a function in a loop; it is differentiable in reverse mode as often as its `vjp_order` says.

    Classes of arguments and results (registered pytree nodes, named tuples) must be registered already: no module is
    imported for them.

    Args:
        data: The bytes.
        *more: Primitive classes beside those of tracefx; they are found by their names.

    Returns:
        The exported function. Its method `call` runs it.

    Raises:
        ParseError: If the bytes are not an exported function, or contain an unknown class. It is a ValueError.
        NotImplementedError: If JAX exported the function for several devices, with effects, without the check of
            platforms, or with nodes of other types than tuples, lists, dicts and None.

    >>> from tracefx import jit
    >>> load(export(jit(lambda x: x + 1))(2).serialize()).call(5)
    Array(6, dtype=int32, weak_type=True)
    """
    if is_jax_export(data):
        return _from_jax_export(decode_jax_export(data))
    reader = decode_envelope(data, EXPORT_MAGIC, EXPORT_VERSION, _WHAT)
    name = reader.string("the function's name")
    in_tree, out_tree = read_tree(reader), read_tree(reader)
    platforms = tuple([reader.string("a platform") for _ in range(reader.count("platforms"))])
    if not platforms or any(p not in LOWERING_PLATFORMS for p in platforms) or len(set(platforms)) != len(platforms):
        reader.fail(f"the platforms {platforms!r} are not some of {', '.join(LOWERING_PLATFORMS)}, each once")
    kept_inputs = [reader.uint() for _ in range(reader.count("numbers of inputs"))]
    module = bytes(reader.length_prefixed("the StableHLO module"))
    program = deserialize(reader.length_prefixed("the program"), vocabulary((CustomJVP, *more)))
    reader.done()
    _check_trees(reader.fail, in_tree, out_tree, program.in_avals, program.out_avals)
    if any(a >= b for a, b in itertools.pairwise([*kept_inputs, len(program.in_avals)])):
        reader.fail(
            f"the inputs that the module takes, {kept_inputs}, are not some of {len(program.in_avals)} in their order"
        )
    effects = [effect for effect in program.effects if not isinstance(effect, SowEffect | MeshEffect)]
    if effects:
        reader.fail(f"the program has effects: {', '.join(sorted(map(str, effects)))}")
    trace = Trace(program.jaxpr.closed(), program.consts, out_tree, name)
    return Exported(name, in_tree, platforms, module, tuple(kept_inputs), trace)


def _from_jax_export(export: JaxExport) -> Exported[..., Any]:
    """Returns a function that JAX exported as one whose program calls the module."""
    _check_trees(fail_parsing, export.in_tree, export.out_tree, export.in_avals, export.out_avals)
    prim = _call_of(export)

    def program(*args: Value) -> list[Value]:
        outs = zip(call_stablehlo(prim, args), export.out_avals, strict=True)
        return [as_value(tangent_to_array(Zero(aval))) if aval.dtype == dtypes.float0 else out for out, aval in outs]

    jaxpr, consts = stage(program, export.in_avals)
    trace = Trace(jaxpr.closed(), tuple(consts), export.out_tree, export.fun_name)
    return Exported(export.fun_name, export.in_tree, prim.platforms, export.module, prim.kept, trace)


def _call_of(export: JaxExport) -> CallStableHlo:
    """Returns the primitive that calls an exported function."""
    return CallStableHlo(
        export.fun_name,
        _booleans_for_float0(export.in_avals),
        _booleans_for_float0(export.out_avals),
        require_platforms(export.platforms, f"load of {export.fun_name}: platforms"),
        export.module,
        tuple(export.kept),
        None if export.vjp is None else _call_of(export.vjp),
    )


def _booleans_for_float0(avals: Sequence[ShapedArray]) -> tuple[ShapedArray, ...]:
    """Returns types with booleans in place of `float0`, as in modules of StableHLO."""
    return tuple([a.update(dtype=dtypes.bool_) if a.dtype == dtypes.float0 else a for a in avals])


def _check_trees(
    fail: Callable[[str], NoReturn],
    in_tree: TreeDef,
    out_tree: TreeDef,
    in_avals: Sequence[ShapedArray],
    out_avals: Sequence[ShapedArray],
) -> None:
    """Fails unless the structures of arguments and results fit the program."""
    for what, tree, avals in (("arguments", in_tree, in_avals), ("results", out_tree, out_avals)):
        if tree.num_leaves != len(avals):
            fail(f"the {what} have {tree.num_leaves} leaves, but the program has {len(avals)}")
    if _node_type(in_tree) is tuple and list(map(_node_type, in_tree.children())) == [tuple, dict]:
        names = describe(in_tree.children()[1]).metadata
        if isinstance(names, tuple) and all(type(name) is str for name in names):
            return
    fail(f"{in_tree} is not a structure of arguments: a tuple, and a dict with names as keys")


def _node_type(tree: TreeDef) -> type | None:
    node = tree.node_data()
    return None if node is None else node[0]
