"""The exporter: runs jaxprs of tracefx equation by equation with JAX primitives.

Most primitives have a JAX primitive of the same name and parameters. The others have an export rule: a function of the
exporter, the primitive and its operands. Primitives without a counterpart are wrapped in a primitive of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, cast, final

import jax
from attrs import field, frozen
from jax.extend import core as jax_core
from jax.extend.core import primitives
from typing_extensions import override

from tracefx import ops
from tracefx.bounded_cache import MemoKey, memoize_on_object
from tracefx.control.composite import Composite
from tracefx.control.generic_reduction import ReduceWindow
from tracefx.control.special.incomplete_gamma import IgammaGradA, RandomGammaGrad
from tracefx.control.vocabulary import VOCABULARY
from tracefx.core import Literal, ShapedArray, Value, dtypes
from tracefx.core.handler import CURRENT, NamedAxis, Tracer, current
from tracefx.core.jaxpr import Atom, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.errors import EscapedTracerError
from tracefx.interop.jax.parameters import parameters_to_jax
from tracefx.interop.jax.source_info import jax_user_context
from tracefx.interop.jax.values import as_jax, dtype_from_jax, type_to_jax
from tracefx.interpreters.named_axes import NamedAxes
from tracefx.interpreters.stage import stage
from tracefx.settings import X64
from tracefx.source_location import Provenance

UserExportRule: TypeAlias = Callable[..., Any]
"""A user-defined export rule: takes the tracefx primitive and JAX arrays, and returns one array or several."""

# ------------------------------------------------------------------ primitives

_UNLISTED_PRIMITIVES: Final = (
    jax.lax.linalg.cholesky_update_p,
    jax.lax.linalg.lu_pivots_to_permutation_p,
    jax.lax.linalg.ormqr_p,
    jax.lax.linalg.symmetric_product_p,
)
JAX_PRIMITIVES: Final[Mapping[str, jax_core.Primitive]] = MappingProxyType(
    {p.name: p for p in (*vars(primitives).values(), *_UNLISTED_PRIMITIVES) if isinstance(p, jax_core.Primitive)}
)
"""JAX's publicly accessible primitives by name."""

# ------------------------------------------------------------------ named axes


@final
class _JaxNamedAxes(NamedAxes):
    """A handler with the named axes of JAX's current axis environment."""

    title: ClassVar[str] = "to_jax"


def is_under_jit() -> bool:
    """Whether JAX is tracing, under `jax.jit` and the like."""
    return bool(jax_core.unsafe_am_i_under_a_jit_DO_NOT_USE())  # type: ignore[attr-defined]  # JAX hides it behind a warning


def x64_enabled() -> bool:
    """Whether JAX is in 64-bit mode."""
    return bool(getattr(jax.config, "jax_enable_x64", False))


def default_matmul_precision() -> str | None:
    """Returns JAX's default precision of matrix products, or None if it is not set."""
    precision: str | None = getattr(jax.config, "jax_default_matmul_precision", None)
    return precision


def jax_settings() -> AbstractContextManager[None]:
    """Returns a context in which tracefx has JAX's 64-bit setting and named axes."""
    names = jax_core.unsafe_get_axis_names_DO_NOT_USE()  # type: ignore[attr-defined]  # as above
    x64 = x64_enabled()
    return nullcontext() if not names and x64 is X64.value else _override_settings(names, x64)


@contextmanager
def _override_settings(names: Sequence[Any], x64: bool) -> Iterator[None]:
    token = CURRENT.set(_JaxNamedAxes(current(), {name: NamedAxis(jax.lax.axis_size(name)) for name in names}))
    try:
        with X64.override(x64):
            yield
    finally:
        CURRENT.reset(token)


# ------------------------------------------------------------------ jaxprs


