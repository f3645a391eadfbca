"""Programs and structures of trees as bytes: written without pickle, and read, from whoever wrote them, or refused.

docs/serialization.md describes the format. `writing` and `reading` have a method for each rule of its grammar, most of
them under the same name.
"""

from tracefx.serialization.decoder import deserialize as deserialize
from tracefx.serialization.encoder import serialize as serialize
from tracefx.serialization.trees import put_tree as put_tree
from tracefx.serialization.trees import read_tree as read_tree
