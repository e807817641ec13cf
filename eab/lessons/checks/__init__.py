"""Assignments of a course that check themselves: `eab check policy|cache|drafter|sampler FILE`.

Each module has `NEEDS`, what a student's file defines, and `properties`, what is checked of it.
"""
