"""Everything that transformations make of a function, as one tree: computed by either library, and compared."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.transforms.oracle import same
from tracefx.core.jaxpr import Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce

Axes: TypeAlias = tuple[int | None, ...]
FunctionFactory: TypeAlias = Callable[[Any, Any], Callable[..., Any]]
"""`made(lib, np_)` gives the function in either library."""


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def batch_axes_choices(args: Sequence[Any]) -> Iterator[Axes]:
    """Every operand batched alone at each of its axes, and all of them at once."""
    for i, x in enumerate(args):
        for axis in range(np.ndim(x) + 1):
            yield tuple([axis if j == i else None for j in range(len(args))])
    yield (0,) * len(args)


def stack_batch(np_: Any, args: Sequence[Any], axes: Axes) -> list[Any]:
    """Two elements, the second another point."""
    return [x if axis is None else np_.stack([x, -0.75 * x], axis) for x, axis in zip(args, axes, strict=True)]


def total(np_: Any, tree: Any, lib: Any) -> Any:
    """A number that depends on all floats of a tree."""
    leaves = lib.tree.leaves(tree)
    floats = [x for x in leaves if np_.issubdtype(np_.asarray(x).dtype, np.floating)]
    return sum([np_.sum(np_.sin(x) * x) for x in floats], np_.float32(0.0))


def apply_all_transforms(
    lib: Any,
    np_: Any,
    f: Callable[..., Any],
    args: Sequence[Any],
    axes: Sequence[Axes] = (),
    reverse: bool = True,
    second: bool = True,
) -> dict[str, Any]:
    """Its value, derivatives of both modes and orders, and batches, of floats `args`; each is a function's value."""
    places = tuple(range(len(args)))

    def loss(*xs: Any) -> Any:
        return total(np_, f(*xs), lib)

    def pushed(*xs: Any) -> Any:
        return lib.jvp(f, xs, tuple([np_.cos(x) for x in xs]))

    found = {"value": f(*args), "jvp": pushed(*args)}
    found["linearize"] = lib.linearize(loss, *args)[1](*args)
    found["jacfwd"] = lib.jacfwd(loss, places)(*args)
    derivative = lib.grad(loss, places) if reverse else lib.jacfwd(loss, places)
    found["derivative"] = derivative(*args)
    if second:
        found["second"] = lib.jvp(lambda *xs: derivative(*xs), tuple(args), tuple(args))
    for each in axes:
        xs = stack_batch(np_, args, each)

        def whole(*xs: Any, each: Axes = each) -> Any:
            return total(np_, lib.vmap(f, in_axes=each)(*xs), lib)

        found[f"vmap {each}"] = lib.vmap(lambda *xs: (pushed(*xs), derivative(*xs)), in_axes=each)(*xs)
        found[f"derivative of vmap {each}"] = (lib.grad if reverse else lib.jacfwd)(whole, places)(*xs)
    return found


def assert_agrees_with_jax(
    made: FunctionFactory, args: Sequence[Any], axes: Sequence[Axes] = (), *, eager: bool = False, **options: Any
) -> None:
    """Ours, compiled as one program and, if `eager`, each part for itself, is JAX's."""
    f = made(fx, fnp)
    want = jax.jit(lambda *xs: apply_all_transforms(jax, jnp, made(jax, jnp), xs, axes, **options))(*args)
    same(fx.jit(lambda *xs: apply_all_transforms(fx, fnp, f, xs, axes, **options))(*args), want)
    if eager:
        same(apply_all_transforms(fx, fnp, f, [fnp.asarray(x) for x in args], axes, **options), want)


def assert_sound(f: Callable[..., Any], *args: Any) -> Jaxpr:
    """The program of a function: it checks, is what its text says, and stays both under every pass."""
    jaxpr = fx.make_jaxpr(f)(*args).jaxpr
    for program in (jaxpr, dce(jaxpr), cse(jaxpr), dce(cse(jaxpr))):
        check_jaxpr(program)
        assert fx.programs.parse_jaxpr(str(program)) == program
    return jaxpr
