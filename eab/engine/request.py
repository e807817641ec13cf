"""The request for a run, as one value. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from eab.config import BranchingConfig
from eab.engine.branching.own import GivenPolicy, Processor, own_name, takes
from eab.engine.branching.presets import START
from eab.errors import ConfigError, PromptError
from eab.formatting import quoted
from eab.run.events import Message
from eab.run.events.chat import title_of
from eab.run.events.fields import MAX_PROCESSORS

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
