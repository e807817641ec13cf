"""What callers give, in any form: models, prompts and the requests made from them, and the steps of
a run whose logits they want.
"""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from numbers import Integral
from pathlib import Path
from traceback import walk_stack
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.engine.branching.own import own_name
from eab.engine.models.base import LanguageModel
from eab.engine.models.loading import wrap_model
from eab.engine.remote.model import load_model as load_by_name
from eab.engine.request import Request
from eab.errors import ConfigError, ModelError, PromptError, PromptWarning
from eab.formatting import human_bytes, quoted
from eab.run.events import Event, Message, Predicted
from eab.run.events.chat import notices, read_messages
from eab.text_values import is_iterable, listed
from eab.weight_formats import AS_LOADED, AUTO

Pair: TypeAlias = tuple[PreTrainedModel, PreTrainedTokenizerBase]
Model: TypeAlias = str | Path | Pair | PreTrainedModel | LanguageModel

_FORMS: Final = "a name, a folder or a (model, tokenizer) pair of transformers, or a LanguageModel"
_DTYPES: Final = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def load_model(
    name: str | Path = "embedded",
    device: str | torch.device = AUTO,
    dtype: str | torch.dtype = AUTO,
    weights: str = AS_LOADED,
    layout: str = AUTO,
) -> LanguageModel:
    """Load a model and its tokenizer, or connect to the server that runs it.

        model = load_model("smollm2", weights="int8")

    Args:
        name: `embedded`, `smollm2`, a folder, a GGUF file, a Hub id, or `vllm:` or `llama.cpp:`
            followed by the name of a model on a server.
        device: A PyTorch device; `auto` uses CUDA if there is a GPU.
        dtype: A number format such as `float32`, or a torch dtype; `auto` is float32 on a CPU.
        weights: The format of the weights, such as `int8`, which changes the texts slightly.
        layout: The layout of weights that are kept as loaded; `auto` chooses the fastest.

    Raises:
        ModelError: Says what is missing.
    """
    if not isinstance(name, str | Path):
        raise ModelError(f"the model is a {type(name).__name__}; it must be {_FORMS}")
    for argument, value in {"weights": weights, "layout": layout}.items():
        if not isinstance(value, str):
            raise ModelError(f"{argument} is a {type(value).__name__}; give the name of a format")
    return load_by_name(str(name), _device(device), _dtype(dtype), weights, layout)


def language_model(model: Any, tokenizer: Any = None, **loading: Any) -> LanguageModel:
    """The LanguageModel for the engine.

    Args:
        model: A name or folder (see `load_model`), a transformers model with its tokenizer, a
            PeftModel (its adapters stay active), or a LanguageModel.
        tokenizer: The tokenizer, if `model` is a transformers model without one.
        loading: Arguments of `load_model`, for a model that is given by name.

    Raises:
        ModelError: The model cannot be used, or an argument would have no effect.
    """
    if isinstance(model, str | Path):
        _refuse("tokenizer", tokenizer, "a model that is given by name brings its own")
        return load_model(model, **loading)
    defaults = {"weights": AS_LOADED}
    for name, value in loading.items():
        if value != defaults.get(name, AUTO):
            _refuse(name, value, "the model is loaded already; set it where the model is loaded")
    if isinstance(model, tuple) and len(model) == 2:
        _refuse("tokenizer", tokenizer, "the pair has one already")
        model, tokenizer = model
    if tokenizer is not None:
        return wrap_model(_plain(model), tokenizer)
    if hasattr(model, "kv_shape"):
        loaded: LanguageModel = model
        return loaded
    raise ModelError(
        f"the model is a {type(model).__name__}; it must be {_FORMS}. A model of transformers "
        "needs its tokenizer: (model, tokenizer), or tokenizer="
    )


def _plain(model: Any) -> Any:
    """The transformers model inside a PeftModel, whose layers contain the adapters."""
    forward = vars(model).get("forward") if hasattr(model, "__dict__") else None
    if hasattr(model, "_orig_mod") or hasattr(forward, "_torchdynamo_orig_callable"):
        raise ModelError(
            "the model is compiled by torch.compile, whose code cannot be given the engine's KV "
            "cache. Give the model itself, as it was before (model._orig_mod)"
        )
    if not hasattr(model, "get_base_model"):
        return model
    if getattr(model, "active_peft_config", None) and model.active_peft_config.is_prompt_learning:
        raise ModelError(
            "the adapter of the PeftModel adds tokens or K and V before the prompt, which the "
            "engine does not know of. Adapters inside the layers, such as LoRA, can be used"
        )
    return model.get_base_model()


def _refuse(name: str, value: object, why: str) -> None:
    if value is not None:
        raise ModelError(f"{name}={quoted(value)} would have no effect: {why}")


def _device(given: object) -> str:
    if not isinstance(given, str | torch.device):
        raise ModelError(f"the device is {given!r}; give its name, such as cpu or cuda, or auto")
    return str(given)


def _dtype(given: object) -> str:
    if isinstance(given, torch.dtype):
        return str(given).removeprefix("torch.")
    if not isinstance(given, str):
        raise ModelError(f"the dtype is {given!r}; give its name, such as bfloat16, or auto")
    return _DTYPES.get(given, given)


Prompt: TypeAlias = str | Sequence[Message] | Sequence[Mapping[str, str]] | Sequence[int]


