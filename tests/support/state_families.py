"""Tiny configurations, by name, of families whose layers keep states or that manage all of their
memory themselves.

tests/models/test_own_cache.py runs them, and scripts/write_models.py names them in docs/models.md.
"""

import torch

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
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
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
DOUBLE, SINGLE = torch.float64, torch.float32
# By name: the configuration class, its settings apart from the usual ones, and the most precise
# dtype that all its kernels support
FAMILIES = {
    "Mamba": ("MambaConfig", {"state_size": 4}, DOUBLE),
    "Mamba 2": (
        "Mamba2Config",
        {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
        DOUBLE,
    ),
    "Falcon Mamba": ("FalconMambaConfig", {"state_size": 4}, DOUBLE),
    "RWKV": ("RwkvConfig", {"attention_hidden_size": 32, "context_length": 128}, DOUBLE),
    "Jamba": ("JambaConfig", JAMBA, SINGLE),
    "Bamba": ("BambaConfig", MAMBA2 | {"num_hidden_layers": 3, "attn_layer_indices": [1]}, DOUBLE),
    "Falcon H1": ("FalconH1Config", MAMBA2 | {"mamba_d_ssm": 64, "head_dim": 8}, DOUBLE),
    "LFM2": ("Lfm2Config", CONVOLUTIONS, DOUBLE),
    "LFM2 MoE": ("Lfm2MoeConfig", CONVOLUTIONS | EXPERTS | {"num_dense_layers": 1}, SINGLE),
    "Granite hybrid": (
        "GraniteMoeHybridConfig",
        MAMBA2
        | {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]}
        | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16},
        SINGLE,
    ),
    "Nemotron H": ("NemotronHConfig", NEMOTRON | {"time_step_min": 1e-30}, DOUBLE),
    "Qwen3-Next": (
        "Qwen3NextConfig",
        DELTA | EXPERTS | {"shared_expert_intermediate_size": 16},
        SINGLE,
    ),
    "Qwen3.5": ("Qwen3_5TextConfig", DELTA, SINGLE),
    "Kimi Linear": (
        "KimiLinearConfig",
        LATENT
        | {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
        | {"linear_head_dim": 8, "linear_num_heads": 4, "q_lora_rank": None}
        | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        | {"num_key_value_heads": 4},
        SINGLE,
    ),
    "MiniMax": (
        "MiniMaxConfig",
        {"num_hidden_layers": 3, "block_size": 8, "head_dim": 8, "num_local_experts": 4}
        | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
        | {"num_experts_per_tok": 2},
        SINGLE,
    ),
    "RecurrentGemma": (  # its modules keep the states themselves
        "RecurrentGemmaConfig",
        {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 16, "head_dim": 8},
        DOUBLE,
    ),
    "Zamba": (
        "ZambaConfig",
        HYBRID | ZAMBA | {"mamba_d_state": 4, "n_mamba_heads": 2, "attention_hidden_size": 64},
        DOUBLE,
    ),
    "Zamba 2": (
        "Zamba2Config",
        SCAN
        | ZAMBA
        | {"mamba_d_state": 8, "mamba_ngroups": 2, "n_mamba_heads": 8, "mamba_headdim": 8}
        | {"time_step_min": 1e-30},
        DOUBLE,
    ),
    "xLSTM": ("xLSTMConfig", {"hidden_size": 128, "num_heads": 4, "chunk_size": 16}, SINGLE),
    "OLMo hybrid": ("OlmoHybridConfig", {"num_hidden_layers": 4}, SINGLE),
    "falcon with alibi": ("FalconConfig", {"alibi": True}, DOUBLE),
    "gpt": ("OpenAIGPTConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4}, DOUBLE),  # no memory
    # transformers' masks get the length of a text from an attention layer.
    "no attention": ("BambaConfig", MAMBA2 | {"num_hidden_layers": 2}, DOUBLE),
    # With limited time steps, cached states in transformers differ from those of a full pass.
    "limited steps": ("NemotronHConfig", NEMOTRON, DOUBLE),
}
WITHOUT = ("gpt", "no attention", "limited steps")  # families that read whole texts
# Families whose attention layers have rows in the tree
HYBRIDS = (
    *("Bamba", "Falcon H1", "LFM2", "LFM2 MoE", "Granite hybrid", "Nemotron H"),
    *("Qwen3-Next", "Qwen3.5", "OLMo hybrid", "Jamba", "RecurrentGemma", "Kimi Linear"),
    *("MiniMax", "Zamba", "Zamba 2"),
)
