"""The executable key: what a program computes, as 20 bytes that are the same in every process."""

from __future__ import annotations

import functools
import struct
import time
from enum import Enum
from typing import Final, cast, final

import attrs
import numpy as np

from tracefx.core.avals import ShapedArray
from tracefx.core.device import is_device
from tracefx.core.jaxpr import Jaxpr, subjaxprs_postorder
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.text.printer import DTYPES_BY_NAME

_ENCODING_VERSION: Final = b"tracefx program 1"
"""Changes with the encoding, so that no file of an older one is taken for a newer one's."""

IMPORT_TIME: Final = time.time()
"""When tracefx was imported, give or take what its other modules took: the rules are those of its source then."""

_PACKAGE: Final = __name__.partition(".")[0]
_DTYPE_NAMES: Final = {d: name.encode() for name, d in DTYPES_BY_NAME.items()}


def executable_key(jaxpr: Jaxpr) -> bytes | None:
    """A digest of what the program computes, or `None` if it can't be shared beyond this jaxpr object.

    Programs that differ in nothing but the numbers of their variables, in provenance and in fields marked
    `metadata={"erased": True}` have the same key, in every process; others have different ones. Types count with
    their weakness, parameters with their exact type and bits. No key has a program that holds a callable or any
    other object known only by its identity, or an operation whose class can't be named for good: one defined inside
    a function, or in `__main__`, where another class of that name may follow. Computed once for a jaxpr object;
    bodies contribute their own key.

    >>> from tracefx.core.jaxpr import Var
    >>> x, y = [Var(i, ShapedArray((2,), np.dtype("float32"))) for i in (0, 3)]
    >>> executable_key(Jaxpr((), (x,), (), (x,))) == executable_key(Jaxpr((), (y,), (), (y,)))
    True
    """
    found = _digest(jaxpr)
    return None if found is None else found.key


def is_builtin_only(jaxpr: Jaxpr) -> bool:
    """Whether every class that a program with a key names is tracefx's own.

    What others' operations compile to can change between processes without the key telling: their rules are edited.
    """
    found = _digest(jaxpr)
    return found is not None and found.own


def value_key(value: object) -> bytes | None:
    """The same for a value that can be a parameter; devices count by what they are called and where they are."""
    from hashlib import blake2b  # as above

    try:
        return blake2b(_KeyEncoder().value(value), digest_size=20).digest()
    except _Unshareable:
        return None


@final
@attrs.frozen
class _Digest:
    key: bytes
    own: bool


class _Unshareable(Exception):
    """The program can't have a key."""


def _digest(jaxpr: Jaxpr) -> _Digest | None:
    return jaxpr.memo.get("digest", lambda: _compute_digest(jaxpr))


def _compute_digest(jaxpr: Jaxpr) -> _Digest | None:
    for body in subjaxprs_postorder(jaxpr):
        body.memo.get("digest", functools.partial(_encoded, body))
    return _encoded(jaxpr)


def _encoded(jaxpr: Jaxpr) -> _Digest | None:
    # Not imported at the top: loading OpenSSL takes 3 ms, and only compiled programs have digests.
    from hashlib import blake2b

    encoder = _KeyEncoder()
    try:
        return _Digest(blake2b(b"".join(encoder.program(jaxpr)), digest_size=20).digest(), encoder.own)
    except _Unshareable:
        return None


def _length_prefixed(tag: bytes, content: bytes) -> bytes:
    """Content that nothing after it can be taken for a part of."""
    return tag + struct.pack("<Q", len(content)) + content


def _count_prefixed(tag: bytes, parts: list[bytes]) -> bytes:
    return tag + struct.pack("<Q", len(parts)) + b"".join(parts)


