"""Entropy-adaptive branching as a library: one object, `generate` for the samples, `stream` for the
events.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.errors import ModelError
from eab.events import Event
from eab.models.base import LanguageModel
from eab.models.loading import EMBEDDED_DRAFT, load_model, wrap_model
from eab.run import Run, Sample, fold


class EntropyAdaptiveBranching:
    """Generate several continuations at once, forking where the next-token entropy is high.

    model: a name (`embedded`, a folder, a Hub id), a loaded `(model, tokenizer)` pair of
    transformers, or any
    eab.models.base.LanguageModel. device, dtype: only with a name. draft: likewise, the model that
    guesses where the drafter is `model`; loaded when it is first needed. Other settings: see
    eab.config.BranchingConfig; each can be overridden per call.

    Raises ConfigError for a setting out of range, ModelError if the model cannot be used.
    """

    def __init__(
        self,
        model: Any = "embedded",
        entropy_threshold: float = 0.65,
        branch_factor: int = 3,
        max_paths: int = 20,
        *,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        draft: Any = EMBEDDED_DRAFT,
        **settings: Any,
    ) -> None:
        self._settings = {
            "entropy_threshold": entropy_threshold,
            "branch_factor": branch_factor,
            "max_paths": max_paths,
            **settings,
        }
        self._config({})
        self.model = _as_language_model(model, tokenizer, device, dtype)
        self._draft = lru_cache(maxsize=1)(lambda: _as_language_model(draft, None, device, dtype))

    def generate(self, prompt: str, **settings: Any) -> list[Sample]:
        """All leaves of the tree, the heaviest first; their weights sum to 1.

        Raises PromptError or ConfigError for bad input, MemoryLimitError if the KV cache outgrew
        its limit.
        """
        return self.run(prompt, **settings).samples()

    def run(self, prompt: str, **settings: Any) -> Run:
        """The whole finished run: tree, samples, measurements. Raises like `generate`."""
        run = fold(self.stream(prompt, **settings))
        run.raise_if_failed()
        return run

    def stream(
        self, prompt: str, *, continued: Sequence[int] = (), **settings: Any
    ) -> Iterator[Event]:
        """The events of a run as they happen; stop by no longer iterating.

        continued: token ids to stand after the prompt's, as `Run.continuation` gives them (also for
        the methods above).
        """
        config = self._config(settings)
        return generate(
            self.model,
            prompt,
            config,
            self._draft() if config.drafter == "model" else None,
            continued,
        )

    def _config(self, settings: dict[str, Any]) -> BranchingConfig:
        return BranchingConfig.from_settings(self._settings | settings)


def _as_language_model(model: Any, tokenizer: Any, device: str, dtype: str) -> LanguageModel:
    if isinstance(model, str):
        return load_model(model, device, dtype)
    if isinstance(model, tuple) and len(model) == 2 and tokenizer is None:
        model, tokenizer = model
    if tokenizer is not None:
        return wrap_model(model, tokenizer)
    if hasattr(model, "kv_shape"):
        language_model: LanguageModel = model
        return language_model
    raise ModelError(
        f"model is a {type(model).__name__}; give a name, a folder, a (model, tokenizer) pair, or model and tokenizer="
    )
