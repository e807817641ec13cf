"""The request for a run, as one value, also for one that continues another. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from eab.config import BranchingConfig
from eab.engine.branching.own import GivenPolicy, Processor, own_name, takes
from eab.engine.branching.presets import START
from eab.errors import NO_MODEL, ConfigError, ModelError, PromptError
from eab.formatting import quoted
from eab.run.events import Message, RunStarted
from eab.run.events.chat import title_of
from eab.run.events.fields import MAX_PROCESSORS

if TYPE_CHECKING:
    from eab.engine.models.base import LanguageModel

GivenProcessors: TypeAlias = Processor | Sequence[Processor] | None
# Receives a path, a step, and the model's logits there, (V,), valid only during the call
LogitsReader: TypeAlias = Callable[[int, int, Any], None]


@dataclass(frozen=True, slots=True)
class Request:
    """The prompt, or a chat, and the settings of one run.

        Request("Once upon a time", eab.starting_config(max_new_tokens=12))

    Attributes:
        prompt: The text to continue. For a chat it is the title, even if given as ""; for token
            ids it is "".
        continued: Token ids after those of the prompt (see `eab.run.RunState.continuation`).
        messages: The chat, instead of a prompt; a final message of the assistant is continued.
        token_ids: The prompt as the model reads it, instead of its text.
        policy: A rule or a policy that replaces the one that `config` names (see
            `eab.engine.branching.own`); `config.policy` is then its name.
        logits_processors: They change the scores of every path before its entropy is measured, in
            this order.
        logits_reader: Receives the logits of every path and step before anything changes them.
        parse_special: Whether the text of a control token in the prompt or a message, such as
            `<|im_end|>`, becomes that token. Otherwise it is ordinary text.

    Raises:
        PromptError: There are messages and also a different prompt.
        ConfigError: The config, the policy or a logits processor is not valid.
    """

    prompt: str
    config: BranchingConfig = START
    continued: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    token_ids: tuple[int, ...] = ()
    policy: GivenPolicy | None = None
    logits_processors: tuple[Processor, ...] = ()
    logits_reader: LogitsReader | None = None
    parse_special: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.config, BranchingConfig):
            raise ConfigError(f"the config is {quoted(self.config)}; give a BranchingConfig")
        processors = _as_processors(self.logits_processors)
        object.__setattr__(self, "logits_processors", processors)
        if self.policy is not None:
            config = replace(self.config, policy=own_name(self.policy))
            object.__setattr__(self, "config", config)
        if self.messages:
            title = title_of(self.messages)
            if self.prompt not in ("", title):
                raise PromptError("a prompt and messages are given; give only one of them")
            object.__setattr__(self, "prompt", title)


def _as_processors(given: Any) -> tuple[Processor, ...]:
    listed = () if given is None else given if isinstance(given, list | tuple) else (given,)
    for each in listed:
        if isinstance(each, type) or not takes(each, 2):
            raise ConfigError(
                f"a logits processor is {quoted(each)}; give a LogitsProcessor of transformers, or "
                "a list of them"
            )
    if len(listed) > MAX_PROCESSORS:
        raise ConfigError(
            f"there are {len(listed)} logits processors; give at most {MAX_PROCESSORS}"
        )
    return tuple(listed)


# The settings that decide the token ids of a prompt
_of_prompt: Final = attrgetter("chat", "system", "chat_template_kwargs")


def continue_from(
    model: "LanguageModel", started: RunStarted, continued: Sequence[int], config: BranchingConfig
) -> Request:
    """The request for a run that continues another with ids from `eab.run.RunState.continuation`.

    Raises:
        ConfigError: The run used logits processors; without them its distribution would differ.
        ModelError: The run was imported, or another model made it. The token ids are used
            unchanged, so they must stand for the same text.
    """
    if started.logits_processors:
        raise ConfigError(
            f"this run used logits processors ({', '.join(started.logits_processors)}), which can "
            "only be given in Python; continue the run there, with continued="
        )
    if started.imported:
        raise ModelError(NO_MODEL)
    card = started.model
    same = model.card.name == card.name and model.card.vocab_size == card.vocab_size
    same = same and max(started.prompt_tokens, default=0) < card.vocab_size
    if not same or tuple(map(model.text, started.prompt_tokens)) != started.prompt_texts:
        raise ModelError(
            f"this run was made by {card.name} ({card.vocab_size} tokens); the vocabulary of "
            f"{model.card.name} ({model.card.vocab_size} tokens) is different. Choose the model "
            "that made the run"
        )
    given, special = started.by_token_ids, started.parse_special
    ids = started.own_tokens if given or _of_prompt(config) == _of_prompt(started.config) else ()
    prompt = "" if given else started.prompt
    return Request(prompt, config, tuple(continued), started.messages, ids, parse_special=special)
