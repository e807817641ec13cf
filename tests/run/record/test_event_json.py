"""Events as JSON values: they come back equal, and each field's limit is declared and checked. Messages
are validated strictly; rendered chats are recognised, and so are prompts that end in a space.
"""

import json
import math
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from any_config import CONFIGS
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import appended, invented_run, predicted, with_each
from msgspec import Meta, Struct, structs

import eab
from eab import PromptWarning
from eab.api.arguments import request_of, without_prompt
from eab.config import MAX_SEED, BranchingConfig
from eab.errors import PromptError, RecordError
from eab.run.events import (
    EntropyBounds,
    Event,
    Message,
    Predicted,
    RunStarted,
    Speculated,
    StepTimed,
    TextScored,
)
from eab.run.events.chat import (
    as_json,
    messages_of_rendered,
    notices,
    parse_messages,
    prompt_or_messages,
    read_messages,
    title_of,
)
from eab.run.events.fields import MAX_TOKEN_CHARACTERS
from eab.run.record.run_file import decode, encode

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, NUMBERS)
st.register_type_strategy(BranchingConfig, CONFIGS)
st.register_type_strategy(int, st.integers(-MAX_SEED, MAX_SEED))


def in_range(kind: Any) -> st.SearchStrategy[Any]:
    """Values of this type, within the ranges that its fields declare."""
    if get_origin(kind) is Annotated:
        return declared(kind.__origin__, kind.__metadata__[0])
    if get_origin(kind) in (UnionType, Union):
        return st.one_of(map(in_range, get_args(kind)))
    if kind is not BranchingConfig and hasattr(kind, "__annotations__"):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{field: in_range(hint) for field, hint in hints.items()})
    return st.from_type(kind)


def declared(kind: Any, limit: Meta) -> st.SearchStrategy[Any]:
    """Values within a declared range or length."""
    if limit.max_length is None:
        numbers = st.integers if kind is int else st.floats
        return numbers(limit.ge, limit.le)
    if kind is str:
        characters = st.characters(exclude_categories=["Cs"])
        if limit.max_length == MAX_TOKEN_CHARACTERS:  # may have lone surrogates for bytes
            characters |= st.integers(0xDC80, 0xDCFF).map(chr)
        return st.text(characters, min_size=limit.min_length or 0, max_size=limit.max_length)
    sizes = {"min_size": limit.min_length or 0, "max_size": min(5, limit.max_length)}
    return st.lists(in_range(get_args(kind)[0]), **sizes).map(tuple)


def consistent(event: Event) -> Event:
    """The event with lengths that match each other."""
    match event:
        case RunStarted():
            tokens = event.prompt_tokens or (0,)
            texts = tuple(map(str, tokens))
            fitting = {"prompt_tokens": tokens, "prompt_texts": texts, "continued": len(tokens)}
            if event.messages:
                messages = tuple(Message("user", f"x{one.content}") for one in event.messages)
                fitting |= {"messages": messages, "prompt": messages[-1].content}
            return structs.replace(event, **fitting)
        case Predicted() | TextScored():
            seen = [
                one._replace(whole=EntropyBounds(*sorted(one.whole))) if one.whole else one
                for one in event.predictions
            ]
            return structs.replace(event, predictions=tuple(seen))
        case Speculated():
            drafted = len(event.draft_tokens)
            texts = tuple(map(str, event.draft_tokens))
            return structs.replace(event, draft_texts=texts, accepted=drafted, verified=drafted)
    return event


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_comes_back_equal(kind):
    @given(event=in_range(kind).map(consistent))
    def comes_back(event: Event) -> None:
        found = decode(encode(event))
        assert found == event
        assert repr(found) == repr(event)  # the types of values, too

    comes_back()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["a", "\udc80"])
def test_a_number_that_is_not_finite_and_bounds_in_the_wrong_order_are_not_saved(number, text):
    for event in (StepTimed(0, 1, number, 0.5), appended(0, 0, 7, text, number)):
        with pytest.raises(RecordError, match="the run cannot be saved"):
            encode(event)
    wrong = with_each(predicted(0, 0, 1.0), whole=EntropyBounds(2.0, 1.0))
    with pytest.raises(RecordError, match="cannot be saved: whole is 2"):
        encode(wrong)


# ---- declared limits