@final
@frozen(eq=False, repr=False)
class Exporter:
    """Applies tracefx primitives in JAX."""

    rules: Mapping[type[Primitive], ExportRule]
    """Export rules by class, for primitives without a JAX primitive of the same name and parameters."""
    fallback: ExportRule
    """The rule for primitives that JAX lacks, or for which it lacks derivatives."""
    user_rules: Mapping[str, UserExportRule] = field(factory=dict)
    """User-defined rules by name of primitive; they take precedence over all others."""

    def run(self, jaxpr: Jaxpr, args: Sequence[jax.Array]) -> list[jax.Array]:
        """Runs a jaxpr in JAX."""
        with x64_if_needed(jaxpr):
            return self._run(jaxpr, args)

    def _run(self, jaxpr: Jaxpr, args: Sequence[jax.Array]) -> list[jax.Array]:
        assert not jaxpr.constvars
        env: list[jax.Array | None] = [None] * jaxpr.var_count
        for v, x in zip(jaxpr.invars, args, strict=True):
            env[v.index] = x

        def read(atom: Atom) -> jax.Array:
            return literal_to_jax(atom) if isinstance(atom, Literal) else cast("jax.Array", env[atom.index])

        for eqn, unused in zip(jaxpr.eqns, jaxpr.last_uses, strict=True):
            operands = [read(a) for a in eqn.inputs]
            with jax_user_context(eqn.source), _scope(eqn.source):
                outs = self.apply(eqn.prim, operands)
            for v, x in zip(eqn.outs, outs, strict=True):
                env[v.index] = x
            for i in unused:
                env[i] = None
        return [read(a) for a in jaxpr.outs]

    def apply(self, prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """Applies one primitive in JAX."""
        if (user_rule := self.user_rules.get(prim.name)) is not None:
            return _apply_user_rule(user_rule, prim, args)
        if not self.has_counterpart(prim) or lacks_derivatives(prim) or samples_differently(prim, args):
            return self.fallback(self, prim, args)
        return self.bind(prim, args)

    def has_counterpart(self, prim: Primitive) -> bool:
        """Whether JAX has a counterpart of the primitive."""
        prim_class = type(prim)
        return prim_class in self.rules or (prim.name in JAX_PRIMITIVES and VOCABULARY.get(prim.name) is prim_class)

    def bind(self, prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """Binds the counterpart of a primitive in JAX."""
        if (rule := self.rules.get(type(prim))) is not None:
            return rule(self, prim, args)
        return bind_by_name(prim, args)

    # -------------------------------------------------------------- sub-jaxprs

    def function(self, jaxpr: Jaxpr, label: str) -> Callable[..., list[jax.Array]]:
        """Returns a jaxpr as a JAX function, memoized: JAX caches compiled code by function object."""
        return _jax_function(jaxpr, self, label)

    def closed(self, jaxpr: Jaxpr) -> jax_core.ClosedJaxpr:
        """Converts a jaxpr to a closed jaxpr of JAX, memoized."""
        key = self, x64_enabled(), default_matmul_precision()
        return jaxpr.memo.get(_CLOSED_JAXPR, key, lambda: self._closed(jaxpr))

    def _closed(self, jaxpr: Jaxpr) -> jax_core.ClosedJaxpr:
        jax_types = list(map(type_to_jax, jaxpr.in_avals))
        inputs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in jax_types]
        return jax.make_jaxpr(lambda *args: self.run(jaxpr, args))(*inputs)

    def run_function(
        self, f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray], args: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Traces a function of values with tracefx and runs it in JAX."""
        with jax_settings():
            jaxpr, consts = stage(f, avals, current(), title="to_jax")
        return self.run(jaxpr.closed(), [*map(constant_to_jax, consts), *args])

    @override
    def __repr__(self) -> str:
        return f"to_jax(rules={list(self.user_rules)})" if self.user_rules else "to_jax"


ExportRule: TypeAlias = Callable[[Exporter, Any, Sequence[jax.Array]], Sequence[jax.Array]]


def bind_by_name(prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Binds the JAX primitive of the same name and parameters."""
    primitive = JAX_PRIMITIVES[prim.name]
    outs = primitive.bind(*args, **parameters_to_jax(prim))
    return outs if primitive.multiple_results else [outs]


def lacks_derivatives(prim: Primitive) -> bool:
    """Whether JAX has the primitive but lacks some of the derivatives that tracefx has."""
    if isinstance(prim, ops.ScatterMul):
        return not prim.unique_indices
    return isinstance(
        prim, ops.CholeskyUpdate | Composite | IgammaGradA | RandomGammaGrad | ReduceWindow | ops.SymmetricProduct
    )


def samples_differently(prim: Primitive, args: Sequence[jax.Array]) -> bool:
    """Whether JAX has the primitive but draws other numbers for several keys: tracefx draws for each key separately."""
    if isinstance(prim, ops.RngBitGenerator):
        return args[0].ndim > 1
    if isinstance(prim, ops.RandomBits):
        return not prim.partitionable or dtype_from_jax(args[0].dtype) != dtypes.key_fry
    if isinstance(prim, ops.RandomSplit) and not prim.partitionable:
        return True
    return isinstance(prim, ops.RandomSplit | ops.RandomFoldIn) and dtype_from_jax(args[0].dtype) == dtypes.key_urbg


def _apply_user_rule(rule: UserExportRule, prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    outs = rule(prim, *args)
    return outs if isinstance(outs, tuple | list) else [outs]


def _scope(source: Provenance | None) -> AbstractContextManager[object]:
    return jax.named_scope("/".join(source.scope)) if source is not None and source.scope else nullcontext()


# ------------------------------------------------------------------ values


def literal_to_jax(x: Literal) -> jax.Array:
    """Converts a literal."""
    host = x.numpy()
    if not x.aval.weak_type:
        return cast("jax.Array", host)  # JAX makes literals of NumPy scalars
    weak: jax.Array = primitives.convert_element_type_p.bind(host, new_dtype=host.dtype, weak_type=True, sharding=None)
    return weak


def constant_to_jax(x: Value) -> jax.Array:
    """Converts a closed-over value; raises `EscapedTracerError` for tracers of tracefx."""
    if isinstance(x, Literal):
        return literal_to_jax(x)
    if isinstance(x, Tracer):
        raise EscapedTracerError(
            f"to_jax: the function closes over {x}, which {x.handler.title} of tracefx traces: JAX can't compute with "
            "it. Pass it as an argument, to a JAX function that tracefx.interop.jax.from_jax is given"
        )
    return as_jax(x)


_CLOSED_JAXPR: Final = MemoKey[jax_core.ClosedJaxpr]("closed jaxpr of JAX")


@memoize_on_object
def _jax_function(jaxpr: Jaxpr, exporter: Exporter, label: str) -> Callable[..., list[jax.Array]]:
    def call(*args: jax.Array) -> list[jax.Array]:
        return exporter.run(jaxpr, args)

    call.__name__ = call.__qualname__ = label
    return call


def x64_if_needed(jaxpr: Jaxpr) -> AbstractContextManager[None]:
    """Returns a context in which JAX is in 64-bit mode if the jaxpr uses 64-bit dtypes."""
    return jax.enable_x64(True) if uses_x64(jaxpr) else nullcontext()


@memoize_on_object
def uses_x64(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr uses 64-bit integers or floats, or 128-bit complex numbers."""
    atoms = [*jaxpr.invars, *[v for eqn in jaxpr.eqns for v in (*eqn.inputs, *eqn.outs)], *jaxpr.outs]
    if any(a.aval.dtype in X64_DTYPES for a in atoms):
        return True
    bodies = [b for eqn in jaxpr.eqns if isinstance(eqn.prim, HasSubjaxprs) for b in eqn.prim.jaxprs()]
    return any(map(uses_x64, bodies))


X64_DTYPES: Final = frozenset({dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128})
