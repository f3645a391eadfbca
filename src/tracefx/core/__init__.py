"""The core: avals, values, primitives, handlers and jaxprs. It depends on no transformation and on no device."""
