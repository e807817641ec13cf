"""How often the first draft token is accepted: by the usual rule, and with one random number for
both models.

    python benchmarks/coupling.py

The embedded model writes texts. At each position, the target predicts the next token with
distribution p and the draft model with distribution q. The usual rule of speculative sampling
accepts with probability 1 - TV(p, q), the sum of min(p, q) (Leviathan et al., arXiv 2211.17192).
This project inverts both distributions, in token order, at the same random number: a draft token is
accepted if the number lies in that token's interval in both. Both rates are computed from p and q,
so the only noise comes from the sampled texts. The second row covers only the positions where the
draft model's entropy is below the threshold, because nothing is drafted elsewhere.
"""

from collections.abc import Iterator

import torch
from published import markdown_table, where
from torch import Tensor
from transformers import AutoModelForCausalLM

from eab import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.models.sources import BUNDLED, EMBEDDED, EMBEDDED_DRAFT

PROMPTS = (
    "Once upon a time, there was a",
    "Anna went to the park with her dog. She",
    "Ben was sad because",
)
SAMPLES, NEW_TOKENS = 16, 64
THRESHOLD = BranchingConfig().entropy_threshold


def texts() -> Iterator[tuple[int, list[int]]]:
    """For each text, the length of its prompt, and the tokens of prompt and text together."""
    engine = EntropyAdaptiveBranching(
        device="cpu", dtype="float32", policy="independent", max_paths=SAMPLES
    )
    for prompt in PROMPTS:
        run = engine.run(prompt, max_new_tokens=NEW_TOKENS)
        assert run.started is not None
        tokens = list(run.started.prompt_tokens)
        for leaf in run.leaves():
            yield len(tokens), tokens + [token.id for token in run.tokens(leaf.id)]


def usual(target: Tensor, draft: Tensor) -> Tensor:
    """The chance per position that min(1, p/q) accepts; target and draft are (positions, V)."""
    return torch.minimum(target, draft).sum(dim=-1)


def same_uniform(target: Tensor, draft: Tensor) -> Tensor:
    """The chance per position that one uniform number gives the same token in both models."""
    ends = torch.minimum(target.cumsum(-1), draft.cumsum(-1))
    starts = torch.maximum(target.cumsum(-1) - target, draft.cumsum(-1) - draft)
    return (ends - starts).clamp(min=0.0).sum(dim=-1)


@torch.inference_mode()
def main() -> None:
    models = [
        AutoModelForCausalLM.from_pretrained(BUNDLED[name]).eval()
        for name in (EMBEDDED, EMBEDDED_DRAFT)
    ]
    found = []
    for prompt, tokens in texts():
        logits = [
            model(torch.tensor([tokens])).logits[0, prompt - 1 : -1].double() for model in models
        ]
        target, draft = (scores.softmax(dim=-1) for scores in logits)
        entropy = -torch.xlogy(draft, draft).sum(dim=-1)
        found.append(torch.stack([usual(target, draft), same_uniform(target, draft), entropy]))
    rule, coupled, entropy = torch.cat(found, dim=1)
    parts = {"all": entropy >= 0, f"draft model below {THRESHOLD} nats": entropy < THRESHOLD}
    rows = [
        (name, int(part.sum()), f"{rule[part].mean():.2f}", f"{coupled[part].mean():.2f}")
        for name, part in parts.items()
    ]
    table = markdown_table(["positions", "count", "usual rule", "same random number"], rows)
    print(f"{where('float32')}\n\n{table}", end="")


if __name__ == "__main__":
    main()
