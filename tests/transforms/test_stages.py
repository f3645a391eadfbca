"""Attributes of traced, lowered and compiled calls, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_near
from tests.errors import untyped
from tracefx.sharding import Format, Layout, NamedSharding, PartitionSpec
from tracefx.xla.runtime import executables, multi_device


def _stages(F: Any, N: Any) -> dict[str, Any]:
    def f(x: Any, y: Any, *, k: Any = 1.0) -> Any:
        return {"o": N.sin(x) @ y + k, "p": x}

    traced = F.jit(f, donate_argnums=0).trace(N.ones((2, 3)), N.ones(3), k=2.0)
    lowered = traced.lower()
    return {"traced": traced, "lowered": lowered, "compiled": lowered.compile()}


@pytest.mark.parametrize("stage", ["traced", "lowered", "compiled"])
def test_argument_and_output_info_agrees_with_jax(stage: str) -> None:
    def describe(F: Any, N: Any) -> Any:
        call = _stages(F, N)[stage]
        infos = [(i.shape, str(i.dtype), i.donated) for i in F.tree.leaves(call.args_info)]
        avals = [(a.shape, str(a.dtype), a.weak_type) for a in F.tree.leaves(call.in_avals)]
        outs = [(o.shape, str(o.dtype)) for o in F.tree.leaves(call.out_info)]
        structures = [str(F.tree.structure(t)) for t in (call.args_info, call.in_avals, call.out_info)]
        return infos, avals, outs, structures, str(call.in_tree), str(call.out_tree), call.donate_argnums

    assert describe(fx, fnp) == describe(jax, jnp)


def test_traced_call_has_name_and_output_avals() -> None:
    def describe(F: Any, N: Any) -> Any:
        traced = _stages(F, N)["traced"]
        return traced.fun_name, [(a.shape, str(a.dtype)) for a in F.tree.leaves(traced.out_avals)]

    assert describe(fx, fnp) == describe(jax, jnp)


def test_compiled_call_has_output_shardings() -> None:
    assert [o.sharding.device_set for o in fx.tree.leaves(_stages(fx, fnp)["compiled"].out_info)] == [
        {fx.devices()[0]}
    ] * 2


@pytest.mark.parametrize("dialect", [None, "stablehlo", "hlo"])
def test_dialects(dialect: str | None) -> None:
    tracefx_stages, jax_stages = _stages(fx, fnp)["lowered"], _stages(jax, jnp)["lowered"]
    for lowered in (tracefx_stages, jax_stages):
        text = lowered.as_text(dialect)
        assert ("HloModule" if dialect == "hlo" else "stablehlo.sine") in text
        assert lowered.as_text(dialect=dialect, debug_info=False) == text
    assert type(tracefx_stages.compiler_ir(dialect)) is type(jax_stages.compiler_ir(dialect))
    assert type(tracefx_stages.compiler_ir(dialect=dialect)) is type(jax_stages.compiler_ir(dialect=dialect))


@pytest.mark.parametrize("method", ["as_text", "compiler_ir"])
def test_unknown_dialects(method: str) -> None:
    for F, N in ((fx, fnp), (jax, jnp)):
        with pytest.raises(ValueError, match="unknown dialect"):
            getattr(_stages(F, N)["lowered"], method)(dialect="mhlo")


def test_costs_and_memory() -> None:
    tracefx_stages, jax_stages = _stages(fx, fnp), _stages(jax, jnp)
    for stage in ("lowered", "compiled"):
        cost, expected = tracefx_stages[stage].cost_analysis(), jax_stages[stage].cost_analysis()
        assert cost["flops"] == expected["flops"]
        assert type(cost) is type(expected) is dict
    for name in ("argument", "output", "alias", "generated_code"):
        attribute = f"{name}_size_in_bytes"
        assert getattr(tracefx_stages["compiled"].memory_analysis(), attribute) == getattr(
            jax_stages["compiled"].memory_analysis(), attribute
        )
    memory = tracefx_stages["compiled"].memory_analysis()
    assert memory.temp_size_in_bytes == memory.temp_bytes
    assert memory.peak_memory_in_bytes == memory.peak_bytes


@pytest.mark.parametrize("donated", [(), (0,)])
def test_peak_memory_includes_arguments_results_and_intermediate_results(donated: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        return fnp.tanh(fnp.fft.fft2(x).real @ x) @ x

    x = np.ones((64, 64), np.float32)
    memory = fx.jit(f, donate_argnums=donated).lower(x).compile().memory_analysis()
    jax_compiled = jax.jit(lambda x: jnp.tanh(jnp.fft.fft2(x).real @ x) @ x, donate_argnums=donated).lower(x).compile()
    jax_analysis = jax_compiled.memory_analysis()
    assert jax_analysis is not None
    assert memory.temp_bytes > 0
    assert memory.peak_bytes == memory.temp_bytes + x.nbytes * (1 if donated else 2)
    assert memory.peak_bytes >= jax_analysis.peak_memory_in_bytes
    assert memory.alias_bytes == (x.nbytes if donated else 0)


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("tpu",), ("cpu", "cuda"), ()], ids=str)
def test_lowering_for_other_platforms(platforms: tuple[str, ...]) -> None:
    texts = []
    for F, N in ((fx, fnp), (jax, jnp)):
        traced = F.jit(lambda x, N=N: N.linalg.cholesky(x)).trace(N.eye(2))
        lowered = traced.lower(lowering_platforms=platforms)
        texts.append(lowered.as_text())
        if platforms in ((), ("cpu",)):
            assert lowered.compile()(N.eye(2)).tolist() == [[1, 0], [0, 1]]
    for target in ("lapack_spotrf_ffi", "cusolver_potrf_ffi"):
        assert len({target in text for text in texts}) == 1


def test_module_lowered_for_another_platform_is_not_compiled() -> None:
    traced = fx.jit(lambda x: x + 1).trace(1.0)
    with pytest.raises(ValueError, match="lowered for cuda can't be compiled here"):
        traced.lower(lowering_platforms=("cuda",)).compile()
    with pytest.raises(ValueError, match="lowering_platforms must be None or a sequence of some of cpu"):
        traced.lower(lowering_platforms=("abacus",))


OPTIONS: Final[list[Any]] = [{"xla_cpu_enable_fast_math": True}, {"xla_embed_ir_in_executable": True}, {}, None]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_compiler_options(options: Any) -> None:
    assert_agree(lambda F, N: F.jit(lambda x: x + 1, compiler_options=options)(1.0))
    assert_agree(lambda F, N: F.jit(F.vmap(lambda x: x + 1), compiler_options=options)(N.arange(2.0)))
    for F in (fx, jax):
        nested = F.jit(lambda x, F=F: F.jit(lambda x: x + 1, compiler_options=options)(x))
        if options:
            with pytest.raises(ValueError, match="compiler_options"):
                nested(1.0)
        else:
            assert nested(1.0) == 2


def test_unknown_compiler_options() -> None:
    for F in (fx, jax):
        with pytest.raises(RuntimeError, match="No such compile option: 'abacus'"):
            F.jit(lambda x: x + 1, compiler_options={"abacus": 1})(1.0)


def test_make_jaxpr_binds_named_axes() -> None:
    closed_jaxpr = fx.make_jaxpr(lambda x: fx.lax.psum(x, ("i", "j")), axis_env=[("i", 4), ("j", 2)])(fnp.ones(2))
    assert [e.prim.name for e in closed_jaxpr.eqns] == ["psum"]
    with pytest.raises(NameError, match="unbound axis name 'i'"):
        fx.make_jaxpr(lambda x: fx.lax.psum(x, "i"))(1.0)

    def shapes(F: Any, N: Any) -> Any:
        closed, out = F.make_jaxpr(
            lambda x: (F.lax.all_gather(x, "i"), F.lax.axis_index("i"), x * F.lax.axis_size("i")),
            axis_env=[("i", 4)],
            return_shape=True,
        )(np.ones(2, np.float32))
        return [a.shape for a in closed.out_avals], [(o.shape, str(o.dtype)) for o in out]

    assert shapes(fx, fnp) == shapes(jax, jnp)


def test_representations_are_short() -> None:
    traced = fx.jit(fnp.sin).trace(fnp.ones(3))
    for stage, name in ((traced, "traced"), (traced.lower(), "lowered"), (traced.lower().compile(), "compiled")):
        assert repr(stage) == f"<sin {name}: (f32[3]) -> (f32[3])>"

    def many(xs: list[fx.Array]) -> fx.Array:
        return xs[0]

    types = ", ".join(["f32[]"] * 6)
    assert repr(fx.jit(many).trace([fnp.ones(())] * 50)) == f"<many traced: ({types}, 44 more) -> (f32[])>"
    assert repr(fx.jit(many).trace([fnp.ones(())] * 7)) == f"<many traced: ({types}, f32[]) -> (f32[])>"


def test_formats_and_executables_of_compiled_programs_match_jax() -> None:
    def formats(F: Any, N: Any) -> list[Any]:
        call = F.jit(lambda x, k: {"sum": x["a"] + k, "top": x["a"][0]})
        compiled = call.lower({"a": N.ones((2, 3))}, k=F.ShapeDtypeStruct((3,), "float32")).compile()
        assert compiled.runtime_executable().get_hlo_text().startswith("HloModule")
        formats = [*F.tree.leaves(compiled.input_formats), *F.tree.leaves(compiled.output_formats)]
        assert F.tree.structure(compiled.input_formats) == compiled.in_tree
        assert F.tree.structure(compiled.output_formats) == compiled.out_tree
        x = N.ones((2, 3))
        struct = F.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.format)
        assert struct.format == x.format
        assert struct.sharding == x.sharding
        assert F.ShapeDtypeStruct(x.shape, x.dtype).format == type(x.format)()
        formats += [
            x.format,
            N.asarray(1.0).format,
            F.device_put(x, x.format).format,
            struct.update(shape=(2, 4)).format,
        ]
        return [(f.layout.major_to_minor, f.layout.tiling, [d.id for d in f.sharding.device_set]) for f in formats]

    assert formats(fx, fnp) == formats(jax, jnp)


def test_formats_are_accepted_as_shardings() -> None:
    x = fx.device_put(np.ones((2, 3), np.float32), fx.devices()[0])
    f = fx.jit(lambda x: x + 1, in_shardings=Format(Layout.AUTO, x.sharding), out_shardings=x.format)
    assert f(x).committed
    assert fx.device_put(x, Format()) is x
    column_major = Format(Layout((1, 0)), x.sharding)
    for call in (
        lambda: fx.device_put(x, column_major),
        lambda: fx.jit(lambda x: x, out_shardings=column_major)(x),
        lambda: fx.ShapeDtypeStruct((2, 3), "float32", sharding=column_major),
    ):
        with pytest.raises(
            ValueError, match=r"arrays are row-major, so Layout\(major_to_minor=\(1, 0\).* not supported"
        ):
            call()
    made = fx.make_array_from_callback((2, 3), x.format, lambda index: np.ones((2, 3), np.float32)[index])
    assert (made.format, made.tolist()) == (x.format, x.tolist())
    for layout, message in ((Layout.AUTO, "so only jit takes it"), (Layout((0, 1, 2)), "does not fit an array with 2")):
        with pytest.raises(ValueError, match=message):
            fx.device_put(x, Format(layout, x.sharding))
        with pytest.raises(ValueError, match=message):
            fx.make_array_from_callback((2, 3), Format(layout, x.sharding), lambda _: x)
    with pytest.raises(ValueError, match="so only jit takes it"):
        fx.ShapeDtypeStruct((2, 3), "float32", sharding=Format(Layout.AUTO, x.sharding))
    with pytest.raises(TypeError, match="make_array_from_callback takes a Sharding, got None"):
        fx.make_array_from_callback((2, 3), Format(), lambda _: x)
    with pytest.raises(ValueError, match="a layout needs a sharding"):
        Format(Layout((0, 1)))
    with pytest.raises(TypeError, match="layout must be a Layout"):
        untyped(Format)((0, 1))
    with pytest.raises(AttributeError, match="has no format: it is traced"):
        fx.jit(lambda x: x.format)(x)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("called_first", [False, True])
def test_calls_share_the_program_compiled_ahead_of_time(
    monkeypatch: pytest.MonkeyPatch, sharded: bool, called_first: bool
) -> None:
    compiled = []

    def counting(compile_now: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            compiled.append(kwargs["name"])
            return compile_now(*args, **kwargs)

        return run

    for module, function in ((executables, "compile_module"), (multi_device, "compile_spmd")):
        monkeypatch.setattr(module, function, counting(getattr(module, function)))
    x: fx.Array = fnp.arange(8.0)
    if sharded:
        x = fx.device_put(x, NamedSharding(fx.make_mesh((4,), ("x",)), PartitionSpec("x")))
    factor = 2.25 + called_first  # calls of equal programs would share the executable
    f = fx.jit(lambda x: fnp.sin(x) * factor)
    calls: list[Callable[[], fx.Array]] = [lambda: f(x), lambda: f.lower(x).compile()(x)]
    for call in calls if called_first else reversed(calls):
        assert_near(call(), np.sin(np.arange(8.0)) * factor)
    assert len(compiled) == 1
    f.lower(x).compile(compiler_options={"xla_cpu_enable_fast_math": False})
    assert len(compiled) == 2


def test_equal_functions_compiled_ahead_of_time_keep_their_names() -> None:
    def first(x: Any) -> Any:
        return fnp.cos(x) * 3.25

    def second(x: Any) -> Any:
        return fnp.cos(x) * 3.25

    texts = [fx.jit(f).lower(1.0).compile().as_text() for f in (first, second)]
    assert ["jit_first" in texts[0], "jit_second" in texts[1]] == [True, True]


def test_programs_compiled_ahead_of_time_have_the_compiler_options_of_jit() -> None:
    for library in (fx, jax):
        lowered = library.jit(lambda x: x + 1, compiler_options={"xla_unknown": 1}).lower(1.0)
        with pytest.raises(Exception, match="No such compile option: 'xla_unknown'"):
            lowered.compile()
