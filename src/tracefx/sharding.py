"""How arrays lie on several devices, under the names of `jax.sharding`."""

from __future__ import annotations

from tracefx.shardings.meshes import Mesh as Mesh
from tracefx.shardings.meshes import PartitionSpec as PartitionSpec
from tracefx.shardings.named_sharding import NamedSharding as NamedSharding
from tracefx.shardings.named_sharding import Shard as Shard
from tracefx.shardings.named_sharding import Sharding as Sharding
from tracefx.shardings.named_sharding import SingleDeviceSharding as SingleDeviceSharding
from tracefx.transforms.shardings import get_mesh as get_mesh
from tracefx.transforms.shardings import set_mesh as set_mesh
