"""From a prompt to token ids."""

from typing import Final

from transformers import PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.formatting import reason_of
from eab.settings import MAX_TEXT

_MOST_CHARACTERS: Final = 4 * MAX_TEXT  # that a chat template may make of prompt and system message


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, name: str, prompt: str, config: BranchingConfig
) -> tuple[int, ...]:
    """Token ids of the prompt, with the chat template if the config asks for it.

    Args:
        tokenizer: The tokenizer of the model.
        name: The name of the model, for the message.
        prompt: The text.
        config: The settings.

    Raises:
        ModelError: The config asks for a chat template, but the model has none that can be used.
    """
    if not config.chat:
        return tuple(tokenizer.encode(prompt))
    if not tokenizer.chat_template:
        raise ModelError(f"{name} has no chat template; run it without chat")
    messages = [{"role": "system", "content": config.system}] if config.system else []
    messages.append({"role": "user", "content": prompt})
    try:
        text = str(
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        )
    except Exception as error:  # a template is a program that came with the model
        raise ModelError(
            f"the chat template of {name} cannot be used ({reason_of(error)}); run it without chat"
        ) from error
    if len(text) > _MOST_CHARACTERS:
        raise ModelError(
            f"the chat template of {name} makes {len(text):,} characters of this prompt; at most "
            f"{_MOST_CHARACTERS:,} are allowed. Run it without chat"
        )
    return tuple(tokenizer.encode(text, add_special_tokens=False))
