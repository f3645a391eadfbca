"""Primitives with sub-jaxprs or callables: calls, control flow, custom rules, callbacks, `shard_map`.

The package exports the classes of those that programs can be parsed and loaded with.

>>> from tracefx import control
>>> control.Scan.name
'scan'
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)
