"""The public transformations and control-flow functions, over pytrees, with the signatures of JAX."""
