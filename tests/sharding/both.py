"""Programs over devices that are written once and run by both libraries, on the same 8 devices."""

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
    """One of the two libraries, by what its modules are called here."""

    m: Any
    np: Any
    lax: Any
    P: Any
    Mesh: Any

    def mesh_of(self, sizes: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """The first devices in rows and columns."""
        devices = np.empty(int(np.prod(sizes)), object)
        devices[:] = self.m.devices()[: devices.size]
        return self.Mesh(devices.reshape(sizes), names)

    @property
    def mesh(self) -> Any:
        return self.mesh_of((4, 2), ("x", "y"))

    def over(self, f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
        """`shard_map` over 4 x 2 devices."""
        return self.m.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, **options)


OURS: Final = Library(fx, fnp, fx_lax, fx.P, fx.Mesh)
JAX: Final = Library(jax, jnp, jax.lax, jax.sharding.PartitionSpec, jax.sharding.Mesh)
Program: TypeAlias = Callable[[Library], Any]


def parametrize_programs(programs: Iterable[Program]) -> pytest.MarkDecorator:
    """A parameter `program` for each."""
    return pytest.mark.parametrize("program", programs, ids=lambda f: f.__name__)


def agree(program: Program, tolerance: Ulps = SUMMED) -> None:
    """Both give arrays of the same types and values."""
    ours, theirs = fx.tree.leaves(program(OURS)), jax.tree.leaves(by_jax(program))
    assert len(ours) == len(theirs) > 0
    for got, want in zip(ours, theirs, strict=True):
        a, b = np.asarray(got), np.asarray(want)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_near(a, b, tolerance)


def by_jax(program: Program) -> Any:
    """JAX's results, computed by one program. Eagerly, JAX compiles each operation in a `shard_map` for 8 devices."""
    try:
        return jax.jit(lambda: program(JAX))()
    except (AssertionError, TypeError, jax.errors.JAXTypeError):  # where JAX needs concrete values, or has a bug
        return program(JAX)


def assert_refused(
    program: Program, kind: type[Exception], words: str, *, by_jax: type[Exception] | None = None
) -> None:
    """Ours says why; JAX refuses it too."""
    with pytest.raises(kind, match=words):
        program(OURS)
    with pytest.raises(by_jax or kind):
        program(JAX)
