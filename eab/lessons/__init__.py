"""Lessons: Markdown with a small typed script; `docs/lessons.md` tells how to write one."""
