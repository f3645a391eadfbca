"""`docs/names.md` is true, and every name of JAX is here or has a reason not to be."""

from __future__ import annotations

from tests.names import ELSEWHERE, NOT_HERE, PAGE, names, page


def test_the_page_is_true() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.names"


def test_what_is_not_here_has_a_reason() -> None:
    assert [row.jax for rows in names().values() for row in rows if row.here is None and not row.note] == []


def test_reasons_are_of_what_is_not_here() -> None:
    missing = {row.jax for rows in names().values() for row in rows if row.here is None}
    assert set(ELSEWHERE) | set(NOT_HERE) <= missing
    assert not set(ELSEWHERE) & set(NOT_HERE)
