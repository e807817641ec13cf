"""Synthetic documents: facts, small sums, questions, dialogues and choices with known odds.

Everything is generated from the hand-typed lists in ``knowledge`` and ``choices``. The same seed
gives the same documents. ``python -m training.synthetic`` prints a few of them.
"""

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from training import knowledge as known
from training.choices import CHOICES

CHOICE_SHARE = 0.42
TALK_SHARE = 0.06
RARE_CAPITAL_SHARE = 0.03
CARELESS_SHARE = 0.15


@dataclass(frozen=True)
class Fact:
    """One fact as a question, as a full sentence and as a short answer."""

    question: str
    sentence: str
    short: str


def _capital(rng: random.Random) -> Fact:
    table = known.RARE_CAPITALS if rng.random() < RARE_CAPITAL_SHARE else known.CAPITALS
    countries = list(table)
    weights = [1 / (1 + 0.08 * rank) for rank in range(len(countries))]
    country = rng.choices(countries, weights)[0]
    city = table[country]
    if rng.random() < 0.2:
        return Fact(
            f"Which country has the capital {city}?",
            f"{city} is the capital of {country}.",
            country,
        )
    return Fact(f"What is the capital of {country}?", f"The capital of {country} is {city}.", city)


def _continent(rng: random.Random) -> Fact:
    continent = rng.choice(list(known.CONTINENTS))
    country = rng.choice(known.CONTINENTS[continent].split())
    return Fact(f"Where is {country}?", f"{country} is in {continent}.", f"in {continent}")


def _language(rng: random.Random) -> Fact:
    country, language = rng.choice(list(known.LANGUAGES.items()))
    return Fact(
        f"What do people speak in {country}?", f"People in {country} speak {language}.", language
    )


def _animal(rng: random.Random) -> Fact:
    kind = rng.randrange(4)
    if kind == 0:
        animal, sound = rng.choice(list(known.ANIMAL_SOUNDS.items()))
        return Fact(
            f"What does {_a(animal)} say?", f"{_a(animal).capitalize()} says {sound}.", sound
        )
    if kind == 1:
        animal, baby = rng.choice(list(known.ANIMAL_BABIES.items()))
        return Fact(
            f"What is a baby {animal} called?", f"A baby {animal} is called a {baby}.", f"a {baby}"
        )
    if kind == 2:
        animal, legs = rng.choice(list(known.ANIMAL_LEGS.items()))
        sentence = f"{_a(animal).capitalize()} has {legs} legs."
        return Fact(f"How many legs does {_a(animal)} have?", sentence, legs)
    animal, home = rng.choice(list(known.ANIMAL_HOMES.items()))
    place = f"in the {home}" if home in ("sea", "jungle", "desert") else f"in a {home}"
    return Fact(
        f"Where does {_a(animal)} live?", f"{_a(animal).capitalize()} lives {place}.", place
    )


def _opposite(rng: random.Random) -> Fact:
    pair = list(rng.choice(list(known.OPPOSITES.items())))
    rng.shuffle(pair)
    word, other = pair
    return Fact(f"What is the opposite of {word}?", f"The opposite of {word} is {other}.", other)


def _color(rng: random.Random) -> Fact:
    if rng.random() < 0.3:
        (first, second), mixed = rng.choice(list(known.COLOR_MIXES.items()))
        question = f"What do you get when you mix {first} and {second}?"
        return Fact(question, f"When you mix {first} and {second} you get {mixed}.", mixed)
    thing, color = rng.choice(list(known.COLORS_OF_THINGS.items()))
    if rng.random() < 0.3:
        return Fact(f"What is the color of {thing}?", f"The color of {thing} is {color}.", color)
    return Fact(f"What color is {thing}?", f"{thing[0].upper()}{thing[1:]} is {color}.", color)


def _calendar(rng: random.Random) -> Fact:
    names, unit = rng.choice(
        ((known.DAYS, "day"), (known.MONTHS, "month"), (known.SEASONS, "season"))
    )
    index = rng.randrange(len(names))
    here, after = names[index], names[(index + 1) % len(names)]
    if rng.random() < 0.3:
        return Fact(f"What comes before {after}?", f"{_upper(here)} comes before {after}.", here)
    return Fact(f"Which {unit} comes after {here}?", f"After {here} comes {after}.", after)


def _sum(rng: random.Random) -> Fact:
    small, large = sorted((rng.randrange(11), rng.randrange(11)))
    if rng.random() < 0.6:
        a, b = (small, large) if rng.random() < 0.5 else (large, small)
        result, sign, word = a + b, "+", "plus"
    else:
        a, b = large, small
        result, sign, word = a - b, "-", "minus"
    if rng.random() < 0.4:
        return Fact(f"What is {a} {sign} {b}?", f"{a} {sign} {b} = {result}", str(result))
    words = known.NUMBERS
    sentence = f"{words[a].capitalize()} {word} {words[b]} is {words[result]}."
    return Fact(f"What is {words[a]} {word} {words[b]}?", sentence, words[result])


