"""Exported programs with functions of tracefx that have derivative rules, which are found by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import jax.export
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
import tracefx.scipy
import tracefx.scipy.special
from tests.comparison import assert_near, assert_same
from tracefx import lax, nn
from tracefx.control.jvp_rules import HasJVPRule, NamedRule
from tracefx.core import as_value
from tracefx.errors import ParseError, SerializationError
from tracefx.nn import activations
from tracefx.programs import deserialize, serialize
from tracefx.scipy import special
from tracefx.testing.tolerances import PROGRAM

X: Final = np.linspace(0.1, 0.9, 4, dtype=np.float32)
MATRICES: Final = np.stack([np.eye(3, dtype=np.float32) + 0.1, np.eye(3, dtype=np.float32) * 2])

PROGRAMS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    "function": (nn.relu, X),
    "static arguments": (lambda x: special.bessel_jn(x, v=2), X),
    "closed-over constants": (lambda x: special.expi(x), X),
    "unused outputs": (lambda x: fnp.linalg.slogdet(x)[1], MATRICES[0]),
    "batch": (fx.vmap(fnp.linalg.pinv), MATRICES),
    "batch of batches": (fx.vmap(fx.vmap(fx.jit(special.gamma))), X.reshape(2, 2)),
    "loop": (lambda x: lax.scan(lambda c, y: (nn.relu(c + y), special.erfcx(y)), x[0], x), X),
    "batched loop": (fx.vmap(lambda x: lax.scan(lambda c, y: (nn.relu(c + y), c), x, X)[0]), X),
    "checkpoint": (fx.checkpoint(lambda x: special.ndtri(nn.relu(x))), X),
    "gradient": (fx.grad(lambda x: special.gamma(x).sum()), X),
}


def total(f: Callable[[Any], Any]) -> Callable[[Any], fx.Array]:
    return lambda x: sum([(2.5 * y).sum() for y in fx.tree.leaves(f(x))], start=fnp.float32(0))


@pytest.mark.parametrize("name", PROGRAMS)
def test_loaded_functions_have_the_derivatives_of_the_original(name: str) -> None:
    f, x = PROGRAMS[name]
    exported = fx.export(fx.jit(f))(x)
    loaded = fx.load(exported.serialize())
    assert "named_rule(" in str(loaded.jaxpr)
    assert loaded.jaxpr == exported.jaxpr
    for g in (loaded.call, exported.call):
        assert_same(g(x), fx.jit(f)(x), PROGRAM)
        assert_same(fx.grad(total(g))(x), fx.grad(total(f))(x), PROGRAM)
    batch = np.stack([x, 0.5 * x])
    again = fx.load(fx.export(fx.jit(fx.vmap(loaded.call)))(batch).serialize()).call
    assert_same(fx.jvp(again, [batch], [batch]), fx.jvp(fx.vmap(f), [batch], [batch]), PROGRAM)
    hessian = fx.jacfwd(fx.grad(total(loaded.call)))(x)
    assert_near(hessian, fx.jacfwd(fx.grad(total(f)))(x), PROGRAM)


def test_dropping_rules_drops_those_of_users_only() -> None:
    ours = fx.custom_jvp(lambda x: x * 2.0)
    ours.defjvps(lambda t, out, x: 5.0 * t)
    f = fx.jit(lambda x: ours(x) + nn.relu(x))
    with pytest.raises(SerializationError, match="functions can't be serialized"):
        fx.export(f)(0.0)
    loaded = fx.load(fx.export(f, drop_rules=True)(0.0).serialize())
    assert float(fx.grad(loaded.call)(0.0)) == 2.0
    assert float(fx.grad(f)(0.0)) == 5.0


def test_rules_with_functions_as_static_arguments_are_refused() -> None:
    solve = fx.jit(lambda x: tracefx.scipy.integrate.odeint(lambda y, t: -y, x, fnp.array([0.0, 1.0])))
    with pytest.raises(SerializationError, match="functions can't be serialized"):
        fx.export(solve)(1.0)


def test_programs_with_named_rules_are_serialized() -> None:
    closed = fx.make_jaxpr(lambda x: nn.relu(x) + special.erfcx(x))(X)
    again = deserialize(serialize(closed))
    assert deserialize(serialize(again)) == again
    outs = fx.programs.eval_jaxpr(again.jaxpr, again.consts, [as_value(X)])
    assert_same(outs, [nn.relu(X) + special.erfcx(X)], PROGRAM)


def test_jax_calls_the_exported_backward_pass() -> None:
    data = fx.export(fx.jit(lambda x: nn.relu(x).sum()))(X - 0.5).to_jax(vjp_order=1)
    loaded = jax.export.deserialize(bytearray(data))
    assert_same(jax.grad(loaded.call)(X - 0.5), fx.grad(lambda x: nn.relu(x).sum())(X - 0.5))


def test_an_unknown_function_is_a_parse_error() -> None:
    data = fx.export(fx.jit(nn.relu))(X).serialize()
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(activations, "_relu")
        with pytest.raises(ParseError, match=r"no function 'tracefx.nn.activations._relu' with a derivative rule"):
            fx.load(data)
    assert_same(fx.load(data).call(X), X)


@pytest.mark.parametrize(
    "name",
    [
        "os.path.join",
        "tracefx.nn.activations.silu",  # has no rule
        "tracefx.nn.no_module.relu",
        "tracefx.nn.activations",
        "tracefx.interop.as_jax.__main__.relu",
        "tracefx.nn..relu",
        "relu",
        "",
    ],
)
def test_only_functions_of_tracefx_with_rules_are_found(name: str) -> None:
    with pytest.raises(ValueError, match="no function .* with a derivative rule"):
        NamedRule(name, fx.tree.structure((X,)))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        (("tracefx.nn.activations._relu", 1), {}),
        (("tracefx.nn.activations._relu", fx.tree.structure((X,))), {"statics": ((0, b"x"),)}),
        (("tracefx.nn.activations._relu", fx.tree.structure((X,))), {"derivations": (1,)}),
        (("tracefx.nn.activations._relu", fx.tree.structure((X,))), {"other": ()}),
    ],
)
def test_parts_of_other_types_are_refused(values: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="are not"):
        NamedRule.from_text_args(values, named)


NAMES: Final = """
    tracefx.lax.elementwise._one_minus_square
    tracefx.nn.activations._relu
    tracefx.nn.activations._relu6
    tracefx.numpy.linalg.determinants._determinant
    tracefx.numpy.linalg.determinants._logarithm
    tracefx.numpy.linalg.solving._pseudo_inverse
    tracefx.random.gammas._gammas
    tracefx.scipy.special.bessel_functions._bessel_jn
    tracefx.scipy.special.bessel_functions._i0
    tracefx.scipy.special.bessel_functions._i1
    tracefx.scipy.special.error_functions._dawsn
    tracefx.scipy.special.error_functions._erfcx
    tracefx.scipy.special.error_functions._log_ndtr
    tracefx.scipy.special.error_functions._ndtri
    tracefx.scipy.special.error_functions._owens_t
    tracefx.scipy.special.error_functions._wofz
    tracefx.scipy.special.gammas._betaln
    tracefx.scipy.special.gammas._comb
    tracefx.scipy.special.gammas._digamma
    tracefx.scipy.special.gammas._gamma
    tracefx.scipy.special.gammas._gammaln
    tracefx.scipy.special.gammas._loggamma
    tracefx.scipy.special.gammas._poch
    tracefx.scipy.special.hypergeometric._hyp1f1
    tracefx.scipy.special.hypergeometric._hyp2f1
    tracefx.scipy.special.integrals._exp1
    tracefx.scipy.special.integrals._expi
    tracefx.scipy.special.integrals._expn
    tracefx.scipy.special.integrals._fresnel
    tracefx.scipy.special.integrals._sici
    tracefx.scipy.special.integrals._spence
    tracefx.scipy.special.logistic_and_entropy._logit
    tracefx.scipy.special.logistic_and_entropy._xlog1py
    tracefx.scipy.special.logistic_and_entropy._xlogx
    tracefx.scipy.special.logistic_and_entropy._xlogy
    tracefx.scipy.special.zetas._hurwitz
    tracefx.scipy.stats.standardization._log_gamma_quotient
"""


def test_names_in_exported_files_are_stable() -> None:
    """Files refer to functions by these names: under another name, a function of older files would not be found."""
    found = []
    for package in (fx.lax, fx.nn, fx.numpy, fx.random, tracefx.scipy):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, HasJVPRule) and value.__module__ == module.name:
                    found.append(f"{module.name}.{name}")
    assert sorted(found) == NAMES.split()
