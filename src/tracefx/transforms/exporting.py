"""`export` and `load`: jitted functions as bytes, for other processes and for JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast, final

from attrs import evolve, field, frozen
from typing_extensions import ParamSpec, override

from tracefx.control.call import Call
from tracefx.control.callables import match_weak_types
from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.vocabulary import VOCABULARY, vocabulary
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.effects import SowEffect
from tracefx.core.handler import Tracer, bind
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.sharding import RequestedShardings
from tracefx.core.values import Value
from tracefx.errors import ParseError
from tracefx.pytrees import trees
from tracefx.pytrees.structures import describe
from tracefx.pytrees.trees import TreeDef, keystr, require_same_structure
from tracefx.serialization import deserialize, put_tree, read_tree, serialize
from tracefx.serialization.byte_format import (
    ByteReader,
    decode_envelope,
    encode_envelope,
    put_bytes,
    put_string,
    put_uint,
)
from tracefx.shardings.meshes import MESH, MeshEffect
from tracefx.shardings.named_sharding import NamedSharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import flatten_values, to_arrays
from tracefx.transforms.device_remapping import add_sharding_constraints, boundary_shardings, devices_of, remap_devices
from tracefx.transforms.jax_export_format import encode_jax_export
from tracefx.transforms.jit import BoundJitted, Jitted
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
    """A function for one kind of arguments, that leaves the process: its program twice, and its trees.

    `jaxpr` is what `call` runs, and what `grad` and `vmap` transform. `mlir_module_serialized` is the same program in
    StableHLO, for everyone else.
    """

    fun_name: str
    in_tree: TreeDef
    """Of `(args, kwargs)`, without static arguments."""
    platforms: tuple[str, ...]
    mlir_module_serialized: bytes
    """A portable artifact of StableHLO. `main` takes the leaves of the arguments at `module_kept_var_idx`, after the
    index of the platform if there are several, and gives those of the result. Constants are part of it."""
    module_kept_var_idx: tuple[int, ...]
    _trace: Trace = field(alias="trace")

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the values that the function closed over."""
        return self._trace.closed()

    @property
    def out_tree(self) -> TreeDef:
        return self._trace.out_tree

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the leaves of the arguments."""
        return self._trace.jaxpr.in_avals[len(self._trace.consts) :]

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return self._trace.jaxpr.out_avals

    @property
    def nr_devices(self) -> int:
        """On how many devices it runs; 1 if the program speaks of no mesh."""
        return len(devices_of(self._trace.jaxpr)) or 1

    @property
    def in_shardings(self) -> tuple[NamedSharding | None, ...]:
        """How the leaves of the arguments are to lie, on a mesh of as many devices; None where nothing was said."""
        return boundary_shardings(self._trace.jaxpr)[0][len(self._trace.consts) :]

    @property
    def out_shardings(self) -> tuple[NamedSharding | None, ...]:
        """How those of the result lie."""
        return boundary_shardings(self._trace.jaxpr)[1]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function, called, under whatever transformation. It is compiled for this machine, once.

        A function of several devices runs on those that an argument lies on, or else on those of the mesh in use, or
        else on the first; in their order.

        Raises TypeError for arguments of another structure, shape or dtype, ValueError if they lie on another number of
        devices. Numbers of Python's take the dtype asked for if it is of their kind.
        """
        what = f"{self.fun_name}, which was exported: arguments"
        values, in_tree = flatten_values((args, kwargs), what)
        require_same_structure(what, self.in_tree, in_tree, "what was exported", "the call")
        given = [_convert_literal(x, aval) for x, aval in zip(values, self.in_avals, strict=True)]
        for i, (x, aval) in enumerate(zip(given, self.in_avals, strict=True)):
            if (x.aval.shape, x.aval.dtype) != (aval.shape, aval.dtype):
                path, _ = trees.flatten_with_path((args, kwargs))[0][i]
                which = f"args{keystr(path[1:])}" if keystr(path[:1]) == "[0]" else f"kwargs{keystr(path[1:])}"
                raise TypeError(
                    f"{self.fun_name} was exported for {which} of type {aval!r}, but called with {x.aval!r}"
                )
        trace = self._trace
        program = self._jaxpr_on(self._devices_for_call(given))
        outs = bind(Call(self.fun_name, program), *trace.consts, *match_weak_types(given, self.in_avals))
        return cast(R, self.out_tree.unflatten(to_arrays(outs)))

    def _devices_for_call(self, given: Sequence[Value]) -> tuple[Device, ...]:
        """The devices that a call is to run on."""
        mine = devices_of(self._trace.jaxpr)
        if not mine:
            return mine
        spread = [x.placed.devices for x in given if isinstance(x, ShardedArray) and x.placed.num_devices > 1]
        where = spread[0] if spread else MESH.value.flat or mine
        if len(where) != len(mine):
            what = "its arguments lie on" if spread else "the mesh in use has"
            raise ValueError(
                f"{self.fun_name} was exported for {len(mine)} devices, but {what} {len(where)}: call it "
                "with arrays on a mesh of as many"
            )
        return where

    def _jaxpr_on(self, devices: tuple[Device, ...]) -> Jaxpr:
        """The program on these devices."""
        jaxpr = self._trace.jaxpr
        mine = devices_of(jaxpr)
        if devices == mine:
            return jaxpr
        return jaxpr.memo.get(("on", devices), lambda: remap_devices(jaxpr, dict(zip(mine, devices, strict=True))))

    def mlir_module(self) -> str:
        """The StableHLO module as text; ParseError if `mlir_module_serialized` can't be read.

        This hands bytes to MLIR's reader, which `load` does not: its authors do not say that it bears hostile ones.
        """
        try:
            return BACKEND.value.portable_text(self.mlir_module_serialized)
        except ValueError as error:
            raise ParseError(f"the StableHLO module of {self.fun_name} cannot be read: {error}") from error

    def serialize(self) -> bytes:
        """The function as bytes, for `load`. The same function gives the same bytes."""
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
        put_bytes(out, serialize(self.jaxpr, VOCABULARY, provenance=True))  # `export` has dropped it, unless it is kept
        return encode_envelope(EXPORT_MAGIC, EXPORT_VERSION, out)

    def to_jax(self) -> bytes:
        """The function as bytes for `jax.export.deserialize`, whose `call` runs the StableHLO module.

        There is no derivative in it. Raises SerializationError for arguments or results in other containers than
        tuples, lists, dicts with strings for keys and None, and for dtypes that JAX's format lacks.
        """
        return encode_jax_export(
            self.fun_name,
            (self.in_tree, self.out_tree),
            (self.in_avals, self.out_avals),
            self.platforms,
            self.mlir_module_serialized,
            self.module_kept_var_idx,
            self.nr_devices,
        )

    @override
    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        return load, (self.serialize(),)

    @override
    def __repr__(self) -> str:
        types = f"({show_avals(self.in_avals)}) -> ({show_avals(self.out_avals)})"
        return f"<{self.fun_name} exported for {', '.join(self.platforms)}: {types}>"


