"""Entropy-adaptive branching as a library: one object that gives samples, runs, or events."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from eab.branching.presets import with_preset
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.errors import ModelError
from eab.events import Event, Message
from eab.events.chat import prompt_or_messages
from eab.models.base import LanguageModel
from eab.models.loading import wrap_model
from eab.models.recommended import advice
from eab.models.sources import EMBEDDED_DRAFT
from eab.remote.loading import load_model
from eab.run import Run, Sample, fold
from eab.weight_formats import AS_LOADED, AUTO

_LOGGER: Final = logging.getLogger("eab")


class EntropyAdaptiveBranching:
    """Generates several continuations of a prompt at once; it forks where the entropy is high.

    Every setting given here can be overridden per call:

        eab = EntropyAdaptiveBranching("embedded", preset="balanced")
        for sample in eab.generate("Once upon a time"):
            print(f"{sample.weight:.0%} {sample.text}")

    Args:
        model: A name (`embedded`, `smollm2`, a folder, a GGUF file, a Hub id, or `vllm:` and
            `llama.cpp:` with a name for a model on a server), a loaded `(model, tokenizer)` pair of
            transformers, or any `eab.models.base.LanguageModel`.
        entropy_threshold, branch_factor, max_paths: See `eab.config.BranchingConfig`.
        preset: Settings that together shape a tree: `focused`, `balanced` or `wide` (see
            `eab.branching.presets`). Other settings override it.
        tokenizer: The tokenizer, if `model` is a model of transformers alone.
        device: Where to load a model that is given by name.
        dtype: Its number format.
        weights: The format of its weights, such as `int8` (see `eab.weight_formats`).
        layout: The layout of weights that are as loaded; `auto` chooses the fastest.
        draft: The draft model for the drafter `model`, given like `model`; loaded when it is first
            needed.
        settings: Other settings of `BranchingConfig`.

    Raises:
        ConfigError: A setting is out of range.
        ModelError: The model cannot be used.
    """

    def __init__(
        self,
        model: Any = "embedded",
        entropy_threshold: float | None = None,
        branch_factor: int | None = None,
        max_paths: int | None = None,
        *,
        preset: str | None = None,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        weights: str = AS_LOADED,
        layout: str = AUTO,
        draft: Any = EMBEDDED_DRAFT,
        **settings: Any,
    ) -> None:
        shape = {"entropy_threshold": entropy_threshold, "branch_factor": branch_factor}
        named = {"preset": preset, **shape, "max_paths": max_paths}
        given = {name: value for name, value in named.items() if value is not None}
        self._settings = with_preset(given | settings)
        self._config({})  # refuse bad settings before a model is loaded
        load = partial(load_model, device=device, dtype=dtype, weights=weights, layout=layout)
        self.model = _as_language_model(model, tokenizer, load)
        if words := advice(self.model, self._config({})):
            _LOGGER.warning(words)
        self._draft = lru_cache(maxsize=1)(lambda: _as_language_model(draft, None, load))

    def generate(self, prompt: str | None = None, **settings: Any) -> list[Sample]:
        """Generate the samples: all leaves of the tree, the heaviest first; their weights sum to 1.

        Args:
            prompt: The text to continue; left out if there are messages.
            settings: Settings for this call alone, or a `preset`; and `messages` and `continued`
                (see `stream`).

        Raises:
            PromptError: The prompt or the messages are empty or too long.
            ConfigError: A setting is out of range.
            ModelError: The draft model cannot be used.
            MemoryLimitError: The KV cache exceeded its limit.
        """
        return self.run(prompt, **settings).samples()

    def run(self, prompt: str | None = None, **settings: Any) -> Run:
        """Generate the whole run: tree, samples, measurements. See `generate` for the arguments."""
        run = fold(self.stream(prompt, **settings))
        run.raise_if_failed()
        return run

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Mapping[str, str] | Message] | None = None,
        continued: Sequence[int] = (),
        **settings: Any,
    ) -> Iterator[Event]:
        """Generate the events of a run as they happen. To stop, stop iterating.

        Args:
            prompt: The text to continue; left out if there are messages.
            messages: A chat, as OpenAI and transformers spell it: `[{"role": "user", "content":
                "Hello"}]`. It needs a model with a chat template. A last message of the assistant
                is continued.
            continued: Token ids that follow the prompt's own, as `Run.continuation` gives them.
            settings: Settings for this call alone, or a `preset`.

        Raises:
            PromptError, ConfigError, ModelError: As for `generate`. A run that exceeds its memory
                limit ends with RunEnded("failed") instead.
        """
        prompt, chat = prompt_or_messages(prompt, messages)
        request = Request(prompt, self._config(settings), tuple(continued), chat)
        draft = self._draft() if request.config.drafter == "model" else None
        return generate(self.model, request, draft)

    def _config(self, settings: dict[str, Any]) -> BranchingConfig:
        return BranchingConfig.from_settings(self._settings | with_preset(settings))


def _as_language_model(
    model: Any, tokenizer: Any, load: Callable[[str], LanguageModel]
) -> LanguageModel:
    if isinstance(model, str):
        return load(model)
    if isinstance(model, tuple) and len(model) == 2 and tokenizer is None:
        model, tokenizer = model
    if tokenizer is not None:
        return wrap_model(model, tokenizer)
    if hasattr(model, "kv_shape"):
        language_model: LanguageModel = model
        return language_model
    raise ModelError(
        f"the model is a {type(model).__name__}; it must be a name, a folder or a (model, "
        "tokenizer) pair, or a model together with tokenizer="
    )
