"""Conversion of functions, arrays, meshes and shardings between JAX and tracefx. Only this package imports jax."""

from __future__ import annotations

from tracefx.filtered_tracebacks import make_entry_points
from tracefx.interop.jax.exporting import to_jax
from tracefx.interop.jax.importing import from_jax
from tracefx.interop.jax.meshes import mesh_from_jax, mesh_to_jax, sharding_from_jax, sharding_to_jax
from tracefx.interop.jax.values import as_jax, as_tracefx

__all__ = [
    "as_jax",
    "as_tracefx",
    "from_jax",
    "mesh_from_jax",
    "mesh_to_jax",
    "sharding_from_jax",
    "sharding_to_jax",
    "to_jax",
]

make_entry_points(globals())
