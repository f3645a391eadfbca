"""Device meshes, partition specs, named shardings and sharded arrays."""
