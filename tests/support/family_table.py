"""One row for each family of models: a tiny configuration, and how it should run.

tests/engine/models/test_own_cache.py runs the rows, and scripts/write_docs.py writes docs/models.md
from them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from tiny_models import tiny
from transformers import PreTrainedModel

# tree: rows shared in the tree cache; tree and states: rows in the tree, and the states of other
# layers copied for each path; own cache: transformers' cache, copied for each path; refused: an
# error at loading
Way = Literal["tree", "tree and states", "own cache", "refused"]

HEADS = {"head_dim": 8}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 6}
SHARED = {
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 6,
    "vocab_size_per_layer_input": 72,
    "hidden_size_per_layer_input": 8,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 6,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 12,
}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}
BART = {
    "d_model": 32,
    "decoder_layers": 4,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "encoder_layers": 1,
}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
SCAN = {"chunk_size": 8, "num_hidden_layers": 4}
NEMOTRON = SCAN | {
    "hybrid_override_pattern": "M*M-",
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 8,
    "head_dim": 8,
}
DELTA = {
    "num_hidden_layers": 4,
    "head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
STATE_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
HYBRID = {"num_hidden_layers": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False}
JAMBA = HYBRID | {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 4,
    "mamba_d_state": 4,
}
ZAMBA = {"layers_block_type": ["mamba", "hybrid"] * 2, "attention_head_dim": 16}
CONVOLUTIONS = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
FOUR_LAYERS = {"num_hidden_layers": 4, "pad_token_id": 0}


@dataclass(frozen=True)
class Family:
    """One row."""

    name: str  # its usual name
    kind: str  # its config class in transformers
    what: str  # what is special about its attention
    more: dict[str, Any] = field(default_factory=dict)  # in addition to, or instead of, SIZES
    way: Way = "tree"
    quick: bool = False  # whether `make test` runs it
    why: str = ""  # if it is refused: part of the message
    # coarser where transformers computes a part in 32 bits or, for experts, has no kernel for 64
    dtype: torch.dtype = torch.float64
    tolerance: float = 1e-9

    def model(self) -> PreTrainedModel:
        """A model with random weights that are large enough for attention to matter."""
        model = tiny(self.kind, seed=3, **FOUR_LAYERS | self.more)
        with torch.no_grad():
            for name, weights in model.named_parameters():
                if weights.dim() > 1 and weights.shape[-1] > 1:
                    weights.normal_(0, 1.0 if "embed" in name or "wte" in name else 0.3)
                elif "sink" in name or "bias" in name:
                    weights.normal_(0, 0.3)
        return model.to(self.dtype)


ROUNDED: dict[str, Any] = {"tolerance": 1e-4}
SINGLE: dict[str, Any] = {"dtype": torch.float32, "tolerance": 1e-3}
PLAIN, WINDOW, MIXED = "nothing", "a window in every layer", "windows in some layers"
STATES = "states"


def with_states(
    name: str, kind: str, more: dict[str, Any], way: Way = "tree and states", **options: Any
) -> Family:
    """The row of a family whose layers, or some of them, keep states."""
    return Family(name, kind, STATES, more, way, **options)


FAMILIES = (
    Family("Llama", "LlamaConfig", PLAIN),
    Family("GPT-2", "GPT2Config", PLAIN),
    Family("Mistral", "MistralConfig", WINDOW, {"sliding_window": 6}, quick=True),
    Family("Ministral", "MinistralConfig", MIXED, HEADS | ALTERNATING),
    Family("Phi-3", "Phi3Config", WINDOW, {"sliding_window": 6}),
    Family(
        "Phi-3 beyond its original length",
        "Phi3Config",
        "rotated by other factors",
        {"original_max_position_embeddings": 12, "rope_parameters": LONGROPE},
        quick=True,
    ),
    Family("Starcoder 2", "Starcoder2Config", WINDOW, {"sliding_window": 6}),
    Family("Qwen 2", "Qwen2Config", PLAIN),
    Family(
        "Qwen 2 with windows",
        "Qwen2Config",
        MIXED,
        {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 2},
    ),
    Family("Qwen 3", "Qwen3Config", PLAIN, HEADS),
    Family("Gemma 3", "Gemma3TextConfig", MIXED, HEADS | ALTERNATING, quick=True),
    Family("Cohere 2", "Cohere2Config", MIXED, HEADS | ALTERNATING),
    Family("OLMo 3", "Olmo3Config", MIXED, ALTERNATING),
    Family("EXAONE 4", "Exaone4Config", MIXED, HEADS | ALTERNATING),
    Family(
        "SmolLM3",
        "SmolLM3Config",
        "windows in some layers, no positions in others",
        ALTERNATING | {"use_sliding_window": True, "no_rope_layers": [1, 0] * 2},
    ),
    Family(
        "Llama 4",
        "Llama4TextConfig",
        "chunks; queries scaled by position",
        HEADS
        | EXPERTS
        | {
            "intermediate_size_mlp": 48,
            "attention_chunk_size": 6,
            "layer_types": ["chunked_attention", "full_attention"] * 2,
            "no_rope_layers": [1, 0] * 2,
            "floor_scale": 7,
            "attn_scale": 0.5,
        },
        quick=True,
        **ROUNDED,
    ),
    Family(
        "Gemma 2",
        "Gemma2Config",
        "scores capped; windows in some layers",
        HEADS | ALTERNATING | {"attn_logit_softcapping": 2.0},
        quick=True,
        **ROUNDED,
    ),
    Family(
        "VaultGemma",
        "VaultGemmaConfig",
        "scores capped; windows in some layers",
        HEADS | ALTERNATING | {"attn_logit_softcapping": 2.0},
        **ROUNDED,
    ),
    Family(
        "gpt-oss",
        "GptOssConfig",
        "sinks; windows in some layers",
        HEADS | EXPERTS | ALTERNATING,
        quick=True,
        **SINGLE,
    ),
    Family("DeepSeek V2", "DeepseekV2Config", "latent attention", LATENT | ROUTED, **SINGLE),
    Family(
        "DeepSeek V3",
        "DeepseekV3Config",
        "latent attention",
        LATENT | {"first_k_dense_replace": 4},
        quick=True,
    ),
    Family(
        "MiniCPM3",
        "MiniCPM3Config",
        "latent attention",
        LATENT | {"dim_model_base": 32, "scale_emb": 1, "tie_word_embeddings": False},
    ),
    Family(
        "Gemma 3n",
        "Gemma3nTextConfig",
        "windows; layers that read the K and V of another",
        HEADS | SHARED | {"activation_sparsity_pattern": None, "laurel_rank": 8},
    ),
    Family(
        "Gemma 4",
        "Gemma4TextConfig",
        "windows; heads of two sizes; layers that read the K and V of another",
        HEADS | SHARED | {"global_head_dim": 16},
        quick=True,
    ),
    Family("Mixtral", "MixtralConfig", "experts", EXPERTS | {"sliding_window": None}, **SINGLE),
    Family("StableLM", "StableLmConfig", PLAIN),
    Family("Nemotron", "NemotronConfig", PLAIN, HEADS),
    Family("OPT", "OPTConfig", PLAIN, {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    Family("GPT-NeoX, Pythia", "GPTNeoXConfig", PLAIN),
    Family("Persimmon", "PersimmonConfig", PLAIN),
    Family("BioGPT", "BioGptConfig", PLAIN),
    Family("BART, its decoder", "BartConfig", "positions counted from a cache", BART, quick=True),
    Family("CTRL", "CTRLConfig", PLAIN, {"dff": 48}),
    Family("BLOOM", "BloomConfig", "biases by distance", way="own cache", quick=True, **ROUNDED),
    Family("MPT", "MptConfig", "biases by distance", way="own cache", **ROUNDED),
    Family("Falcon", "FalconConfig", "own code", {"alibi": False}, way="own cache"),
    Family("GPT-J", "GPTJConfig", "own code", {"rotary_dim": 4}, way="own cache", **ROUNDED),
    Family("CodeGen", "CodeGenConfig", "own code", {"rotary_dim": 4}, way="own cache", **ROUNDED),
    Family(
        "XGLM",
        "XGLMConfig",
        "own code",
        {"d_model": 32, "ffn_dim": 48, "num_layers": 4, "attention_heads": 4},
        way="own cache",
        **SINGLE,
    ),
    Family(
        "Falcon with ALiBi", "FalconConfig", "biases by distance", {"alibi": True}, way="own cache"
    ),
    Family(
        "GPT-Neo",
        "GPTNeoConfig",
        "windows over the order of rows",
        {"attention_types": [[["global", "local"], 2]], "num_hidden_layers": 4, "window_size": 6}
        | {"intermediate_size": None},
        way="own cache",
        **ROUNDED,
    ),
    Family("Doge", "DogeConfig", "a mask that depends on the text", way="own cache"),
    Family("GPT-1", "OpenAIGPTConfig", "keeps no cache", way="own cache"),
    Family(
        "T5",
        "T5Config",
        "an encoder",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4},
        way="refused",
        why="is an encoder-decoder model",
    ),
    with_states("Mamba", "MambaConfig", {"state_size": 4}, way="own cache", quick=True),
    with_states(
        "Mamba 2",
        "Mamba2Config",
        {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
        way="own cache",
    ),
    with_states("Falcon Mamba", "FalconMambaConfig", {"state_size": 4}, way="own cache"),
    with_states(
        "RWKV", "RwkvConfig", {"attention_hidden_size": 32, "context_length": 128}, way="own cache"
    ),
    with_states("Jamba", "JambaConfig", JAMBA, dtype=torch.float32),
    with_states(
        "Bamba", "BambaConfig", MAMBA2 | {"num_hidden_layers": 3, "attn_layer_indices": [1]}
    ),
    with_states("Falcon H1", "FalconH1Config", MAMBA2 | {"mamba_d_ssm": 64, "head_dim": 8}),
    with_states("LFM2", "Lfm2Config", CONVOLUTIONS, quick=True),
    with_states(
        "LFM2 MoE",
        "Lfm2MoeConfig",
        CONVOLUTIONS | STATE_EXPERTS | {"num_dense_layers": 1},
        dtype=torch.float32,
    ),
    with_states(
        "Granite hybrid",
        "GraniteMoeHybridConfig",
        MAMBA2
        | {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]}
        | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16},
        dtype=torch.float32,
    ),
    with_states("Nemotron H", "NemotronHConfig", NEMOTRON | {"time_step_min": 1e-30}),
    with_states(
        "Qwen3-Next",
        "Qwen3NextConfig",
        DELTA | STATE_EXPERTS | {"shared_expert_intermediate_size": 16},
        dtype=torch.float32,
    ),
    with_states("Qwen3.5", "Qwen3_5TextConfig", DELTA, dtype=torch.float32),
    with_states(
        "Kimi Linear",
        "KimiLinearConfig",
        LATENT
        | ROUTED
        | {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
        | {"linear_head_dim": 8, "linear_num_heads": 4, "q_lora_rank": None},
        dtype=torch.float32,
    ),
    with_states(
        "MiniMax",
        "MiniMaxConfig",
        {"num_hidden_layers": 3, "block_size": 8, "head_dim": 8, "num_local_experts": 4}
        | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
        | {"num_experts_per_tok": 2},
        dtype=torch.float32,
    ),
    with_states(  # its modules keep the states themselves
        "RecurrentGemma",
        "RecurrentGemmaConfig",
        {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 16, "head_dim": 8},
        quick=True,
    ),
    with_states(
        "Zamba",
        "ZambaConfig",
        HYBRID | ZAMBA | {"mamba_d_state": 4, "n_mamba_heads": 2, "attention_hidden_size": 64},
    ),
    with_states(
        "Zamba 2",
        "Zamba2Config",
        SCAN
        | ZAMBA
        | {"mamba_d_state": 8, "mamba_ngroups": 2, "n_mamba_heads": 8, "mamba_headdim": 8}
        | {"time_step_min": 1e-30},
    ),
    with_states(
        "xLSTM",
        "xLSTMConfig",
        {"hidden_size": 128, "num_heads": 4, "chunk_size": 16},
        way="own cache",
        dtype=torch.float32,
    ),
    with_states("OLMo hybrid", "OlmoHybridConfig", {"num_hidden_layers": 4}, dtype=torch.float32),
)
BY_NAME = {family.name: family for family in FAMILIES}
