"""`from_jax` supports every JAX primitive, or raises an error that gives the reason."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import jax
import jax._src.lax.eval_jaxpr
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import api_util
from jax.ad_checkpoint import checkpoint_name
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import linear_call
from jax.experimental import checkify, io_callback, sparse
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend import linear_util
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive, primitives
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import tracefx as fx
from tests.comparison import assert_same
from tests.compiling import compile_with_fallback
from tests.differential.records import INF, NAN, f32
from tests.interop.hi_primitives import Tripled
from tests.jaxprs import all_equations
from tests.laws.samples import SAMPLES, jax_function
from tests.versions import OTHER_PRIMITIVES, RUNS_RELAYOUT, STAGED_EVAL_JAXPR
from tracefx.errors import MissingRuleError
from tracefx.interop.jax import from_jax
from tracefx.interop.jax.importing import RULES
from tracefx.interop.jax.unsupported_primitives import UNSUPPORTED
from tracefx.testing.tolerances import SUMMED

Function = Callable[..., Any]
X: Final = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.75]], np.float32)
SQUARE: Final = np.array([[2.0, 0.5], [0.5, 1.0]], np.float32)

# ------------------------------------------------------------------ all JAX primitives

_KERNEL_MODULES: Final = ("pallas", "mosaic")
"""Modules whose primitives occur only in kernels for other devices, never in traced programs."""


if "program_order" not in OTHER_PRIMITIVES:
    importlib.import_module("jax.experimental.overlap")  # imports the module that defines the primitive


def all_primitives() -> dict[str, Primitive]:
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith(("jax._src.", "jax.experimental."))]
    values = [x for m in modules if not any(o in m.__name__ for o in _KERNEL_MODULES) for x in list(vars(m).values())]
    return {x.name: x for x in [*values, *vars(primitives).values()] if isinstance(x, Primitive)}


PRIMITIVES: Final[Mapping[str, Primitive]] = MappingProxyType(all_primitives())


def binding(name: str, **params: Any) -> Function:
    """Binds a primitive that no public function binds."""
    return lambda *args: PRIMITIVES[name].bind(*args, **params)


# ------------------------------------------------------------------ programs with supported primitives


@jax.custom_jvp
def _cubed(x: Any) -> Any:
    return x**3


_cubed.defjvp(lambda xs, ts: (xs[0] ** 3, 3 * ts[0]))


@jax.custom_vjp
def _doubled(x: Any) -> Any:
    return 2 * x


_doubled.defvjp(lambda x: (2 * x, None), lambda _, ct: (5 * ct,))


@custom_vmap
def _halved(x: Any) -> Any:
    return x / 2


@_halved.def_vmap
def _halved_vmap(axis_size: int, in_batched: list[bool], x: Any) -> tuple[Any, bool]:
    return x / 4, True


@custom_partitioning
def _negated(x: Any) -> Any:
    return -x


_negated.def_partition(None, sharding_rule="... -> ...")


def _with_sharding_constraint(x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(AxisType.Auto,))
    return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("devices")))


def _shard_map_over_rows(f: Any) -> Any:
    """`shard_map` over the rows of a matrix, one row per device, with tracking of varying axes."""

    def mapped(x: Any) -> Any:
        mesh = jax.make_mesh((len(x),), ("rows",), axis_types=(AxisType.Auto,))
        spec = PartitionSpec("rows")
        return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)(x)

    return mapped


def _resharded(x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(AxisType.Explicit,))
    return jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec()))


def _sparse(x: Any) -> Any:
    return sparse.BCOO.fromdense(x, nse=4)


def _extracted(x: Any) -> Any:
    rows = sparse.BCSR.fromdense(x, nse=4)
    return sparse.bcsr_extract(rows.indices, rows.indptr, x)


def _sampled(x: Any) -> Any:
    dimension_numbers = (((1,), (0,)), ((), ()))
    return sparse.bcoo_dot_general_sampled(x, x, _sparse(x).indices, dimension_numbers=dimension_numbers)


def _called(x: Any) -> Any:
    def f(x: Any) -> list[Any]:
        return [jnp.sin(x)]

    wrapped = linear_util.wrap_init(f, debug_info=api_util.debug_info("call", f, (x,), {}))
    return PRIMITIVES["call"].bind(x, subfuns=(wrapped,))


def _ordered(x: Any) -> Any:
    return importlib.import_module("jax.experimental.overlap").program_order(lambda x: jnp.sin(x) + 1, enforce=False)(x)


def _linear(x: Any) -> Any:
    return linear_call(lambda r, x: x * r, lambda r, ct: ct * r, 3.0, x)


def _solved(a: Any) -> Any:
    def solve(matvec: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b)

    return lax.custom_linear_solve(lambda v: a @ v, a[0], solve, lambda vecmat, b: jnp.linalg.solve(a.T, b))


def _factorized(a: Any) -> Any:
    importlib.import_module("jaxlib.cpu._lapack").initialize()  # without which its kernels end the process
    outs = [jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct((), jnp.int32)]
    factor = jax.ffi.ffi_call("lapack_spotrf_ffi", outs, vmap_method="sequential", input_output_aliases={0: 0})
    a = a @ a.T + 5 * jnp.eye(2, dtype=a.dtype)
    return factor(a, uplo=np.uint8(ord("L")))[0]


_PROGRAMS: Final[Mapping[str, tuple[Function, tuple[Any, ...]]]] = MappingProxyType(
    {
        "all_gather_invariant": (
            _shard_map_over_rows(lambda x: lax.all_gather(x, "rows", tiled=True, to="invarying")[:1] * x),
            (X,),
        ),
        "add_any": (jax.grad(lambda x: jnp.sum(x * x)), (X,)),
        "bessel_i0e": (lax.bessel_i0e, (X,)),
        "bessel_i1e": (lax.bessel_i1e, (X,)),
        "composite": (lambda x: lax.composite(lambda x, *, by: x * by, "my.scaled")(x, by=2), (X,)),
        "bcoo_dot_general": (lambda x: _sparse(x) @ x, (SQUARE,)),
        "bcoo_dot_general_sampled": (_sampled, (SQUARE,)),
        "bcoo_extract": (lambda x: sparse.bcoo_extract(_sparse(x), x).data, (SQUARE,)),
        "bcoo_fromdense": (lambda x: sparse.BCOO.fromdense(x, nse=6).data, (X,)),
        "bcoo_sort_indices": (lambda x: sparse.BCOO.fromdense(x, nse=6).T.sort_indices().data, (X,)),
        "bcoo_spdot_general": (lambda x: (_sparse(x) @ _sparse(x)).todense(), (SQUARE,)),
        "bcoo_sum_duplicates": (lambda x: sparse.BCOO.fromdense(x, nse=6).sum_duplicates(nse=6).todense(), (X,)),
        "bcoo_todense": (lambda x: sparse.BCOO.fromdense(x, nse=6).todense(), (X,)),
        "bcoo_transpose": (lambda x: sparse.BCOO.fromdense(x, nse=6).T.todense(), (X,)),
        "bcsr_dot_general": (lambda x: sparse.BCSR.fromdense(x, nse=4) @ x, (SQUARE,)),
        "bcsr_extract": (_extracted, (SQUARE,)),
        "bcsr_fromdense": (lambda x: sparse.BCSR.fromdense(x, nse=6).data, (X,)),
        "bcsr_todense": (lambda x: sparse.BCSR.fromdense(x, nse=6).todense(), (X,)),
        "call": (_called, (X,)),
        "call_exported": (jax.export.export(jax.jit(jnp.sin))(X).call, (X,)),
        "call_hi_primitive": (lambda x: Tripled(jax.typeof(x))(x), (X,)),
        STAGED_EVAL_JAXPR[0]: (binding("eval_jaxpr", **{STAGED_EVAL_JAXPR[1]: jax.make_jaxpr(jnp.sin)(X)}), (X,)),
        "cond": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x @ jnp.ones((3, 3)), x), (X,)),
        "copy": (jnp.copy, (X,)),
        "custom_jvp_call": (_cubed, (X,)),
        "custom_linear_solve": (_solved, (SQUARE,)),
        "custom_partitioning": (_negated, (X,)),
        "custom_vjp_call": (_doubled, (X,)),
        "custom_vmap_call": (_halved, (X,)),
        "dce_sink": (lambda x: (lax.dce_sink(x), 2 * x)[1], (X,)),
        "debug_callback": (lambda x: (jax.debug.callback(lambda _: None, x), x)[1], (X,)),
        "debug_print": (lambda x: (jax.debug.print("{x} {}", 1, x=x[0, 0]), x)[1], (X,)),
        "ffi_call": (_factorized, (SQUARE,)),
        "device_put": (jax.device_put, (X,)),
        "empty": (lambda x: 0 * lax.empty((3,), jnp.float32) + x, (X[0],)),
        "eq_to": (binding("eq_to"), (X, np.where(X > 1, X, -X))),
        "igamma": (lax.igamma, (abs(X), X * X)),
        "igamma_grad_a": (lax.igamma_grad_a, (abs(X), X * X)),
        "igammac": (lax.igammac, (abs(X), X * X)),
        "io_callback": (lambda x: io_callback(lambda x: 2 * x, jax.ShapeDtypeStruct((2, 3), jnp.float32), x), (X,)),
        "iota_2x32_shape": (lambda x: binding("iota_2x32_shape", shape=(2, 3))(), (X,)),
        "jit": (jax.jit(lambda x: jnp.sin(x) + 1), (X,)),
        "layout_constraint": (lambda x: with_layout_constraint(x, Layout((0, 1))), (X,)),
        "le_to": (binding("le_to"), (f32(-0.0, 0.0, NAN, -1.0), f32(0.0, -0.0, INF, -2.0))),
        "linear_call": (_linear, (X,)),
        "log2": (
            lambda x: [binding("log2", accuracy=None)(y) for y in (abs(x), lax.complex(x, 1 / x))],
            (X,),
        ),
        "lt_to": (binding("lt_to"), (f32(-0.0, 0.0, NAN, -1.0), f32(0.0, -0.0, INF, -2.0))),
        "name": (lambda x: checkpoint_name(x, "h"), (X,)),
        "one_minus_square": (binding("one_minus_square"), (X,)),
        "platform_index": (lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x), (X,)),
        "polygamma": (lax.polygamma, (abs(X), X * X)),
        "polynomial": (lambda x: binding("polynomial", unroll=4)(x, x[:1], 2.0, x[:, :1], *x[0]), (X,)),
        "program_order": (_ordered, (X,)),
        "pure_callback": (
            lambda x: jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct((2, 3), jnp.float32), x),
            (X,),
        ),
        "psum_invariant": (_shard_map_over_rows(lambda x: lax.psum(x, "rows") * x), (X,)),
        "pvary": (_shard_map_over_rows(lambda x: x + lax.pcast(jnp.float32(2), "rows", to="varying")), (X,)),
        "random_gamma": (lambda a: jax.random.gamma(jax.random.key(3), a, (2, 3)), (abs(X),)),
        "reduce": (lambda x: lax.reduce(x, jnp.float32(1), lambda a, b: a * b, (0,)), (X,)),
        "reduce_window": (
            lambda x: lax.reduce_window(x, jnp.float32(1), lambda a, b: a * b, (2, 2), (1, 1), "VALID"),
            (X,),
        ),
        "regularized_incomplete_beta": (lax.betainc, (abs(X), X * X, 1 / (1 + X * X))),
        "relayout": (binding("relayout", dst_layout=Layout((1, 0))), (X,)),
        "remat2": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), (X,)),
        "reshard": (_resharded, (X,)),
        "scan": (lambda x: lax.scan(lambda c, row: (c + row, c * 2), x[0], x, reverse=True, unroll=2), (X,)),
        "shard_map": (_shard_map_over_rows(lambda x: x * lax.axis_index("rows")), (X,)),
        "sharding_constraint": (_with_sharding_constraint, (X,)),
        "todense": (lambda x: sparse.todense(_sparse(x)), (SQUARE,)),
        "while": (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1 + x[0, 0], x), (X,)),
        "with_memory_space_constraint": (
            binding("with_memory_space_constraint", memory_space=jax.memory.Space.Device),
            (X,),
        ),
        "zeta": (lax.zeta, (abs(X) + 2, X * X + 1)),
    }
)
_EXCLUDED: Final = OTHER_PRIMITIVES | (frozenset() if RUNS_RELAYOUT else {"relayout"})
PROGRAMS: Final = {name: program for name, program in _PROGRAMS.items() if name not in _EXCLUDED}
"""Maps the name of a primitive to a function that binds it, and arguments of the function."""

COLLECTIVES: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "all_gather": lambda x: lax.all_gather(x, "i", axis=1),
        "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0),
        "axis_index": lambda x: lax.axis_index("i") + x,
        "pmax": lambda x: lax.pmax(x, "i"),
        "pmin": lambda x: lax.pmin(x, "i"),
        "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]),
        "psum": lambda x: lax.psum(x, "i"),
        "reduce_scatter": lambda x: lax.psum_scatter(x, "i"),
    }
)
"""Maps the name of a collective to a function of a matrix, over the named axis `i`."""

_UNUSED_PRIMITIVES: Final = frozenset({"empty2", "eval_jaxpr", *_EXCLUDED} - {STAGED_EVAL_JAXPR[0]})
"""Primitives that JAX no longer binds."""


def primitive_names_in(jaxpr: Jaxpr) -> Iterator[str]:
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in jax.tree.leaves(list(eqn.params.values())):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from primitive_names_in(value.jaxpr if isinstance(value, ClosedJaxpr) else value)


# ------------------------------------------------------------------ coverage


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_tested_or_unsupported(name: str) -> None:
    if name in UNSUPPORTED:
        assert name not in RULES
        assert name not in PROGRAMS
    else:
        assert any(name in table for table in (PROGRAMS, COLLECTIVES, SAMPLES, _UNUSED_PRIMITIVES)), "no test covers it"


def test_tables_contain_existing_primitives() -> None:
    of_other_devices = {"core_map", "pallas_call"}
    assert {*UNSUPPORTED} - {*PRIMITIVES} == of_other_devices | (OTHER_PRIMITIVES & {*UNSUPPORTED})
    assert {*RULES} - {*PRIMITIVES} == {"tracefx_operation"} | (OTHER_PRIMITIVES & {*RULES})


_OTHER_PARAMETERS: Final = frozenset({"eig"})
"""Primitives that the JAX function binds with other parameters than those it gets."""


# Meshes with devices and without are not compared.
@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, samples in SAMPLES.items()
        if name in PRIMITIVES and not samples[0].within and name not in {"reshard", "sharding_constraint"}
    ),
)
def test_primitives_are_imported_with_their_parameters(name: str) -> None:
    """The imported JAX function for a primitive binds that primitive, with equal parameters."""
    for sample in [s for s in SAMPLES[name] if s.partitionable]:
        f = jax_function(sample.prim)
        operands = [fx.numpy.array(x, dtype=x.dtype) if isinstance(x, np.ndarray) else x for x in sample.operands[0]]
        prims = [eqn.prim for eqn in all_equations(fx.make_jaxpr(from_jax(f))(*operands).jaxpr)]
        if name in _OTHER_PARAMETERS:
            assert any(type(prim) is type(sample.prim) for prim in prims)
        else:
            assert sample.prim in prims, prims


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_match_jax(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    f, args = PROGRAMS[name]
    assert name in {*primitive_names_in(jax.make_jaxpr(f)(*args).jaxpr)}
    assert_same(from_jax(f)(*args), compile_with_fallback(jax.jit, f)(*args), SUMMED)


@pytest.mark.parametrize("name", ["log2", "one_minus_square", "polynomial"])
def test_derivatives_of_composed_primitives_match_jax(name: str) -> None:
    if name in OTHER_PRIMITIVES:
        pytest.skip(f"the installed JAX has no primitive {name}")
    f, (x,) = PROGRAMS[name]
    x, t = np.append(x, np.full((1, 3), 1e-10, np.float32), 0), np.full((3, 3), 0.5, np.float32)
    want = jax.jit(lambda x, t: jax.jvp(f, [x], [t]))(x, t)
    assert_same(fx.jvp(from_jax(f), [x], [t]), want, SUMMED)
    assert_same(fx.jit(lambda x, t: fx.jvp(from_jax(f), [x], [t]))(x, t), want, SUMMED)
    assert_same(fx.vmap(from_jax(f))(x[:, None]), jax.vmap(f)(x[:, None]), SUMMED)

    def total(f: Function) -> Function:
        return lambda x: sum(abs(leaf).sum() for leaf in jax.tree.leaves(f(x)))

    assert_same(fx.grad(total(from_jax(f)))(x), jax.grad(total(f))(x), SUMMED)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_collectives_use_named_axes_of_vmap(name: str) -> None:
    f, x = COLLECTIVES[name], np.arange(8, dtype=np.float32).reshape(2, 2, 2) ** 2
    assert name in {*primitive_names_in(jax.make_jaxpr(f, axis_env=[("i", 2)])(x[0]).jaxpr)}
    want = jax.vmap(f, axis_name="i")(x)
    assert_same(fx.vmap(from_jax(f), axis_name="i")(x), want, SUMMED)
    # When JAX itself applies vmap, they become operations on the batch.
    assert_same(from_jax(jax.vmap(f, axis_name="i"))(x), want, SUMMED)


# ------------------------------------------------------------------ unsupported primitives


def test_the_error_names_the_primitive_the_line_and_the_remedy() -> None:
    def f(x: Any) -> Any:
        return lax.rng_uniform(x, 1.0, (3,))

    with pytest.raises(MissingRuleError) as caught:
        from_jax(f)(np.float32(0))
    text = str(caught.value)
    assert "'rng_uniform'" in text
    assert f"test_primitives.py:{f.__code__.co_firstlineno + 1} " in text
    assert "jax.random" in text
    assert "rules={'rng_uniform': rule}" in text


def test_user_rule_for_an_unsupported_primitive() -> None:
    def f(x: Any) -> Any:
        return lax.rng_uniform(x, 1.0, (3,)) * 2

    def rule(low: fx.Array, high: fx.Array, *, shape: tuple[int, ...]) -> fx.Array:
        return fx.numpy.broadcast_to((low + high) / 2, shape)

    with pytest.raises(MissingRuleError):
        from_jax(f)(np.float32(0))
    g = from_jax(f, rules={"rng_uniform": rule})
    assert g(np.float32(0)).tolist() == [1.0, 1.0, 1.0]
    gradient = fx.grad(lambda x: g(x).sum())(0.0)
    assert float(gradient) == 3.0


def test_user_rule_with_wrong_results_is_rejected() -> None:
    f = from_jax(lambda x: lax.rng_uniform(x, 1.0, (3,)), rules={"rng_uniform": lambda low, high, shape: low})
    with pytest.raises(TypeError, match=r"returned f32\[\].* where JAX's primitive returns f32\[3\]"):
        f(np.float32(0))
    g = from_jax(lambda x: lax.rng_uniform(x, 1.0, (3,)), rules={"rng_uniform": lambda low, high, shape: (low, high)})
    with pytest.raises(TypeError, match="returned 2 results, but JAX's primitive has 1"):
        g(np.float32(0))


def _checked(x: Any) -> Any:
    checkify.check(x > 0, "negative")
    return x


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda x: jax.new_ref(x)[...], "mutable reference"),
        (_checked, "checkify"),
        (lambda x: sparse.COO.fromdense(jnp.eye(2) * x, nse=2) @ jnp.ones(2), "use BCOO or BCSR"),
    ],
)
def test_unsupported_primitive_error_gives_the_reason(f: Function, reason: str) -> None:
    with pytest.raises(MissingRuleError, match=reason):
        from_jax(f)(np.float32(1))


def test_unsupported_parameters_are_rejected() -> None:
    f = from_jax(lambda x: lax.psum(x, "i", axis_index_groups=[[0], [1]]))
    with pytest.raises(NotImplementedError, match="axis_index_groups"):
        fx.vmap(f, axis_name="i")(np.ones(2, np.float32))
