"""The parser of symbolic shapes: sums of products of dimension variables, integers and operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NoReturn, final

from tracefx.dimensions.symbolic_dimensions import Scope, is_symbolic_dim, max_dim, min_dim

_TOKEN: Final = re.compile(r"\s*(?:(\.\.\.)|(\d+)|([^\W\d]\w*)|([-+*^(),])|(\S))")
_OPERATIONS: Final = ("floordiv", "mod", "max", "min")


_MAX_EXPONENT: Final = 64


def parse_dimensions(
    text: str, scope: Scope, like: Sequence[int | None] | None = None, *, simplified: bool = True
) -> tuple[int, ...]:
    """Returns the dimensions that a text describes.

    Args:
        text: The sizes, separated by commas.
        scope: The scope of the variables.
        like: The shape that gives the sizes in place of `_` and `...`. None by default.
        simplified: Whether `max` and `min` are simplified where the constraints decide them. True by default.

    Raises:
        ValueError: If the text cannot be parsed, or a size differs from that of `like`.
    """
    return _DimensionParser(text, scope, like, simplified).parse()


@final
class _DimensionParser:
    """A recursive-descent parser; each method reads the rule of its name."""

    def __init__(self, text: str, scope: Scope, like: Sequence[int | None] | None, simplified: bool) -> None:
        self._text = text
        self._simplified = simplified
        self._scope = scope
        self._like = like
        self._tokens = [(match.group().strip(), match.start()) for match in _TOKEN.finditer(text)]
        self._tokens.append(("", len(text)))
        self._next = 0
        self._dimensions: list[int] = []

    @property
    def _token(self) -> str:
        return self._tokens[self._next][0]

    def _accept(self, *tokens: str) -> str:
        """Consumes the next token if it is one of these, and returns it; else returns the empty string."""
        token = self._token
        if token not in tokens:
            return ""
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(f"expected {token!r}")

    def _fail(self, problem: str) -> NoReturn:
        found = repr(self._token) if self._token else "the end"
        raise ValueError(
            f"the symbolic shape {self._text!r}, dimension {len(self._dimensions)}: {problem}, at {found}, "
            f"position {self._tokens[self._next][1]}"
        )

    def parse(self) -> tuple[int, ...]:
        parentheses = 0
        while self._accept("("):
            parentheses += 1
        while self._token not in ("", ")"):
            if self._token == "...":
                for size in self._like_sizes()[len(self._dimensions) :]:
                    self._append(size)
                self._next += 1
                break
            if self._token == "_":
                sizes = self._like_sizes()
                if len(sizes) <= len(self._dimensions):
                    self._fail(f"like={self._like} has only {len(sizes)} axes")
                self._append(sizes[len(self._dimensions)])
                self._next += 1
            else:
                self._append(self._sum())
            if self._token not in ("", ")"):
                self._expect(",")
        for _ in range(parentheses):
            self._expect(")")
        if self._token:
            self._fail("expected the end")
        return tuple(self._dimensions)

    def _like_sizes(self) -> Sequence[int | None]:
        if self._like is None:
            self._fail("a placeholder needs like=, the shape that gives its size")
        if len(self._like) < len(self._dimensions):
            self._fail(f"like={self._like} has only {len(self._like)} axes")
        return self._like

    def _append(self, size: int | None) -> None:
        if size is None:
            self._fail(f"like={self._like} gives no size")
        if self._like is not None and not is_symbolic_dim(size):
            expected = self._like[len(self._dimensions)] if len(self._dimensions) < len(self._like) else None
            if expected != size:
                self._fail(f"the size {size} differs from {expected} in like={self._like}")
        self._dimensions.append(size)

    def _sum(self) -> int:
        negated = self._accept("+", "-") == "-"
        total = -self._product() if negated else self._product()
        while sign := self._accept("+", "-"):
            total = total + self._product() if sign == "+" else total - self._product()
        return total

    def _product(self) -> int:
        product = self._power()
        while self._accept("*"):
            product *= self._power()
        return product

    def _power(self) -> int:
        base = self._factor()
        if not self._accept("^"):
            return base
        exponent = self._number()
        if exponent > _MAX_EXPONENT:
            self._fail(f"the exponent {exponent} is larger than {_MAX_EXPONENT}")
        power: int = base**exponent
        return power

    def _number(self) -> int:
        if not self._token.isdecimal():
            self._fail("expected a number")
        self._next += 1
        return int(self._tokens[self._next - 1][0])

    def _factor(self) -> int:
        if self._accept("-"):
            return -self._number()
        if self._token.isdecimal():
            return self._number()
        name = self._token
        if not name.isidentifier():
            self._fail("expected a dimension variable or a number")
        self._next += 1
        if name not in _OPERATIONS:
            return self._scope.variable(name)
        self._expect("(")
        left = self._sum()
        self._expect(",")
        right = self._sum()
        self._expect(")")
        if name in ("max", "min") and self._simplified:
            return max_dim(left, right) if name == "max" else min_dim(left, right)
        return self._scope.operation(name, left, right)