def without_prompt(settings: Mapping[str, Any]) -> Request:
    """A request with these settings but no prompt yet. `policy` and `logits_processor` may be the
    caller's own objects.

    Raises:
        ConfigError: A value is not allowed.
    """
    plain = dict(settings)
    processors, policy = plain.pop("logits_processor", None), plain.get("policy")
    parse_special = plain.pop("parse_special", False)
    if not isinstance(parse_special, bool):
        raise ConfigError(f"parse_special is {quoted(parse_special)}; it must be True or False")
    if policy is None or isinstance(policy, str):
        policy = None
    else:
        plain["policy"] = own_name(policy)
    config = BranchingConfig.from_settings(plain)
    return Request(
        "", config, policy=policy, logits_processors=processors, parse_special=parse_special
    )


def request_of(prompt: Any, asked: Request, continued: Sequence[int] = ()) -> Request:
    """The request for a prompt (text, chat messages or token ids), with the settings of `asked`.

    Raises:
        PromptError: The prompt is none of these.
    """
    more = _ids(continued)
    if more is None:
        raise PromptError(f"continued is {quoted(continued)}; give token ids")
    if isinstance(prompt, str):
        return warned(replace(asked, prompt=prompt, continued=more))
    if (tokens := _ids(prompt)) is not None:
        return replace(asked, token_ids=tokens, continued=more)
    if isinstance(prompt, Sequence) and all(isinstance(each, Mapping | Message) for each in prompt):
        return warned(replace(asked, messages=read_messages(prompt), continued=more))
    raise PromptError(
        f"the prompt is {quoted(prompt)}; give text, messages such as "
        '[{"role": "user", "content": "Hello"}], or token ids'
    )


def warned(request: Request) -> Request:
    """The request, after a warning of what the writer of its prompt may not have meant."""
    frames = enumerate(walk_stack(sys._getframe()), 1)
    callers = (
        at for at, (one, _) in frames if not str(one.f_globals.get("__name__")).startswith("eab.")
    )
    level = next(callers, 1)  # the line outside this package
    if request.messages or isinstance(request.prompt, str):  # else it is refused when built
        for notice in notices(request.messages or request.prompt, request.parse_special):
            warnings.warn(notice, PromptWarning, stacklevel=level)
    return request


def requests_of(prompts: Any, asked: Request) -> list[Request]:
    """A request for each prompt; PromptError if `prompts` is not a list, Series, array or generator
    of prompts.
    """
    if (given := listed(prompts)) is None:
        raise PromptError(f"the prompts are {quoted(prompts)}; give a list of prompts")
    return [request_of(prompt, asked) for prompt in given]


def _ids(given: Any) -> tuple[int, ...] | None:
    """Token ids from a sequence, or from an array or tensor of one row; None if not token ids."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Sequence):
        return None
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return tuple(values)
    values = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    return tuple(values) if all(type(value) is int for value in values) else None


MOST_BYTES: Final = 2**30
_MOST_NAMED: Final = 10**6  # steps; far more than a run can have


class KeptLogits:
    """Keeps the logits of these steps, counted from 0, during a run.

    Raises:
        ConfigError: `steps` is invalid, names no step of the run, or could take more than 1 GiB.
    """

    def __init__(self, steps: Any, model: LanguageModel, request: Request) -> None:
        named, last = _steps(steps), request.config.max_new_tokens - 1
        self._steps = frozenset(step for step in named if step <= last)
        if named and not self._steps:
            raise ConfigError(
                f"keep_logits names no step of the run; with max_new_tokens={last + 1} they are "
                f"0 to {last}"
            )
        self._rows: dict[tuple[int, int], Tensor] = {}
        if self._steps and model.kv_shape.blocks is not None:
            raise ConfigError(
                f"keep_logits is given, but {model.card.name} runs on a server, which names only "
                "its most likely tokens; load the model on this machine"
            )
        row_bytes = model.card.vocab_size * model.kv_shape.dtype.itemsize
        paths = request.config.max_paths
        if len(self._steps) * paths * row_bytes > MOST_BYTES:
            most = max(MOST_BYTES // (paths * row_bytes), 0)
            raise ConfigError(
                f"keep_logits names {len(self._steps)} steps of up to {paths} paths with "
                f"{human_bytes(row_bytes)} each; at most {human_bytes(MOST_BYTES)} are kept. "
                f"Name at most {most} steps, or lower max_paths"
            )

    def added_to(self, request: Request) -> Request:
        """The request, changed so that the logits of its run are kept here."""
        return replace(request, logits_reader=self._keep) if self._steps else request

    def _keep(self, path: int, step: int, logits: Tensor) -> None:
        if step in self._steps:
            self._rows[path, step] = logits.to("cpu", copy=True)

    def of(self, events: Iterable[Event]) -> dict[tuple[int, int], Tensor]:
        """The logits of the steps that the run decided, (V,) each, by path and step."""
        decided = [
            (seen.path, event.step)
            for event in events
            if isinstance(event, Predicted)
            for seen in event.predictions
        ]
        return {key: self._rows[key] for key in decided if key in self._rows}


def _steps(given: Any) -> list[int]:
    named = given.tolist() if isinstance(given, Tensor) else given
    if is_iterable(named) and not isinstance(named, str | bytes):
        first = islice(named, _MOST_NAMED + 1)
        steps = [int(step) if isinstance(step, Integral) else -1 for step in first]
        if len(steps) > _MOST_NAMED:
            raise ConfigError(f"keep_logits names more than {_MOST_NAMED:,} steps; name fewer")
        if min(steps, default=0) >= 0:
            return steps
    raise ConfigError(f"keep_logits is {quoted(given)}; give steps from 0 on, such as range(5)")
