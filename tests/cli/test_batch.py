"""eab batch: every line becomes a run file, as if it ran alone; finished runs are not repeated."""

import errno
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from any_config import CONFIGS
from command_line import eab_here, error_of_command, output_of, signalled
from equality import assert_same_decisions
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from eab import record
from eab.branching.presets import starting_config
from eab.cli.batch import TABLE, BatchFolder, BatchLine, read_lines
from eab.config import BranchingConfig
from eab.engine import scheduler
from eab.engine.forward_pass import Part
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import ConfigError, EabError, RecordError, RunsError
from eab.events import RunEnded
from eab.figures.tables import samples_of_runs_table
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.record.files import GrowingFile
from eab.run import RunState, fold

SHORT = ("--max-new-tokens", "6")
LINES: list[dict[str, Any]] = [
    {"prompt": "I tossed a coin and it landed on", "id": "coin"},
    {"prompt": "Grandma went to the market", "seed": 4, "max_new_tokens": 3},
    {"prompt": "Once upon a time", "r": 8, "policy": "independent", "max_paths": 5},
]
IDS = ["coin", "00002", "00003"]


def write(file: Path, lines: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(file)


done, error_of = partial(output_of, "batch"), partial(error_of_command, "batch")


def run_of(folder: Path, name: str) -> RunState:
    return fold(record.load(folder / f"{name}.eab"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, str]:
    """The file of prompts, the folder with its runs, and what the command printed."""
    home = tmp_path_factory.mktemp("batch")
    prompts, folder = write(home / "prompts.jsonl", LINES), home / "runs"
    return prompts, folder, done(prompts, "--out", folder, "--dtype", "float64", *SHORT)


# ---- results


def test_each_line_gives_the_run_file_of_its_run_alone(made: tuple[str, Path, str]) -> None:
    _, folder, _ = made
    assert sorted(file.stem for file in folder.glob("*.eab")) == sorted(IDS)
    assert not list(folder.glob("*.part"))
    model = load_model("embedded", "cpu", "float64")
    for name, line in zip(IDS, LINES, strict=True):
        own = {key: line[key] for key in line if key not in ("id", "prompt")}
        config = starting_config(**{"max_new_tokens": 6} | own)
        alone = fold(event_stream(model, Request(line["prompt"], config)))
        run = run_of(folder, name)
        assert (run.started.prompt, run.started.config) == (line["prompt"], config)
        assert run.ended.reason == "finished"
        assert_same_decisions(run, alone)


def test_the_table_has_every_sample_and_the_settings_that_differ(
    made: tuple[str, Path, str],
) -> None:
    _, folder, printed = made
    table = pd.read_parquet(folder / "samples.parquet")
    assert [*table["id"].unique()] == sorted(IDS)
    assert [*table.columns[-5:]] == ["seed", "max_paths", "policy", "max_new_tokens", "r"]
    for name, rows in table.groupby("id"):
        run = run_of(folder, str(name))
        assert rows["weight"].sum() == pytest.approx(1)
        assert rows["text"].tolist() == [sample.text for sample in run.samples]
        assert rows["log_prob"].tolist() == [sample.log_prob for sample in run.samples]
        assert rows["end"].tolist() == [sample.finish_reason for sample in run.samples]
        assert set(rows["prompt"]) == {run.started.prompt}
        assert set(rows["r"]) == {str(run.started.config.r)}
        assert set(rows["seed"]) == {run.started.config.seed}
    assert printed == (
        f"3 runs in {folder}, with {len(table)} samples in {folder / 'samples.parquet'}.\n"
    )


def test_settings_that_all_runs_share_have_no_column() -> None:
    run = fold(record.load("assets/runs/coin.eab"))
    table = samples_of_runs_table([("a", run), ("b", run)])
    assert [*table.columns[:3]] == ["id", "prompt", "weight"]
    assert table.columns[-1] == "seed"
    assert len(table) == 2 * len(run.samples)
    assert samples_of_runs_table([]).empty


def test_runs_share_forward_passes_and_runs_that_do_not_fit_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_pass, sizes = scheduler.run_pass, []

    def counted_pass(model: LanguageModel, parts: Sequence[Part]) -> None:
        sizes.append(len(parts))
        whole_pass(model, parts)

    monkeypatch.setattr(scheduler, "run_pass", counted_pass)
    many = scheduler.MAX_RUNNING + 8
    prompts = write(tmp_path / "a.jsonl", [{"prompt": f"I saw {n} birds"} for n in range(many)])
    done(prompts, "--out", tmp_path / "runs", "--max-new-tokens", 2, "--policy", "greedy")
    assert len([*(tmp_path / "runs").glob("*.eab")]) == many
    assert max(sizes) > 8
    assert len(sizes) < many


def test_prompts_may_come_as_plain_lines_and_from_standard_input(tmp_path: Path) -> None:
    file, one = tmp_path / "prompts.txt", ("--max-new-tokens", 1)
    file.write_text('Once upon a time\n\n{"prompt"\n', encoding="utf-8")
    done(file, "--out", tmp_path / "runs", *one)
    done("-", "--out", tmp_path / "runs", *one, given='{"prompt": "The cat", "id": 7}\n')
    prompts = {"00001": "Once upon a time", "00003": '{"prompt"', "7": "The cat"}
    for name, prompt in prompts.items():
        assert run_of(tmp_path / "runs", name).started.prompt == prompt


# ---- existing files


def test_the_same_command_makes_only_what_is_missing(made: tuple[str, Path, str]) -> None:
    prompts, folder, first = made
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.eab")}
    missing = folder / "coin.eab"
    missing.unlink()
    printed = done(prompts, "--out", folder, "--dtype", "float64", *SHORT)
    assert printed == first.replace("3 runs in", "3 runs (2 of them earlier) in")
    after = {file: file.stat().st_mtime_ns for file in folder.glob("*.eab")}
    assert after.keys() == before.keys()
    assert [file for file in before if after[file] != before[file]] == [missing]


def test_a_run_that_was_cut_short_is_run_again(tmp_path: Path) -> None:
    prompts = write(tmp_path / "a.jsonl", [{"prompt": "The cat"}])
    done(prompts, "--out", tmp_path, *SHORT)
    [*events, last] = record.load(tmp_path / "00001.eab")
    assert last == RunEnded(last.step, "finished")
    record.save([*events, structs.replace(last, reason="stopped")], tmp_path / "00001.eab")
    done(prompts, "--out", tmp_path, *SHORT)
    assert record.load(tmp_path / "00001.eab")[-1] == last


def test_a_run_that_its_settings_ended_is_complete(tmp_path: Path) -> None:
    prompts = write(tmp_path / "a.jsonl", [{"prompt": "The cat"}])
    asked = ("--out", tmp_path, *SHORT, "--policy", "best-first", "--token-budget", "2")
    done(prompts, *asked)
    file = tmp_path / "00001.eab"
    made = file.stat().st_mtime_ns
    assert record.load(file)[-1].reason == "budget"
    done(prompts, *asked)
    assert file.stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"prompt": "The dog"}, (), "another prompt"),
        ({"seed": 1, "top_p": 0.8}, (), "another top_p and seed"),
        ({}, ("--temperature", "0.7"), "another temperature"),
        ({}, ("--dtype", "float64"), "another model"),
    ],
)
def test_a_changed_line_is_refused_and_nothing_is_run(
    tmp_path: Path, change: dict[str, Any], options: tuple[str, ...], words: str
) -> None:
    line = {"prompt": "The cat", "id": "cat"}
    done(write(tmp_path / "a.jsonl", [line]), "--out", tmp_path, *SHORT)
    before = (tmp_path / "cat.eab").read_bytes()
    prompts = write(tmp_path / "a.jsonl", [{"prompt": "New"}, line | change])
    message = error_of(ConfigError, prompts, "--out", tmp_path, *SHORT, *options)
    assert f"line 2: {tmp_path / 'cat.eab'} was made with {words}. Choose another" in message
    assert (tmp_path / "cat.eab").read_bytes() == before
    assert not (tmp_path / "00001.eab").exists()


