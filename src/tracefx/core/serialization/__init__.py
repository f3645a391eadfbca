"""Programs as bytes: written without pickle, and read back, from whoever wrote them, or refused.

docs/serialization.md describes the format. `writing` and `reading` have a method for each rule of its grammar, most of
them under the same name.
"""

from tracefx.core.serialization.reading import deserialize as deserialize
from tracefx.core.serialization.writing import serialize as serialize
