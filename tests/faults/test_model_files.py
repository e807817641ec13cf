"""A model's files vanish or change: between choosing it and running it, or while it is in use."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import ended

from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.engine.models.loading import load_model
from eab.labs.jobs import formats_job

CONFIG = BranchingConfig(max_new_tokens=8, max_paths=4)
PROMPT = "w3 w5 w8"


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that loads models from their files."""
    made = Worker(ModelCache(load_model))
    yield made
    made.close()


def texts(worker: Worker, folder: Path) -> list[tuple[int, ...]]:
    """The token ids of each sample of a run with this model."""
    run = worker.start(run_job(PROMPT, CONFIG, str(folder)))
    assert ended(run).ending == ("finished", "")
    return [sample.token_ids for sample in run.state.started_run().samples]


def test_a_missing_folder_is_named_and_the_model_works_when_it_is_back(
    worker: Worker, llama_folder: Path
) -> None:
    aside = llama_folder.rename(llama_folder.with_name(f"{llama_folder.name}-aside"))
    reason, why = ended(worker.start(run_job(PROMPT, CONFIG, str(llama_folder)))).ending
    assert reason == "failed"
    assert (
        "cannot be found: there is no such folder or file. Give 'embedded', 'smollm2', a folder"
        in why
    )
    aside.rename(llama_folder)
    assert texts(worker, llama_folder)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_missing_file_fails_the_run_with_a_message(
    worker: Worker, llama_folder: Path, file: str
) -> None:
    aside = (llama_folder / file).rename(llama_folder / "aside")
    reason, why = ended(worker.start(run_job(PROMPT, CONFIG, str(llama_folder)))).ending
    assert reason == "failed"
    assert why.startswith(f"the model folder '{llama_folder}'") or "contains no model" in why
    aside.rename(llama_folder / file)
    assert texts(worker, llama_folder)


def test_a_loaded_model_works_without_its_files_and_tasks_that_need_them_say_so(
    worker: Worker, llama_folder: Path
) -> None:
    before = texts(worker, llama_folder)
    shutil.rmtree(llama_folder)
    assert texts(worker, llama_folder) == before
    formats = worker.start(formats_job(PROMPT, str(llama_folder)))
    assert ended(formats).ending == ("finished", "")
    reasons = [row["reason"] for row in formats.state.rows("missing")]
    possible = [one for one in reasons if "which this machine cannot compute" not in one]
    assert possible
    assert all("there is no such folder" in one for one in possible)
    assert texts(worker, llama_folder) == before


def test_a_loaded_model_does_not_change_when_its_file_is_overwritten(
    worker: Worker, llama_folder: Path
) -> None:
    before = texts(worker, llama_folder)
    with (llama_folder / "model.safetensors").open("r+b") as file:
        header = int.from_bytes(file.read(8), "little")
        length = file.seek(0, 2)
        file.seek(8 + header)
        file.write(bytes(length - 8 - header))
    assert texts(worker, llama_folder) == before
