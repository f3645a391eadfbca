"""The executable key: a 20-byte digest of what a jaxpr computes, equal in all processes. Compilation caches use it."""

from __future__ import annotations

import functools
import struct
import time
from enum import Enum
from typing import Final, final

import attrs
from typing_extensions import override

from tracefx.bounded_cache import MemoKey
from tracefx.core import DType, Literal, ShapedArray
from tracefx.core.custom_text import CustomText
from tracefx.core.device import is_device
from tracefx.core.jaxpr import Jaxpr, subjaxprs_postorder
from tracefx.core.primitive import Primitive
from tracefx.text.fields import FieldVisitor, PlainValue, compared_fields
from tracefx.text.printer import DTYPE_NAMES

_ENCODING_VERSION: Final = b"tracefx program 1"
"""Changed together with the encoding, so that keys of different encodings differ."""

IMPORT_TIME: Final = time.time()
"""The approximate import time of tracefx: the loaded rules are those of the source files at that time."""

_PACKAGE: Final = __name__.partition(".")[0]


def executable_key(jaxpr: Jaxpr) -> bytes | None:
    """Returns the digest of what a jaxpr computes; `None` if its executable cannot be shared with other jaxpr objects.

    Jaxprs have the same key, in every process, if and only if they differ at most in variable indices, source
    locations, varying mesh axes and fields marked `metadata={"erased": True}`. Avals are compared with weak types,
    parameters by exact type and bits. The key is `None` if a jaxpr contains a callable or another object that is
    compared by identity, or a primitive whose class has no permanent name: one defined in a function, or in `__main__`,
    where another class of the same name may follow. The key is cached on the jaxpr object; sub-jaxprs contribute their
    own keys.

    Args:
        jaxpr: The program.

    Returns:
        The digest, 20 bytes, or None.

    >>> from tracefx.core import dtypes
    >>> from tracefx.core.jaxpr import Var
    >>> x, y = [Var(i, ShapedArray((2,), dtypes.float32)) for i in (0, 3)]
    >>> executable_key(Jaxpr((), (x,), (), (x,))) == executable_key(Jaxpr((), (y,), (), (y,)))
    True
    """
    digest = _digest(jaxpr)
    return None if digest is None else digest.key


def is_builtin_only(jaxpr: Jaxpr) -> bool:
    """Whether all classes that determine the key belong to tracefx.

    Rules of other packages may change between processes without a change of the key, because their source is edited.
    """
    digest = _digest(jaxpr)
    return digest is not None and digest.own


def value_key(value: object) -> bytes | None:
    """Returns such a digest for a parameter value. Devices are identified by platform, kind, id and process."""
    from hashlib import blake2b  # a lazy import, see `_encoded`

    try:
        return blake2b(_KeyEncoder().value(value), digest_size=20).digest()
    except _Unshareable:
        return None


@final
@attrs.frozen
class _Digest:
    """A key, and whether all classes that determine it belong to tracefx."""

    key: bytes
    own: bool


class _Unshareable(Exception):
    """Raised for a jaxpr that has no key."""


_DIGEST: Final = MemoKey[_Digest | None]("digest")


def _digest(jaxpr: Jaxpr) -> _Digest | None:
    return jaxpr.memo.get(_DIGEST, (), lambda: _compute_digest(jaxpr))


def _compute_digest(jaxpr: Jaxpr) -> _Digest | None:
    """Computes the digests of sub-jaxprs first, without recursion, then that of the jaxpr."""
    for body in subjaxprs_postorder(jaxpr):
        body.memo.get(_DIGEST, (), functools.partial(_encoded, body))
    return _encoded(jaxpr)


def _encoded(jaxpr: Jaxpr) -> _Digest | None:
    """Computes the digest of a jaxpr from those of its sub-jaxprs."""
    # A lazy import: loading OpenSSL takes 3 ms, and only compiled programs have digests.
    from hashlib import blake2b

    encoder = _KeyEncoder()
    try:
        return _Digest(blake2b(b"".join(encoder.program(jaxpr)), digest_size=20).digest(), encoder.own)
    except _Unshareable:
        return None


def _length_prefixed(tag: bytes, content: bytes) -> bytes:
    """Returns content in a prefix-free encoding: a tag, the length, the content."""
    return tag + struct.pack("<Q", len(content)) + content


def _count_prefixed(tag: bytes, parts: list[bytes]) -> bytes:
    """Returns encoded parts in a prefix-free encoding: a tag, their number, the parts."""
    return tag + struct.pack("<Q", len(parts)) + b"".join(parts)


