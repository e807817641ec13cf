"""Writes the prompts with known entropies for the Quantization page, from the choices that the
embedded model was trained on.

    python scripts/write_known_entropies.py
"""

import json
from collections import defaultdict

from transformers import AutoTokenizer

from eab.labs.quantization import held_out
from eab.models.sources import EMBEDDED_FOLDER
from training.choices import FIXED_CHOICES, entropy_bits, known_distributions


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    known = {}
    for prompt, words in known_distributions(FIXED_CHOICES).items():
        first: defaultdict[str, float] = defaultdict(float)
        for word, probability in words.items():
            first[str(tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0])] += (
                probability
            )
        known[prompt] = round(entropy_bits(first), 6)
    path = held_out.FOLDER / "known_entropies.json"
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
