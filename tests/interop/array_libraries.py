"""72 calls of libraries that take any arrays, in six groups, run with tracefx or with JAX.

    SCIPY_ARRAY_API=1 python -m tests.interop.array_libraries tracefx

prints for each call whether it works eagerly, under `jit`, `grad` and `vmap`, and its value and gradient, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import array_api_compat as compat
import array_api_extra as xpx
import einops
import einops.array_api
import numpy as np
import opt_einsum
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.signal
import scipy.special
import scipy.stats

Call: TypeAlias = Callable[[Any], Any]

X: Final = np.random.default_rng(0).uniform(0.2, 0.9, 16).astype(np.float32)


def namespace(x: Any) -> Any:
    return compat.array_namespace(x)


def square(x: Any) -> Any:
    return x.reshape(4, 4)


COMPAT: Final[dict[str, Call]] = {
    "sum": lambda x: namespace(x).sum(namespace(x).sin(x)),
    "astype": lambda x: namespace(x).astype(x, namespace(x).float32) * 2,
    "matmul": lambda x: namespace(x).matmul(square(x), square(x)),
    "concat": lambda x: namespace(x).concat([x, x], axis=0),
    "permute_dims": lambda x: namespace(x).permute_dims(square(x), (1, 0)),
    "vecdot": lambda x: namespace(x).vecdot(x, x),
    "unique_values": lambda x: namespace(x).unique_values(x),
    "linalg.qr": lambda x: abs(namespace(x).linalg.qr(square(x))[1]),
    "fft.rfft": lambda x: namespace(x).abs(namespace(x).fft.rfft(x)),
    "to_device": lambda x: compat.to_device(x, compat.device(x)) * 2,
    "size": lambda x: x * compat.size(x),
    "is_array_api_obj": lambda x: x * float(compat.is_array_api_obj(x)),
}
EXTRA: Final[dict[str, Call]] = {
    "at.set": lambda x: xpx.at(x)[:2].set(x[2:4]),
    "at.add": lambda x: xpx.at(x)[1:3].add(x[:2]),
    "atleast_nd": lambda x: xpx.atleast_nd(x, ndim=3),
    "cov": lambda x: xpx.cov(square(x)),
    "create_diagonal": xpx.create_diagonal,
    "expand_dims": lambda x: xpx.expand_dims(x, axis=(0, 1)),
    "kron": lambda x: xpx.kron(square(x), square(x)),
    "nunique": lambda x: x * xpx.nunique(x),
    "pad": lambda x: xpx.pad(x, 2),
    "sinc": xpx.sinc,
    "isclose": lambda x: x * namespace(x).astype(xpx.isclose(x, x), x.dtype),
    "apply_where": lambda x: xpx.apply_where(x > 0.5, x, lambda v: v * 2, lambda v: v * 3),
}
SPECIAL: Final[dict[str, Call]] = {
    **{name: getattr(scipy.special, name) for name in ("gammaln", "expit", "erf", "logit", "digamma", "ndtr", "i0")},
    **{name: getattr(scipy.special, name) for name in ("entr", "softmax", "logsumexp")},
    "betainc": lambda x: scipy.special.betainc(2.0 + 0 * x, 3.0 + 0 * x, x),
    "xlogy": lambda x: scipy.special.xlogy(x, x),
}
SCIPY: Final[dict[str, Call]] = {
    **{name: getattr(scipy.stats, name) for name in ("skew", "gmean", "zscore", "entropy", "variation")},
    "pearsonr": lambda x: scipy.stats.pearsonr(x, x**2)[0],
    "ttest_1samp": lambda x: scipy.stats.ttest_1samp(x, 0.5)[0],
    "rfft": lambda x: abs(scipy.fft.rfft(x)),
    "fftconvolve": lambda x: scipy.signal.fftconvolve(x, x[:4]),
    "detrend": scipy.signal.detrend,
    "trapezoid": scipy.integrate.trapezoid,
    "whiten": lambda x: scipy.cluster.vq.whiten(square(x)),
}
OPT_EINSUM: Final[dict[str, Call]] = {
    "product": lambda x: opt_einsum.contract("ij,jk->ik", square(x), square(x)),
    "chain": lambda x: opt_einsum.contract("ij,jk,kl->il", square(x), square(x), square(x)),
    "trace": lambda x: opt_einsum.contract("ii->", square(x)),
    "inner": lambda x: opt_einsum.contract("i,i", x, x),
    "outer": lambda x: opt_einsum.contract("i,j->ij", x, x),
    "elementwise": lambda x: opt_einsum.contract("ij,ij->ij", square(x), square(x)),
    "batch": lambda x: opt_einsum.contract("bij,bjk->bik", x.reshape(4, 2, 2), x.reshape(4, 2, 2)),
    "ellipsis": lambda x: opt_einsum.contract("...j,jk->...k", square(x), square(x)),
    "integers": lambda x: opt_einsum.contract(square(x), (0, 1), square(x), (1, 2), (0, 2)),
    "optimal": lambda x: opt_einsum.contract("ij,jk,kl->", *[square(x)] * 3, optimize="optimal"),
    "expression": lambda x: opt_einsum.contract_expression("ij,jk", (4, 4), (4, 4))(square(x), square(x)),
    "constant": lambda x: opt_einsum.contract_expression("ij,jk", square(X), (4, 4), constants=[0])(square(x)),
}
EINOPS: Final[dict[str, Call]] = {
    "rearrange": lambda x: einops.rearrange(x, "(a b) -> b a", a=4),
    "mean": lambda x: einops.reduce(x, "(a b) -> a", "mean", b=4),
    "max": lambda x: einops.reduce(x, "(a b) -> a", "max", b=4),
    "repeat": lambda x: einops.repeat(x, "a -> a b", b=2),
    "einsum": lambda x: einops.einsum(square(x), square(x), "i j, j k -> i k"),
    "pack": lambda x: einops.pack([square(x), x.reshape(4, 2, 2)], "i *")[0],
    "unpack": lambda x: einops.unpack(x, [(3,), (13,)], "*")[1],
    "list": lambda x: einops.rearrange([x, x], "b a -> a b"),
    "parse_shape": lambda x: x * einops.parse_shape(x, "n")["n"],
    "array_api.rearrange": lambda x: einops.array_api.rearrange(x, "(a b) -> b a", a=4),
    "array_api.reduce": lambda x: einops.array_api.reduce(x, "(a b) -> a", "sum", a=4),
    "array_api.repeat": lambda x: einops.array_api.repeat(x, "a -> a b", b=2),
}
GROUPS: Final[dict[str, dict[str, Call]]] = {
    "array_api_compat": COMPAT,
    "array_api_extra": EXTRA,
    "scipy.special": SPECIAL,
    "scipy": SCIPY,
    "opt_einsum": OPT_EINSUM,
    "einops": EINOPS,
}
CALLS: Final = {f"{group}: {name}": call for group, calls in GROUPS.items() for name, call in calls.items()}


def outcomes(library: str) -> dict[str, dict[str, Any]]:
    """Returns for each call the error under each transformation, "" if it works, and its value and gradient."""
    lib, xp = importlib.import_module(library), importlib.import_module(f"{library}.numpy")
    if library == "tracefx":
        importlib.import_module("tracefx.interop.einops")
    x = xp.asarray(X)

    def outcome(call: Call) -> dict[str, Any]:
        def run(transformed: Call, argument: Any) -> tuple[str, Any]:
            try:
                out = transformed(argument)
                if not isinstance(out, lib.Array):
                    return f"returns {type(out).__name__}", None
                return "", np.asarray(out, np.float64).tolist()
            except Exception as error:
                return type(error).__name__, None

        eager, value = run(call, x)
        grad, gradient = run(lib.grad(lambda x: (xp.asarray(call(x)) ** 2).sum()), x)
        works = {"eager": eager, "grad": grad, "jit": run(lib.jit(call), x)[0]}
        return {**works, "vmap": run(lib.vmap(call), xp.stack([x, x * 1.01]))[0], "value": value, "gradient": gradient}

    return {name: outcome(call) for name, call in CALLS.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(outcomes(sys.argv[1])))
