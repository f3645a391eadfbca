"""`sow`, `reap`, `plant` and `perturb`: collecting and overriding intermediate values under every transformation."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tests.versions import SAME_BUFFERS
from tracefx import lax
from tracefx.control.sow import Plantable
from tracefx.extend import get_aval
from tracefx.handlers import perturb, plant, reap, sow
from tracefx.handlers.harvest import _Planter, _Reaper
from tracefx.testing import HANDLER_LAWS, check_function, check_handler, check_primitive
from tracefx.testing.tolerances import ELEMENTARY

XS: Final = np.array([0.5, 0.25, -1.5], np.float32)


def network(x: Any) -> Any:
    """Sows outside of control flow, in a scan, in both branches of a cond, and in a loop."""
    y = sow(fnp.sin(x), name="first")

    def step(c: Any, z: Any) -> Any:
        c = sow(c * z, name="step")
        return c, c

    c, _ = lax.scan(step, y * fnp.float32(1), fnp.arange(3.0) + 1)
    d = lax.cond(c > 0, lambda c: sow(c * 2, name="branch"), lambda c: sow(-c, name="branch"), c)
    e = lax.fori_loop(0, 2, lambda i, e: sow(e * x, name="loop"), d)
    return sow({"p": e, "q": (e * e,)}, name="tree")["p"]


def expected(x: float) -> dict[str, Any]:
    y = math.sin(x)
    d = abs(6 * y) * (2 if y > 0 else 1)
    return {
        "first": y,
        "step": np.array([y, 2 * y, 6 * y]),
        "branch": d,
        "loop": np.array([d * x, d * x * x]),
        "tree": {"p": d * x * x, "q": ((d * x * x) ** 2,)},
    }


def assert_close(sown: Any, reference: Any) -> None:
    assert fx.tree.structure(sown) == fx.tree.structure(reference)
    assert_near(sown, reference)


@fx.custom_jvp
def with_custom_jvp(x: Any) -> Any:
    return sow(x * x, name="inside") * 2


with_custom_jvp.defjvps(lambda t, ans, x: 100.0 * t)

FORMS: Final[dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "plain": lambda f: f,
    "jit": fx.jit,
    "checkpoint": fx.checkpoint,
    "jit of jit": lambda f: fx.jit(lambda x: fx.jit(f)(x)),
}


# ------------------------------------------------------------------ sow without a handler


VALUES: Final[list[Any]] = [
    *(np.zeros((0, 3), np.float32), np.ones(2, np.complex64), np.ones(2, ml_dtypes.bfloat16), np.arange(3)),
    *(np.array([True, False]), 2.0, 3, {"b": 1.0, "a": (np.ones(2, np.float32), None)}, (), None),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_sow_returns_its_value_and_reap_collects_it(value: Any) -> None:
    returned = sow(value, name="v")
    assert fx.tree.structure(returned) == fx.tree.structure(value)
    for wrapper in FORMS.values():
        out, sown = reap(wrapper(lambda x: sow(x, name="v")))(value)
        assert list(sown) == ["v"]
        for a, b, c in zip(*map(fx.tree.leaves, (value, out, sown["v"])), strict=True):
            aval = get_aval(a)
            assert get_aval(b) == get_aval(c) == aval
            np.testing.assert_array_equal(np.asarray(b), np.asarray(a))
            np.testing.assert_array_equal(np.asarray(c), np.asarray(a))
        reaped = plant(wrapper(lambda x: sow(x, name="v")))(sown, value)
        assert fx.tree.structure(reaped) == fx.tree.structure(value)


def test_sow_refuses_invalid_arguments() -> None:
    with pytest.raises(TypeError, match=r"sow: the name must be a string, got 3 of type int"):
        untyped(sow)(1.0, name=3)
    with pytest.raises(TypeError, match=r"sow: the tag must be a string, got None"):
        untyped(sow)(1.0, name="x", tag=None)
    with pytest.raises(ValueError, match=r"mode must be one of 'strict', 'clobber', 'append', got 'last'"):
        untyped(sow)(1.0, name="x", mode="last")
    with pytest.raises(TypeError, match=r"sow: the value 'x'\['a'\] must be an array or a number, got 'text'"):
        sow({"a": "text"}, name="x")


def test_sow_leaves_no_code_in_compiled_programs() -> None:
    text = fx.jit(lambda x: sow(fnp.sin(x), name="a") + 1).lower(XS).as_text()
    assert "custom_call" not in text
    assert text.count(" = ") == fx.jit(lambda x: fnp.sin(x) + 1).lower(XS).as_text().count(" = ")


@pytest.mark.usefixtures("default_repeats")
@pytest.mark.parametrize("wrapper", ["plain", "checkpoint"])
def test_sow_adds_no_memory_to_compiled_gradients(wrapper: str) -> None:
    def recurrent(name: Callable[..., Any]) -> Callable[..., Any]:
        def f(w: Any, xs: Any) -> Any:
            def step(c: Any, x: Any) -> Any:
                c = name(fnp.tanh(c @ w + x), name="state")
                g = name(fx.nn.sigmoid(c), name="gate")
                return c * g, g.sum()

            c, ys = lax.scan(step, fnp.zeros((4, 8)), xs)
            return ys.sum() + c.sum()

        return f

    w, xs = np.ones((8, 8), np.float32), np.ones((20, 4, 8), np.float32)
    named, plain = [
        fx.jit(fx.grad(FORMS[wrapper](recurrent(name)))).lower(w, xs).compile() for name in (sow, lambda x, name: x)
    ]
    sizes = [compiled.memory_analysis().temp_bytes for compiled in (named, plain)]
    if wrapper == "checkpoint":  # a loop with names is not computed again, since these would be sown twice
        assert sizes[0] <= sizes[1]
        return
    assert sizes[0] == sizes[1] if SAME_BUFFERS else sizes[0] <= sizes[1]
    assert named.as_text().count(" = ") == plain.as_text().count(" = ")


def test_unused_sown_values_are_reaped_and_removed_by_dce() -> None:
    def f(x: Any) -> Any:
        sow(fnp.exp(x), name="unused")
        return x + 1

    for wrapper in FORMS.values():
        _, sown = reap(wrapper(f))(XS)
        assert_near(np.asarray(sown["unused"]), np.exp(XS), ELEMENTARY)
    assert "exponential" not in fx.jit(f).lower(XS).compile().as_text()


def test_programs_with_sow_transform_without_a_handler() -> None:
    x = 0.5
    plain = network(x)
    for wrapper in FORMS.values():
        g = wrapper(network)
        assert_close(g(x), plain)
        assert_close(fx.grad(g)(x), fx.jvp(network, (x,), (1.0,))[1])
        assert_close(fx.vmap(g)(XS), np.stack([np.asarray(network(v)) for v in XS]))
        assert_close(fx.vmap(fx.grad(g))(XS), np.stack([np.asarray(fx.grad(g)(v)) for v in XS]))
        assert_close(fx.grad(fx.grad(g))(x), fx.jvp(fx.grad(network), (x,), (1.0,))[1])


def test_programs_with_sow_round_trip_through_text() -> None:
    jaxpr = fx.make_jaxpr(lambda x: sow(x, name="v", mode="append"))(1.0).jaxpr
    assert fx.programs.parse_jaxpr(str(jaxpr)) == jaxpr


def test_sow_reap_and_plant_obey_the_laws() -> None:
    check_primitive(Plantable("tag", "x"), [XS], [np.float32(2)], [np.zeros((2, 0), np.complex64)])
    check_function(network, np.float32(0.5))
    check_function(reap(network), np.float32(0.5))
    check_function(plant(network), {"step": XS}, np.float32(0.5))
    everything = tuple(law.name for law in HANDLER_LAWS)
    assert check_handler(_Reaper("tag", None)).passed == everything
    assert check_handler(_Planter("plant", "tag", {}, set[str]().add, False)).passed == everything


# ------------------------------------------------------------------ reap


@pytest.mark.parametrize("wrapper", FORMS)
@pytest.mark.parametrize("x", [0.5, -1.5])
def test_reap_collects_values_from_all_bodies(wrapper: str, x: float) -> None:
    out, sown = reap(FORMS[wrapper](network))(x)
    assert_close(sown, expected(x))
    assert_close(out, expected(x)["tree"]["p"])
    assert_close(fx.jit(reap(FORMS[wrapper](network)))(x), (out, sown))


@pytest.mark.parametrize("wrapper", FORMS)
def test_reap_commutes_with_vmap(wrapper: str) -> None:
    g = FORMS[wrapper](network)
    each = [reap(network)(x) for x in XS]
    reference = fx.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *each)
    assert_close(fx.vmap(reap(g))(XS), reference)
    assert_close(fx.jit(fx.vmap(reap(g)))(XS), reference)
    with pytest.raises(ValueError, match=r"'branch', sown at .*test_sowing.py.* vmap computes all branches"):
        reap(fx.vmap(g))(XS)

    def without_branches(x: Any) -> Any:
        return lax.scan(lambda c, z: (sow(c * z, name="step"), z), sow(x * 2, name="a"), np.ones(2, np.float32))[0]

    out, sown = fx.vmap(reap(without_branches))(XS)
    assert sown["step"].shape == (3, 2)
    assert_close(reap(fx.vmap(without_branches))(XS), (out, {**sown, "step": sown["step"].T}))  # each step sows a batch
    pairs = np.stack([XS, XS])
    double = reap(lambda x: sow(x * 2, name="a"))
    assert_close(fx.vmap(double, 1)(pairs), reap(fx.vmap(lambda x: sow(x * 2, name="a"), 1))(pairs))
    assert_close(reap(fx.vmap(lambda x: x.sum() + sow(fnp.ones(2), name="same")))(pairs)[1], {"same": np.ones(2)})


@pytest.mark.parametrize("wrapper", FORMS)
def test_reap_commutes_with_grad(wrapper: str) -> None:
    g, x = FORMS[wrapper](network), 0.5
    slope = fx.jvp(network, (x,), (1.0,))[1]
    assert_close(reap(fx.grad(g))(x), (slope, expected(x)))
    assert_close(fx.grad(reap(g), has_aux=True)(x), (slope, expected(x)))
    assert_close(fx.jvp(reap(g), (x,), (1.0,))[0], reap(network)(x))
    for name in ("first", "branch"):
        slope = fx.grad(lambda x, name=name: reap(g)(x)[1][name])(x)
        shift = (expected(x + 1e-4)[name] - expected(x - 1e-4)[name]) / 2e-4
        assert_near(np.asarray(slope), shift, ELEMENTARY)


def test_reap_inside_a_scan_body() -> None:
    sown = lax.scan(lambda c, x: reap(network)(x), np.float32(0), XS)[1]
    reference = [reap(network)(x)[1] for x in XS]
    assert_close(sown, fx.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *reference))


def test_name_sown_twice_in_every_mode() -> None:
    def f(x: Any, mode: Any) -> Any:
        a = sow(x, name="a", mode=mode)
        b = lax.scan(lambda c, z: (c, sow(c * z, name="a", mode=mode)), a, np.ones(2, np.float32))[1]
        return b.sum() + a

    for wrapper in (lambda f: f, fx.jit):
        run: Any = lambda mode, wrapper=wrapper: reap(wrapper(lambda x: f(x, mode)))(2.0)  # noqa: E731
        with pytest.raises(ValueError, match=r"two values are sown under the name 'a', one at .*:\d+ .* and one at"):
            run("strict")
        assert_close(run("clobber")[1], {"a": np.array([2.0, 2.0])})
        assert_close(run("append")[1], {"a": (2.0, np.array([2.0, 2.0]))})


def test_append_mode_across_branches() -> None:
    def f(x: Any) -> Any:
        for _ in range(2):
            x = lax.cond(
                x > 0, lambda x: sow(x + 1, name="a", mode="append"), lambda x: sow(x, name="a", mode="append"), x
            )
        return x

    assert_close(fx.jit(reap(f))(1.0), (3.0, {"a": (2.0, 3.0)}))
    assert_close(fx.vmap(reap(f))(np.array([1.0, -1.0], np.float32))[1]["a"][1], np.array([3.0, -1.0]))


def test_name_sown_in_one_branch_needs_absent() -> None:
    def f(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: sow(x * 2, name="positive"), lambda x: sow(x, name="negative"), x)

    with pytest.raises(
        ValueError, match=r"'(positive|negative)' is sown at .* but not in branch [01] of cond.*absent=0"
    ):
        reap(f)(1.0)
    with pytest.raises(ValueError, match=r"is sown at .* but not in branch"):
        fx.jit(reap(fx.jit(f)))(1.0)
    assert_close(reap(f, absent=math.nan)(1.0), (2.0, {"negative": np.nan, "positive": 2.0}))
    assert_close(reap(f, absent=-1)(-3.0), (-3.0, {"negative": -3.0, "positive": -1.0}))
    assert_close(fx.vmap(reap(f, absent=-1))(XS)[1]["positive"], np.array([1.0, 0.5, -1.0]))
    with pytest.raises(TypeError, match=r"absent=nan cannot be converted to the type of '(positive|negative)', i32"):
        reap(f, absent=math.nan)(1)
    with pytest.raises(TypeError, match=r"reap: absent must be a number, got 'x'"):
        untyped(reap)(f, absent="x")


def test_branches_that_sow_different_types_are_refused() -> None:
    def f(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: sow(x, name="a"), lambda x: sow(fnp.stack([x, x]), name="a")[0], x)

    with pytest.raises(TypeError, match=r"the value collected as 'a' in branch [01] of cond must have one type"):
        reap(f)(1.0)


def test_while_loop_keeps_the_last_sown_value() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: sow(c, name="asked") < 10.0, lambda c: sow(c * 2, name="c"), x)

    for g in (f, fx.jit(f)):
        assert_close(reap(g)(3.0), (12.0, {"asked": 12.0, "c": 12.0}))
        assert_close(reap(g)(30.0), (30.0, {"asked": 30.0, "c": 0.0}))
        assert_close(reap(g, absent=-1)(30.0)[1]["c"], -1.0)
        batch = np.array([3.0, 30.0, 9.0], np.float32)
        assert_close(fx.vmap(reap(g))(batch)[1]["c"], np.array([12.0, 0.0, 18.0]))
        with pytest.raises(ValueError, match="vmap continues for all batch elements until the last is done"):
            reap(fx.vmap(g))(batch)


def test_reap_of_checkpointed_loops() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, z: (sow(c * z, name="c"), None), x, np.ones(6, np.float32), checkpoint=2)[0]

    assert_close(reap(f)(2.0), (2.0, {"c": np.full(6, 2.0)}))
    assert_close(fx.grad(reap(f), has_aux=True)(2.0), (1.0, {"c": np.full(6, 2.0)}))
    assert_close(fx.grad(f)(2.0), 1.0)
    with pytest.raises(ValueError, match=r"grad\(reap\(f\), has_aux=True\)"):
        reap(fx.grad(f))(2.0)

    def g(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 10.0, lambda c: sow(c * 2, name="c"), x, max_steps=5)

    assert_close(fx.grad(reap(g), has_aux=True)(3.0), (4.0, {"c": 12.0}))
    assert_close(fx.grad(g)(3.0), 4.0)
    with pytest.raises(ValueError, match="which reverse mode runs in chunks"):
        reap(fx.grad(g))(3.0)


@pytest.mark.parametrize("wrapper", ["plain", "jit"])
def test_custom_rules_stay_in_force(wrapper: str) -> None:
    f = FORMS[wrapper](with_custom_jvp)
    assert_close(reap(f)(3.0), (18.0, {"inside": 9.0}))
    assert_close(fx.grad(reap(f), has_aux=True)(3.0), (100.0, {"inside": 9.0}))
    assert_close(fx.grad(lambda x: reap(f)(x)[1]["inside"])(3.0), 6.0)
    assert_close(fx.grad(lambda x: reap(reap(f))(x)[0][0])(3.0), 100.0)
    assert reap(reap(f))(3.0)[1] == {}
    assert_close(fx.grad(plant(f))({"inside": 4.0}, 3.0), {"inside": 2.0})
    assert_close(fx.grad(plant(f), 1)({"inside": 4.0}, 3.0), 0.0)
    assert_close(fx.vmap(fx.grad(lambda x: reap(f)(x)[0]))(XS), np.full(3, 100.0))


def test_debug_effects_of_a_function_with_custom_rule_run_once() -> None:
    seen: list[float] = []

    @fx.custom_jvp
    def f(x: Any) -> Any:
        fx.debug.callback(lambda x: seen.append(float(x)), x)
        return sow(x, name="a")

    f.defjvps(lambda t, ans, x: t)
    fx.jit(reap(f))(2.0)
    assert seen == [2.0]


def test_reap_of_custom_vjp() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return sow(x * x, name="a") + 1

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * 7.0,))
    for g in (f, fx.jit(f)):
        assert_close(reap(g)(2.0), (5.0, {"a": 4.0}))
        assert_close(fx.grad(reap(g), has_aux=True)(2.0), (7.0, {"a": 4.0}))
        assert_close(reap(fx.grad(g))(2.0), (7.0, {"a": 4.0}))


def test_tags_are_independent_and_the_inner_reap_takes_precedence() -> None:
    def f(x: Any) -> Any:
        return sow(sow(x, name="a") * 2, name="a", tag="other") + 1

    assert_close(reap(f)(1.0)[1], {"a": 1.0})
    assert_close(reap(f, tag="other")(1.0)[1], {"a": 2.0})
    assert_close(reap(reap(f), tag="other")(1.0), ((3.0, {"a": 1.0}), {"a": 2.0}))
    assert_close(reap(reap(f))(1.0), ((3.0, {"a": 1.0}), {}))
    assert_close(reap(plant(f))({"a": 5.0}, 1.0), (11.0, {"a": 5.0}))
    assert_close(plant(f, tag="other")({"a": 5.0}, 1.0), 6.0)


# ------------------------------------------------------------------ plant and perturb


@pytest.mark.parametrize("wrapper", FORMS)
def test_reaped_values_can_be_planted(wrapper: str) -> None:
    g = FORMS[wrapper](network)
    out, sown = reap(g)(0.5)
    assert_close(plant(g)(sown, 0.5), out)
    assert_close(fx.jit(plant(g))(sown, 0.5), out)
    for name, value in sown.items():
        assert_close(plant(g)({name: value}, 0.5), out)
        assert_close(perturb(g)({name: fx.tree.map(fnp.zeros_like, value)}, 0.5), out)
    batch, many = fx.vmap(reap(g))(XS)
    assert_close(fx.vmap(plant(g))(many, XS), batch)
    of_batches = {**many, "step": many["step"].T, "loop": many["loop"].T}
    assert_close(plant(fx.vmap(g))(of_batches, XS), batch)


@pytest.mark.parametrize("wrapper", FORMS)
def test_perturb_gives_derivatives_by_intermediates(wrapper: str) -> None:
    g, x = FORMS[wrapper](network), 0.5
    d = expected(x)["branch"]
    sown = fx.grad(plant(g))({"branch": np.float32(d)}, x)
    assert_close(sown, {"branch": x * x})
    assert_close(fx.grad(plant(g), 1)({"branch": np.float32(d)}, x), d * 2 * x)
    assert_close(fx.grad(plant(g))({"step": np.ones(3, np.float32)}, x), {"step": np.array([0, 0, 2 * x * x])})
    zeros = {"step": np.zeros(3, np.float32), "first": 0.0}
    reference = {"first": 12 * x * x, "step": np.array([12 * x * x, 6 * x * x, 2 * x * x])}
    assert_close(fx.grad(perturb(g))(zeros, x), reference)
    assert_close(fx.jit(fx.grad(perturb(g)))(zeros, x), reference)
    many = fx.vmap(fx.grad(perturb(g)), (None, 0))(zeros, np.array([0.5, 0.25], np.float32))
    assert_close(many["first"], np.array([12 * 0.25, 12 * 0.0625]))


@pytest.mark.parametrize("wrapper", FORMS)
def test_plant_commutes_with_grad(wrapper: str) -> None:
    g, x = FORMS[wrapper](network), 0.5
    for values in ({"first": 0.3}, {"step": np.array([0.1, 0.2, 0.3], np.float32)}, {"branch": np.float32(2.0)}):
        reference = fx.grad(lambda x, values=values: plant(network)(values, x))(x)
        assert_close(plant(fx.grad(g))(values, x), reference)
        reference = fx.grad(lambda x, values=values: perturb(network)(values, x))(x)
        assert_close(perturb(fx.grad(g))(values, x), reference)


def test_plant_in_nested_scans() -> None:
    def f(x: Any) -> Any:
        def outer(c: Any, y: Any) -> Any:
            return lax.scan(lambda c, z: (sow(c + y * z, name="c"), c), c, np.ones(2, np.float32))[0], c

        return lax.scan(outer, x, np.arange(3.0, dtype=np.float32), reverse=True)[0]

    out, sown = reap(f)(1.0)
    assert sown["c"].shape == (3, 2)
    assert_close(plant(f)(sown, 1.0), out)
    reference = np.zeros((3, 2))
    reference[0, 1] = 1
    assert_close(fx.grad(plant(f))(sown, 1.0), {"c": reference})
    assert_close(fx.grad(perturb(f))({"c": np.zeros((3, 2), np.float32)}, 1.0), {"c": np.ones((3, 2))})
    with pytest.raises(TypeError, match=r"scan of 3 steps, so its replacement must have 3 elements along axis 0"):
        plant(f)({"c": np.zeros((2, 3), np.float32)}, 1.0)
    with pytest.raises(TypeError, match=r"2 elements along axis 1, .* has the shape \(4,\) in one step of the scan"):
        plant(f)({"c": np.zeros((3, 4), np.float32)}, 1.0)
    with pytest.raises(TypeError, match=r"'c' is f32\[5\] in a step, but what is sown at .* is f32\[\]"):
        plant(f)({"c": np.zeros((3, 2, 5), np.float32)}, 1.0)


def test_plant_in_every_step_of_a_while_loop() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + sow(c[1], name="d")), (0, x))

    assert_close(plant(f)({"d": 10.0}, 1.0), (3, 31.0))


def test_plant_refuses_invalid_values() -> None:
    def f(x: Any) -> Any:
        return sow({"a": x, "b": sow(x > 0, name="flag")}, name="v")["a"].sum()

    x = np.ones(2, np.float32)
    good = {"a": x, "b": np.array([True, True])}
    assert_close(plant(f)({"v": good}, x), 2.0)
    with pytest.raises(TypeError, match=r"'v' is .*, but what is sown at .*test_sowing.* is"):
        plant(f)({"v": x}, x)
    with pytest.raises(TypeError, match=r"plant: the value 'v'\['a'\] is f32\[3\], but what is sown at .* is f32\[2\]"):
        plant(f)({"v": {**good, "a": np.ones(3, np.float32)}}, x)
    with pytest.raises(TypeError, match=r"perturb: the value 'v'\['a'\] is i32\[2\], but"):
        perturb(f)({"v": {**good, "a": np.ones(2, np.int32)}}, x)
    with pytest.raises(TypeError, match=r"'v'\['b'\], sown at .*, is bool\[2\], and nothing can be added to booleans"):
        perturb(f)({"v": good}, x)
    with pytest.raises(ValueError, match=r"nothing is sown under 'w' with the tag .*; `fun` sows 'flag', 'v'"):
        plant(f)({"w": x}, x)
    with pytest.raises(TypeError, match=r"the first argument must be a dict of values by name, got 3"):
        untyped(plant(f))(3, x)
    with pytest.raises(TypeError, match=r"plant: the value 'v'\['a'\] must be an array or a number, got 'x'"):
        plant(f)({"v": {"a": "x"}}, x)
    with pytest.raises(ValueError, match=r"with mode='append', so it is ambiguous"):
        plant(lambda x: sow(x, name="a", mode="append"))({"a": (1.0,)}, 2.0)
    with pytest.raises(TypeError, match=r"plant takes a function"):
        untyped(plant)(3)
    with pytest.raises(TypeError, match=r"reap: the tag must be a string"):
        untyped(reap)(f, tag=1)


def test_planted_weakly_typed_numbers_promote() -> None:
    def f(x: Any) -> Any:
        return sow(x, name="x")

    assert plant(f)({"x": 2}, np.float32(1)).dtype == np.float32
    assert plant(f)({"x": 2.5}, ml_dtypes.bfloat16(1)).dtype == ml_dtypes.bfloat16
    with pytest.raises(TypeError, match=r"'x' is f32\[\].*, but what is sown at .* is i32"):
        plant(f)({"x": 2.5}, np.int32(1))


def test_plant_in_rematerialized_loops() -> None:
    def f(x: Any) -> Any:
        def step(c: Any) -> Any:
            return sow(c[0] + 1, name="i"), sow(c[1] * x, name="v")

        return lax.while_loop(lambda c: c[0] < 3, step, (0, x))[1]

    values = {"i": 3, "v": 16.0}
    for g in (f, fx.jit(f)):
        assert_close(reap(lambda x, g=g: fx.linearize(g, x)[1](1.0))(2.0), (32.0, values))
        assert_close(reap(fx.jacfwd(g))(2.0), (32.0, values))
        assert_close(reap(fx.jit(fx.jacfwd(g)))(2.0), (32.0, values))
        assert_close(fx.jvp(plant(g), ({"v": 5.0}, 2.0), ({"v": 1.0}, 0.0)), (5.0, 1.0))
        assert_close(fx.jvp(perturb(g), ({"v": 0.0}, 2.0), ({"v": 1.0}, 0.0)), (16.0, 7.0))


def test_reap_inside_loop_bodies() -> None:
    def double(c: Any) -> Any:
        return sow(c * 2, name="x")

    assert_close(lax.while_loop(lambda c: c < 5.0, lambda c: reap(double)(c)[1]["x"], 1.0), 8.0)

    def step(c: Any, x: Any) -> Any:
        return plant(lambda c: double(c) + c)({"x": x}, c), None

    assert_close(lax.scan(step, 1.0, np.arange(3.0, dtype=np.float32))[0], 4.0)


def test_sow_with_named_axes_dtypes_and_operators() -> None:
    total = fx.vmap(lambda x: lax.psum(sow(x * 2, name="x"), "i"), axis_name="i")
    assert_close(reap(total)(np.arange(3.0, dtype=np.float32)), (np.full(3, 6.0), {"x": np.array([0.0, 2.0, 4.0])}))
    out, sown = fx.eval_shape(reap(network), np.float32(1))
    assert (out.shape, sown["step"].shape, sown["step"].dtype) == ((), (3,), np.float32)
    sums = reap(lambda x: lax.associative_scan(lambda a, b: sow(a + b, name="sums", mode="append"), x))
    assert_close(sums(np.arange(4.0, dtype=np.float32))[1]["sums"][:2], (np.array([1.0, 5.0]), np.array([6.0])))


def test_programs_that_differ_in_names_share_an_executable() -> None:
    first, second = [
        fx.make_jaxpr(lambda x, name=name: sow(x * 2, name=name))(1.0).jaxpr for name in ("first", "second")
    ]
    assert first != second
    assert fx.programs.executable_key(first) == fx.programs.executable_key(second)


def test_reap_keeps_name_and_binds_methods() -> None:
    class Model:
        @reap
        def __call__(self, x: Any) -> Any:
            """Doubles."""
            return sow(x, name="x") * 2

    for transformed in (reap(network, absent=1.0), plant(network), perturb(network, tag="other")):
        restored = pickle.loads(pickle.dumps(transformed))
        assert restored.__name__ == "network"
        assert repr(restored) == repr(transformed)
    assert Model.__call__.__doc__ == "Doubles."
    assert_close(Model()(2.0), (4.0, {"x": 2.0}))


def test_other_handlers_see_sown_values() -> None:
    def f(x: Any) -> Any:
        return sow(fnp.sin(x), name="a") * 2

    from tracefx.handlers import count

    assert count(f)(XS).transcendentals == 3
    assert_close(fx.linearize(reap(f), XS)[0], reap(f)(XS))
    assert_close(fx.linear_transpose(lambda x: sow(x, name="a") * 2, XS)(XS)[0], XS * 2)
