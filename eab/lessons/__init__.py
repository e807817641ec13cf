"""Lessons: Markdown with a small typed script; `docs/lessons.md` explains how to write one."""
