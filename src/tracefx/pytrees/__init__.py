"""Pytrees: containers of arrays, flattened, mapped over, compared and described."""
