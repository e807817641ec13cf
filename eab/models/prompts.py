"""Turns a prompt into token ids."""

import json

from transformers import PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.events import Message
from eab.events.chat import Prompt, as_json
from eab.formatting import reason_of
from eab.models import chat_template


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, name: str, prompt: Prompt, config: BranchingConfig
) -> tuple[int, ...]:
    """Token ids of a chat, or of a prompt, with the chat template if the config asks for it.

    Raises:
        ModelError: A chat template is needed, but the model has none that can be used.
    """
    if isinstance(prompt, str):
        if not config.chat or not (tokenizer.chat_template or _needs_template(name, config)):
            return tuple(tokenizer.encode(prompt))
        prompt = (Message("user", prompt),)
    elif not tokenizer.chat_template:
        raise ModelError(f"{name} has no chat template, which messages require; give a prompt")
    system = (Message("system", config.system),) if config.system else ()
    messages = as_json([*system, *prompt])
    variables = json.loads(config.chat_template_kwargs or "{}")
    try:
        text = chat_template.render(tokenizer, messages, variables)
    except Exception as error:  # a template is a program that comes with the model
        raise ModelError(
            f"the chat template of {name} cannot be used ({_reason(error)}); run it without chat"
        ) from error
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _needs_template(name: str, config: BranchingConfig) -> bool:
    """Raise ModelError if a setting needs the chat template that this model lacks; else False."""
    for setting in ("system", "chat_template_kwargs"):
        if getattr(config, setting):
            raise ModelError(
                f"{name} has no chat template, which {setting} requires; leave it empty"
            )
    if config.chat is True:
        raise ModelError(f"{name} has no chat template; run it without chat")
    return False


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, chat_template.TemplateTooLarge) else reason_of(error)
