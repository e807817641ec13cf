"""Texts for the models to continue, and questions for them to answer."""

from typing import Final

# Openings of stories.
OPENINGS: Final = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
QUESTION: Final = "What should I cook tonight with eggs and rice?"
_LIGHTHOUSE: Final = """\
The lighthouse at Marren Point had been dark for eleven years when the council voted to sell it. \
Nobody in the village wanted it to become a hotel, but nobody could say what else it should be. The \
schoolteacher, Ida Brandt, suggested a weather station run by children. At first people laughed. \
She brought a barometer to the next meeting, passed it around, and explained that the nearest \
official station was forty kilometres inland, behind the hills, where the wind was never the same. \
Fishermen knew this well: twice that winter the forecast had promised a calm sea, and twice the boats \
had come back with broken masts. So the council gave her one year. The pupils painted the tower, \
carried instruments up its hundred and twelve steps, and wrote down temperature, pressure and wind at \
six in the morning and six in the evening. They made mistakes, argued about them, and learned to \
check each other's numbers. In spring the harbour master began to read their report before he let the \
fleet out. In summer the national service asked whether it could use the figures as well. By autumn \
there was no more talk of selling. The lamp was lit again on the first of October, not because ships \
needed it, but because the children who had the evening watch were tired of climbing the stairs in \
the dark."""
SUMMARY: Final = f"Summarize this text in one sentence.\n\n{_LIGHTHOUSE}"
QUESTIONS: Final = (
    QUESTION,
    SUMMARY,
    "What is the capital of Australia?",
    "Write a short poem about the sea in winter.",
    "Why is the sky blue? Explain it to a child.",
    "List three things to check before a long drive.",
)
