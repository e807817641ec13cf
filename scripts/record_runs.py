"""Records the bundled runs: `make runs`. Each is a real run of the embedded model, or of the chat
model if it is installed (`eab models get smollm2`), with a sentence about what it shows.
tests/test_bundled_runs.py checks these sentences. Timings are recorded by
scripts/record_measurements.py.
"""

import json
from typing import Any, NamedTuple

from eab import record
from eab.analysis.equal_budget import independent_config
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import Message
from eab.lessons import bundled_runs
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import load_model
from eab.models.packaged import SMOLLM2
from eab.models.sources import EMBEDDED
from eab.run import fold


class Example(NamedTuple):
    file: str
    title: str
    teaches: str  # the idea that it illustrates, in a few words
    shows: str  # what a viewer sees in it, in one or a few sentences
    prompt: str
    settings: dict[str, Any]  # those that differ from `COMMON` or, for the chat model, from `CHAT`
    model: str = EMBEDDED
    answer: str = ""  # how the answer to the prompt begins, in a chat


MADE_BY = f"{SMOLLM2.title} Instruct, {SMOLLM2.licence}"
# The figures in the sentences and in the lesson on growth assume this r.
COMMON: dict[str, Any] = {"max_paths": 16, "kv_limit_mib": 1024, "r": 4}
# Each example has a threshold in nats for its own prompt, near the 0.9 quantile of the entropies along
# its greedy text.
CHAT: dict[str, Any] = {
    "branch_factor": 2,
    "max_paths": 8,
    "min_fork_weight": 0.05,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_new_tokens": 48,
    "kv_limit_mib": 1024,
    "r": 4,
}
LIGHTHOUSE = (
    "Read this report, then answer.\n\nThe lighthouse on Gull Rock was built of grey stone, far out "
    "in the bay, where two currents meet. For forty years a keeper named Ada Brandt lit its lamp "
    "every evening and wrote down the weather, the ships and the birds. Her books fill a shelf in "
    "the harbour office. In the winter of the great storm the sea broke the lower door, and for "
    "three days nobody could reach her. She burned her chairs and her table to keep the lamp alight, "
    "because the fishing boats were still out. On the fourth morning eleven boats came home, and "
    "their crews said that they had steered by her light alone. The town wanted to give her a medal. "
    "She asked for new furniture instead, and for a radio. When the lamp became electric, and later "
    "needed no keeper at all, she moved to a small house on the shore with a window towards the rock. "
    "Every evening she still wrote down the weather, the ships and the birds. Students of the sea now "
    "read her books, since nobody else has counted the birds of this bay for so long and with so much "
    "care. One of them found that the terns come back nine days earlier than in her first year. The "
    "rock has been a reserve since last spring, and the old door, mended with ship's planks, is still "
    "in its place. Visitors are allowed in summer, when the tide is low and the terns have gone.\n\n"
    "What did Ada Brandt do in the great storm?"
)
CAKE = (
    "A cake stood on the kitchen table in the morning. At noon it was gone. Anna had chocolate on her "
    "sleeve, but she said that she had only made cocoa. Ben was very full at lunch and did not want "
    "any soup. The dog slept under the table all afternoon, which it never does, and there were "
    "crumbs on its nose. Grandpa was in the garden the whole day, but the window of the kitchen was "
    "open. Nobody wants to say what happened, and the plate is clean as if somebody had licked it. "
    "Who ate the cake? Answer in one short sentence."
)
BALL = (
    "One day, a boy named Tim went to the park with his dog. They ran and played with a big red "
    "ball all morning. Then the ball rolled under a bush, and Tim could not see it. The dog looked "
    "at the bush and barked. "
    "Tim looked under the bush and saw"
)
# The page opens with the first one; then come a course of small lessons, and the chat model.
# tests/test_bundled_runs.py checks the claims in the sentences.
EXAMPLES = [
    Example(
        "cake.eab",
        "Who ate the cake",
        "Entropy and forks",
        "Anna, a human, the dog or someone: the answer forks at its first word. Its 7 texts share a "
        "prompt of 155 tokens: separate caches would hold 3.4 to 6.5× as much.",
        CAKE,
        {
            "entropy_threshold": 1.1,
            "branch_factor": 4,
            "branch_min_p": 0.05,
            "max_paths": 12,
            "min_fork_weight": 0.3,
            "temperature": 0.7,
            "max_new_tokens": 24,
            "seed": 3,
        },
        SMOLLM2.name,
        answer="The cake was eaten by",
    ),
    Example(
        "bridge.eab",
        "A story with a few choices",
        "Forks in a story",
        "The model is sure of nearly every word. It forks where it is not: who comes, whom they "
        "meet, and what follows (top-k keeps the two most likely words). Its 7 forks give 8 "
        "stories.",
        "A little",
        {
            "entropy_threshold": 0.5,
            "branch_factor": 2,
            "top_k": 2,
            "top_p": 0.95,
            "max_new_tokens": 60,
        },
    ),
    Example(
        "coin.eab",
        "A coin: one bit",
        "Nats and bits",
        "Heads and tails are equally likely: 0.70 nats, close to one bit, which is 0.69 nats.",
        "I tossed a coin and it landed on",
        {"max_new_tokens": 12, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "bent.eab",
        "A coin with an almost certain outcome",
        "The threshold",
        "Heads has 91%: 0.31 nats, below the threshold of 0.65, so there is no fork. Drag the "
        "dashed line below 0.31 to see where there would be one.",
        "This coin shows heads nine times out of ten. It landed on",
        {"max_new_tokens": 6, "branch_factor": 2},
    ),
    Example(
        "coins.eab",
        "Three coins: one bit, three times",
        "Weights are products",
        "Every coin forks every path. The weight of a text is the product of the shares at its "
        "three forks: 8 texts, each with 11 to 15%.",
        "I tossed three coins:",
        {"max_new_tokens": 8, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "job.eab",
        "Five jobs of known probability",
        "Probabilities against the truth",
        "In the training text five jobs have 30, 30, 20, 10 and 10%. The model gives them 40, "
        "23, 20, 11 and 7%: close, but not the same.",
        "When I grow up I want to be a",
        {"max_new_tokens": 12, "branch_factor": 5, "top_p": 0.95},
    ),
    Example(
        "bag.eab",
        "Odds given in the prompt",
        "Reading the prompt",
        "Three red balls, one blue: the odds are 75 to 25, which the model has to read from "
        "the prompt. It gives 68 to 32.",
        "A bag has three red balls and one blue ball. I take one ball. It is",
        {"max_new_tokens": 6, "branch_factor": 2, "entropy_threshold": 0.4},
    ),
    Example(
        "pet.eab",
        "Three names for fourteen",
        "Branch factor",
        "After “named” the entropy is like 14 equally likely names, but a fork has 3 branches: "
        "the two most likely names, and one that is drawn and stands for all the others. So the "
        "drawn one has over 80% of its fork.",
        "My pet is a",
        {"max_new_tokens": 14, "top_p": 0.95},
    ),
    Example(
        "market.eab",
        "A choice that opens other choices",
        "Forks depend on the path",
        "After flour one thing is likely (no fork), after milk two (0.77 nats), after apples three "
        "(1.20 nats): the entropy after the first fork depends on the path.",
        "Grandma went to the market and bought some",
        {"max_new_tokens": 14, "entropy_threshold": 0.5, "min_fork_weight": 0.05},
    ),
    Example(
        "count.eab",
        "A choice that must be remembered",
        "What follows from a fork",
        "Losing or finding is nearly a toss-up, 54 to 46; the number at the end has to "
        "follow from it.",
        "Ben has four apples. He",
        {"max_new_tokens": 14, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "wording.eab",
        "A fork in words, not in meaning",
        "Words or meaning",
        "Two ways to say one answer: high entropy alone does not mean that the model doubts "
        "the fact. The other fork is about whether the conversation goes on.",
        "User: What is the capital of Italy?\nAssistant:",
        {"max_new_tokens": 7, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "capital.eab",
        "A fact that the model knows",
        "A known fact",
        "Paris has 99.8%, so there is no fork before it. The only fork comes after the full stop: "
        "does another question follow?",
        "Question: What is the capital of France?\nAnswer:",
        {"max_new_tokens": 5, "branch_factor": 2},
    ),
    Example(
        "rare.eab",
        "A rarely seen fact",
        "A fact it hardly knows",
        "This capital was rare in the training text: 2.47 nats at its first syllable, and "
        "syllables of several cities mix. The right one, Sucre, has 22% of the weight.",
        "The capital of Bolivia is",
        {"max_new_tokens": 6, "min_fork_weight": 0.2, "max_paths": 24},
    ),
    Example(
        "sum.eab",
        "A sum it half knows",
        "Entropy warns of errors",
        "Seven is right and gets 48%, but eight gets 39% and six 11%: 1.10 nats show "
        "that the model is not sure.",
        "What is three plus four? Three plus four is",
        {"max_new_tokens": 8, "branch_factor": 4, "entropy_threshold": 0.75, "seed": 15},
    ),
    Example(
        "ball.eab",
        "A story at a turning point",
        "The path limit",
        "After three steps there are 12 paths, the limit; all share the long prompt. From "
        "then on each path weighs less than the 10% that a fork needs, so none forks, although "
        "the model stays unsure.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.2,
            "max_new_tokens": 36,
            "min_fork_weight": 0.1,
            "max_paths": 12,
        },
    ),
    Example(
        "original.eab",
        "The published rule",
        "The policy original",
        "All texts count equally, and at the limit the tree narrows like a beam search: here "
        "all 12 texts begin with “a big tree”.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.2,
            "max_new_tokens": 36,
            "min_fork_weight": 0.03,
            "max_paths": 12,
            "policy": "original",
        },
    ),
    Example(
        "long.eab",
        "Twenty paths, up to 100 tokens each",
        "Sharing of KV rows",
        "Sharing saves most while the paths are short: separate caches would hold 10.9× as much "
        "at step 5, and 1.9× at step 65, because the private rows grow.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.5,
            "max_new_tokens": 100,
            "min_fork_weight": 0.03,
            "max_paths": 20,
            "seed": 3,
        },
    ),
    Example(
        "canberra.eab",
        "A fact, and what is made up after it",
        "Knowing and making up",
        "Every text knows Canberra, and the most likely one ends there, with 54% of the probability. "
        "Read on in the others: that it lies in the Northern Territory, or in New South Wales, is made "
        "up, and at each of these forks the model hesitates.",
        "What is the capital of Australia?",
        {"entropy_threshold": 0.54},
        SMOLLM2.name,
    ),
    Example(
        "banana.eab",
        "Two wrong answers that compete",
        "Unsure and wrong",
        "It says “Red” with 71% and “Amaranthum” with 29%; yellow is in no text. High entropy, 1.97 "
        "nats, warns of it: all likely words were wrong.",
        "What color is a banana? Answer in one word.",
        {"entropy_threshold": 1.64, "max_new_tokens": 16},
        SMOLLM2.name,
    ),
    Example(
        "tomato.eab",
        "Two right answers that compete",
        "Unsure, but not wrong",
        "A fruit, a vegetable, or both: 8 texts, and each of them can be defended. The entropy is as high "
        "as where the model is wrong, so read the texts before you blame it.",
        "Is a tomato a fruit or a vegetable? Answer in one word.",
        {"entropy_threshold": 1.04, "max_new_tokens": 24},
        SMOLLM2.name,
    ),
    Example(
        "riddle.eab",
        "A riddle",
        "No idea at all",
        "It does not find the river: no text has it, and none has more than 19% of the probability. "
        "The model is already unsure at the first word (1.81 nats).",
        "I have a mouth but never speak. What am I?",
        {"entropy_threshold": 1.23, "max_new_tokens": 32},
        SMOLLM2.name,
    ),
    Example(
        "recipe.eab",
        "An open request",
        "Many good continuations",
        "Where a request is open, so is the text: 11 forks, 8 meals, and no weight stands out. None of "
        "this is an error; it is choice.",
        "What should I cook tonight with eggs and rice?",
        {"entropy_threshold": 1.26},
        SMOLLM2.name,
    ),
    Example(
        "report.eab",
        "A long context, shared",
        "Where sharing pays",
        "All paths share a prompt of 338 tokens: separate caches would hold 5.3× as much at the last "
        "step. Compare the texts with the prompt: it says that Ada burned her furniture, but no text does.",
        LIGHTHOUSE,
        {"entropy_threshold": 0.3, "max_new_tokens": 32},
        SMOLLM2.name,
    ),
]


def main() -> None:
    model = load_model(EMBEDDED, "cpu", "float32")
    record_runs(model)
    if SMOLLM2.is_here:
        record_runs(load_model(SMOLLM2.name, "cpu", "float32"))
    write_catalogue()
    record_samples(model)
    record_quantized_run()


def record_samples(model: HuggingFaceModel) -> None:
    """Record the independent samples that the Compare page opens with."""
    example = next(each for each in EXAMPLES if each.file == bundled_runs.COMPARED)
    run = fold(record.load(bundled_runs.FOLDER / example.file))
    config = independent_config(run, "tokens")
    bundled_runs.SAMPLES.parent.mkdir(parents=True, exist_ok=True)
    record.save(event_stream(model, Request(example.prompt, config)), bundled_runs.SAMPLES)


def record_quantized_run() -> None:
    """Repeat a bundled run with four-bit weights, for the Quantization page."""
    started = fold(bundled_runs.events_of(bundled_runs.named(bundled_runs.STORY))).started
    model = load_model(EMBEDDED, "cpu", "float32", weights="int4")
    request = Request(started.prompt, started.config)
    record.save(list(event_stream(model, request)), bundled_runs.QUANTIZED)


def record_runs(model: HuggingFaceModel) -> None:
    """Write the run file of every example for this model."""
    bundled_runs.FOLDER.mkdir(parents=True, exist_ok=True)
    for example in (each for each in EXAMPLES if each.model == model.card.name):
        common = COMMON if example.model == EMBEDDED else CHAT
        config = BranchingConfig(**(common | example.settings))
        events = list(event_stream(model, request_of(example, config)))
        record.save(events, bundled_runs.FOLDER / example.file)
        print(f"{example.file}: {len(events)} events, {len(fold(events).leaves())} leaves")


def request_of(example: Example, config: BranchingConfig) -> Request:
    if not example.answer:
        return Request(example.prompt, config)
    chat = Message("user", example.prompt), Message("assistant", example.answer)
    return Request("", config, messages=chat)


def write_catalogue() -> None:
    """Write the description of each example, and the name and licence of other models."""
    catalogue = [
        {name: getattr(example, name) for name in ("file", "title", "teaches", "shows")}
        | ({} if example.model == EMBEDDED else {"model": MADE_BY})
        for example in EXAMPLES
    ]
    (bundled_runs.FOLDER / "catalogue.json").write_text(
        json.dumps(catalogue, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
