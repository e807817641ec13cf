"""Configs of every kind, for properties that hold for all of them."""

from typing import get_args

from hypothesis import strategies as st

from eab.config import (
    AUTO,
    MAX_DRAFT,
    MAX_SEED,
    AttentionName,
    BranchingConfig,
    CacheName,
    DrafterName,
    PolicyName,
    ThresholdUnit,
)

CONFIGS = st.builds(
    BranchingConfig,
    entropy_threshold=st.floats(0, 1),
    threshold_unit=st.sampled_from(get_args(ThresholdUnit)),
    branch_factor=st.integers(2, 16),
    min_fork_weight=st.floats(0, 1),
    max_paths=st.integers(1, 256),
    temperature=st.floats(0.01, 10),
    top_k=st.integers(0, 100),
    top_p=st.floats(0.01, 1),
    r=st.just(AUTO) | st.integers(1, 512),
    seed=st.integers(0, MAX_SEED),
    policy=st.sampled_from(get_args(PolicyName)),
    cache=st.sampled_from(get_args(CacheName)),
    attention=st.sampled_from(get_args(AttentionName)),
    drafter=st.sampled_from(get_args(DrafterName)),
    draft_length=st.integers(0, MAX_DRAFT),
    chat=st.just(True),  # else there is no system message
    system=st.text(max_size=100),
)