def test_a_damaged_run_file_or_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00001.eab").write_bytes(b"no run")
    given = '{"prompt": "The cat"}'
    message = error_of(ConfigError, "-", "--out", tmp_path, given=given)
    assert message.count("line 1: ") == 1
    assert "00001.eab is not a run file of the EAB Explorer" in message
    below = tmp_path / "00001.eab" / "runs"
    message = error_of(RecordError, "-", "--out", below, given=given)
    assert message.startswith(f"the folder {below} cannot be created: ")


# ---- errors


def test_lines_that_the_model_cannot_run_are_reported_before_any_run_starts(tmp_path: Path) -> None:
    lines = [{"prompt": "fine"}, {"prompt": " "}, {"prompt": "fine", "max_new_tokens": 4000}]
    message = error_of(ConfigError, write(tmp_path / "a.jsonl", lines), "--out", tmp_path)
    assert "line 1" not in message
    assert "line 2: the prompt is empty; write a few words" in message
    assert "line 3: the prompt has " in message
    assert "max_new_tokens is 4000, but the context of embedded is 512 tokens" in message
    assert not list(tmp_path.glob("*.eab"))


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, RecordError, "cannot be read: No such file"),
        (b"\n\n", ConfigError, "has no prompts; write one per line"),
        (b'{"prompt": "\xff"}', RecordError, "is not UTF-8 text"),
    ],
)
def test_a_file_without_prompts_is_refused_with_the_reason(
    tmp_path: Path, content: bytes | None, kind: type[EabError], words: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_bytes(content)
    assert words in error_of(kind, file, "--out", tmp_path / "runs")


def test_a_run_that_fails_is_listed_and_tried_again(tmp_path: Path) -> None:
    too_much = {"prompt": "word " * 300, "kv_limit_mib": 1, "id": "big"}
    prompts = write(tmp_path / "a.jsonl", [too_much, {"prompt": "The cat"}])
    message = error_of(RunsError, prompts, "--out", tmp_path, *SHORT)
    assert message.startswith("1 run failed:\n  line 1 (big): the KV cache needs ")
    assert [file.stem for file in tmp_path.glob("*.eab")] == ["00002"]
    assert set(pd.read_parquet(tmp_path / "samples.parquet")["id"]) == {"00002"}
    prompts = write(tmp_path / "a.jsonl", [too_much | {"kv_limit_mib": 64}, {"prompt": "The cat"}])
    assert done(prompts, "--out", tmp_path, *SHORT).startswith("2 runs (1 of them earlier) in")


@given(st.lists(CONFIGS, min_size=1, max_size=5), CONFIGS)
def test_a_line_may_set_every_setting(
    made: tuple[str, Path, str], configs: list[BranchingConfig], others: BranchingConfig
) -> None:
    lines = [{"prompt": "a\u2028b"} | asdict(config) for config in configs]
    file = Path(made[0]).with_name("lines.jsonl")
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    file.write_text("\ufeff" + text, encoding="utf-8")
    read = read_lines(str(file), asdict(others))
    assert [line.request for line in read] == [Request("a\u2028b", config) for config in configs]
    assert [line.number for line in read] == [*range(1, len(configs) + 1)]


# ---- interruptions


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=lambda one: one.name)
def test_an_interrupted_batch_loses_only_the_runs_in_flight(
    tmp_path: Path, ending: signal.Signals
) -> None:
    lines = [{"prompt": "Once upon a time", "max_new_tokens": 4 + 8 * n} for n in range(4)]
    prompts, folder = write(tmp_path / "a.jsonl", lines), tmp_path / "runs"
    arguments = [prompts, "--out", str(folder), "--policy", "greedy", "--unit", "nats"]
    out = signalled(ending, "eab.cli.batch.BatchFolder.save", "batch", *arguments)
    left = [f"0000{number}.part.eab" for number in (2, 3, 4)]
    assert sorted(file.name for file in folder.glob("*.eab*")) == ["00001.eab", *left]
    assert fold(record.load(folder / left[0])).steps
    if ending == signal.SIGKILL:
        assert (out.returncode, out.stdout) == (-ending, "")
        assert "The file breaks off after " in eab_here("replay", str(folder / left[0])).stdout
    else:
        assert out.returncode == 130, out.stderr
        assert out.stderr.startswith("Stopped with 3 runs unfinished. The same command ")
        assert out.stdout.startswith(f"1 run in {folder}, with ")
        assert set(pd.read_parquet(folder / "samples.parquet")["id"]) == {"00001"}
    kept = (folder / "00001.eab").read_bytes()
    assert done(*arguments).startswith("4 runs (1 of them earlier) in")
    assert (folder / "00001.eab").read_bytes() == kept
    assert not [*folder.glob("*.part*")], "what was half written has been replaced"