def places(kind: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every text and list in an event: the names that lead to it, and its declared type."""
    if get_origin(kind) is UnionType:
        return [place for one in get_args(kind) for place in places(one, path)]
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        names = kind.__struct_fields__
        return [place for name in names for place in places(hints[name], (*path, name))]
    bare = kind.__origin__ if get_origin(kind) is Annotated else kind
    return [(path, kind)] if bare is str or get_origin(bare) is tuple else []


PLACES = [
    (kind.__name__, path, declared) for kind in get_args(Event) for path, declared in places(kind)
]
STARTED = json.loads(encode(invented_run(1, 1, 1)[0]))


def from_json(value: Any) -> Event:
    return decode(json.dumps(value).encode())


def test_every_text_and_every_list_declares_its_maximum_length():
    assert len(PLACES) == 45
    for event, path, kind in PLACES:
        assert get_origin(kind) is Annotated, (event, path)
        assert kind.__metadata__[0].max_length is not None, (event, path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [(path, kind) for event, path, kind in PLACES if event == "RunStarted"],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_text_or_list_that_is_too_long_is_refused_before_its_elements_are_read(path, kind):
    longest = kind.__metadata__[0].max_length
    value = json.loads(json.dumps(STARTED)) | {"draft": dict(STARTED["model"])}
    place = value
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = "x" * (longest + 1) if kind.__origin__ is str else [None] * (longest + 1)
    with pytest.raises(
        RecordError, match=f"of length <= {longest}, got a length of {longest + 1:,}"
    ):
        from_json(value)


def test_what_a_start_leaves_out_and_what_users_give():
    assert not {"messages", "logits_processors"} & STARTED.keys()
    assert from_json(STARTED | {"messages": []}) == from_json(STARTED)
    named = STARTED | {"logits_processors": ["MinPLogitsWarper"]}
    assert json.loads(encode(from_json(named))) == named
    config = STARTED["config"] | {"policy": "own:margin_2.x-y"}
    assert from_json(STARTED | {"config": config}).config.policy == "own:margin_2.x-y"


USER = {"role": "user", "content": "Hi"}
MESSAGES = st.builds(
    Message,
    st.from_regex("[A-Za-z][A-Za-z0-9_-]{0,31}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda text: f"x{text}"),
)


@given(st.lists(MESSAGES, min_size=1, max_size=5).map(tuple))
def test_messages_come_back_from_json(messages: tuple[Message, ...]) -> None:
    assert parse_messages(json.dumps(as_json(messages))) == messages
    assert read_messages(messages) == read_messages([*as_json(messages)]) == messages


@pytest.mark.parametrize(
    ("roles", "title"), [("u", 0), ("su", 1), ("ua", 0), ("uau", 2), ("s", 0), ("sa", 1)]
)
def test_a_chat_is_titled_by_its_last_user_message_or_its_last_one(roles: str, title: int) -> None:
    names = {"u": "user", "s": "system", "a": "assistant"}
    messages = [Message(names[role], f"text {number}") for number, role in enumerate(roles)]
    assert title_of(messages) == f"text {title}"


def test_either_a_prompt_or_messages_must_be_given() -> None:
    assert prompt_or_messages("Hi", None) == ("Hi", ())
    assert prompt_or_messages(None, [USER]) == ("Hi", (Message("user", "Hi"),))
    parts = [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}]
    assert read_messages([USER | {"content": parts}]) == (Message("user", "Hi you"),)
    for both in [("Hi", [USER]), (None, None), ("", [])]:
        with pytest.raises(PromptError, match="give either a prompt or messages"):
            prompt_or_messages(*both)


# ---- chats that a template has rendered

CHAT = (Message("user", "Hi!"), Message("assistant", "Hello."), Message("user", "Who?\nYou?"))
RENDERED = {
    "ChatML": "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
    "<|im_start|>user\nWho?\nYou?<|im_end|>\n<|im_start|>assistant\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWho?\nYou?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "Gemma": "<bos><start_of_turn>user\nHi!<end_of_turn>\n<start_of_turn>model\nHello."
    "<end_of_turn>\n<start_of_turn>user\nWho?\nYou?<end_of_turn>\n<start_of_turn>model\n",
    "Mistral": "<s>[INST] Hi! [/INST] Hello.</s>[INST] Who?\nYou? [/INST]",
    "DeepSeek": "<｜begin▁of▁sentence｜><｜User｜>Hi!<｜Assistant｜>Hello.<｜end▁of▁sentence｜>"
    "<｜User｜>Who?\nYou?<｜Assistant｜>",
    "Phi": "<|user|>\nHi!<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nWho?\nYou?<|end|>\n"
    "<|assistant|>\n",
}


@pytest.mark.parametrize("family", RENDERED)
def test_a_rendered_chat_is_read_as_its_messages(family):
    assert messages_of_rendered(RENDERED[family]) == CHAT
    begun = messages_of_rendered(RENDERED[family] + "I am")
    assert begun == (*CHAT, Message("assistant", "I am"))
    assert "already rendered" in notices(RENDERED[family])[0]


def test_a_bare_text_between_bos_and_the_first_turn_is_the_system_message():
    chat = RENDERED["DeepSeek"].replace("<｜User｜>", "Be brief.\n\n<｜User｜>", 1)
    assert messages_of_rendered(chat) == (Message("system", "Be brief."), *CHAT)


@pytest.mark.parametrize(
    "text", ["", "Hi", "What is <|im_start|>user\n for?", "<|im_start|>", "[INST]", "<|user|> "]
)
def test_other_texts_are_no_rendered_chats(text):
    assert messages_of_rendered(text) == ()


@given(
    st.text() | st.lists(st.sampled_from(["<|im_start|>", "user\n", "[INST]", "x"])).map("".join)
)
def test_any_text_is_read_or_left_alone(text):
    assert all(message.content for message in messages_of_rendered(text))


@pytest.mark.parametrize("prompt", ["The cat ", [{"role": "user", "content": "Hi "}]])
def test_a_space_at_the_end_is_a_warning_in_python(prompt):
    with pytest.warns(PromptWarning, match="ends in a space"):
        request_of(prompt, without_prompt({}))


def test_ready_made_requests_are_warned_of_at_their_line(embedded):
    with pytest.warns(PromptWarning, match="The prompt") as found:
        eab.serve(embedded, [eab.Request(RENDERED["Phi"] + " ")])
    assert [one.filename for one in found] == [__file__] * 2
    with pytest.warns(PromptWarning, match="give it as messages instead"):
        request_of(RENDERED["Phi"].strip(), without_prompt({}))
    assert request_of(RENDERED["Phi"].strip(), without_prompt({"parse_special": True}))
