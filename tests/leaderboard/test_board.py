"""What a report is computed from: pooling, ranking, the control, looser rules, the tables."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents import ModelReply
from leaderboard import report, run, verify
from leaderboard.board import Played, control, group, load, row
from leaderboard.protocol import Protocol
from leaderboard.reach import expert_lengths, reach
from leaderboard.store import RunFolder, StoreError, run_folders

TOY = ("--env", "toy", "--split", "train", "--max-turns", "12")


def play(out: Path, *options: str, env: tuple[str, ...] = TOY) -> None:
    result = CliRunner().invoke(run.app, [*options, *env, "--out", str(out)])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    play(out, "--agent", "expert", "--agent", "random", "--n", "2")
    for seed in ("0", "1", "2"):
        play(out, "--agent", "random", "--n", "1", "--seed", seed)
    return out


def test_seeds_are_pooled_and_rows_are_ranked(results: Path) -> None:
    (found,) = load(run_folders(results))
    assert found.rows[0].name == "expert n=2"
    by_name = {item.name: item for item in found.rows}
    assert set(by_name) == {"expert n=2", "random n=2", "random n=1"}
    pooled = by_name["random n=1"]
    assert pooled.seeds == (0, 1, 2)
    assert len(pooled.finished) == pooled.expected == 27
    assert all(len(outcomes) == 3 for outcomes in pooled.outcomes.values())
    assert pooled.missing == pooled.errors == 0
    rates = [item.rate for item in found.rows]
    assert rates == sorted(rates, reverse=True)
    assert found.tiers[0] == 1
    assert found.tiers == tuple(sorted(found.tiers))


def test_types_add_up_to_the_whole(results: Path) -> None:
    (found,) = load(run_folders(results))
    for item in found.rows:
        parts = [item.only(kind) for kind in found.task_types]
        assert sum(part.won for part in parts) == item.won
        assert sum(len(part.finished) for part in parts) == len(item.finished)


def test_curves_end_at_the_rate(results: Path) -> None:
    (found,) = load(run_folders(results))
    for item in found.rows:
        for unit, most in (("turns", 12), ("steps", 24)):
            curve = item.curve(unit, range(most + 1))
            assert curve[0] == 0
            assert curve == sorted(curve)
            assert curve[-1] == pytest.approx(item.rate)
        assert item.curve("tokens", [1]) is None


def test_the_control_pays_for_every_attempt(results: Path) -> None:
    (found,) = load(run_folders(results))
    by_name = {item.name: item for item in found.rows}
    parallel, sequential = by_name["random n=2"], by_name["random n=1"]
    result = control(parallel, sequential, "steps")
    assert (result.n, result.unit) == (2, "steps")
    assert result.parallel_success[-1] == pytest.approx(parallel.rate)
    tries = [outcomes[:2] for outcomes in sequential.outcomes.values()]
    assert result.sequential_success[-1] == pytest.approx(sum(map(any, tries)) / len(tries))
    # Three attempts, two drawn: at least one success unless all that are drawn failed.
    chances = [1 - (3 - c) * (2 - c) / 6 for c in map(sum, sequential.outcomes.values())]
    assert result.pass_at_n == pytest.approx(sum(chances) / len(chances))
    assert control(parallel, sequential, "tokens") is None
    few = replace(sequential, seeds=(0,), played=sequential.played[:9])
    assert control(parallel, few, "steps") is None
    assert [c.parallel for c in found.controls] == ["random n=2"]


def test_tokens_are_a_budget_too(results: Path) -> None:
    (found,) = load(run_folders(results))
    folder = RunFolder(next(results.glob("expert-*")))
    replies = (ModelReply(("look",), ("no_action",), tokens_in=10, tokens_out=2),)
    made = [
        replace(result, replies=replies * len(result.episode.turns)) for result in folder.latest()
    ]
    item = row("model", [(folder.protocol(), "unverified", made)])
    assert item.mean(lambda e: e.tokens_in) == pytest.approx(10 * item.mean(lambda e: e.cost.turns))
    most = max(e.cost.tokens for e in item.finished)
    assert item.curve("tokens", [11, most]) == [0.0, 1.0]
    assert item.share(lambda e: e.unreadable, lambda e: e.cost.turns) == 1
    heads = [column.head for column in report.columns_of(group([item]))]
    assert "tokens in" in heads
    assert "no action %" in heads
    assert "no action %" not in [column.head for column in report.columns_of(found)]


def test_one_run_twice_is_refused(results: Path, tmp_path: Path) -> None:
    folder = next(results.glob("expert-*"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in ("protocol.json", "episodes.jsonl"):
            (tmp_path / name / file).write_bytes((folder / file).read_bytes())
    with pytest.raises(StoreError, match="same run is there twice"):
        load(run_folders(tmp_path))


def test_other_versions_are_another_row(results: Path, tmp_path: Path) -> None:
    folder = next(results.glob("expert-*"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        text = (folder / "protocol.json").read_text()
        (tmp_path / name / "protocol.json").write_text(
            text.replace('"toy": "1"', f'"toy": "{name}"')
        )
        (tmp_path / name / "episodes.jsonl").write_bytes((folder / "episodes.jsonl").read_bytes())
    (found,) = load(run_folders(tmp_path))
    assert len(found.rows) == 2
    assert found.tiers == (1, 1)


def test_rows_without_results_come_last_and_show_no_number(results: Path) -> None:
    protocol = Protocol.from_json(
        json.loads(next(results.glob("expert-*/protocol.json")).read_text())
    )
    empty = row("none", [(protocol, "incomplete", [])])
    (found,) = load(run_folders(results))
    ranked = group([empty, *found.rows])
    assert ranked.rows[-1] is empty
    assert empty.rate is empty.interval is None
    assert empty.missing == 9
    cells = {column.head: column.text(empty) for column in report.columns_of(ranked)}
    assert cells["won %"] == cells["low %"] == cells["score"] == "n/a"
    assert "nan" not in report.as_csv([ranked]).lower()


def test_only_the_true_rule_gives_the_loophole_nothing(tmp_path: Path) -> None:
    env = ("--env", "scienceworld", "--episodes", "5", "--max-turns", "60", "--n", "1")
    play(tmp_path, "--agent", "loophole", env=env)
    (found,) = load(run_folders(tmp_path))
    (item,) = found.rows
    assert item.rate == 0
    assert item.loose("done_and_score") == item.loose("done_and_rise") == 1
    assert 0 < item.mean(lambda e: e.score) < 0.5
    table = report.as_markdown([found])
    assert "NOT success" in table
    assert "rule A" in table


def test_the_command_writes_all_forms_and_says_who_is_verified(
    results: Path, tmp_path: Path
) -> None:
    CliRunner().invoke(verify.app, [str(results)])
    done = CliRunner().invoke(report.app, [str(results), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "verified" in done.output
    rows = list(csv.DictReader(io.StringIO((tmp_path / "leaderboard.csv").read_text())))
    assert [r["agent"] for r in rows] == ["expert", "random", "random"]
    assert {r["status"] for r in rows} == {"verified"}
    assert float(rows[0]["won %"]) == 1.0
    markdown = (tmp_path / "leaderboard.md").read_text()
    assert "| 1 | expert | 2 | 100.0 |" in markdown
    assert "random n=2 against 2 sequential attempts of random n=1, by steps" in markdown
    assert (tmp_path / "leaderboard.html").stat().st_size > 10_000


def test_no_results_are_explained(tmp_path: Path) -> None:
    done = CliRunner().invoke(report.app, [str(tmp_path)])
    assert done.exit_code == 1
    assert "python -m leaderboard.run" in done.output


def test_the_turn_limit_of_a_table_is_put_into_words() -> None:
    lengths = expert_lengths("alfworld")
    unseen = [task for task in lengths if task.startswith("valid_unseen/")]
    assert len(unseen) == 134
    assert str(reach("alfworld", unseen, 25)).startswith("134 of 134 tasks (100%)")
    assert reach("alfworld", unseen, 1).within == 0
    found = reach("scienceworld", ["boil/21", "boil/99999"], 25)
    assert (found.within, found.known, found.tasks) == (0, 1, 2)
    assert "1 have no known solution" in str(found)


def test_a_failed_episode_has_no_numbers() -> None:
    from leaderboard.result import Result

    failed = Played.of(Result.failed("t", "easy", "gone"))
    assert failed.won is failed.score is failed.cost.tokens is None
    assert failed.error == "gone"
