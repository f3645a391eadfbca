"""Libraries written for JAX, run on JAX and on tracefx."""
