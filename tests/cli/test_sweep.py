"""eab sweep: a grid on the command line; the same command continues it, whatever interrupted it."""

import json
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import error_of_command, output_of, signalled
from equality import assert_same_decisions
from waiting import wait_until

from eab.cli import options
from eab.config import SETTINGS
from eab.engine.branching.presets import starting_config
from eab.engine.loop import event_stream
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.errors import ConfigError, RunsError
from eab.labs.tuning.grid import COLUMNS
from eab.labs.tuning.report import JOURNAL, SAMPLES, TABLE
from eab.run import fold, record

SEEDS = 6  # of the sweeps that are interrupted
CELLS = 2 * SEEDS * 3  # 2 prompts, with 2 thresholds and independent, which has none
SHORT = ("--max-new-tokens", "4", "--max-paths", "4")
LINES = [
    {"prompt": "I tossed a coin and it landed on", "distribution": {"heads.": 0.5, "tails.": 0.5}},
    {"prompt": "The capital of France is", "id": "paris", "answers": ["Paris"]},
]


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    return str(file)


done, error_of = partial(output_of, "sweep"), partial(error_of_command, "sweep")


def table_of(folder: Path) -> pd.DataFrame:
    """The cells without the measured column, in the order of their keys."""
    return (
        pd.read_parquet(folder / TABLE)
        .drop(columns="seconds")
        .sort_values("key", ignore_index=True)
    )


# ---- results


def test_a_grid_makes_a_table_and_run_files(prompts: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    grid = ("--threshold", "0.3,1.2", "--policy", "fair,independent", "--seeds", 2, "--seed", 5)
    printed = done(prompts, "--out", out, *grid, "--runs", *SHORT)
    table = pd.read_parquet(out / TABLE)
    assert [*table.columns] == [*COLUMNS]
    assert len(table) == len(LINES) * 2 * (2 + 1), "independent has no threshold"
    assert {*table["seed"]} == {5, 6}
    assert {*table["prompt_id"]} == {"00001", "paris"}
    assert (
        f"12 cells in {out / TABLE}; {(table['made'] == 'resimulated').sum()} of them "
        f"({(table['made'] == 'resimulated').mean():.0%}) without the model.\n"
    ) in printed
    assert "threshold ┃ policy" in printed
    for row in table.itertuples():
        run = fold(record.load(out / str(row.run_file)))
        assert run.started.prompt == row.prompt
        assert run.started.config.seed == row.seed
        assert len(run.leaves()) == row.paths


def test_lines_with_their_own_settings_give_the_runs_that_they_give_alone(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"prompt": "I tossed a coin and it landed on", "id": "coin"},
        {"prompt": "Grandma went to the market", "seed": 4, "max_new_tokens": 3},
        {"prompt": "Once upon a time", "r": 8, "policy": "independent", "max_paths": 5},
    ]
    given, out = "".join(json.dumps(line) + "\n" for line in lines), tmp_path / "out"
    asked = ("-", "--out", out, "--runs", "--dtype", "float64", *SHORT)
    printed = done(*asked, given=given)
    samples = pd.read_parquet(out / SAMPLES)
    assert printed.endswith(f"{len(samples)} samples of the runs in {out / SAMPLES}.\n")
    assert [*samples["id"].unique()] == ["00002", "00003", "coin"]
    assert [*samples.columns[-5:]] == ["seed", "max_paths", "policy", "max_new_tokens", "r"]
    model = load_model("embedded", "cpu", "float64")
    for line in lines:
        name = line.get("id", f"{1 + lines.index(line):05d}")
        rows = samples[samples["id"] == name]
        [file] = out.glob(f"{name}-*.eab")
        run = fold(record.load(file))
        own = {key: line[key] for key in line if key not in ("id", "prompt")}
        config = starting_config(**{"max_new_tokens": 4, "max_paths": 4} | own)
        assert (run.started.prompt, run.started.config) == (line["prompt"], config)
        assert_same_decisions(run, fold(event_stream(model, Request(line["prompt"], config))))
        assert rows["text"].tolist() == [sample.text for sample in run.samples]
        assert rows["weight"].sum() == pytest.approx(1)
    file.unlink()
    assert "3 cells (2 of them earlier)" in done(*asked, given=given)
    assert file.exists()


def test_presets_are_tried_and_given_options_override_them() -> None:
    given = dict.fromkeys(SETTINGS) | {"seed": "3", "seeds": 1, "sample": 0, "max_paths": "7"}
    grid = options.grid_of(given | {"preset": "focused, wide", "top_k": "5"})
    assert grid.configs() == [
        starting_config(preset=preset, max_paths=7, top_k=5, seed=3)
        for preset in ("focused", "wide")
    ]
    assert options.grid_of(given | {"preset": "wide"}).varied == {}
    with pytest.raises(ConfigError, match="the preset is 'thin'"):
        options.grid_of(given | {"preset": "wide,thin"})


