"""Meshes of devices, partition specs, named shardings and sharded arrays."""