EVENTS = record.load("assets/runs/coin.eab")
LINE = BatchLine(1, "coin", Request("I tossed a coin", BranchingConfig()))
BEGUN = 9  # events, with at least one complete step


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BatchFolder]:
    with closing(BatchFolder(tmp_path)) as made:
        yield made


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_an_active_run_has_a_file_of_its_own_and_is_not_in_the_table(
    tmp_path: Path, folder: BatchFolder
) -> None:
    folder.note(LINE, EVENTS[:BEGUN])
    folder.note(BatchLine(2, "other", LINE.request), EVENTS[:BEGUN])
    assert names(tmp_path) == ["coin.part.eab", "other.part.eab"]
    assert fold(record.load(tmp_path / "coin.part.eab")).ended is None
    folder.save(LINE, EVENTS)
    assert names(tmp_path) == ["coin.eab", "other.part.eab"]
    assert record.load(tmp_path / "coin.eab") == EVENTS
    assert folder.save_table() == len(fold(EVENTS).samples)
    assert set(pd.read_parquet(tmp_path / TABLE)["id"]) == {"coin"}


def test_a_failed_run_leaves_what_it_had_and_is_run_again(
    tmp_path: Path, folder: BatchFolder
) -> None:
    folder.note(LINE, EVENTS[:BEGUN])
    folder.leave(LINE)
    assert names(tmp_path) == ["coin.part.eab"]
    again = BatchFolder(tmp_path)
    again.save(LINE, EVENTS)
    assert names(tmp_path) == ["coin.eab"]
    assert record.load(tmp_path / "coin.eab") == EVENTS


def test_events_that_a_full_disk_refused_are_written_at_the_end(
    tmp_path: Path, folder: BatchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: GrowingFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(GrowingFile, "_append", is_full)
    folder.note(LINE, EVENTS[:BEGUN])
    folder.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS


def test_two_batches_in_one_folder_leave_whole_files(tmp_path: Path) -> None:
    first, second = BatchFolder(tmp_path), BatchFolder(tmp_path)
    first.note(LINE, EVENTS[:BEGUN])
    second.note(LINE, EVENTS[:BEGUN])
    first.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS
    second.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS
    assert names(tmp_path) == ["coin.eab"]
