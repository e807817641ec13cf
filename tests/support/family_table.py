"""One row for each family of models: a tiny configuration, and how it should run.

tests/models/test_families.py runs the rows, and scripts/write_models.py writes docs/models.md from
them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedModel

# tree: rows shared in the tree cache; tree, own attention: likewise, with attention by the model's
# own code; own cache: transformers' cache, copied for each path; refused: an error at loading
Way = Literal["tree", "tree, own attention", "own cache", "refused"]

SIZES: dict[str, Any] = {
    "vocab_size": 72,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GATED = {"intermediate_size": 48, "num_key_value_heads": 2}
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

    def config(self) -> transformers.PreTrainedConfig:
        """Its tiny configuration."""
        return getattr(transformers, self.kind)(**SIZES | self.more)

    def model(self) -> PreTrainedModel:
        """A model with random weights that are large enough for attention to matter."""
        torch.manual_seed(3)
        config = self.config()
        encodes = config.is_encoder_decoder and self.way == "refused"
        model = (AutoModelForSeq2SeqLM if encodes else AutoModelForCausalLM).from_config(config)
        with torch.no_grad():
            for name, weights in model.named_parameters():
                if weights.dim() > 1 and weights.shape[-1] > 1:
                    weights.normal_(0, 1.0 if "embed" in name or "wte" in name else 0.3)
                elif "sink" in name or "bias" in name:
                    weights.normal_(0, 0.3)
        return model.to(self.dtype).eval()


ROUNDED: dict[str, Any] = {"tolerance": 1e-4}
SINGLE: dict[str, Any] = {"dtype": torch.float32, "tolerance": 1e-3}
PLAIN, WINDOW, MIXED = "nothing", "a window in every layer", "windows in some layers"
FAMILIES = (
    Family("Llama", "LlamaConfig", PLAIN, GATED),
    Family("GPT-2", "GPT2Config", PLAIN),
    Family("Mistral", "MistralConfig", WINDOW, GATED | {"sliding_window": 6}, quick=True),
    Family("Ministral", "MinistralConfig", MIXED, GATED | HEADS | ALTERNATING),
    Family("Phi-3", "Phi3Config", WINDOW, GATED | {"sliding_window": 6}),
    Family(
        "Phi-3 beyond its original length",
        "Phi3Config",
        "rotated by other factors",
        GATED | {"original_max_position_embeddings": 12, "rope_parameters": LONGROPE},
        quick=True,
    ),
    Family("Starcoder 2", "Starcoder2Config", WINDOW, GATED | {"sliding_window": 6}),
    Family("Qwen 2", "Qwen2Config", PLAIN, GATED),
    Family(
        "Qwen 2 with windows",
        "Qwen2Config",
        MIXED,
        GATED | {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 2},
    ),
    Family("Qwen 3", "Qwen3Config", PLAIN, GATED | HEADS),
    Family("Gemma 3", "Gemma3TextConfig", MIXED, GATED | HEADS | ALTERNATING, quick=True),
    Family("Cohere 2", "Cohere2Config", MIXED, GATED | HEADS | ALTERNATING),
    Family("OLMo 3", "Olmo3Config", MIXED, GATED | ALTERNATING),
    Family("EXAONE 4", "Exaone4Config", MIXED, GATED | HEADS | ALTERNATING),
    Family(
        "SmolLM3",
        "SmolLM3Config",
        "windows in some layers, no positions in others",
        GATED | ALTERNATING | {"use_sliding_window": True, "no_rope_layers": [1, 0] * 2},
    ),
    Family(
        "Llama 4",
        "Llama4TextConfig",
        "chunks; queries scaled by position",
        GATED
        | HEADS
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
        GATED | HEADS | ALTERNATING | {"attn_logit_softcapping": 2.0},
        quick=True,
        **ROUNDED,
    ),
    Family(
        "VaultGemma",
        "VaultGemmaConfig",
        "scores capped; windows in some layers",
        GATED | HEADS | ALTERNATING | {"attn_logit_softcapping": 2.0},
        **ROUNDED,
    ),
    Family(
        "gpt-oss",
        "GptOssConfig",
        "sinks; windows in some layers",
        GATED | HEADS | EXPERTS | ALTERNATING,
        quick=True,
        **SINGLE,
    ),
    Family("DeepSeek V2", "DeepseekV2Config", "latent attention", LATENT | ROUTED, **SINGLE),
    Family(
        "DeepSeek V3",
        "DeepseekV3Config",
        "latent attention",
        GATED | LATENT | {"first_k_dense_replace": 4},
        quick=True,
    ),
    Family(
        "MiniCPM3",
        "MiniCPM3Config",
        "latent attention",
        GATED | LATENT | {"dim_model_base": 32, "scale_emb": 1, "tie_word_embeddings": False},
    ),
    Family(
        "Gemma 3n",
        "Gemma3nTextConfig",
        "windows; layers that read the K and V of another",
        GATED
        | HEADS
        | SHARED
        | {"activation_sparsity_pattern": None, "laurel_rank": 8, "intermediate_size": 48},
    ),
    Family(
        "Gemma 4",
        "Gemma4TextConfig",
        "windows; heads of two sizes; layers that read the K and V of another",
        GATED | HEADS | SHARED | {"global_head_dim": 16},
        quick=True,
    ),
    Family(
        "Mixtral", "MixtralConfig", "experts", GATED | EXPERTS | {"sliding_window": None}, **SINGLE
    ),
    Family("StableLM", "StableLmConfig", PLAIN, GATED),
    Family("Nemotron", "NemotronConfig", PLAIN, GATED | HEADS),
    Family("OPT", "OPTConfig", PLAIN, {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    Family("GPT-NeoX, Pythia", "GPTNeoXConfig", PLAIN, {"intermediate_size": 48}),
    Family("Persimmon", "PersimmonConfig", PLAIN, {"intermediate_size": 48}),
    Family("BioGPT", "BioGptConfig", PLAIN, {"intermediate_size": 48}),
    Family("BART, its decoder", "BartConfig", "positions counted from a cache", BART, quick=True),
    Family("CTRL", "CTRLConfig", PLAIN, {"dff": 48}),
    Family(
        "BLOOM",
        "BloomConfig",
        "biases by distance",
        way="tree, own attention",
        quick=True,
        **ROUNDED,
    ),
    Family("MPT", "MptConfig", "biases by distance", way="tree, own attention", **ROUNDED),
    Family("Falcon", "FalconConfig", "own code", {"alibi": False}, way="tree, own attention"),
    Family(
        "GPT-J", "GPTJConfig", "own code", {"rotary_dim": 4}, way="tree, own attention", **ROUNDED
    ),
    Family(
        "CodeGen",
        "CodeGenConfig",
        "own code",
        {"rotary_dim": 4},
        way="tree, own attention",
        **ROUNDED,
    ),
    Family(
        "XGLM",
        "XGLMConfig",
        "own code",
        {"d_model": 32, "ffn_dim": 48, "num_layers": 4, "attention_heads": 4},
        way="tree, own attention",
        **SINGLE,
    ),
    Family(
        "Falcon with ALiBi",
        "FalconConfig",
        "biases by distance",
        {"alibi": True},
        way="own cache",
    ),
    Family(
        "GPT-Neo",
        "GPTNeoConfig",
        "windows over the order of rows",
        {"attention_types": [[["global", "local"], 2]], "num_layers": 4, "window_size": 6},
        way="own cache",
        **ROUNDED,
    ),
    Family(
        "Doge",
        "DogeConfig",
        "a mask that depends on the text",
        GATED,
        way="own cache",
    ),
    Family("GPT-1", "OpenAIGPTConfig", "keeps no cache", way="own cache"),
    Family(
        "T5",
        "T5Config",
        "an encoder",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4},
        way="refused",
        why="is an encoder-decoder model",
    ),
)
