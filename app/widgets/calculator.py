"""The sliders of an exercise, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from app.widgets.glossary import plain
from eab.lessons.lesson import Goal
from eab.lessons.measures import Unit, written
from eab.lessons.pictures import CALCULATORS, Calculator
from eab.lessons.sources import Sources


@dataclass(frozen=True)
class Numbers:
    """The values of the sliders, and the results."""

    calculator: Calculator
    values: Mapping[str, float]

    def value(self, goal: Goal) -> float:
        """The number that a goal is about."""
        assert isinstance(goal.quantity, str)
        return self.values[goal.quantity]

    def unit(self, goal: Goal) -> Unit:
        """The unit of this number."""
        assert isinstance(goal.quantity, str)
        return self.calculator.results.get(goal.quantity, "")


def draw(name: str, sources: Sources) -> Numbers:
    """Draw the sliders and the results. Raises ConfigError if the results cannot be computed."""
    calculator = CALCULATORS[name]
    values = {
        knob_name: st.select_slider(
            knob.label, knob.values, value=knob.start, key=f"knob-{name}-{knob_name}"
        )
        for knob_name, knob in calculator.knobs.items()
    }
    numbers = calculator.numbers(values, sources)
    for result, unit in calculator.results.items():
        st.markdown(f"{result}: **{plain(written(numbers[result], unit))}**")
    st.caption(plain(calculator.formula))
    return Numbers(calculator, numbers)