def test_bundled_prompts_and_a_sample_of_the_grid(tmp_path: Path) -> None:
    grid = ("--threshold", "0.1:2:0.1", "--top-p", "0.5:1:0.1", "--sample", 3)
    assert "6 cells in" in done("chances", "--every", 12, "--out", tmp_path, *grid, *SHORT)
    assert {*table_of(tmp_path)["prompt_id"]} == {"chances-001", "chances-013"}


# ---- errors


def test_lists_ranges_and_names_become_values() -> None:
    def values(name: str, given: str) -> list[object]:
        return options.list_of_values("--x", SETTINGS[name], given)

    assert values("entropy_threshold", "0.1:0.3:0.1, 2") == [0.1, 0.2, 0.3, 2.0]
    assert values("max_paths", "4:10:4") == [4, 8]
    assert values("r", "auto,4") == ["auto", 4]
    assert values("policy", "fair, independent") == ["fair", "independent"]


def test_a_cell_that_fails_is_listed_and_the_others_are_made(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("word " * 600 + "\nOnce upon a time\n", encoding="utf-8")
    message = error_of(RunsError, file, "--out", tmp_path / "out", *SHORT)
    assert message.startswith("1 cell could not be made:\n  00001, seed 0: the prompt has ")
    assert [*table_of(tmp_path / "out")["prompt_id"]] == ["00002"]


# ---- interruptions


def sweep_command(prompts: str, out: Path) -> list[str]:
    grid = ["--threshold", "0.3,0.9", "--seeds", str(SEEDS), *SHORT, "--policy", "fair,independent"]
    return [sys.executable, "-m", "eab", "sweep", prompts, "--out", str(out), *grid]


def lines_in(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.mark.slow
def test_a_sweep_killed_at_random_moments_loses_only_unfinished_cells(
    prompts: str, tmp_path: Path
) -> None:
    out, moments = tmp_path / "out", random.Random(3)
    kept = b""
    for _ in range(2):
        before = lines_in(out / JOURNAL)
        with subprocess.Popen(sweep_command(prompts, out), stdout=subprocess.DEVNULL) as killed:
            wait_until(
                lambda before=before, killed=killed: (
                    lines_in(out / JOURNAL) > before or killed.poll() is not None
                )
            )
            time.sleep(moments.random() * 0.1)
            killed.kill()
        data = (out / JOURNAL).read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        assert whole.startswith(kept), "what was finished stays"
        kept = whole
    with (out / JOURNAL).open("ab") as file:
        file.write(b'{"item": "half a li')
    printed = done(*sweep_command(prompts, out)[4:])
    assert f"{CELLS} cells (" in printed
    assert (out / JOURNAL).read_bytes().startswith(kept)
    done(*sweep_command(prompts, tmp_path / "whole")[4:])
    pd.testing.assert_frame_equal(
        table_of(out).drop(columns="made"),
        table_of(tmp_path / "whole").drop(columns="made"),
        rtol=1e-3,
    )


@pytest.mark.slow
def test_ctrl_c_writes_the_table_and_says_how_to_continue(prompts: str, tmp_path: Path) -> None:
    command = sweep_command(prompts, tmp_path / "out")
    out = signalled(signal.SIGINT, "eab.labs.tuning.report.Journal.add", *command[3:])
    assert out.returncode == 130, out.stderr
    made = len(table_of(tmp_path / "out"))
    assert 0 < made < CELLS
    assert out.stderr.startswith(f"Stopped with {CELLS - made} cells left. ")
    assert f"{CELLS} cells ({made} of them earlier)" in done(*command[4:])


def test_a_label_is_measured_in_each_cell(prompts: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done(prompts, "--out", out, "--threshold", "0.3", "--label", "Heads", *SHORT)
    table = pd.read_parquet(out / TABLE)
    assert table["label"].between(0, 1).all()
    assert table["label_width"].between(0, 1).all()


def test_the_same_command_makes_nothing_and_a_larger_one_only_the_new_cells(
    prompts: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done(prompts, "--out", out, "--threshold", "0.3", *SHORT)
    before = (out / JOURNAL).read_bytes()
    assert "2 cells (2 of them earlier)" in done(prompts, "--out", out, "--threshold", 0.3, *SHORT)
    assert (out / JOURNAL).read_bytes() == before
    more = done(prompts, "--out", out, "--threshold", "0.3:0.9:0.3", *SHORT)
    assert "6 cells (2 of them earlier)" in more
    assert (out / JOURNAL).read_bytes().startswith(before)
