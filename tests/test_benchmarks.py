"""Tests of the benchmark harness: timing, statistics and reports. They do not check benchmark results."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import Figure, Run, Subject, measure, returned_value
from benchmarks.report import as_json, machine, page, quantity, table


def fake_clock(times: dict[Run, list[float]]) -> Callable[[Run, int], float]:
    """Returns a fake clock that reports these seconds per call, in order."""
    remaining = {run: iter(seconds) for run, seconds in times.items()}
    return lambda run, calls: next(remaining[run]) * calls


def subject_function() -> None:
    pass


def reference_function() -> None:
    pass


def test_ratio_of_medians_and_spread_of_pairs() -> None:
    clock = fake_clock({subject_function: [1.0, 2.0, 9.0, 2.0], reference_function: [4.0, 4.0, 4.0, 8.0]})
    figure = measure(Subject("g", "n", subject_function, reference_function, 0.5, blocks=4, calls=3, clock=clock))
    assert (figure.ours, figure.jax, figure.ratio, figure.verdict) == (2.0, 4.0, 0.5, "ok")
    assert 0.25 <= figure.low < 0.5 < figure.high <= 2.25


def test_ratio_above_its_bound_is_marked() -> None:
    clock = fake_clock({subject_function: [3.0], reference_function: [2.0]})
    subject = Subject("g", "n", subject_function, reference_function, 1.4, blocks=1, calls=1, clock=clock)
    assert measure(subject).verdict == "over"


def test_interleaved_runs_without_garbage_collection() -> None:
    seen: list[tuple[str, bool]] = []
    subject = Subject(
        "g",
        "n",
        lambda: seen.append(("ours", gc.isenabled())),
        lambda: seen.append(("jax", gc.isenabled())),
        blocks=4,
        calls=2,
    )
    measure(subject)
    assert gc.isenabled()
    assert not any(enabled for _, enabled in seen)
    assert [side for side, _ in seen] == ["jax", "jax", "ours", "ours", "ours", "ours", "jax", "jax"] * 2


def test_failure_reenables_the_garbage_collector() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        measure(Subject("g", "n", fail, subject_function, calls=1))
    assert gc.isenabled()


def test_clock_with_returned_seconds() -> None:
    figure = measure(Subject("g", "n", lambda: 0.5, lambda: 2.0, blocks=3, calls=1, clock=returned_value))
    assert (figure.ours, figure.jax) == (0.5, 2.0)


def test_durations_have_three_significant_digits() -> None:
    shown = [quantity(s) for s in (2.0, 0.123456, 0.0012345, 99.94e-6, 3.2e-9)]
    assert shown == ["2.00 s", "123 ms", "1.23 ms", "99.9 µs", "3.20 ns"]


def test_table_and_json_agree() -> None:
    figure = Figure("some", "a", 1e-6, 4e-6, 0.2, 0.3, 0.5)
    assert "0.25" in table([figure])
    assert len({len(line) for line in table([figure]).splitlines()}) == 1
    report = json.loads(as_json([figure]))
    assert report["figures"][0]["ratio"] == 0.25
    assert report["machine"] == machine()


def test_page_summarizes_groups() -> None:
    rows = [Figure("some_calls", str(r), r, 1.0, r, r, 1.0) for r in (0.5, 0.95, 1.05, 1.5)]
    text = page([*rows, Figure("other", "a", 1.0, 2.0, 0.5, 0.5, None)], {"some_calls": "Calls.", "other": "Others."})
    (line,) = [line for line in text.splitlines() if "[Some calls](#some-calls)" in line]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["4", "1.00", "1", "2", "1", "2"]
    assert "## Some calls\n\nCalls.\n" in text
    assert {*command.DESCRIPTIONS} == {*command.GROUPS}
    assert all(command.DESCRIPTIONS.values())


def test_groups_are_selected_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = fake_clock({subject_function: [1.0], reference_function: [2.0]})
    subject = Subject("some", "a thing", subject_function, reference_function, blocks=1, calls=1, clock=clock)
    monkeypatch.setattr(command, "GROUPS", {"some": lambda: iter([subject]), "other": lambda: iter([1 / 0])})
    monkeypatch.setattr(command, "DESCRIPTIONS", {"some": "Things."})
    files = ["--json", str(tmp_path / "figures.json"), "--page", str(tmp_path / "figures.md")]
    command.main(["--only", "some", *files])
    assert "| a thing | " in (tmp_path / "figures.md").read_text()
    assert "a thing" in capsys.readouterr().out
    assert [f["name"] for f in json.loads((tmp_path / "figures.json").read_text())["figures"]] == ["a thing"]
    with pytest.raises(SystemExit):
        command.main(["--only", "none such"])
