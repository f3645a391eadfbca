"""How arrays lie on several devices, under the names of `jax.sharding`."""

from __future__ import annotations

from tracefx.core.meshes import Mesh as Mesh
from tracefx.core.meshes import PartitionSpec as PartitionSpec
from tracefx.core.shardings import NamedSharding as NamedSharding
from tracefx.core.shardings import Shard as Shard
from tracefx.core.shardings import Sharding as Sharding
from tracefx.core.shardings import SingleDeviceSharding as SingleDeviceSharding
from tracefx.transforms.shardings import get_mesh as get_mesh
from tracefx.transforms.shardings import set_mesh as set_mesh