@final
class _KeyEncoder:
    """Bytes of values: a tag that says the type, then a size or count, then the content. Different values differ."""

    def __init__(self) -> None:
        self.own = True
        self._avals: dict[ShapedArray, bytes] = {}
        self._classes: dict[type, bytes] = {}
        self._prims: dict[int, bytes] = {}

    # -------------------------------------------------------------- programs

    def program(self, jaxpr: Jaxpr) -> list[bytes]:
        places: dict[int, bytes] = {}
        parts = [_ENCODING_VERSION]
        for binders in (jaxpr.constvars, jaxpr.invars):
            parts.append(struct.pack("<Q", len(binders)))
            for v in binders:
                places[v.index] = b"v" + struct.pack("<Q", len(places))
                parts.append(self.aval(v.aval))
        parts.append(struct.pack("<Q", len(jaxpr.eqns)))
        for eqn in jaxpr.eqns:
            parts.append(self.primitive(eqn.prim))
            inputs = [self.literal(x) if isinstance(x, Literal) else places[x.index] for x in eqn.inputs]
            parts.append(_count_prefixed(b"i", inputs))
            for v in eqn.outs:
                places[v.index] = b"v" + struct.pack("<Q", len(places))
            parts.append(_count_prefixed(b"o", [self.aval(v.aval) for v in eqn.outs]))
        outs = [self.literal(x) if isinstance(x, Literal) else places[x.index] for x in jaxpr.outs]
        parts.append(_count_prefixed(b"r", outs))
        return parts

    def aval(self, aval: ShapedArray) -> bytes:
        found = self._avals.get(aval)
        if found is None:
            dims = [self.value(n) for n in aval.shape]
            weak = b"w" if aval.weak_type else b"s"
            found = self._avals[aval] = _count_prefixed(b"A", dims) + self.dtype(aval.dtype) + weak
        return found

    def literal(self, x: Literal) -> bytes:
        return _length_prefixed(b"L", x.numpy().tobytes()) + self.aval(x.aval)

    def dtype(self, dtype: np.dtype[np.generic]) -> bytes:
        name = _DTYPE_NAMES.get(dtype)
        if name is None:
            raise _Unshareable
        return _length_prefixed(b"D", name)

    # -------------------------------------------------------------- operations and their parameters

    def primitive(self, prim: Primitive) -> bytes:
        found = self._prims.get(id(prim))  # the program keeps the operation alive
        if found is None:
            found = self._prims[id(prim)] = self.record(b"P", prim)
        return found

    def record(self, tag: bytes, value: object) -> bytes:
        kind = type(value)
        fields = [
            f for f in attrs.fields(cast(type[attrs.AttrsInstance], kind)) if f.eq and not f.metadata.get("erased")
        ]
        return tag + self.named(kind) + _count_prefixed(b"f", [self.value(getattr(value, f.name)) for f in fields])

    def named(self, kind: type) -> bytes:
        found = self._classes.get(kind)
        if found is None:
            if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
                raise _Unshareable
            self.own &= kind.__module__.partition(".")[0] == _PACKAGE
            found = _length_prefixed(b"m", kind.__module__.encode()) + _length_prefixed(
                b"q", kind.__qualname__.encode()
            )
            self._classes[kind] = found
        return found

    def value(self, value: object) -> bytes:
        kind = type(value)
        if kind is bool:
            return b"T" if value else b"F"
        if kind is int:
            assert isinstance(value, int)
            return _length_prefixed(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        if kind is float:
            return struct.pack("<cd", b"R", value)
        if kind is complex:
            assert isinstance(value, complex)
            return struct.pack("<cdd", b"C", value.real, value.imag)
        if kind is str:
            assert isinstance(value, str)
            return _length_prefixed(b"S", value.encode("utf-8", "surrogatepass"))
        if kind is bytes:
            assert isinstance(value, bytes)
            return _length_prefixed(b"B", value)
        if value is None:
            return b"N"
        if isinstance(value, np.dtype):
            return self.dtype(value)
        return self.structure(value)

    def structure(self, value: object) -> bytes:
        kind = type(value)
        if isinstance(value, tuple):
            parts = [self.value(v) for v in value]
            return (
                _count_prefixed(b"t", parts)
                if kind is tuple
                else b"u" + self.named(kind) + _count_prefixed(b"t", parts)
            )
        if kind is frozenset:
            assert isinstance(value, frozenset)
            return _count_prefixed(b"z", sorted([self.value(v) for v in value]))
        if isinstance(value, Enum) and value.name:  # a flag without any bit has no name
            return b"E" + self.named(kind) + _length_prefixed(b"e", value.name.encode())
        if isinstance(value, Jaxpr):
            body = _digest(value)
            if body is None:
                raise _Unshareable
            self.own &= body.own
            return b"J" + body.key
        if isinstance(value, ShapedArray):
            return self.aval(value)
        if isinstance(value, Literal):
            return self.literal(value)
        if is_device(value):
            said = (value.platform, value.device_kind, value.id, value.process_index)
            return _count_prefixed(b"V", [self.value(v) for v in said])
        if attrs.has(kind) and not callable(value):
            return self.record(b"X", value)
        raise _Unshareable
