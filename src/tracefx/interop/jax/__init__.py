"""Conversion of functions, arrays, meshes and shardings between JAX and tracefx. Only this package imports jax."""

from __future__ import annotations

from tracefx.interop.jax.exporting import to_jax as to_jax
from tracefx.interop.jax.importing import from_jax as from_jax
from tracefx.interop.jax.meshes import mesh_from_jax as mesh_from_jax
from tracefx.interop.jax.meshes import mesh_to_jax as mesh_to_jax
from tracefx.interop.jax.meshes import sharding_from_jax as sharding_from_jax
from tracefx.interop.jax.meshes import sharding_to_jax as sharding_to_jax
from tracefx.interop.jax.values import as_jax as as_jax
from tracefx.interop.jax.values import as_tracefx as as_tracefx