def _convert_literal(x: Value, aval: ShapedArray) -> Value:
    """A Python number as one of the type that is asked for, if it is of its kind."""
    if type(x) is not Literal or not x.aval.weak_type or aval.shape or x.aval == aval:
        return x
    wanted, val = aval.dtype, x.val
    if not (dtypes.is_complex(wanted) or (dtypes.is_float(wanted) and type(val) is not complex)) and (
        type(val) is not int or not dtypes.is_integer(wanted)
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
    """A function that exports `fun` for the types of its arguments: arrays, or `ShapeDtypeStruct`s.

    Static arguments become part of what is exported; `Exported.call` takes the others. `platforms` says where the
    StableHLO module shall run, `"cpu"`, `"cuda"`, `"rocm"` or `"tpu"`: here, if it isn't given. For several it takes
    the index of the one it runs on, and chooses where operations aren't the same on all. Lines of source code are
    left out unless `provenance` is true.

    A program that speaks of a mesh (by `shard_map`, `with_sharding_constraint`, `in_shardings`, `out_shardings`, or as
    an argument lies on one) is exported for as many devices, whichever they are: its first is the first there where
    `Exported.call` runs it. To load it takes as many devices.

    Programs with callbacks can't be exported, nor can rules of `custom_jvp`, `custom_vjp` and `custom_vmap` or policies
    of `checkpoint`, which are Python functions: that is a SerializationError, which shows the equation. With
    `drop_rules` these functions are exported without their rules, and differentiated, where they are loaded, as any
    others are.

    Raises TypeError if `fun` is not jitted or closes over a tracer, ValueError for an unknown platform,
    NotImplementedError for an operation that one of the platforms lacks.

    >>> from tracefx import ShapeDtypeStruct, jit
    >>> square = export(jit(lambda x: x * x))(ShapeDtypeStruct((), "float32"))
    >>> load(square.serialize()).call(3.0)
    Array(9., dtype=float32)
    """
    if not isinstance(fun, (Jitted, BoundJitted)):
        raise TypeError(f"export takes what tracefx.jit gives, got {fun!r}: export(tracefx.jit(f))(*args)")
    where = _platforms(platforms)

    def exported(*args: Any, **kwargs: Any) -> Exported[P, R]:
        traced = fun.trace(*args, **kwargs)
        trace = traced.trace
        for const in trace.consts:
            if isinstance(const, Tracer):
                raise TypeError(
                    f"export of {trace.name}: it closes over {const}, which is no number: export it outside of the "
                    "transformation, or make the value an argument"
                )
        for aval in (*trace.jaxpr.in_avals, *trace.jaxpr.out_avals):
            if aval.dtype == dtypes.float0:
                raise TypeError(f"export of {trace.name}: StableHLO has no arrays of float0, such as {aval}")
        program = _ProgramStripper(drop_rules, provenance=True).strip_jaxpr(
            _normalize_devices(trace.jaxpr, traced.requested_shardings)
        )
        serialize(ClosedJaxpr(program, ()), VOCABULARY)  # which refuses what it must, and tells the line
        if not provenance:
            program = _ProgramStripper(drop_rules, provenance).strip_jaxpr(program)
        wishes = RequestedShardings(*boundary_shardings(program)) if devices_of(program) else None
        module, kept = BACKEND.value.serialize_portable(program, trace.consts, trace.name, where, wishes)
        return Exported(trace.name, traced.in_tree, where, module, kept, evolve(trace, jaxpr=program))

    return exported


def _normalize_devices(jaxpr: Jaxpr, wishes: RequestedShardings | None) -> Jaxpr:
    """The program that says itself how inputs and outputs lie, and speaks of the first devices instead of its own."""
    program = jaxpr if wishes is None else add_sharding_constraints(jaxpr, wishes.inputs, wishes.outputs)
    mine = devices_of(program)
    first = BACKEND.value.devices(BACKEND.value.platform)[: len(mine)]
    return program if list(mine) == first else remap_devices(program, dict(zip(mine, first, strict=True)))


def _platforms(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return (BACKEND.value.platform,)
    return require_platforms(given, "export: platforms")


@final
class _ProgramStripper:
    """Programs without the lines that they were written in, and without rules, so far as these are to be left out."""

    def __init__(self, drop_rules: bool, provenance: bool) -> None:
        self.drop_rules = drop_rules
        self.provenance = provenance
        self.done: dict[int, tuple[Jaxpr, Jaxpr]] = {}
        """By the program's identity, which the first of the two keeps."""

    def strip_jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        found = self.done.get(id(jaxpr))
        if found is None:
            eqns = [
                Eqn(self.strip_primitive(e.prim), e.inputs, e.outs, e.source if self.provenance else None)
                for e in jaxpr.eqns
            ]
            found = self.done[id(jaxpr)] = jaxpr, evolve(jaxpr, eqns=tuple(eqns))
        return found[1]

    def strip_primitive(self, prim: Primitive) -> Primitive:
        if self.drop_rules and isinstance(prim, CustomRuleProgram):
            return Call(prim.label, self.strip_jaxpr(prim.jaxpr))
        if self.drop_rules and isinstance(prim, CheckpointPrimitive) and prim.policy is not None:
            prim = evolve(prim, policy=None)
        return prim.with_jaxprs(*map(self.strip_jaxpr, prim.jaxprs())) if isinstance(prim, HasSubjaxprs) else prim


# ------------------------------------------------------------------ load


def load(data: bytes | bytearray | memoryview, *more: type[Primitive]) -> Exported[..., Any]:
    """The function that `Exported.serialize` wrote; `more` are operations beside tracefx's own, known by their names.

    Classes of arguments and results, registered nodes and named tuples, must be there already: no module is imported
    for them. Bytes from anywhere will do, as with `tracefx.programs.deserialize`; the StableHLO module is not looked
    at.

    Raises ParseError, which says what is wrong, for bytes that are no exported function, or one with classes that are
    not there.
    """
    reader = decode_envelope(data, EXPORT_MAGIC, EXPORT_VERSION, _WHAT)
    name = reader.string("the function's name")
    in_tree, out_tree = read_tree(reader), read_tree(reader)
    platforms = tuple([reader.string("a platform") for _ in range(reader.count("platforms"))])
    if not platforms or any(p not in LOWERING_PLATFORMS for p in platforms) or len(set(platforms)) != len(platforms):
        reader.fail(f"the platforms {platforms!r} are not some of {', '.join(LOWERING_PLATFORMS)}, each once")
    kept = [reader.uint() for _ in range(reader.count("numbers of inputs"))]
    module = bytes(reader.length_prefixed("the StableHLO module"))
    program = deserialize(reader.length_prefixed("the program"), vocabulary(more))
    reader.done()
    _check_trees(reader, in_tree, out_tree, program)
    if any(a >= b for a, b in itertools.pairwise([*kept, len(program.in_avals)])):
        reader.fail(f"the inputs that the module takes, {kept}, are not some of {len(program.in_avals)} in their order")
    effects = [effect for effect in program.effects if not isinstance(effect, SowEffect | MeshEffect)]
    if effects:
        reader.fail(f"the program has effects: {', '.join(sorted(map(str, effects)))}")
    trace = Trace(program.jaxpr.closed(), program.consts, out_tree, name)
    return Exported(name, in_tree, platforms, module, tuple(kept), trace)


def _check_trees(reader: ByteReader, in_tree: TreeDef, out_tree: TreeDef, program: ClosedJaxpr) -> None:
    for what, tree, avals in (("arguments", in_tree, program.in_avals), ("results", out_tree, program.out_avals)):
        if tree.num_leaves != len(avals):
            reader.fail(f"the {what} have {tree.num_leaves} leaves, but those of the program are {len(avals)}")
    if _node_type(in_tree) is tuple and list(map(_node_type, in_tree.children())) == [tuple, dict]:
        names = describe(in_tree.children()[1]).metadata
        if isinstance(names, tuple) and all(type(name) is str for name in names):
            return
    reader.fail(f"{in_tree} is no structure of arguments: a tuple, and a dict of names")


def _node_type(tree: TreeDef) -> type | None:
    node = tree.node_data()
    return None if node is None else node[0]
