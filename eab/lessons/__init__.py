"""Lessons: Markdown with a small typed script, checked with clear messages, answered by the run.

    lesson = load(FOLDER / "tokens.md")
    lesson.question.quantity.value(sources)

`docs/lessons.md` tells how to write one.
"""
