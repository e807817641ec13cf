"""The jobs of the laboratories, as a server runs them. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from eab.config import BranchingConfig
from eab.engine.job import Job, JobContext
from eab.engine.request import Request
from eab.errors import ModelError
from eab.labs.batching import Workload
from eab.labs.bmc import Experiment
from eab.labs.measurement import LabEvent, Report
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.report import SweepEvent, TuningReport
from eab.labs.tuning.sweeping import report_sweep
from eab.labs.variants import REPEATS, Variants
from eab.weight_formats import AS_LOADED

if TYPE_CHECKING:
    from eab.engine.models.transformers_model import TransformersModel

Purpose: TypeAlias = Literal["sweep", "pilot"]  # of a sweep


def experiment_job(experiment: Experiment, rows: int, model_name: str) -> Job[Report]:
    """A BMC experiment; `rows` is the number of KV rows that each of its runs writes."""

    def begin(context: JobContext) -> Iterator[LabEvent]:
        from eab.labs.measure_bmc import measure

        return measure(experiment, context.model, rows)

    return Job(f"bmc {experiment}", model_name, Report(), begin)


def formats_job(prompt: str, model_name: str) -> Job[Report]:
    """The job that measures this model in every weight format."""

    def begin(context: JobContext) -> Iterator[LabEvent]:
        from eab.engine.models.loading import load_model
        from eab.labs.measure_quantization import measure_formats

        if context.model.kv_shape.blocks is not None:
            raise ModelError(
                f"the weights of {model_name} are on a server; choose a model on this machine"
            )

        def load(weights: str) -> "TransformersModel":
            if weights == AS_LOADED:
                return cast("TransformersModel", context.model)
            return load_model(model_name, weights=weights)

        return measure_formats(load, prompt)

    next_token = Request(prompt, BranchingConfig(max_paths=1, max_new_tokens=1))
    return Job("formats", model_name, Report(), begin, requests=(next_token,))


def serving_job(workload: Workload, model_name: str) -> Job[Report]:
    """The job that serves these requests in every way."""

    def begin(context: JobContext) -> Iterator[LabEvent]:
        from eab.engine.models.machine import describe_machine
        from eab.labs.measure_runs import compare_ways

        return compare_ways(context.model, workload, describe_machine(context.model.card.device))

    requests = tuple(Request(asked.prompt, workload.config(asked)) for asked in workload.requests)
    return Job("serving", model_name, Report(), begin, requests)


def comparison_job(
    prompt: str, config: BranchingConfig, model_name: str, lab: str, variants: Variants
) -> Job[Report]:
    """A run of each variant, then alternating repeats for the times; `lab` names what varies."""
    drafters = [settings.get("drafter", config.drafter) for settings in variants.values()]

    def begin(context: JobContext) -> Iterator[LabEvent]:
        from eab.labs.measure_runs import run_variants

        return run_variants(context.model, context.requests[0], lab, variants, context.draft)

    return Job(
        lab,
        model_name,
        Report(),
        begin,
        requests=(Request(prompt, config),),
        max_turns=config.max_new_tokens * len(variants) * (1 + REPEATS),
        needs_draft="model" in drafters,
    )


def sweep_job(
    purpose: Purpose,
    grid: Grid,
    prompts: Sequence[TuningPrompt],
    model_name: str,
    known: Sequence[Cell] = (),
) -> Job[TuningReport]:
    """A sweep of settings, without the known cells."""

    def begin(context: JobContext) -> Iterator[SweepEvent]:
        limited = replace(grid, base=context.requests[0].config)
        return report_sweep(context.model, prompts, limited, known)

    configs = tuple(grid.configs())
    # A prompt that is too long for some settings fails only in the cells of those settings.
    base = replace(grid.base, max_new_tokens=min(config.max_new_tokens for config in configs))
    requests = tuple(prompt.request(base) for prompt in prompts)
    return Job(purpose, model_name, TuningReport(), begin, requests, configs)
