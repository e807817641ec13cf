"""Decides whether two texts mean the same, with a model of natural language inference (NLI).

As in semantic entropy (Kuhn et al., 2023; Farquhar et al., 2024), two answers are the same if each
entails the other, given the question.
"""

import os
from typing import Any, Final

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from eab.engine.models.model_size import limit_of_folder, read_config, refuse_absurd_size
from eab.engine.models.pretrained import refuse_missing_weights, refuse_other_shards
from eab.errors import ModelError
from eab.formatting import quoted

ENTAILMENT: Final = "entailment"


class Entailment:
    """A rule of `eab.analysis.answer_rules`: texts that entail each other are the same.

    The question is put before both texts. Each pair is read once in each direction and remembered.
    Entailment is not transitive, so a text joins the first group whose first text is the same.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._entailment = _entailment_label(model.config.id2label, name)
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, question: str, one: str, other: str) -> bool:
        """Whether each of the two texts entails the other; symmetric."""
        first, second = f"{question} {one.strip()}", f"{question} {other.strip()}"
        return self._entails(first, second) and self._entails(second, first)

    def _entails(self, premise: str, hypothesis: str) -> bool:
        pair = (premise, hypothesis)
        if pair not in self._known:
            self._known[pair] = self._most_likely(premise, hypothesis) == self._entailment
        return self._known[pair]

    def _most_likely(self, premise: str, hypothesis: str) -> int:
        inputs = self._tokenizer(premise, hypothesis, return_tensors="pt", truncation=True)
        with torch.inference_mode():
            logits = self._model(**inputs.to(self._model.device)).logits
        return int(logits[0].argmax())


def load_entailment(name: str) -> Entailment:
    """Load an NLI model from a folder, or by its id on the Hugging Face Hub.

    Only weights in safetensors are loaded, and no code from the Hub is run.

    Raises:
        ModelError: It cannot be loaded, or has no label "entailment".
    """
    options: dict[str, Any] = {"trust_remote_code": False}
    try:
        refuse_other_shards(name)
        config, folder = read_config(name, name, options), name if os.path.isdir(name) else None
        limit, kind = limit_of_folder(folder), AutoModelForSequenceClassification
        refuse_absurd_size(name, config, limit, torch.float32, auto_class=kind)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        options |= {"use_safetensors": True, "output_loading_info": True}
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(name, **options)
        model, info = loaded
        refuse_missing_weights(name, info)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        raise ModelError(
            f"the NLI model {quoted(name)} cannot be loaded ({type(error).__name__}); give a "
            "folder or a Hub id of a model for sequence classification"
        ) from error
    return Entailment(model, tokenizer, name)


def _entailment_label(labels: dict[int, str], name: str) -> int:
    for number, label in labels.items():
        if label.casefold() == ENTAILMENT:
            return int(number)
    known = ", ".join(labels.values())
    raise ModelError(
        f"the model {quoted(name)} has the labels {known:.200}; one must be {ENTAILMENT!r}. "
        "Choose a model that was trained for natural language inference"
    )
