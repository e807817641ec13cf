"""Skips tests of compiled code where nothing can be compiled."""

import pytest

from eab import compiled

needs_compiled = pytest.mark.skipif(
    not compiled.can_compile(), reason="nothing can be compiled here"
)
