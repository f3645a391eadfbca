"""A model function that several export tests use, and the pytree node classes of its arguments."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import ArrayLike


class Pair(NamedTuple):
    left: Any
    right: Any


@fx.tree.register_pytree_node_class
class Scaled:
    """A pytree node with metadata: a scale and a name."""

    def __init__(self, value: Any, scale: float, name: str) -> None:
        self.value, self.scale, self.name = value, scale, name

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[float, str]]:
        return (self.value,), (self.scale, self.name)

    @classmethod
    def tree_unflatten(cls, metadata: tuple[float, str], children: tuple[Any, ...]) -> Scaled:
        return cls(children[0], *metadata)


WEIGHTS: Final = fnp.arange(6.0).reshape(3, 2)
SMALL: Final = np.array([1, -2], np.int8).astype(ml_dtypes.int4)


@fx.jit
def model(params: dict[str, ArrayLike], x: ArrayLike, *, scale: ArrayLike) -> dict[str, Any]:
    """Returns a pytree with constants, an output that is an input, and a scalar output."""
    h = fnp.tanh(fnp.dot(x, WEIGHTS) + params["b"])
    return {"h": h * scale, "x": x, "rest": [fnp.sum(h), 3.0, fnp.asarray(SMALL).astype("int8"), None]}


PARAMS: Final[dict[str, ArrayLike]] = {"b": np.array([0.5, -1.0], np.float32), "unused": np.ones(2, np.float32)}
X: Final = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def exported() -> fx.Exported[..., dict[str, Any]]:
    return fx.export(model)(PARAMS, fx.ShapeDtypeStruct((4, 3), "float32"), scale=2.0)