def _counting(rng: random.Random) -> Fact:
    start = rng.randrange(1, 10)
    numbers = [str(number) for number in range(start, start + rng.randrange(3, 8))]
    listed = ", ".join(numbers)
    return Fact(
        f"Count from {start} to {numbers[-1]}.",
        f"Counting from {start} to {numbers[-1]}: {listed}.",
        listed,
    )


def _comparison(rng: random.Random) -> Fact:
    a, b = (known.NUMBERS[number] for number in rng.sample(range(21), 2))
    more, less = sorted((a, b), key=known.NUMBERS.index, reverse=True)
    word, answer = ("more", more) if rng.random() < 0.5 else ("less", less)
    other = less if answer == more else more
    return Fact(
        f"Which is {word}, {a} or {b}?", f"{answer.capitalize()} is {word} than {other}.", answer
    )


def _double(rng: random.Random) -> Fact:
    number = rng.randrange(1, 11)
    single, twice = known.NUMBERS[number], known.NUMBERS[2 * number]
    if rng.random() < 0.5:
        return Fact(f"What is two times {single}?", f"Two times {single} is {twice}.", twice)
    return Fact(f"What is half of {twice}?", f"Half of {twice} is {single}.", single)


def _general(rng: random.Random) -> Fact:
    return Fact(*rng.choice(known.GENERAL_FACTS))


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


FACT_KINDS: dict[Callable[[random.Random], Fact], float] = {
    _capital: 5, _continent: 1.5, _language: 1, _animal: 3, _opposite: 2, _color: 2, _calendar: 1.5, _sum: 6,
    _counting: 1, _comparison: 1, _double: 1, _general: 5,
}  # fmt: skip


def _fact(rng: random.Random) -> Fact:
    return rng.choices(list(FACT_KINDS), list(FACT_KINDS.values()))[0](rng)


def _fact_document(rng: random.Random) -> str:
    facts = [_fact(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    form = rng.random()
    if form < 0.45:
        return " ".join(fact.sentence for fact in facts)
    if form < 0.65:
        return "\n".join(
            f"Question: {fact.question}\nAnswer: {_upper(fact.short)}." for fact in facts
        )
    if form < 0.75:
        return "\n".join(f"{fact.question} {fact.sentence}" for fact in facts)
    return "\n".join(_exchange(_asked(fact, rng), _reply(fact, rng)) for fact in facts)


def _asked(fact: Fact, rng: random.Random) -> str:
    return fact.question.lower().rstrip("?") if rng.random() < CARELESS_SHARE else fact.question


def _reply(fact: Fact, rng: random.Random) -> str:
    """One of two equally likely wordings of an answer: a fork in the words, not in the meaning."""
    return fact.sentence if rng.random() < 0.5 else f"It is {fact.short}."


def _exchange(user: str, assistant: str) -> str:
    return f"User: {user}\nAssistant: {assistant}"


def _small_talk(rng: random.Random) -> str:
    lines = rng.sample(known.SMALL_TALK, rng.choice((1, 1, 2)))
    return "\n".join(_exchange(user, rng.choice(replies)) for user, replies in lines)


def _conversation(rng: random.Random) -> str:
    hello, thanks = (
        next(line for line in known.SMALL_TALK if line[0] == said)
        for said in ("Hello!", "Thank you!")
    )
    facts = [_fact(rng) for _ in range(rng.choice((1, 2)))]
    lines = [_exchange(hello[0], rng.choice(hello[1]))]
    lines += [_exchange(_asked(fact, rng), _reply(fact, rng)) for fact in facts]
    return "\n".join([*lines, _exchange(thanks[0], rng.choice(thanks[1]))])


def document(rng: random.Random) -> str:
    kind = rng.random()
    if kind < CHOICE_SHARE:
        return rng.choices(CHOICES, [choice.weight for choice in CHOICES])[0].sample(rng)
    if kind < CHOICE_SHARE + TALK_SHARE:
        return _small_talk(rng) if rng.random() < 0.5 else _conversation(rng)
    return _fact_document(rng)


def documents(seed: int) -> Iterator[str]:
    """An endless stream of documents that depends only on the seed."""
    rng = random.Random(seed)
    while True:
        yield document(rng)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print samples of the synthetic documents.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for text, _ in zip(documents(options.seed), range(options.count), strict=False):
        print(text, end="\n<|endoftext|>\n")


if __name__ == "__main__":
    main()
