"""Runs one multi-device program with tracefx and with JAX, on the same 8 devices, and compares the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen

import tracefx as fx
import tracefx.lax as fx_lax
import tracefx.numpy as fnp
from tests.comparison import assert_same
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

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 10
W: Final = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 7
V: Final = np.linspace(-1, 1, 8, dtype=np.float32)


def layer(lib: Library) -> Any:
    """A layer with rows sharded along `x`, and a weight whose rows are sharded along `y`."""
    return lib.shard_map(lambda x, w: lib.lax.psum(lib.np.tanh(x @ w), "y"), (lib.P("x", "y"), lib.P("y")), lib.P("x"))


def loss(lib: Library) -> Callable[..., Any]:
    f = layer(lib)
    return lambda w, x: lib.np.sum(lib.np.sin(f(x, w)))


def assert_agrees_with_jax(program: Program, tolerance: Ulps = SUMMED) -> None:
    """Both libraries return arrays of the same shapes, dtypes and values."""
    actual, expected = fx.tree.leaves(program(TRACEFX)), jax.tree.leaves(run_with_jax(program))
    assert len(expected) > 0
    assert_same([np.asarray(x) for x in actual], [np.asarray(x) for x in expected], tolerance)


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
