"""Entropy-adaptive branching as a library: one object that returns samples, runs or events."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Unpack

import torch
from transformers import PreTrainedTokenizerBase

from eab.analysis.label_rules import Rule, by_program, labelled_by
from eab.analysis.labels import Labels
from eab.api.arguments import (
    KeptLogits,
    Model,
    Prompt,
    language_model,
    request_of,
    requests_of,
    without_prompt,
)
from eab.api.run import Run, RunLike, as_run
from eab.api.scores import Scores, scores
from eab.api.settings import OtherSettings, Settings
from eab.config import DETERMINISTIC, MAX_SEED, PREFIX_CACHE_MIB
from eab.engine.branching.presets import completed, overridden
from eab.engine.caches.prefix_cache import PrefixCache, prefix_cache
from eab.engine.exploring import ask, explore, repeat
from eab.engine.job import more_seeds
from eab.engine.loop import event_stream, serve
from eab.engine.models.sources import EMBEDDED_DRAFT
from eab.engine.models.transformers_model import TransformersModel
from eab.engine.request import Request
from eab.engine.scoring import Text, Vocabulary
from eab.errors import BatchError, ConfigError, UnfinishedWarning
from eab.run import Sample, before_end
from eab.run.events import Event, Progressed
from eab.settings import Real, Whole
from eab.weight_formats import AS_LOADED, AUTO

_LOGGER: Final = logging.getLogger("eab")
MAX_SEEDS: Final = 1000
MAX_EXPLORED: Final = 1000  # texts; they must fit into a run file
_LOW_THRESHOLD: Final = 0.1  # nats; a lower threshold may be meant in another unit
_ELSEWHERE: Final = {
    "model_name": "did you mean model?",
    "messages": "give the messages in the place of the prompt",
    "logits_processors": "did you mean logits_processor?",
    "keep_logits": "it is an argument of run",
    "should_fork": "give the function as policy",
}


class EntropyAdaptiveBranching:
    """Generates several continuations of a prompt together, forking where the entropy is high.

        explorer = EntropyAdaptiveBranching("smollm2", preset="balanced")
        for sample in explorer.generate("Why is the sky blue?"):
            print(f"{sample.weight:.0%} {sample.text}")

    Every setting given here can be overridden per call. A prompt is text, a chat (`[{"role":
    "user", "content": "Hello"}]`, in the format of OpenAI and transformers; a final assistant
    message is continued), or token ids. Settings that are not given have their starting values, as
    on the page and on the command line: `preset="balanced"`, temperature 0.5 and top-p 0.9.

    Args:
        model: A name (see `load_model`), a loaded transformers pair `(model, tokenizer)`, where the
            model may be a PeftModel, or any `eab.engine.models.base.LanguageModel`.
        entropy_threshold: A path forks at or above this entropy, in nats unless `threshold_unit`
            says otherwise.
        branch_factor: Children per fork.
        max_paths: The maximum number of live and finished paths.
        tokenizer: The tokenizer, if `model` is a transformers model without one.
        device, dtype, weights, layout: How to load a model that is given by name.
        draft: The draft model for the drafter `model`, given like `model`; loaded when it is first
            needed.
        prefix_cache_mib: MiB of K and V to keep, so that calls do not recompute a prefix that they
            share with an earlier call; 0 keeps nothing. A change of the model's weights, adapters
            or hooks is noticed; after a change through `.data`, which is not, call `forget`. By
            default, only the runs of one `generate_batch` share prefixes, so a call does not depend
            on earlier ones.
        settings: Other settings (see `eab.Settings`), or a `preset`. `policy` is a name, or a rule
            or a policy of your own; `logits_processor` takes those of transformers.

    Raises:
        ConfigError: A setting is out of range.
        ModelError: The model cannot be used.
    """

    def __init__(
        self,
        model: Model = "embedded",
        entropy_threshold: float | None = None,
        branch_factor: int | None = None,
        max_paths: int | None = None,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        device: str | torch.device = AUTO,
        dtype: str | torch.dtype = AUTO,
        weights: str = AS_LOADED,
        layout: str = AUTO,
        draft: Model = EMBEDDED_DRAFT,
        prefix_cache_mib: float | None = None,
        **settings: Unpack[OtherSettings],
    ) -> None:
        shape = {"entropy_threshold": entropy_threshold, "branch_factor": branch_factor}
        first = {**shape, "max_paths": max_paths}
        given = {name: value for name, value in first.items() if value is not None}
        self._settings = given | settings
        self._asked({})  # refuse bad settings before a model is loaded
        loading = {"device": device, "dtype": dtype, "weights": weights, "layout": layout}
        self.model = language_model(model, tokenizer, **loading)
        self._prefix_mib = PREFIX_CACHE_MIB if prefix_cache_mib is None else prefix_cache_mib
        Real(0, 2**40).check("prefix_cache_mib", self._prefix_mib)
        # By default, a call does not depend on earlier ones, not even in the last digits.
        keeps = prefix_cache_mib is not None
        self._prefixes = prefix_cache(self.model.kv_shape, self._prefix_mib) if keeps else None
        self._made_by = ""  # the fingerprint of the model that computed them
        by_name = loading if isinstance(draft, str | Path) else {}
        self._draft = lru_cache(maxsize=1)(partial(language_model, draft, **by_name))
        self._vocabulary = lru_cache(maxsize=1)(partial(Vocabulary, self.model))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return (
            f"<EntropyAdaptiveBranching of {self.model.card.name}: {given or 'default settings'}>"
        )

    def generate(
        self, prompt: Prompt, *, continued: Sequence[int] = (), **settings: Unpack[Settings]
    ) -> list[Sample]:
        """Generate the samples: all leaves of the tree, heaviest first; their weights sum to 1.

            best = explorer.generate("The cat", max_new_tokens=12)[0].text

        Args:
            prompt: The text to continue, a chat, or token ids.
            continued: Token ids to append to the prompt, as `Run.continuation` returns them.
            settings: Settings for this call only, or a `preset`.

        Raises:
            PromptError: The prompt is empty, too long, or of another type.
            ConfigError: A setting is out of range.
            ModelError: The draft model cannot be used.
            MemoryLimitError: The KV cache exceeded its limit; `run` keeps the tree.
        """
        run = Run(self.stream(prompt, continued=continued, **settings))
        run.raise_if_failed()
        return run.samples

    def run(
        self,
        prompt: Prompt,
        *,
        continued: Sequence[int] = (),
        keep_logits: Iterable[int] = (),
        **settings: Unpack[Settings],
    ) -> Run:
        """Generate the whole run: tree, samples, measurements. See `generate` for the arguments.
        A run that its memory limit ended keeps its tree; an UnfinishedWarning says so.

            run = explorer.run("Once upon a time", keep_logits=range(3))
            probabilities = run.logits[0, 2].softmax(dim=-1)  # of path 0 at its third new token

        Args:
            keep_logits: Steps, from 0, whose logits `run.logits` keeps: the model's own, on the
                CPU, for each path that chose a token there; at most 1 GiB.
        """
        request = request_of(prompt, self._asked(settings), continued)
        kept = KeptLogits(keep_logits, self.model, request)
        run = Run(self._events(kept.added_to(request)))
        run.logits = kept.of(run.events)
        _warn_if_failed(run)
        return run

    def stream(
        self, prompt: Prompt, *, continued: Sequence[int] = (), **settings: Unpack[Settings]
    ) -> Iterator[Event]:
        """Generate the events of a run as they happen. To stop, stop iterating; `Run(events)` is
        the run so far.

        Arguments and errors are those of `generate`; errors are raised by the call itself. But a
        run that exceeds its memory limit ends with RunEnded("failed").
        """
        events = self._events(request_of(prompt, self._asked(settings), continued))
        return _and_then(next(events), events)

    def score(
        self, prompt: Prompt, texts: Sequence[Text | Sequence[str]], **settings: Unpack[Settings]
    ) -> Scores:
        """How likely the model is to write these texts after the prompt, by the settings.

            scores = explorer.score("The capital of France is", [" Paris", " Lyon"])
            print(scores[0].begins, scores.neither)

        Temperature and filters count: `temperature=1, top_p=1` gives the model's own probabilities.

        Args:
            texts: Texts or token ids; a list of texts is one text in several spellings.

        Raises:
            PromptError: The prompt or a text cannot be used.
            ConfigError: A setting is out of range, or the model runs on a server.
            MemoryLimitError: The KV cache exceeded its limit.
        """
        return self.score_batch([prompt], texts, **settings)[0]

    def score_batch(
        self,
        prompts: Iterable[Prompt],
        texts: Sequence[Text | Sequence[str]],
        **settings: Unpack[Settings],
    ) -> list[Scores]:
        """Score the same texts after each of these prompts (see `score`)."""
        requests = requests_of(prompts, self._asked(settings))
        return [scores(self.model, request, texts, self._vocabulary()) for request in requests]

    def explore(
        self,
        run: RunLike,
        rules: Mapping[str, Rule] | Callable[[str], str | None] | None = None,
        *,
        until: float = 0.05,
        most: int = 64,
    ) -> Run:
        """The run with more texts, so that the bounds of its labels are narrower.

            run = explorer.explore(explorer.run("Name a city:"), {"Paris": "Paris"})
            print(run.probability("Paris"))

        They are the most likely texts after the most probable beginnings that nobody has explored.
        They have no weight, so the estimates stay those of the run, moved into the new bounds.

        Args:
            run: A run of this model that was not stopped.
            rules: As of `Run.labelled`; what has a label needs no exploring.
            until: The unexplored probability at which to stop.
            most: The most texts to add.

        Raises:
            ConfigError, ModelError: The run was stopped, or this model cannot continue it.
        """
        Real(0, 1).check("until", until)
        Whole(1, MAX_EXPLORED).check("most", most)
        events = as_run(run).events
        own = () if rules is None else (lambda _: by_program(rules),)
        return _extended(events, explore(self.model, events, until, most, *own))

    def add_text(self, run: RunLike, text: str) -> Run:
        """The run with a text that it did not write: a branch with the probability of each token.

        Raises:
            PromptError: The tokenizer cannot write the text, or a text of the run begins with it.
            ConfigError, ModelError: As of `explore`.
        """
        events = as_run(run).events
        return _extended(events, ask(self.model, events, text))

    def repeat(self, run: RunLike) -> Run:
        """The run with the texts of seven more seeds, so that its labels have standard errors; the
        run itself if it has them, or if no seed changes anything.

        Raises:
            ConfigError, ModelError: As of `explore`.
        """
        one = as_run(run)
        texts = repeat(self.model, one.events, more_seeds(one), one.started.config)
        return _extended(one.events, texts)

    def forget(self) -> None:
        """Drop what `prefix_cache_mib` has kept of earlier calls."""
        if self._prefixes is not None:
            self._prefixes = prefix_cache(self.model.kv_shape, self._prefix_mib)

    def _kept(self) -> PrefixCache | None:
        """What earlier calls have computed with the model as it is now."""
        model, before = self.model, self._made_by
        if self._prefixes is not None and isinstance(model, TransformersModel) and model.is_given:
            self._made_by = model.fingerprint(exact=False)
            if self._made_by != before:
                self.forget()
        return self._prefixes

    def _events(self, request: Request) -> Iterator[Event]:
        draft = self._draft_for([request])
        return event_stream(self.model, request, draft, prefixes=self._kept())

    def generate_batch(self, prompts: Iterable[Prompt], **settings: Unpack[Settings]) -> list[Run]:
        """Generate a run for each prompt, several in each forward pass (continuous batching).

        The runs equal those of `run`, up to rounding. Raises the errors of `run`.

        Raises:
            BatchError: Some prompts have no run; the runs of the others are its `runs`.
        """
        return self._runs(requests_of(prompts, self._asked(settings)))

    def compare_prompts(
        self,
        prompts: Iterable[Prompt],
        rules: Mapping[str, Rule] | Callable[[str], str | None],
        *,
        seeds: int = 8,
        **settings: Unpack[Settings],
    ) -> list[Labels]:
        """How likely each label is after each of these prompts, by several runs of each.

            polite, plain = explorer.compare_prompts(
                ["Please name a city:", "Name a city:"], {"Paris": "Paris"}
            )
            print(polite["Paris"], plain["Paris"])  # estimate ± standard error, bounds

        Args:
            rules: As of `Run.labelled`.
            seeds: How many runs of each prompt, with the seeds from the setting `seed` on.

        Raises:
            ConfigError: A setting or a rule is wrong, or the policy draws nothing.
        """
        Whole(2, MAX_SEEDS).check("seeds", seeds)
        asked = self._asked(settings)
        first = min(asked.config.seed, MAX_SEED - seeds)
        if asked.config.policy in DETERMINISTIC:
            raise ConfigError(
                f"all runs of the policy {asked.config.policy} are the same, whatever the seed; "
                "use fair, arithmetic or independent"
            )
        runs = self._runs(
            [
                replace(request, config=replace(request.config, seed=seed))
                for request in requests_of(prompts, asked)
                for seed in range(first, first + seeds)
            ]
        )
        return [labelled_by(runs[at : at + seeds], rules) for at in range(0, len(runs), seeds)]

    def _runs(self, requests: Sequence[Request]) -> list[Run]:
        draft = self._draft_for(requests)
        prefixes = self._kept() or prefix_cache(self.model.kv_shape, self._prefix_mib)
        handles = serve(self.model, requests, draft, prefixes=prefixes)
        runs, errors = list[Run | None](), dict[int, Exception]()
        for index, handle in enumerate(handles):
            try:
                runs.append(Run(handle))
            except Exception as error:
                runs.append(None)
                errors[index] = error
        if errors:
            raise BatchError(runs, errors) from next(iter(errors.values()))
        made = [run for run in runs if run is not None]
        for run in made:
            _warn_if_failed(run)
        return made

    def _draft_for(self, requests: Sequence[Request]) -> Any:
        needed = any(request.config.drafter == "model" for request in requests)
        return self._draft() if needed else None

    def _asked(self, settings: Mapping[str, Any]) -> Request:
        """The request for these settings and those of the object; ConfigError if one is wrong."""
        given = overridden(self._settings, settings)
        for name in given.keys() & _ELSEWHERE:
            raise ConfigError(f"there is no setting {name!r}; {_ELSEWHERE[name]}")
        asked = without_prompt(completed(given))
        threshold = asked.config.entropy_threshold
        if "threshold_unit" not in given and 0 < threshold < _LOW_THRESHOLD:
            _warn_of_low_threshold(threshold)
        return asked


@lru_cache(maxsize=1)
def _warn_of_low_threshold(threshold: float) -> None:
    _LOGGER.warning(
        "entropy_threshold=%g is in nats, where it lets nearly every token fork. In the first "
        'implementation of EAB it was a share of ln V: threshold_unit="normalised", '
        'policy="original" (docs/from-the-original.md)',
        threshold,
    )


def _warn_if_failed(run: Run) -> None:
    if run.ended is not None and run.ended.reason == "failed":
        warnings.warn(f"{run!r} ended early: {run.ended.message}", UnfinishedWarning, stacklevel=3)


def _and_then(first: Event, events: Iterator[Event]) -> Iterator[Event]:
    yield first
    yield from events


def _extended(events: Sequence[Event], texts: Iterable[Event | Progressed]) -> Run:
    """The run with these texts."""
    new = [event for event in texts if not isinstance(event, Progressed)]
    return Run([*before_end(events), *new])
