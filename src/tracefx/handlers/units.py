"""`Unit`, physical units as values, and common units of the SI and others."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, TypeAlias, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

Exponents: TypeAlias = tuple[tuple[str, Fraction], ...]
RealNumber: TypeAlias = int | float | Fraction


# ------------------------------------------------------------------ units


@final
@frozen(repr=False)
class Unit:
    """A physical unit: a product of powers of base units, times a scale. Names do not count in comparisons.

    Attributes:
        dimension: the base units, sorted by name, with their exponents.
        scale: the size of the unit in base units.
        symbols: the printed form, a product of powers of unit names.

    >>> km / hour
    km/h
    >>> N == kg * m / s**2, 1000 * m == km
    (True, True)
    """

    dimension: Exponents = ()
    scale: Fraction = Fraction(1)
    symbols: Exponents = field(default=(), eq=False)

    def __mul__(self, other: Unit | RealNumber) -> Unit:
        if isinstance(other, Unit):
            symbols = _multiply_exponents(self.symbols, other.symbols)
            return Unit(_multiply_exponents(self.dimension, other.dimension), self.scale * other.scale, symbols)
        number = Fraction(other)
        named = () if number == 1 else ((f"{float(number):g}", Fraction(1)),)
        return Unit(self.dimension, self.scale * number, (*named, *self.symbols))

    def __rmul__(self, other: RealNumber) -> Unit:
        return self * other

    def __truediv__(self, other: Unit | RealNumber) -> Unit:
        return self * (other**-1 if isinstance(other, Unit) else 1 / Fraction(other))

    def __rtruediv__(self, other: RealNumber) -> Unit:
        return self**-1 * other

    def __pow__(self, exponent: RealNumber) -> Unit:
        power = Fraction(exponent).limit_denominator(10**6)
        return Unit(
            _scale_exponents(self.dimension, power),
            _raise_scale(self.scale, power),
            _scale_exponents(self.symbols, power),
        )

    def called(self, name: str) -> Unit:
        """Returns an equal unit that is printed as `name`.

        Args:
            name: The name.

        Returns:
            The unit.
        """
        return evolve(self, symbols=((name, Fraction(1)),))

    @override
    def __repr__(self) -> str:
        if self == ANY_UNIT:
            return "any unit"
        numerator = [_format_factor(n, e) for n, e in self.symbols if e > 0]
        denominator = [_format_factor(n, -e) for n, e in self.symbols if e < 0]
        if not numerator and not denominator:
            return "1" if self.scale == 1 else f"{float(self.scale):g}"
        return "*".join(numerator or ["1"]) + "".join([f"/{factor}" for factor in denominator])


def _multiply_exponents(x: Exponents, y: Exponents) -> Exponents:
    exponents = dict(x)
    for name, exponent in y:
        exponents[name] = exponents.get(name, Fraction(0)) + exponent
    return tuple(sorted([(name, exponent) for name, exponent in exponents.items() if exponent]))


def _scale_exponents(exponents: Exponents, power: Fraction) -> Exponents:
    return tuple([(name, exponent * power) for name, exponent in exponents if power])


def _raise_scale(scale: Fraction, power: Fraction) -> Fraction:
    """Returns a power of a scale, exactly if it is a rational number."""
    whole = scale**power.numerator
    n = power.denominator
    roots = [round(part ** (1 / n)) for part in (whole.numerator, whole.denominator)] if whole > 0 else [0, 1]
    root = Fraction(roots[0], roots[1])
    return root if root**n == whole else Fraction(float(whole) ** (1 / n))


def _format_factor(name: str, exponent: Fraction) -> str:
    return name if exponent == 1 else f"{name}**{exponent if exponent.denominator == 1 else f'({exponent})'}"


def base(name: str) -> Unit:
    """Returns a new base unit.

    Args:
        name: The name of the unit. Units with the same name are the same unit.

    Returns:
        The unit.

    >>> euro = base("EUR")
    >>> euro * euro
    EUR**2
    """
    return Unit(((name, Fraction(1)),)).called(name)


DIMENSIONLESS: Final = Unit()
"""The unit of plain numbers."""
ANY_UNIT: Final = Unit((("any", Fraction(1)),), Fraction(0))
"""The unit of constants that fit every unit: 0, infinity and NaN."""

m, s, kg, A, K, mol, cd = map(base, ("m", "s", "kg", "A", "K", "mol", "cd"))
km, cm, mm, um, nm = [
    (Fraction(10) ** e * m).called(n) for n, e in (("km", 3), ("cm", -2), ("mm", -3), ("um", -6), ("nm", -9))
]
ms, us, minute, hour, day = [
    (n * s).called(name)
    for name, n in (("ms", Fraction(1, 1000)), ("us", Fraction(1, 10**6)), ("min", 60), ("h", 3600), ("d", 86400))
]
g = (kg / 1000).called("g")
Hz = (1 / s).called("Hz")
N = (kg * m / s**2).called("N")
J = (N * m).called("J")
W = (J / s).called("W")
Pa = (N / m**2).called("Pa")
C = (A * s).called("C")
V = (W / A).called("V")
Ohm = (V / A).called("Ohm")
eV = (Fraction("1.602176634e-19") * J).called("eV")
rad = DIMENSIONLESS.called("rad")
degree = (DIMENSIONLESS * Fraction(np.pi / 180)).called("degree")
percent = (DIMENSIONLESS / 100).called("%")
