"""Records of `tracefx.scipy.spatial.transform`: constructors of rotations, and functions of rotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.scipy.spatial.transform  # noqa: F401  # JAX has it as an attribute only then
import numpy as np

from tests.comparison import JAX_TOLERANCE
from tests.differential.records import Call, Function, Library, Record, call, f32, grid, record

QUATS: Final = grid(3, 4)
QUATERNION: Final = f32(0.5, -0.25, 1.0, 0.75)
VECTORS: Final = grid(3, 3, seed=1)
GIMBAL_LOCK: Final = f32(0.0, 0.7071068, 0.0, 0.7071068)
"""A rotation at gimbal lock, where the first and the last Euler axis coincide."""


def rotation(name: str, of: Callable[[Any], Function], *calls: Call, **kw: Any) -> Record:
    def via(library: Library) -> Function:
        return of(library.root.scipy.spatial.transform)

    kw = {"dtypes": (), "batched": False, "derivatives": False, "ulps": JAX_TOLERANCE, **kw}
    return record(name, *calls, module="scipy.spatial.transform", via=via, **kw)


def constructor(name: str, *calls: Call, **kw: Any) -> Record:
    def of(module: Any) -> Function:
        return lambda *args, **options: getattr(module.Rotation, name)(*args, **options).as_quat()

    return rotation(f"Rotation.{name}", of, *calls, **kw)


def conversion(name: str, *calls: Call, **kw: Any) -> Record:
    def of(module: Any) -> Function:
        return lambda q, *args, **options: getattr(module.Rotation.from_quat(q), name)(*args, **options)

    return rotation(f"Rotation.{name}", of, *calls, **kw)


def product(module: Any) -> Function:
    r = module.Rotation.from_quat
    return lambda p, q: (r(p) * r(q)).inv().as_quat()


def concatenated(module: Any) -> Function:
    r = module.Rotation

    def f(q: Any, single: Any) -> Any:
        rotations = r.concatenate([r.from_quat(q), r.from_quat(single[None])])
        return rotations[1:3].as_quat(), rotations[0].as_quat(), rotations.mean().magnitude(), r.identity().as_quat()

    return f


def interpolated(module: Any) -> Function:
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
    constructor(
        "from_euler",
        call("xyz", VECTORS),
        call("ZXZ", VECTORS[0], degrees=True),
        values=[call("xy", VECTORS[:, :2])],
        refused=[
            call("", QUATERNION),
            call("xyzx", QUATERNION),
            call("xX", QUATERNION[:2]),
            call("xx", QUATERNION[:2]),
            call("ab", QUATERNION[:2]),
        ],
    ),
    constructor(
        "from_matrix", call(matrices()), values=[call(np.eye(3, dtype=np.float32))], batched=True, derivatives=True
    ),
    constructor("from_mrp", call(VECTORS)),
    constructor("from_quat", call(QUATS), values=[call(QUATERNION)]),
    constructor(
        "from_rotvec",
        call(VECTORS),
        values=[call(VECTORS[0], True), call(VECTORS * 1e-4), call(VECTORS * 0)],
        derivatives=True,
    ),
    conversion(
        "as_euler",
        call(QUATS, "xyz"),
        call(QUATERNION, "ZXZ", True),
        values=[call(GIMBAL_LOCK, "XYZ"), call(GIMBAL_LOCK, "xyz")],
    ),
    conversion("as_matrix", call(QUATS), values=[call(QUATERNION)]),
    conversion("as_mrp", call(QUATS)),
    conversion(
        "as_rotvec",
        call(QUATS),
        values=[call(QUATERNION, degrees=True), call(f32(0, 0, 0, -1)), call(f32(1e-4, 0, 0, 1))],
        derivatives=True,
    ),
    conversion(
        "as_quat", call(QUATS, True), call(QUATERNION, scalar_first=True), values=[call(f32(0, -1, 1, 0), True)]
    ),
    conversion("magnitude", call(QUATS), values=[call(QUATERNION)]),
    conversion(
        "apply",
        call(QUATS, VECTORS),
        call(QUATERNION, VECTORS, inverse=True),
        values=[call(QUATS, VECTORS[0])],
        batched=True,
    ),
    rotation(
        "Rotation.__mul__",
        product,
        call(QUATS, QUATERNION),
        values=[call(QUATERNION, QUATS), call(QUATERNION, QUATERNION[::-1].copy())],
    ),
    rotation("Rotation.__getitem__", concatenated, call(QUATS, QUATERNION)),
    rotation(
        "Slerp.init",
        interpolated,
        call(QUATS, f32(0, 1, 3), f32(0.5, 2.0)),
        values=[call(QUATS, f32(0, 1, 3), np.float32(1.0)), call(QUATS, f32(0, 1, 3), f32(-1, 1, 4))],
        refused=[
            call(QUATS, f32(0, 1), f32(0.5)),
            call(QUATERNION, f32(0), f32(0.5)),
        ],
    ),
)
