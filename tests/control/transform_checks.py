"""Applies all transformations to a function and compares tracefx with JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_same
from tests.laws.examples import sampled
from tracefx.core.jaxpr import Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce

Axes: TypeAlias = tuple[int | None, ...]
FunctionFactory: TypeAlias = Callable[[Any, Any], Callable[..., Any]]
"""`factory(lib, np_)` returns the function to test, written with the given library and its NumPy namespace."""


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def batch_axes_choices(args: Sequence[Any]) -> list[Axes]:
    """Returns `in_axes`: each operand batched alone at each of its axes, and all operands batched at axis 0.

    `make test` takes some of the former, which `sampled` chooses.
    """
    alone = [
        tuple([axis if j == i else None for j in range(len(args))])
        for i, x in enumerate(args)
        for axis in range(np.ndim(x) + 1)
    ]
    return [*sampled(alone, 3), (0,) * len(args)]


def stack_batch(np_: Any, args: Sequence[Any], axes: Axes) -> list[Any]:
    """Returns the operands with a batch of two elements, `x` and `-0.75 * x`, along the given axes."""
    return [x if axis is None else np_.stack([x, -0.75 * x], axis) for x, axis in zip(args, axes, strict=True)]


def total(np_: Any, tree: Any, lib: Any) -> Any:
    """Returns a scalar that depends on all floating-point leaves of a tree."""
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
    """Returns the value of `f`, its forward- and reverse-mode derivatives and their batched versions, by name."""
    argnums = tuple(range(len(args)))

    def loss(*xs: Any) -> Any:
        return total(np_, f(*xs), lib)

    def pushed(*xs: Any) -> Any:
        return lib.jvp(f, xs, tuple([np_.cos(x) for x in xs]))

    results = {"value": f(*args), "jvp": pushed(*args)}
    results["linearize"] = lib.linearize(loss, *args)[1](*args)
    results["jacfwd"] = lib.jacfwd(loss, argnums)(*args)
    derivative = lib.grad(loss, argnums) if reverse else lib.jacfwd(loss, argnums)
    results["derivative"] = derivative(*args)
    if second:
        results["second"] = lib.jvp(lambda *xs: derivative(*xs), tuple(args), tuple(args))
    for in_axes in axes:
        xs = stack_batch(np_, args, in_axes)

        def batched_loss(*xs: Any, in_axes: Axes = in_axes) -> Any:
            return total(np_, lib.vmap(f, in_axes=in_axes)(*xs), lib)

        results[f"vmap {in_axes}"] = lib.vmap(lambda *xs: (pushed(*xs), derivative(*xs)), in_axes=in_axes)(*xs)
        results[f"derivative of vmap {in_axes}"] = (lib.grad if reverse else lib.jacfwd)(batched_loss, argnums)(*xs)
    return results


def assert_agrees_with_jax(
    factory: FunctionFactory, args: Sequence[Any], axes: Sequence[Axes] = (), *, eager: bool = False, **options: Any
) -> None:
    """Asserts that tracefx computes what JAX does, under one `jit` and, if `eager`, also op by op without it.

    The program of all transformations must be sound, too.
    """
    f = factory(fx, fnp)
    assert_sound(lambda *xs: apply_all_transforms(fx, fnp, f, xs, axes, **options), *args)
    want = jax.jit(lambda *xs: apply_all_transforms(jax, jnp, factory(jax, jnp), xs, axes, **options))(*args)
    assert_same(
        fx.jit(lambda *xs: apply_all_transforms(fx, fnp, f, xs, axes, **options))(*args), want, JAX_TRANSFORM_TOLERANCE
    )
    if eager:
        assert_same(
            apply_all_transforms(fx, fnp, f, [fnp.asarray(x) for x in args], axes, **options),
            want,
            JAX_TRANSFORM_TOLERANCE,
        )


def assert_sound(f: Callable[..., Any], *args: Any) -> Jaxpr:
    """Returns the jaxpr of `f`; asserts that it checks and round-trips through text, also after DCE and CSE.

    Parameters that are Python functions, such as custom rules, and policies of names have no text that can be parsed.
    """
    jaxpr = fx.make_jaxpr(f)(*args).jaxpr
    for program in (jaxpr, dce(jaxpr), cse(jaxpr), dce(cse(jaxpr))):
        check_jaxpr(program)
        text = str(program)
        if "=<" not in text and "=_NamePolicy" not in text:
            assert fx.programs.parse_jaxpr(text) == program
    return jaxpr
