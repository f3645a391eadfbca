"""`docs/names.md` is up to date, and every JAX name without a counterpart has a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import jax
import pytest

from tests.names import ELSEWHERE, NOT_HERE, PAGE, names, page
from tests.versions import ABSENT_NAMES

CONSTRAINTS: Final = Path(__file__).parent.parent / "constraints.txt"
PAGE_IS_OF_THIS_JAX: Final = f" of JAX {jax.__version__} " in PAGE.read_text()


@pytest.mark.skipif(not PAGE_IS_OF_THIS_JAX, reason="the page lists the names of another release of JAX")
def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.names"


def test_page_names_the_pinned_release_of_jax() -> None:
    pinned = re.search(r"^jax==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)
    assert pinned is not None
    assert f" of JAX {pinned[1]} " in PAGE.read_text()


def test_missing_names_have_reasons() -> None:
    assert [row.jax for rows in names().values() for row in rows if row.here is None and not row.note] == []


def test_reasons_are_for_missing_names() -> None:
    missing = {row.jax for rows in names().values() for row in rows if row.here is None}
    assert (set(ELSEWHERE) | set(NOT_HERE)) - missing == ABSENT_NAMES
    assert not set(ELSEWHERE) & set(NOT_HERE)
