"""Sentences whose next word is drawn from a distribution that we chose.

The generator draws the word with exactly these probabilities. The true entropy at the end of each
prompt is therefore known, and a trained model can be checked against it. In several families the
drawn word also decides what follows ("heads" means going to the park, "tails" staying at home), so
a fork at the word changes how the text ends. In some, another choice follows.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from training.knowledge import NAMES, NUMBERS

Distribution = dict[str, float]


@dataclass(frozen=True)
class Choice:
    """A prompt, its next-word probabilities, and what may follow: texts or another choice."""

    prompt: str
    words: Distribution
    endings: "Mapping[str, tuple[str, ...] | Choice]"
    weight: float = 1.0

    def after(self, word: str) -> "tuple[str, ...] | Choice":
        """What may follow ``word``. The key ``*`` stands for all words without an entry."""
        return self.endings.get(word) or self.endings["*"]

    def sample(self, rng: random.Random) -> str:
        word = rng.choices(list(self.words), list(self.words.values()))[0]
        after = self.after(word)
        if isinstance(after, Choice):
            return f"{self.prompt} {word}{after.sample(rng)}"
        return f"{self.prompt} {word}{rng.choice(after).replace('NAME', rng.choice(NAMES))}"

    def distributions(self, before: str = "") -> Iterator[tuple[str, Distribution]]:
        """The prompts of this choice and of all that follow it, with their distributions."""
        prompt = before + self.prompt
        yield prompt, self.words
        for word in self.words:
            after = self.after(word)
            if isinstance(after, Choice):
                yield from after.distributions(f"{prompt} {word}")


def _even(words: str) -> Distribution:
    names = words.split()
    return {name: 1 / len(names) for name in names}


# Sentences with one choice each, from no uncertainty up to 3 bits.
PLAIN_CHOICES = (
    Choice(
        "I tossed a coin and it landed on",
        _even("heads tails"),
        {"heads": (". So we went to the park.",), "tails": (". So we stayed at home.",)},
        weight=2.0,
    ),
    Choice(
        "I rolled a die and got a",
        _even("one two three four five six"),
        {"*": (". It was a fun game.", ".")},
    ),
    Choice(
        "My favorite color is",
        _even("red blue green yellow pink purple orange brown"),
        {"*": (". I like it very much.", ". My hat is the same color.")},
    ),
    Choice(
        "For breakfast I want",
        {"eggs": 0.5, "toast": 0.25, "fruit": 0.125, "soup": 0.125},
        {"*": (", please.", " and milk.")},
    ),
    Choice(
        "The weather today is",
        {"sunny": 0.7, "rainy": 0.2, "windy": 0.1},
        {
            "sunny": (". Let us go outside.",),
            "rainy": (", so we stay inside.",),
            "windy": (". Let us fly a kite.",),
        },
    ),
    Choice(
        "My pet is a",
        {"dog": 0.45, "cat": 0.45, "fish": 0.1},
        {
            "dog": (" named NAME. He likes to bark.",),
            "cat": (" named NAME. She likes to drink milk.",),
            "fish": (" named NAME. It likes to swim.",),
        },
    ),
    Choice(
        "When I grow up I want to be a",
        {"doctor": 0.3, "teacher": 0.3, "pilot": 0.2, "farmer": 0.1, "singer": 0.1},
        {
            "doctor": (". I will help sick people.",),
            "teacher": (". I will work at a school.",),
            "pilot": (". I will fly a big plane.",),
            "farmer": (". I will have many cows.",),
            "singer": (". I will sing every day.",),
        },
    ),
    Choice("At night the sky is", {"dark": 1.0}, {"*": (". The stars are bright.", ".")}),
    Choice(
        "At the end of the road I turned",
        _even("left right"),
        {"left": (" and came to the river.",), "right": (" and came to the village.",)},
    ),
    Choice(
        "The traffic light is",
        {"red": 0.5, "green": 0.4, "yellow": 0.1},
        {"red": (". We must stop.",), "green": (". We can go.",), "yellow": (". We must wait.",)},
    ),
    Choice(
        "The elephant is very",
        _even("big large"),
        {"*": (". It is the biggest animal in the zoo.",)},
    ),
    Choice(
        "The new baby is a",
        _even("boy girl"),
        {
            "boy": (". His name is Ben.", ". His name is Tom."),
            "girl": (". Her name is Mia.", ". Her name is Lily."),
        },
    ),
    Choice(
        "This coin shows heads nine times out of ten. It landed on",
        {"heads": 0.9, "tails": 0.1},
        {"*": (".",)},
    ),
    Choice(
        "I closed my eyes and took a card. It was a",
        _even("heart diamond club spade"),
        {"*": (".",)},
    ),
)

# Choices in the form of a dialogue with an assistant.
DIALOGUE_CHOICES = (
    Choice("User: Flip a coin.\nAssistant: It landed on", _even("heads tails"), {"*": (".",)}),
    Choice(
        "User: Will it rain today?\nAssistant:",
        _even("Yes No"),
        {
            "Yes": (", it will rain. Take your umbrella.",),
            "No": (", it will be sunny. Take your hat.",),
        },
    ),
    Choice("User: Tea or milk?\nAssistant:", {"Tea": 0.25, "Milk": 0.75}, {"*": (", please.",)}),
    Choice(
        "User: Pick a number from one to four.\nAssistant: I pick",
        _even("one two three four"),
        {"*": (".",)},
    ),
)


def _bag_choices() -> list[Choice]:
    """Balls in a bag. The prompt tells the odds, which makes it a small test of inference."""
    choices = []
    for first, second in permutations(("red", "blue", "green"), 2):
        for a in range(1, 5):
            for b in range(1, 5):
                bag = f"{NUMBERS[a]} {first} {_balls(a)} and {NUMBERS[b]} {second} {_balls(b)}"
                prompt = f"A bag has {bag}. I take one ball. It is"
                odds = {first: a / (a + b), second: b / (a + b)}
                choices.append(Choice(prompt, odds, {"*": (".",)}, weight=0.06))
    return choices


def _balls(count: int) -> str:
    return "ball" if count == 1 else "balls"


def _counting_choices() -> list[Choice]:
    choices = []
    for name, pronoun in (("Ben", "He"), ("Lily", "She"), ("Tom", "He"), ("Mia", "She")):
        for thing in ("apples", "balls", "eggs", "books"):
            for count in range(2, 8):
                prompt = f"{name} has {NUMBERS[count]} {thing}. {pronoun}"
                endings = {
                    "finds": (f" one more. Now {name} has {NUMBERS[count + 1]}.",),
                    "loses": (f" one of them. Now {name} has {NUMBERS[count - 1]}.",),
                }
                choices.append(Choice(prompt, _even("finds loses"), endings, weight=0.03))
    return choices


def _three_coins() -> Choice:
    """Three coins in a row: a full binary tree, one bit at every fork."""
    third = Choice(",", _even("heads tails"), {"*": (".",)})
    second = Choice(",", _even("heads tails"), {"*": third})
    return Choice("I tossed three coins:", _even("heads tails"), {"*": second}, weight=2.0)


def _journey(hero: str) -> Choice:
    """A small story in which each turn has known odds that depend on the turn before."""
    troll = Choice(
        '. "Stop!" said the troll. "If you want to cross, you must"',
        {"sing": 0.5, "pay": 0.25, "wait": 0.25},
        {
            "sing": (f' for me." So the {hero} sang a song, and the troll was happy.',),
            "pay": (f' me." So the {hero} gave the troll a coin and went home.',),
            "wait": (f' here." So the {hero} waited until it was dark.',),
        },
    )
    cat = Choice(
        ". The cat was very",
        _even("hungry sleepy"),
        {
            "hungry": (f", so the {hero} gave her some fish. They became friends.",),
            "sleepy": (f", so the {hero} was quiet and went away.",),
        },
    )
    prompt = f"A little {hero} came to a bridge. On the bridge sat a"
    return Choice(prompt, {"cat": 0.75, "troll": 0.25}, {"cat": cat, "troll": troll}, weight=0.7)


def _market() -> Choice:
    made = {
        "apples": Choice(
            ". With the apples she made a", {"pie": 0.5, "cake": 0.25, "soup": 0.25}, {"*": (".",)}
        ),
        "milk": Choice(". With the milk she made", _even("cheese butter"), {"*": (".",)}),
        "flour": Choice(". With the flour she made", {"bread": 1.0}, {"*": (".",)}),
    }
    words = {"apples": 0.5, "milk": 0.3, "flour": 0.2}
    return Choice("Grandma went to the market and bought some", words, made, weight=2.0)


FIXED_CHOICES = PLAIN_CHOICES + DIALOGUE_CHOICES
CHAINED_CHOICES = (
    _three_coins(),
    _market(),
    *(_journey(hero) for hero in ("fox", "bear", "mouse", "rabbit")),
)
BAG_CHOICES = tuple(_bag_choices())
COUNTING_CHOICES = tuple(_counting_choices())
CHOICES = FIXED_CHOICES + CHAINED_CHOICES + BAG_CHOICES + COUNTING_CHOICES


def known_distributions(choices: Iterable[Choice]) -> dict[str, Distribution]:
    """The true next-word distribution for every prompt in ``choices``."""
    return dict(pair for choice in choices for pair in choice.distributions())


def entropy_bits(distribution: Distribution) -> float:
    """Shannon entropy of a distribution, in bits."""
    return abs(sum(p * math.log2(p) for p in distribution.values() if p > 0))
