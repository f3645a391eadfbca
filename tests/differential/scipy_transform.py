"""Records of `tracefx.scipy.spatial.transform`: what rotations are made of, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.scipy.spatial.transform  # noqa: F401  # JAX has it as an attribute only then
import numpy as np

from tests.closeness import JAX_TOLERANCE
from tests.differential.records import Call, Function, Library, Record, call, f32, grid, record

QUATS: Final = grid(3, 4)
ONE: Final = f32(0.5, -0.25, 1.0, 0.75)
VECTORS: Final = grid(3, 3, seed=1)
TURNED: Final = f32(0.0, 0.7071068, 0.0, 0.7071068)
"""Where the first and the last axis become one."""


def rotation(name: str, of: Callable[[Any], Function], *calls: Call, **kw: Any) -> Record:
    def via(library: Library) -> Function:
        return of(library.root.scipy.spatial.transform)

    kw = {"dtypes": (), "batched": False, "derivatives": False, "ulps": JAX_TOLERANCE, **kw}
    return record(name, *calls, module="scipy.spatial.transform", via=via, **kw)


def made(name: str, *calls: Call, **kw: Any) -> Record:
    def of(module: Any) -> Function:
        return lambda *args, **options: getattr(module.Rotation, name)(*args, **options).as_quat()

    return rotation(f"Rotation.{name}", of, *calls, **kw)


def taken(name: str, *calls: Call, **kw: Any) -> Record:
    def of(module: Any) -> Function:
        return lambda q, *args, **options: getattr(module.Rotation.from_quat(q), name)(*args, **options)

    return rotation(f"Rotation.{name}", of, *calls, **kw)


def product(module: Any) -> Function:
    r = module.Rotation.from_quat
    return lambda p, q: (r(p) * r(q)).inv().as_quat()


def several(module: Any) -> Function:
    r = module.Rotation

    def f(q: Any, one: Any) -> Any:
        whole = r.concatenate([r.from_quat(q), r.from_quat(one[None])])
        return whole[1:3].as_quat(), whole[0].as_quat(), whole.mean().magnitude(), r.identity().as_quat()

    return f


def between(module: Any) -> Function:
    def f(q: Any, times: Any, at: Any) -> Any:
        return module.Slerp.init(times, module.Rotation.from_quat(q))(at).as_quat()

    return f


def matrices() -> Any:
    x = QUATS / np.linalg.norm(QUATS, axis=1, keepdims=True)
    v, w = x[:, :3], x[:, 3]
    cross = np.cross(np.eye(3), v[:, None])
    outs = [(a * a - b @ b) * np.eye(3) + 2 * np.outer(b, b) - 2 * a * c for a, b, c in zip(w, v, cross, strict=True)]
    return np.array(outs, np.float32)


RECORDS: Final[tuple[Record, ...]] = (
    made(
        "from_euler",
        call("xyz", VECTORS),
        call("ZXZ", VECTORS[0], degrees=True),
        values=[call("xy", VECTORS[:, :2])],
        refused=[call("", ONE), call("xyzx", ONE), call("xX", ONE[:2]), call("xx", ONE[:2]), call("ab", ONE[:2])],
    ),
    made("from_matrix", call(matrices()), values=[call(np.eye(3, dtype=np.float32))], batched=True, derivatives=True),
    made("from_mrp", call(VECTORS)),
    made("from_quat", call(QUATS), values=[call(ONE)]),
    made(
        "from_rotvec",
        call(VECTORS),
        values=[call(VECTORS[0], True), call(VECTORS * 1e-4), call(VECTORS * 0)],
        derivatives=True,
    ),
    taken("as_euler", call(QUATS, "xyz"), call(ONE, "ZXZ", True), values=[call(TURNED, "XYZ"), call(TURNED, "xyz")]),
    taken("as_matrix", call(QUATS), values=[call(ONE)]),
    taken("as_mrp", call(QUATS)),
    taken(
        "as_rotvec",
        call(QUATS),
        values=[call(ONE, degrees=True), call(f32(0, 0, 0, -1)), call(f32(1e-4, 0, 0, 1))],
        derivatives=True,
    ),
    taken("as_quat", call(QUATS, True), call(ONE, scalar_first=True), values=[call(f32(0, -1, 1, 0), True)]),
    taken("magnitude", call(QUATS), values=[call(ONE)]),
    taken(
        "apply", call(QUATS, VECTORS), call(ONE, VECTORS, inverse=True), values=[call(QUATS, VECTORS[0])], batched=True
    ),
    rotation("Rotation.__mul__", product, call(QUATS, ONE), values=[call(ONE, QUATS), call(ONE, ONE[::-1].copy())]),
    rotation("Rotation.__getitem__", several, call(QUATS, ONE)),
    rotation(
        "Slerp.init",
        between,
        call(QUATS, f32(0, 1, 3), f32(0.5, 2.0)),
        values=[call(QUATS, f32(0, 1, 3), np.float32(1.0)), call(QUATS, f32(0, 1, 3), f32(-1, 1, 4))],
        refused=[
            call(QUATS, f32(0, 1), f32(0.5)),
            call(ONE, f32(0), f32(0.5)),
        ],
    ),
)
