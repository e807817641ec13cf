"""From a prompt to token ids."""

from typing import Any

from transformers import PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.errors import ModelError


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
        ModelError: The config asks for a chat template, but the model has none.
    """
    if not config.chat:
        return tuple(tokenizer.encode(prompt))
    if not tokenizer.chat_template:
        raise ModelError(f"{name} has no chat template; run it without chat")
    messages = [{"role": "system", "content": config.system}] if config.system else []
    messages.append({"role": "user", "content": prompt})
    rendered: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )
    return tuple(rendered["input_ids"])
