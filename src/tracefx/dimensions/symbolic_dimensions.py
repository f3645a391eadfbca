"""Symbolic dimensions: axis sizes that are integer expressions of dimension variables, and their arithmetic.

An expression is a polynomial whose factors are dimension variables, or `floordiv`, `mod`, `max` and `min` of two
expressions. It is stored in a normal form, so equal polynomials are equal expressions. Comparisons are decided by
`dimension_bounds`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeGuard, cast, final

from typing_extensions import override

from tracefx.core import Array
from tracefx.core.late_binding import LateBound
from tracefx.errors import InconclusiveDimensionOperation


class Factor(NamedTuple):
    """A dimension variable, or an operation on two expressions. Factors, terms and polynomials are ordered by size."""

    size: int
    name: str
    """The name of the variable, or one of `floordiv`, `mod`, `max` and `min`."""
    operands: tuple[Polynomial, ...] = ()

    @property
    def is_variable(self) -> bool:
        """Whether this is a dimension variable."""
        return not self.operands

    @override
    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})" if self.operands else self.name


class Term(NamedTuple):
    """A product of powers of factors, the largest factor first."""

    size: int
    factors: tuple[tuple[Factor, int], ...]

    @classmethod
    def of(cls, powers: Mapping[Factor, int]) -> Term:
        """Returns the product of factors with these exponents, which are positive."""
        factors = tuple(sorted(powers.items(), reverse=True))
        return cls(sum([1 + exponent * factor.size for factor, exponent in factors]), factors)

    def times(self, other: Term, sign: int = 1) -> Term | None:
        """Returns the product; with `sign` -1 the quotient, or None if it has a negative exponent."""
        powers = dict(self.factors)
        for factor, exponent in other.factors:
            powers[factor] = powers.get(factor, 0) + sign * exponent
        if any(exponent < 0 for exponent in powers.values()):
            return None
        return Term.of({factor: exponent for factor, exponent in powers.items() if exponent})

    @property
    def factor(self) -> Factor | None:
        """The only factor, if there is one, with the exponent 1."""
        return self.factors[0][0] if len(self.factors) == 1 and self.factors[0][1] == 1 else None

    @override
    def __str__(self) -> str:
        return "*".join([str(f) if exponent == 1 else f"{f}^{exponent}" for f, exponent in sorted(self.factors)])


ONE: Final = Term(0, ())
"""The empty product."""

Coefficients: TypeAlias = Mapping[Term, int]


class Polynomial(NamedTuple):
    """A sum of terms with coefficients other than zero, the largest term first; the constant term is last."""

    size: int
    terms: tuple[tuple[Term, int], ...]

    @classmethod
    def of(cls, coefficients: Coefficients) -> Polynomial:
        """Returns the polynomial with these coefficients, which may be zero."""
        terms = tuple(sorted([item for item in coefficients.items() if item[1]], reverse=True))
        return cls(sum([1 + abs(k) * term.size for term, k in terms]), terms)

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial; None for others."""
        return 0 if not self.terms else self.terms[0][1] if self.terms[0][0] == ONE else None

    @override
    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for term, k in self.terms:
            number = [str(abs(k))] if term == ONE or abs(k) != 1 else []
            product = "*".join([*number, *[str(term)] * (term != ONE)])
            text += (" - " if k < 0 else " + ") + product if text else ("- " if k < 0 else "") + product
        return text


def combine(p: Coefficients, k: int, q: Coefficients, m: int) -> dict[Term, int]:
    """Returns the coefficients of `p * k + q * m`."""
    result = {term: c * k for term, c in p.items()}
    for term, c in q.items():
        result[term] = result.get(term, 0) + c * m
    return {term: c for term, c in result.items() if c}


def multiply(p: Coefficients, q: Coefficients) -> dict[Term, int]:
    """Returns the coefficients of `p * q`."""
    result: dict[Term, int] = {}
    for s, j in p.items():
        for t, k in q.items():
            product = cast(Term, s.times(t))
            result[product] = result.get(product, 0) + j * k
    return result


