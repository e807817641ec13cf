"""Many runs of one model: served together, or every setting of a grid on every prompt."""

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eab.api.arguments import Model, Prompt, language_model, request_of, warned
from eab.config import PREFIX_CACHE_MIB
from eab.engine import loop
from eab.engine.caches.prefix_cache import prefix_cache
from eab.engine.handle import Handle
from eab.engine.request import Request
from eab.engine.scheduler import KV_LIMIT_MIB, MAX_RUNNING
from eab.errors import ConfigError, PromptError
from eab.formatting import quoted
from eab.labs.tuning import sweeping
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt, read_prompts
from eab.run.record.files import default_id
from eab.settings import Real, Whole
from eab.text_values import listed

if TYPE_CHECKING:
    from eab.labs.tuning.measure import Measurement


def serve(
    model: Model,
    requests: Iterable[Request | Prompt],
    draft: Model | None = None,
    *,
    max_running: int = MAX_RUNNING,
    kv_limit_mib: float = KV_LIMIT_MIB,
    prefix_cache_mib: float = PREFIX_CACHE_MIB,
) -> list[Handle]:
    """Run many requests together, several in each forward pass (continuous batching).

        for handle in eab.serve("smollm2", ["Why is the sky blue?", Request("Hello", config)]):
            print(Run(handle).samples[0].text)

    Args:
        requests: The requests to run, in this order, each with its own settings. A prompt instead
            of a request has the starting values.
        max_running: The maximum number of runs served at the same time.
        kv_limit_mib: KV memory for all runs; when it is full, newer runs wait or are preempted.
        prefix_cache_mib: How much of it may keep prefixes for later runs that share them; 0: none.

    Returns:
        A handle for each request. Iterating it yields the events of its run and also advances the
        other runs. An error ends only the run that causes it: iterating its handle raises it.

    Raises:
        ModelError: The model cannot be used.
        PromptError: `requests` contains something other than requests and prompts.
        ConfigError: A limit is out of range.
    """
    Whole(1, 10_000).check("max_running", max_running)
    Real(0, 2**40).check("kv_limit_mib", kv_limit_mib)
    Real(0, 2**40).check("prefix_cache_mib", prefix_cache_mib)
    if (given := listed(requests)) is None:
        raise PromptError(
            f"the requests are {quoted(requests)}; give a list of eab.Request(prompt, config), or "
            "of prompts"
        )
    start = Request("")
    asked = [
        warned(each) if isinstance(each, Request) else request_of(each, start) for each in given
    ]
    drafting = None if draft is None else language_model(draft)
    served = language_model(model)
    return loop.serve(
        served,
        asked,
        drafting,
        max_running=max_running,
        kv_limit_mib=kv_limit_mib,
        prefixes=prefix_cache(served.kv_shape, prefix_cache_mib),
    )


def sweep(
    model: Model,
    prompts: str | Iterable[Prompt | TuningPrompt],
    grid: Grid,
    *,
    folder: Path | str | None = None,
    measurement: "Measurement | None" = None,
    draft: Model | None = None,
) -> Generator[sweeping.SweepStep]:
    """Run all cells of a grid, several in each forward pass; yields the progress.

        grid = eab.Grid({"entropy_threshold": [0.3, 1.2]}, seeds=range(8))
        for step in eab.sweep("embedded", ["Once upon a time"], grid):
            print(step.done, step.total, step.cells)

    Args:
        prompts: A list, Series, array or generator of texts, chats or token ids; the result of
            `read_prompts`; or the name of a prompt set or file.
        folder: Where finished cells are kept, so that the same sweep can be resumed.
        measurement: What to measure in each run; by default its texts and their answers.
        draft: The draft model for the drafter `model`.

    Raises:
        ModelError: The model cannot be used.
        ConfigError: There are no prompts, or values of a combination contradict each other.
        RecordError: The folder cannot be used, or holds the cells of another model.
    """
    if not isinstance(grid, Grid):
        raise ConfigError(f"the grid is a {type(grid).__name__}; give an eab.Grid")
    if not isinstance(folder, Path | str | None):
        raise ConfigError(f"the folder is a {type(folder).__name__}; give its path")
    if folder is not None and grid.policies:
        raise ConfigError(
            f"the grid has {', '.join(grid.policies)}, and cells in a folder know only the name of "
            "a policy of your own, not what it does; leave the folder out"
        )
    asked = read_prompts(prompts) if isinstance(prompts, str) else _prompts(prompts)
    return sweeping.sweep(
        language_model(model),
        asked,
        grid,
        folder=None if folder is None else Path(folder),
        measurement=measurement,
        draft=None if draft is None else language_model(draft),
    )


def _prompts(given: Any) -> list[TuningPrompt]:
    if (prompts := listed(given)) is None:
        raise ConfigError(
            f"the prompts are a {type(given).__name__}; give a list of prompts, or a file of them"
        )
    return [_prompt(number, each) for number, each in enumerate(prompts, start=1)]


def _prompt(number: int, given: object) -> TuningPrompt:
    if isinstance(given, TuningPrompt):
        return given
    try:
        asked = request_of(given, Request(""))
    except PromptError as error:
        raise ConfigError(f"prompt {number} cannot be used: {error}") from error
    title = asked.prompt or f"token ids {' '.join(map(str, asked.token_ids))}"
    return TuningPrompt(default_id(number), Question(title), asked.messages, asked.token_ids)
