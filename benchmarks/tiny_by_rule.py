"""Tiny configurations for the model families of transformers, by one rule: each setting below that
the family's default configuration has gets the value given here.
"""

from typing import Any, Final

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

FAMILIES: Final = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
MAX_PARAMETERS: Final = 4_000_000
LAYERS, HEADS, WIDTH, WINDOW = 4, 4, 32, 8
_SETTINGS: Final[tuple[tuple[int, str], ...]] = (
    (72, "vocab_size vocab_size_per_layer_input"),
    (
        WIDTH,
        "hidden_size d_model n_embd dim_model embedding_size embed_dim emb_dim lru_width "
        "word_embed_proj_dim",
    ),
    (LAYERS, "num_hidden_layers n_layer n_layers num_layers decoder_layers num_decoder_layers"),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads decoder_attention_heads "
        "encoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
        "swa_num_attention_heads num_local_experts num_experts n_routed_experts moe_num_experts "
        "linear_num_value_heads rotary_dim qk_rope_head_dim qk_nope_head_dim rope_dim",
    ),
    (
        48,
        "intermediate_size ffn_dim n_inner d_ff dff decoder_ffn_dim encoder_ffn_dim "
        "intermediate_size_mlp",
    ),
    (64, "d_inner index_topk"),
    (128, "max_position_embeddings n_positions max_seq_len n_ctx"),
    (
        16,
        "moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size "
        "shared_intermediate_size moe_shared_expert_intermediate_size global_head_dim",
    ),
    (
        WINDOW,
        "sliding_window attention_chunk_size attention_window_size head_dim kv_lora_rank "
        "q_lora_rank qk_head_dim hidden_size_per_layer_input mamba_n_heads mamba_d_head mamba_d_state "
        "mamba_num_heads mamba_head_dim ssm_state_size state_size linear_key_head_dim "
        "linear_value_head_dim index_head_dim kv_channels swa_head_dim swa_v_head_dim",
    ),
    (6, "v_head_dim"),
    (
        2,
        "num_key_value_heads num_experts_per_tok moe_k moe_topk top_k_experts linear_num_key_heads "
        "index_n_heads swa_num_key_value_heads num_attention_groups max_window_layers",
    ),
    (
        1,
        "encoder_layers num_encoder_layers n_group topk_group eos_token_id mamba_n_groups n_groups "
        "expand_ratio num_global_key_value_heads",
    ),
    (0, "pad_token_id bos_token_id"),
)
VALUES: Final = {name: value for value, names in _SETTINGS for name in names.split()}


def tiny_config(family: str) -> PreTrainedConfig:
    """A tiny configuration of this family. It also sets the parts of a nested configuration.

    Raises:
        Exception: if the rule does not fit this family.
    """
    kind = CONFIG_MAPPING[family]
    usual = kind().to_dict()
    settings = _settings(usual)
    for name, part in usual.items():
        if isinstance(part, dict) and "model_type" in part:
            settings[name] = {"model_type": part["model_type"]} | _settings(part)
    return kind(**settings)


def _settings(usual: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name, value in VALUES.items() if name in usual}
    if usual.get("layer_types"):
        kinds = list(dict.fromkeys(usual["layer_types"]))
        given["layer_types"] = (kinds * LAYERS)[:LAYERS]
    if usual.get("kv_lora_rank"):  # latent attention has a KV head for each query head
        given["num_key_value_heads"] = HEADS
        given.pop("head_dim", None)
    if "is_decoder" in usual:
        given["is_decoder"] = True
    return given


def tiny_model(family: str, dtype: torch.dtype) -> PreTrainedModel:
    """A tiny model of this family, with random weights large enough for attention to matter."""
    config = tiny_config(family)
    with torch.device("meta"):
        sizes = [each.numel() for each in AutoModelForCausalLM.from_config(config).parameters()]
    if sum(sizes) > MAX_PARAMETERS:
        raise ValueError(f"the rule gives it {sum(sizes)} parameters")
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1 and weights.shape[-1] > 1 and "A_log" not in name:
                weights.normal_(0, 1.0 if "embed" in name or "wte" in name else 0.3)
    return model.to(dtype).eval()
