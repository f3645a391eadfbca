"""Programs of JAX in tracefx, and programs of tracefx in JAX. The one part of tracefx that imports jax."""
