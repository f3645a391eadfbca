"""Primitives with sub-jaxprs or callables: calls, control flow, custom rules, callbacks, `shard_map`."""
