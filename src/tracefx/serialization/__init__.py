"""Serialization of jaxprs and pytree structures without pickle. Untrusted bytes are safe to read.

docs/serialization.md describes the format. `encoder` and `decoder` have one method per rule of its grammar, most of
them with the same name.
"""

from tracefx.serialization.decoder import deserialize as deserialize
from tracefx.serialization.encoder import serialize as serialize
from tracefx.serialization.trees import put_tree as put_tree
from tracefx.serialization.trees import read_tree as read_tree
