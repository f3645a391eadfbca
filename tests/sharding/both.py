"""Runs one multi-device program with tracefx and with JAX, on the same 8 devices, and compares the results."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.lax as fx_lax
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tracefx.testing.tolerances import SUMMED, Ulps

jax.config.update("jax_explicit_x64_dtypes", "allow")


@final
@frozen(eq=False)
class Library:
    """The modules and classes of one library under common names, so that one program runs with either library.

    `m` is the top-level module, `np` its NumPy API and `lax` its `lax` module.
    """

    m: Any
    np: Any
    lax: Any
    P: Any
    Mesh: Any

    def mesh_of(self, sizes: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """A mesh of the first devices, with axes of these sizes and names."""
        devices = np.empty(int(np.prod(sizes)), object)
        devices[:] = self.m.devices()[: devices.size]
        return self.Mesh(devices.reshape(sizes), names)

    @property
    def mesh(self) -> Any:
        return self.mesh_of((4, 2), ("x", "y"))

    def shard_map(self, f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
        """`shard_map` over the 4 x 2 mesh."""
        return self.m.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, **options)


TRACEFX: Final = Library(fx, fnp, fx_lax, fx.P, fx.Mesh)
JAX: Final = Library(jax, jnp, jax.lax, jax.sharding.PartitionSpec, jax.sharding.Mesh)
Program: TypeAlias = Callable[[Library], Any]


def parametrize_programs(programs: Iterable[Program]) -> pytest.MarkDecorator:
    """Parametrizes a test by `program`; the ids are the names of the functions."""
    return pytest.mark.parametrize("program", programs, ids=lambda f: f.__name__)


def assert_agrees_with_jax(program: Program, tolerance: Ulps = SUMMED) -> None:
    """Both libraries return arrays of the same shapes, dtypes and values."""
    actual, expected = fx.tree.leaves(program(TRACEFX)), jax.tree.leaves(run_with_jax(program))
    assert len(actual) == len(expected) > 0
    for got, want in zip(actual, expected, strict=True):
        a, b = np.asarray(got), np.asarray(want)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_near(a, b, tolerance)


def run_with_jax(program: Program) -> Any:
    """JAX's results, from one jitted program: eagerly, JAX compiles each operation of a `shard_map` for 8 devices."""
    try:
        return jax.jit(lambda: program(JAX))()
    except (AssertionError, TypeError, jax.errors.JAXTypeError):  # JAX needs concrete values, or has a bug under jit
        return program(JAX)


def assert_both_raise(
    program: Program, exception: type[Exception], message: str, *, jax_exception: type[Exception] | None = None
) -> None:
    """tracefx raises an error with this message; JAX raises an error too."""
    with pytest.raises(exception, match=message):
        program(TRACEFX)
    with pytest.raises(jax_exception or exception):
        program(JAX)
