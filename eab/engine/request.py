"""What a run is asked for, as one value. Imports no torch."""

from dataclasses import dataclass

from eab.config import BranchingConfig
from eab.errors import ConfigError, PromptError
from eab.events import Message
from eab.events.chat import title_of
from eab.formatting import quoted


@dataclass(frozen=True, slots=True)
class Request:
    """The prompt, or a chat, and the settings of one run.

    Attributes:
        prompt: The text to continue. Of a chat it is the title, also if it is given as ""; of token
            ids it is "".
        continued: Token ids after those of the prompt (see `eab.run.RunState.continuation`).
        messages: The chat in place of the prompt; a last message of the assistant is continued.
        token_ids: The prompt as the model reads it, in place of its text.

    Raises:
        PromptError: There are messages, and another prompt.
    """

    prompt: str
    config: BranchingConfig
    continued: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.config, BranchingConfig):
            raise ConfigError(f"the config is {quoted(self.config)}; give a BranchingConfig")
        if self.messages:
            title = title_of(self.messages)
            if self.prompt not in ("", title):
                raise PromptError("a prompt and messages are given; give only one of them")
            object.__setattr__(self, "prompt", title)