@final
class _KeyEncoder(FieldVisitor[bytes]):
    """Encodes values injectively: a tag for the type, a size or count, the content."""

    def __init__(self) -> None:
        self.own = True
        self._avals: dict[ShapedArray, bytes] = {}
        self._classes: dict[type, bytes] = {}
        self._prims: dict[int, bytes] = {}

    # -------------------------------------------------------------- programs

    def program(self, jaxpr: Jaxpr) -> list[bytes]:
        indices: dict[int, bytes] = {}
        parts = [_ENCODING_VERSION]
        for binders in (jaxpr.constvars, jaxpr.invars):
            parts.append(struct.pack("<Q", len(binders)))
            for v in binders:
                indices[v.index] = b"v" + struct.pack("<Q", len(indices))
                parts.append(self.aval(v.aval))
        parts.append(struct.pack("<Q", len(jaxpr.eqns)))
        for eqn in jaxpr.eqns:
            parts.append(self.equation_primitive(eqn.prim))
            inputs = [self.literal(x) if isinstance(x, Literal) else indices[x.index] for x in eqn.inputs]
            parts.append(_count_prefixed(b"i", inputs))
            for v in eqn.outs:
                indices[v.index] = b"v" + struct.pack("<Q", len(indices))
            parts.append(_count_prefixed(b"o", [self.aval(v.aval) for v in eqn.outs]))
        outs = [self.literal(x) if isinstance(x, Literal) else indices[x.index] for x in jaxpr.outs]
        parts.append(_count_prefixed(b"r", outs))
        return parts

    @override
    def aval(self, value: ShapedArray) -> bytes:
        encoded = self._avals.get(value)
        if encoded is None:
            dims = [self.value(n) for n in value.shape]
            weak = b"w" if value.weak_type else b"s"
            encoded = _count_prefixed(b"A", dims) + self.dtype(value.dtype) + weak
            if value.explicit_sharding is not None:
                encoded += self.value(value.explicit_sharding)
            self._avals[value] = encoded
        return encoded

    @override
    def literal(self, value: Literal) -> bytes:
        return _length_prefixed(b"L", value.numpy().tobytes()) + self.aval(value.aval)

    @override
    def dtype(self, value: DType) -> bytes:
        name = DTYPE_NAMES.get(value)
        if name is None:
            raise _Unshareable
        return _length_prefixed(b"D", name.encode())

    # -------------------------------------------------------------- primitives and their parameters

    def equation_primitive(self, prim: Primitive) -> bytes:
        encoded = self._prims.get(id(prim))  # ids are unique: the jaxpr keeps the primitive alive
        if encoded is None:
            encoded = self._prims[id(prim)] = b"P" + self.fields(prim)
        return encoded

    def fields(self, value: object) -> bytes:
        """Encodes the class and the compared fields of a primitive or an instance of an attrs class."""
        kind = type(value)
        values = [self.value(getattr(value, name)) for name in compared_fields(kind)]
        return self.named(kind) + _count_prefixed(b"f", values)

    def named(self, kind: type) -> bytes:
        encoded = self._classes.get(kind)
        if encoded is None:
            if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
                raise _Unshareable
            self.own &= kind.__module__.partition(".")[0] == _PACKAGE
            encoded = _length_prefixed(b"m", kind.__module__.encode()) + _length_prefixed(
                b"q", kind.__qualname__.encode()
            )
            self._classes[kind] = encoded
        return encoded

    @override
    def plain(self, value: PlainValue) -> bytes:
        match value:
            case None:
                return b"N"
            case bool():
                return b"T" if value else b"F"
            case int():
                return _length_prefixed(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
            case float():
                return struct.pack("<cd", b"R", value)
            case complex():
                return struct.pack("<cdd", b"C", value.real, value.imag)
            case str():
                return _length_prefixed(b"S", value.encode("utf-8", "surrogatepass"))
            case bytes():
                return _length_prefixed(b"B", value)

    @override
    def member(self, value: Enum) -> bytes:
        if not value.name:  # an empty flag has no name
            raise _Unshareable
        return b"E" + self.named(type(value)) + _length_prefixed(b"e", value.name.encode())

    @override
    def jaxpr(self, value: Jaxpr) -> bytes:
        body = _digest(value)
        if body is None:
            raise _Unshareable
        self.own &= body.own
        return b"J" + body.key

    @override
    def primitive(self, value: Primitive) -> bytes:
        return b"X" + self.fields(value)

    @override
    def elements(self, value: tuple[object, ...]) -> bytes:
        tag = b"" if type(value) is tuple else b"u" + self.named(type(value))
        return tag + _count_prefixed(b"t", [self.value(v) for v in value])

    @override
    def set_elements(self, value: frozenset[object]) -> bytes:
        return _count_prefixed(b"z", sorted([self.value(v) for v in value]))

    @override
    def custom(self, value: CustomText) -> bytes:
        return self.record(value) if attrs.has(type(value)) else self.other(value)

    @override
    def record(self, value: object) -> bytes:
        return self.elements(value) if isinstance(value, tuple) else b"X" + self.fields(value)

    @override
    def other(self, value: object) -> bytes:
        if not is_device(value):
            raise _Unshareable
        identity = (value.platform, value.device_kind, value.id, value.process_index)
        return _count_prefixed(b"V", [self.value(v) for v in identity])
