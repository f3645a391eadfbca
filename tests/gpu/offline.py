"""Compiles for GPUs without a GPU: XLA's plug-in compiles for the description of a device.

It needs the plug-in (`jax[cuda12]` or `jax[cuda13]`) and a jaxlib of the same version, but no driver and no jax.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

import numpy as np
from attrs import frozen

from tracefx.xla.runtime import gpu_kernels, mlir

_jax: Final[ModuleType] = importlib.import_module("jaxlib._jax")  # untyped

H200: Final = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 4800000000000
  device_memory_size: 151397597184
  l2_cache_size: 52428800
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_core: 233472
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "H200"
"""
"""The description of the target device: the text format of XLA's `GpuTargetConfigProto`."""


class NoPluginError(RuntimeError):
    """No GPU plug-in is installed, or its version is not jaxlib's."""


@final
@frozen(eq=False)
class Compiler:
    """Compiles for a number of GPUs of one model. The results cannot be executed."""

    client: Any
    devices: tuple[Any, ...]
    kernels: int
    """The number of kernels that the plug-in provides in addition to XLA's."""

    @staticmethod
    def of(description: str = H200, count: int = 1) -> Compiler:
        """Returns a compiler for the described device; raises NoPluginError if there is no plug-in."""
        c_api = _loaded()
        kernels = gpu_kernels.register_plugin_kernels("cuda", c_api)
        shape = f"1x1x{count}"
        topology = _jax.get_default_c_api_topology("cuda", shape, {"topology": shape, "target_config": description})
        devices = tuple(topology._make_compile_only_devices())
        return Compiler(devices[0].client, devices, kernels)

    def compile(self, module: mlir.Module) -> Any:
        """Compiles a module for the first device, or for all devices if it is an SPMD program. XLA's errors propagate.

        The Python callbacks of the module need not exist.
        """
        options = _jax.CompileOptions()
        attributes = module.operation.attributes
        count = int(str(attributes["mhlo.num_partitions"]).split()[0]) if "mhlo.num_partitions" in attributes else 1
        options.num_replicas, options.num_partitions = 1, count
        options.device_assignment = _jax.DeviceAssignment.create(np.arange(count)[None])
        build = options.executable_build_options
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        return self.client.compile(module, _jax.DeviceList(self.devices[:count]), options)


def _loaded() -> Any:
    """Loads the plug-in at the first call and returns its PJRT interface."""
    packages = importlib.util.find_spec("jax_plugins")
    folders = [] if packages is None else list(packages.submodule_search_locations or [])
    libraries = [path for folder in folders for path in sorted(Path(folder).glob("xla_cuda*/xla_cuda_plugin.so"))]
    if not libraries:
        raise NoPluginError("there is no plug-in for GPUs here: pip install 'jax[cuda12]', of jaxlib's version")
    if importlib.import_module("jaxlib.plugin_support").import_from_plugin("cuda", "cuda_plugin_extension") is None:
        raise NoPluginError(
            f"the plug-in at {libraries[-1].parent} is of another version than jaxlib, "
            f"{importlib.import_module('jaxlib.version').__version__}: pip install both of one version"
        )
    c_api = _jax.load_pjrt_plugin("cuda", str(libraries[-1]), None)
    _jax.initialize_pjrt_plugin("cuda")
    return c_api
