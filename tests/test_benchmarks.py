"""The benchmarks' own arithmetic: what is timed, how the figures are shown. No figure is checked here."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import Figure, Run, Subject, measure, returned_seconds
from benchmarks.report import as_json, duration, machine, table


def clock_of(times: dict[Run, list[float]]) -> Callable[[Run, int], float]:
    """A clock that tells these seconds a call, one after another."""
    left = {run: iter(seconds) for run, seconds in times.items()}
    return lambda run, calls: next(left[run]) * calls


def nothing() -> None:
    pass


def no_more() -> None:
    pass


def test_medians_are_compared_and_the_spread_is_that_of_pairs() -> None:
    clock = clock_of({nothing: [1.0, 2.0, 9.0, 2.0], no_more: [4.0, 4.0, 4.0, 8.0]})
    figure = measure(Subject("g", "n", nothing, no_more, 0.5, blocks=4, calls=3, clock=clock))
    assert (figure.ours, figure.jax, figure.ratio, figure.verdict) == (2.0, 4.0, 0.5, "ok")
    assert 0.25 <= figure.low < 0.5 < figure.high <= 2.25


def test_a_ratio_above_its_bound_is_marked() -> None:
    clock = clock_of({nothing: [3.0], no_more: [2.0]})
    subject = Subject("g", "n", nothing, no_more, 1.4, blocks=1, calls=1, clock=clock)
    assert measure(subject).verdict == "over"


def test_both_sides_run_equally_often_without_the_garbage_collector() -> None:
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


def test_a_failure_leaves_the_garbage_collector_on() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        measure(Subject("g", "n", fail, nothing, calls=1))
    assert gc.isenabled()


def test_seconds_that_another_process_tells() -> None:
    figure = measure(Subject("g", "n", lambda: 0.5, lambda: 2.0, blocks=3, calls=1, clock=returned_seconds))
    assert (figure.ours, figure.jax) == (0.5, 2.0)


def test_durations_have_three_digits() -> None:
    shown = [duration(s) for s in (2.0, 0.123456, 0.0012345, 99.94e-6, 3.2e-9)]
    assert shown == ["2.00 s", "123 ms", "1.23 ms", "99.9 µs", "3.20 ns"]


def test_the_table_and_the_file_say_the_same() -> None:
    figure = Figure("some", "a", 1e-6, 4e-6, 0.2, 0.3, 0.5)
    assert "0.25" in table([figure])
    assert len({len(line) for line in table([figure]).splitlines()}) == 1
    told = json.loads(as_json([figure]))
    assert told["figures"][0]["ratio"] == 0.25
    assert told["machine"] == machine()


def test_groups_are_selected_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = clock_of({nothing: [1.0], no_more: [2.0]})
    subject = Subject("some", "a thing", nothing, no_more, blocks=1, calls=1, clock=clock)
    monkeypatch.setattr(command, "GROUPS", {"some": lambda: iter([subject]), "other": lambda: iter([1 / 0])})
    command.main(["--only", "some", "--json", str(tmp_path / "figures.json")])
    assert "a thing" in capsys.readouterr().out
    assert [f["name"] for f in json.loads((tmp_path / "figures.json").read_text())["figures"]] == ["a thing"]
    with pytest.raises(SystemExit):
        command.main(["--only", "none such"])