class Scope:
    """The dimension variables that may be used together. `dimension_bounds.SymbolicScope` adds their constraints."""

    rules: dict[Term, tuple[dict[Term, int], int]]
    """For `t` and the pair `(p, k)`: `t * k` is replaced by `p`, because of an equality constraint."""

    def at_least(self, coefficients: Coefficients) -> bool | None:
        """Whether a polynomial is at least 0 for all sizes; None if it depends on them, or is not known."""
        raise NotImplementedError

    def describe_constraints(self) -> str:
        """Returns the constraints of the user for messages; the empty string if there are none."""
        raise NotImplementedError

    def build(self, coefficients: Coefficients) -> int:
        """Returns the dimension with these coefficients: an integer if they are those of a constant."""
        if self.rules:
            coefficients = self._normalize(coefficients)
        polynomial = Polynomial.of(coefficients)
        constant = polynomial.constant
        return cast(int, SymbolicDimension(polynomial, self)) if constant is None else constant

    def variable(self, name: str) -> int:
        """Returns the dimension variable with a name."""
        return self.build({Term.of({Factor(1, name): 1}): 1})

    def operation(self, name: str, left: int, right: int) -> int:
        """Returns `floordiv`, `mod`, `max` or `min` of two dimensions, without simplification."""
        operands = polynomial_of(left), polynomial_of(right)
        return self.build({Term.of({Factor(1 + sum([p.size for p in operands]), name, operands): 1}): 1})

    def _normalize(self, coefficients: Coefficients) -> Coefficients:
        """Applies the equality constraints once, to terms and to the factors of products."""
        for term, k in Polynomial.of(coefficients).terms:
            parts = [term, *[Term.of({f: e}) for f, e in term.factors if len(term.factors) > 1]]
            for part in parts:
                replacement, divisor = self.rules.get(part, ({}, 0))
                rest = term.times(part, -1)
                if divisor and k % divisor == 0 and rest is not None:
                    return combine(
                        combine(coefficients, 1, {term: k}, -1), 1, multiply(replacement, {rest: k // divisor}), 1
                    )
        return coefficients

    def require_same(self, other: Scope, what: str) -> None:
        """Raises ValueError if `other` is another scope."""
        if other is not self:
            raise ValueError(
                f"{what}: the symbolic dimensions are of different scopes, {self} and {other}: pass the scope of the "
                "first to symbolic_shape, as scope="
            )


DIMENSION_AS_ARRAY: Final[LateBound[Callable[[int], Array]]] = LateBound("the value of a symbolic dimension")


@final
class SymbolicDimension:
    """An axis size that is an expression of dimension variables. `symbolic_shape` makes them.

    Arithmetic with integers gives symbolic dimensions, or integers where the result is constant. Arithmetic with arrays
    and floats gives arrays: the dimension is then a value that is computed at run time. Comparisons hold for all sizes,
    or raise `InconclusiveDimensionOperation`; `==` is False unless the expressions are equal.

    It stands where axis sizes stand, whose type is `int` for type checkers, but is not an `int`: C functions read the
    value of an `int` without calling its methods, and so would compute with a wrong size.
    """

    __slots__ = ("_hash", "polynomial", "scope")
    __array_priority__ = 1000

    def __init__(self, polynomial: Polynomial, scope: Scope) -> None:
        self.polynomial = polynomial
        self.scope = scope
        self._hash = hash(polynomial)

    @property
    def variables(self) -> frozenset[str]:
        """The names of the dimension variables in the expression."""
        return variables_of(self.polynomial)

    def _combine(self, k: int, other: object, m: int, what: str) -> int:
        return self.scope.build(combine(dict(self.polynomial.terms), k, self._coefficients(other, what), m))

    def _coefficients(self, other: object, what: str) -> dict[Term, int]:
        if is_symbolic_dim(other):
            self.scope.require_same(other.scope, f"{self} {what} {other}")
        return dict(polynomial_of(other).terms)

    def __add__(self, other: object) -> Any:
        return self._combine(1, other, 1, "+") if _is_dimension(other) else self._on_array(operator.add, other)

    def __radd__(self, other: object) -> Any:
        return self + other if _is_dimension(other) else self._on_array(operator.add, other, True)

    def __sub__(self, other: object) -> Any:
        return self._combine(1, other, -1, "-") if _is_dimension(other) else self._on_array(operator.sub, other)

    def __rsub__(self, other: object) -> Any:
        return self._combine(-1, other, 1, "-") if _is_dimension(other) else self._on_array(operator.sub, other, True)

    def __neg__(self) -> int:
        return self._combine(-1, 0, 0, "-")

    def __pos__(self) -> int:
        return cast(int, self)

    def __mul__(self, other: object) -> Any:
        if not _is_dimension(other):
            return self._on_array(operator.mul, other)
        return self.scope.build(multiply(dict(self.polynomial.terms), self._coefficients(other, "*")))

    def __rmul__(self, other: object) -> Any:
        return self * other if _is_dimension(other) else self._on_array(operator.mul, other, True)

    def __pow__(self, power: object) -> Any:
        if is_symbolic_dim(power) or not _is_dimension(power):
            return self._on_array(operator.pow, power)
        exponent = operator.index(power)
        if exponent < 0:
            raise ValueError(f"{self} ** {exponent}: symbolic dimensions have no negative powers")
        if exponent and len(self.polynomial.terms) == 1:
            ((term, k),) = self.polynomial.terms
            return self.scope.build({Term.of({factor: n * exponent for factor, n in term.factors}): k**exponent})
        return reduce(operator.mul, [self] * exponent, 1)

    def __rpow__(self, other: object) -> Any:
        return self._on_array(operator.pow, other, True)

    def __truediv__(self, other: object) -> Any:
        return self._on_array(operator.truediv, other)

    def __rtruediv__(self, other: object) -> Any:
        return self._on_array(operator.truediv, other, True)

    def __floordiv__(self, other: object) -> Any:
        return divmod(self, other)[0] if _is_dimension(other) else self._on_array(operator.floordiv, other)

    def __rfloordiv__(self, other: object) -> Any:
        return divmod(other, self)[0] if _is_dimension(other) else self._on_array(operator.floordiv, other, True)

    def __mod__(self, other: object) -> Any:
        return divmod(self, other)[1] if _is_dimension(other) else self._on_array(operator.mod, other)

    def __rmod__(self, other: object) -> Any:
        return divmod(other, self)[1] if _is_dimension(other) else self._on_array(operator.mod, other, True)

    def __divmod__(self, other: object) -> Any:
        return _divide(self.scope, self, other) if _is_dimension(other) else self._on_array(divmod, other)

    def __rdivmod__(self, other: object) -> Any:
        return _divide(self.scope, other, self) if _is_dimension(other) else self._on_array(divmod, other, True)

    @override
    def __eq__(self, other: object) -> bool:
        return (
            is_symbolic_dim(other)
            and self.scope is other.scope
            and (self is other or self.polynomial == other.polynomial)
        )

    @override
    def __hash__(self) -> int:
        return self._hash

    def __ge__(self, other: object) -> bool:
        return self._compare(">=", other)

    def __gt__(self, other: object) -> bool:
        return self._compare(">", other)

    def __le__(self, other: object) -> bool:
        return self._compare("<=", other)

    def __lt__(self, other: object) -> bool:
        return self._compare("<", other)

    def _compare(self, comparison: str, other: object) -> bool:
        if not _is_dimension(other):
            return cast(bool, NotImplemented)
        difference = combine(dict(self.polynomial.terms), 1, self._coefficients(other, comparison), -1)
        if comparison in ("<=", ">"):
            difference = {term: -k for term, k in difference.items()}
        decided = self.scope.at_least(difference)
        if decided is None:
            raise InconclusiveDimensionOperation(
                f"the comparison {self} {comparison} {other} of symbolic dimensions is inconclusive: it holds for some "
                f"sizes only, or cannot be decided{self.scope.describe_constraints()}. Add a constraint to "
                "symbolic_shape, such as constraints=('a >= b',)"
            )
        return decided == (comparison in (">=", "<="))

    def __index__(self) -> NoReturn:
        raise InconclusiveDimensionOperation(
            f"the symbolic dimension {self} is used where a constant integer is needed; its value is known only when "
            "the exported function is called. To compute with it as an array, use tracefx.numpy.asarray"
        )

    __int__ = __float__ = __complex__ = __index__

    def __jax_array__(self) -> Array:
        """Returns the dimension as an array, whose value is computed at run time."""
        return DIMENSION_AS_ARRAY.value(cast(int, self))

    dimension_as_value = __jax_array__  # the name in JAX

    def _on_array(self, function: Callable[[Any, Any], Any], other: object, swapped: bool = False) -> Any:
        """Applies an operator to the value of the dimension and an array or number."""
        if isinstance(other, Array):
            return NotImplemented  # the operator of the array converts the dimension
        value = self.__jax_array__()
        return function(other, value) if swapped else function(value, other)

    @override
    def __repr__(self) -> str:
        return str(self.polynomial)

    __str__ = __repr__

    @override
    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> SymbolicDimension:
        return self

    def __deepcopy__(self, memo: object) -> SymbolicDimension:
        return self


def is_symbolic_dim(p: object) -> TypeGuard[SymbolicDimension]:
    """Returns whether an axis size is symbolic: an expression of dimension variables.

    Args:
        p: The axis size.

    Returns:
        A boolean.

    >>> from tracefx import symbolic_shape
    >>> [is_symbolic_dim(n) for n in symbolic_shape("b, 3")]
    [True, False]
    """
    return isinstance(p, SymbolicDimension)


def has_symbolic_dims(shape: Iterable[object]) -> bool:
    """Whether some size of a shape is symbolic."""
    return SymbolicDimension in map(type, shape)


def exceeds(size: int, limit: int) -> bool:
    """Whether an axis size is larger than a limit of hardware, such as 2^32; a symbolic size is assumed not to be."""
    return not is_symbolic_dim(size) and size > limit


def _is_dimension(x: object) -> TypeGuard[int]:
    """Whether `x` is a symbolic dimension or an integer, but not an array of tracefx or NumPy."""
    return is_symbolic_dim(x) or (
        hasattr(type(x), "__index__") and not isinstance(x, Array) and not getattr(x, "shape", ())
    )


def polynomial_of(x: object) -> Polynomial:
    """Returns the polynomial of a dimension or an integer."""
    return x.polynomial if is_symbolic_dim(x) else Polynomial.of({ONE: operator.index(cast(int, x))})


def variables_of(polynomial: Polynomial) -> frozenset[str]:
    """Returns the names of the dimension variables in a polynomial."""
    names: set[str] = set()
    for term, _ in polynomial.terms:
        for factor, _ in term.factors:
            names |= {factor.name} if factor.is_variable else frozenset().union(*map(variables_of, factor.operands))
    return frozenset(names)


def _divide(scope: Scope, left: object, right: object) -> tuple[int, int]:
    """Returns quotient and remainder: by polynomial division if it is exact up to a constant, else as operations."""
    quotient, rest, divisor = 0, cast(int, left), cast(int, right)
    if is_symbolic_dim(left) and is_symbolic_dim(right):
        scope.require_same(right.scope, f"{left} divided by {right}")
    lead, lead_coefficient = right.polynomial.terms[0] if is_symbolic_dim(right) else (ONE, operator.index(divisor))
    while is_symbolic_dim(rest):
        term, k = rest.polynomial.terms[0]
        factor_quotient = term.times(lead, -1)
        coefficient, remainder = divmod(k, lead_coefficient)
        if factor_quotient is None or remainder:
            break
        part = scope.build({factor_quotient: coefficient})
        quotient, rest = quotient + part, rest - part * divisor
    else:
        if not is_symbolic_dim(right):
            constant_quotient, constant_rest = divmod(operator.index(rest), lead_coefficient)
            return quotient + constant_quotient, constant_rest
        if rest == 0:
            return quotient, 0
    return scope.operation("floordiv", cast(int, left), divisor), scope.operation("mod", cast(int, left), divisor)


def evaluate(polynomial: Polynomial, sizes: Mapping[str, int]) -> int:
    """Returns the value of a polynomial where each dimension variable has a size, which may be symbolic."""
    total = 0
    for term, k in polynomial.terms:
        product = k
        for factor, exponent in term.factors:
            product *= _evaluate_factor(factor, sizes) ** exponent
        total += product
    return total


def _evaluate_factor(factor: Factor, sizes: Mapping[str, int]) -> int:
    if factor.is_variable:
        return sizes[factor.name]
    left, right = [evaluate(operand, sizes) for operand in factor.operands]
    match factor.name:
        case "floordiv":
            return left // right
        case "mod":
            return left % right
        case "max":
            return max_dim(left, right)
        case _:
            return min_dim(left, right)


def max_dim(d1: int, d2: int) -> int:
    """Returns the maximum of two axis sizes, which may be symbolic.

    Args:
        d1: An axis size.
        d2: Another one.

    Returns:
        An integer or a symbolic dimension.

    >>> from tracefx import symbolic_shape
    >>> b, = symbolic_shape("b")
    >>> max_dim(b, 1), max_dim(b, 4)
    (b, max(b, 4))
    """
    return _choose("max", d1, d2)


def min_dim(d1: int, d2: int) -> int:
    """Returns the minimum of two axis sizes, which may be symbolic.

    Args:
        d1: An axis size.
        d2: Another one.

    Returns:
        An integer or a symbolic dimension.

    >>> from tracefx import symbolic_shape
    >>> b, = symbolic_shape("b")
    >>> min_dim(b, 1), min_dim(b, 4)
    (1, min(b, 4))
    """
    return _choose("min", d1, d2)


def _choose(name: str, left: int, right: int) -> int:
    dimensions = [d for d in (left, right) if is_symbolic_dim(d)]
    if not dimensions:
        return max(left, right) if name == "max" else min(left, right)
    scope = dimensions[0].scope
    scope.require_same(dimensions[-1].scope, f"{name} of {left} and {right}")
    difference = dict(polynomial_of(left - right).terms)
    if scope.at_least(difference):
        return left if name == "max" else right
    if scope.at_least({term: -k for term, k in difference.items()}):
        return right if name == "max" else left
    return scope.operation(name, left, right)
