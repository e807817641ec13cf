"""Models in transformers' own format: a config.json and safetensors, in a folder or on the Hub."""

from contextlib import suppress
from typing import Any, Final

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.errors import ModelError
from eab.models.checkpoint import (
    refuse_further_weights,
    refuse_missing_weights,
    refuse_other_shapes,
    refuse_other_shards,
)
from eab.models.model_size import limit_of_folder, read_config, refuse_absurd_size
from eab.models.quantized_checkpoint import quantized_by
from eab.models.sources import EMBEDDED, Source, folder_of

HUB_SECONDS: Final = 10  # timeout for the Hub


def describe(
    name: str, source: Source
) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, GenerationConfig | None]:
    """Tokenizer, configuration and generation config of a model.

    Raises:
        ModelError: The model is missing, or its configuration asks for too much.
    """
    options = _options(source)
    config = read_config(name, source.place, options)
    tokenizer = AutoTokenizer.from_pretrained(source.place, **options)
    with suppress(OSError):
        return tokenizer, config, GenerationConfig.from_pretrained(source.place, **options)
    return tokenizer, config, None


def load(
    name: str, source: Source, dtype: torch.dtype, holds_all: torch.device
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer, and the model on the CPU.

    Raises:
        ModelError: The model is missing, incomplete, too large, or not in safetensors.
    """
    options = _options(source)
    refuse_other_shards(source.place)
    config = read_config(name, source.place, options)
    refuse_absurd_size(name, config, limit_of_folder(folder_of(source)), dtype, holds_all)
    tokenizer = AutoTokenizer.from_pretrained(source.place, **options)
    options |= {"dtype": dtype, "use_safetensors": True, "output_loading_info": True}
    # Shapes are checked below: transformers' error would refer to a table on stderr.
    options["ignore_mismatched_sizes"] = True
    loaded: Any = AutoModelForCausalLM.from_pretrained(source.place, **options)
    model, info = loaded
    if not quantized_by(model):  # their libraries save extra tensors
        more = int(getattr(config.get_text_config(), "num_nextn_predict_layers", 0) or 0)
        refuse_further_weights(source.place, info, set(model.state_dict()), more)
    refuse_missing_weights(source.place, info)
    refuse_other_shapes(source.place, info)
    return tokenizer, model


def _options(source: Source) -> dict[str, Any]:
    """Arguments of transformers' `from_pretrained`, after checking that the Hub has the model."""
    if source.kind == "hub":
        _check_hub(source.place)
    return {"trust_remote_code": False, "local_files_only": source.kind != "hub"}


def _check_hub(id: str) -> None:
    """Query the Hub before the download, to report a wrong id or a missing network immediately."""
    try:
        HfApi().model_info(id, timeout=HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hugging Face Hub has no model {id!r}, or it needs a login. Check the id, or "
            f"choose '{EMBEDDED}' or a local folder"
        ) from error
    except (HfHubHTTPError, OfflineModeIsEnabled) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(hub_failure(id, reason)) from error
    except Exception as error:  # the network library can raise anything
        raise ModelError(
            f"the model {id!r} is not on this machine, and the Hugging Face Hub cannot be "
            f"reached. Check the network, or choose '{EMBEDDED}', 'smollm2' or a local folder"
        ) from error


def hub_failure(name: str, reason: str) -> str:
    """The error text when a model of the Hub cannot be loaded."""
    return (
        f"the model {name!r} cannot be loaded from the Hub: {reason.rstrip('.')}. Check the id and "
        f"the network, or choose '{EMBEDDED}' or a local folder"
    )
