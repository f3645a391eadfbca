"""Mutable references to arrays, under the names of `jax.ref`."""

from __future__ import annotations

from tracefx.core.avals import RefType as RefType
from tracefx.interpreters.refs import Ref as Ref
from tracefx.interpreters.refs import RefView as RefView
from tracefx.interpreters.refs import addupdate as addupdate
from tracefx.interpreters.refs import freeze as freeze
from tracefx.interpreters.refs import get as get
from tracefx.interpreters.refs import new_ref as new_ref
from tracefx.interpreters.refs import set as set
from tracefx.interpreters.refs import swap as swap
