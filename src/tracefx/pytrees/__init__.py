"""Pytrees: nested containers of arrays, which are flattened, mapped over, compared and described."""
