"""Shardings of arrays over several devices, under the names of `jax.sharding`."""

from __future__ import annotations

from tracefx.core.array import Shard as Shard
from tracefx.core.layouts import Format as Format
from tracefx.core.layouts import Layout as Layout
from tracefx.core.sharding import Sharding as Sharding
from tracefx.core.sharding import SingleDeviceSharding as SingleDeviceSharding
from tracefx.shardings.meshes import Mesh as Mesh
from tracefx.shardings.meshes import PartitionSpec as PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding as NamedSharding
from tracefx.transforms.shardings import get_mesh as get_mesh
from tracefx.transforms.shardings import set_mesh as set_mesh
