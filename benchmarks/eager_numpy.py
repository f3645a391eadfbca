"""Eager functions of `tracefx.numpy` and `jax.numpy` on small arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, final

import jax.numpy as jnp
import numpy as np
from attrs import frozen

import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP = "eager_numpy"
BOUND: Final = 0.30
BLOCKS: Final = 51  # fewer than the default, because there are many rows


@final
@frozen(eq=False)
class Small:
    """A namespace, and small arrays of its type."""

    np: Any  # the namespaces of tracefx and JAX share no type
    x: Any  # f32[10]
    y: Any  # f32[10]
    m: Any  # f32[3, 4]
    s: Any  # f32[4, 4]: symmetric and positive definite
    i: Any  # i32[3]
    c: Any  # bool[10]
    n: Any  # f32[3, 4], with NaN
    z: Any  # c64[4, 4]


Call: TypeAlias = Callable[[Small], object]

CALLS: Final[Mapping[str, Call]] = {
    # elementwise
    "sin(x)": lambda a: a.np.sin(a.x),
    "x * y": lambda a: a.x * a.y,
    "x ** 2": lambda a: a.x**2,
    "power(x, y)": lambda a: a.np.power(a.x, a.y),
    "maximum(x, 0.5)": lambda a: a.np.maximum(a.x, 0.5),
    "arctan2(x, y)": lambda a: a.np.arctan2(a.x, a.y),
    "logaddexp(x, y)": lambda a: a.np.logaddexp(a.x, a.y),
    "isfinite(x)": lambda a: a.np.isfinite(a.x),
    "sinc(x)": lambda a: a.np.sinc(a.x),
    "round(x, 2)": lambda a: a.np.round(a.x, 2),
    "nan_to_num(n)": lambda a: a.np.nan_to_num(a.n),
    "isclose(x, y)": lambda a: a.np.isclose(a.x, a.y),
    "allclose(x, y)": lambda a: a.np.allclose(a.x, a.y),
    "divmod(x, 0.3)": lambda a: a.np.divmod(a.x, 0.3),
    "astype(x, int32)": lambda a: a.x.astype("int32"),
    # selection
    "where(c, x, y)": lambda a: a.np.where(a.c, a.x, a.y),
    "clip(x, 0.2, 0.8)": lambda a: a.np.clip(a.x, 0.2, 0.8),
    "select([c], [x], 0)": lambda a: a.np.select([a.c], [a.x], 0.0),
    # reductions
    "sum(m, 0)": lambda a: a.np.sum(a.m, 0),
    "prod(m, 1)": lambda a: a.np.prod(a.m, 1),
    "max(m, 1)": lambda a: a.np.max(a.m, 1),
    "mean(m, 0)": lambda a: a.np.mean(a.m, 0),
    "mean(m, 0, keepdims)": lambda a: a.np.mean(a.m, 0, keepdims=True),
    "var(m, 0)": lambda a: a.np.var(a.m, 0),
    "std(m)": lambda a: a.np.std(a.m),
    "all(c)": lambda a: a.np.all(a.c),
    "argmax(m, 1)": lambda a: a.np.argmax(a.m, 1),
    "ptp(x)": lambda a: a.np.ptp(a.x),
    "average(m, 0)": lambda a: a.np.average(a.m, 0),
    "count_nonzero(x)": lambda a: a.np.count_nonzero(a.x),
    "cumsum(x)": lambda a: a.np.cumsum(a.x),
    "cumprod(m, 1)": lambda a: a.np.cumprod(a.m, 1),
    # functions that ignore NaN
    "nansum(n)": lambda a: a.np.nansum(a.n),
    "nanmax(n, 0)": lambda a: a.np.nanmax(a.n, 0),
    "nanargmin(n, 0)": lambda a: a.np.nanargmin(a.n, 0),
    "nanmean(n, 0)": lambda a: a.np.nanmean(a.n, 0),
    "nanstd(n)": lambda a: a.np.nanstd(a.n),
    # statistics
    "median(x)": lambda a: a.np.median(a.x),
    "percentile(x, 30)": lambda a: a.np.percentile(a.x, 30.0),
    "cov(m)": lambda a: a.np.cov(a.m),
    "corrcoef(m)": lambda a: a.np.corrcoef(a.m),
    "histogram(x, 4)": lambda a: a.np.histogram(a.x, 4),
    "bincount(i, length=4)": lambda a: a.np.bincount(a.i, length=4),
    # shapes
    "reshape(m, (2, 6))": lambda a: a.np.reshape(a.m, (2, 6)),
    "m.T": lambda a: a.m.T,
    "moveaxis(m, 0, 1)": lambda a: a.np.moveaxis(a.m, 0, 1),
    "expand_dims(x, 0)": lambda a: a.np.expand_dims(a.x, 0),
    "broadcast_to(x, (3, 10))": lambda a: a.np.broadcast_to(a.x, (3, 10)),
    "flip(m, 0)": lambda a: a.np.flip(a.m, 0),
    "rot90(m)": lambda a: a.np.rot90(a.m),
    "roll(x, 2)": lambda a: a.np.roll(a.x, 2),
    "pad(m, 1)": lambda a: a.np.pad(a.m, 1),
    "pad(x, 2, reflect)": lambda a: a.np.pad(a.x, 2, mode="reflect"),
    "tile(x, 3)": lambda a: a.np.tile(a.x, 3),
    "repeat(x, 3)": lambda a: a.np.repeat(a.x, 3),
    "stack([x, y])": lambda a: a.np.stack([a.x, a.y]),
    "concatenate([x, y])": lambda a: a.np.concatenate([a.x, a.y]),
    "vstack([x, y])": lambda a: a.np.vstack([a.x, a.y]),
    "split(x, 2)": lambda a: a.np.split(a.x, 2),
    # indexing
    "m[:, 1]": lambda a: a.m[:, 1],
    "x[::-1]": lambda a: a.x[::-1],
    "x[i]": lambda a: a.x[a.i],
    "m[i, i]": lambda a: a.m[a.i, a.i],
    "x.at[2].set(1)": lambda a: a.x.at[2].set(1.0),
    "x.at[i].add(1)": lambda a: a.x.at[a.i].add(1.0),
    "m.at[0].set(0)": lambda a: a.m.at[0].set(0.0),
    "take(m, i, 1)": lambda a: a.np.take(a.m, a.i, 1),
    "take_along_axis(m, ...)": lambda a: a.np.take_along_axis(a.m, a.i[:, None], 1),
    "diag(x)": lambda a: a.np.diag(a.x),
    "diagonal(m)": lambda a: a.np.diagonal(a.m),
    "tril(s)": lambda a: a.np.tril(a.s),
    "nonzero(c, size=10)": lambda a: a.np.nonzero(a.c, size=10),
    # sorting, searching, sets
    "sort(x)": lambda a: a.np.sort(a.x),
    "argsort(m, 0)": lambda a: a.np.argsort(a.m, 0),
    "searchsorted(x, y)": lambda a: a.np.searchsorted(a.x, a.y),
    "digitize(y, x)": lambda a: a.np.digitize(a.y, a.x),
    "unique(i)": lambda a: a.np.unique(a.i),
    "isin(i, i)": lambda a: a.np.isin(a.i, a.i),
    "intersect1d(i, i)": lambda a: a.np.intersect1d(a.i, a.i),
    # products
    "m @ s": lambda a: a.m @ a.s,
    "dot(x, y)": lambda a: a.np.dot(a.x, a.y),
    "outer(x, y)": lambda a: a.np.outer(a.x, a.y),
    "einsum('ij,jk->ik', m, s)": lambda a: a.np.einsum("ij,jk->ik", a.m, a.s),
    "einsum('ij->j', m)": lambda a: a.np.einsum("ij->j", a.m),
    "tensordot(m, s, 1)": lambda a: a.np.tensordot(a.m, a.s, 1),
    "kron(m, m)": lambda a: a.np.kron(a.m, a.m),
    "cross(i, i)": lambda a: a.np.cross(a.i, a.i),
    # linear algebra and Fourier transforms
    "trace(s)": lambda a: a.np.trace(a.s),
    "linalg.norm(x)": lambda a: a.np.linalg.norm(a.x),
    "linalg.det(s)": lambda a: a.np.linalg.det(a.s),
    "linalg.inv(s)": lambda a: a.np.linalg.inv(a.s),
    "linalg.solve(s, s)": lambda a: a.np.linalg.solve(a.s, a.s),
    "linalg.cholesky(s)": lambda a: a.np.linalg.cholesky(a.s),
    "linalg.eigh(s)": lambda a: a.np.linalg.eigh(a.s),
    "linalg.svd(m)": lambda a: a.np.linalg.svd(a.m),
    "fft.fft(z)": lambda a: a.np.fft.fft(a.z),
    "fft.rfft(x)": lambda a: a.np.fft.rfft(a.x),
    "fft.fftshift(x)": lambda a: a.np.fft.fftshift(a.x),
    "fft.fftfreq(10)": lambda a: a.np.fft.fftfreq(10),
    # sequences and polynomials
    "diff(x)": lambda a: a.np.diff(a.x),
    "gradient(x)": lambda a: a.np.gradient(a.x),
    "trapezoid(x)": lambda a: a.np.trapezoid(a.x),
    "interp(y, x, y)": lambda a: a.np.interp(a.y, a.x, a.y),
    "convolve(x, y)": lambda a: a.np.convolve(a.x, a.y),
    "polyval(i, y)": lambda a: a.np.polyval(a.x, a.y),
    "polymul(x, y)": lambda a: a.np.polymul(a.x, a.y),
    # creation
    "zeros((3, 4))": lambda a: a.np.zeros((3, 4)),
    "full((3, 4), 2.0)": lambda a: a.np.full((3, 4), 2.0),
    "ones_like(m)": lambda a: a.np.ones_like(a.m),
    "arange(10)": lambda a: a.np.arange(10),
    "linspace(0, 1, 10)": lambda a: a.np.linspace(0.0, 1.0, 10),
    "eye(4)": lambda a: a.np.eye(4),
    "asarray([1.0, 2.0])": lambda a: a.np.asarray([1.0, 2.0]),
    "meshgrid(x, y)": lambda a: a.np.meshgrid(a.x, a.y),
}


def small(namespace: Any) -> Small:
    line = np.linspace(0, 1, 10, dtype=np.float32)
    table = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    square = np.eye(4, dtype=np.float32) * 3 + 1
    holes = np.where(table > 1.5, np.float32(np.nan), table)
    positions = np.array([2, 0, 1], np.int32)
    hosts = (line, line[::-1] * 3 - 1, table, square, positions, line > 0.4, holes, square.astype(np.complex64))
    return Small(namespace, *[namespace.asarray(host) for host in hosts])


def subjects() -> Iterator[Subject]:
    ours, theirs = small(fnp), small(jnp)
    for name, call in CALLS.items():
        yield Subject(GROUP, name, functools.partial(call, ours), functools.partial(call, theirs), BOUND, blocks=BLOCKS)
