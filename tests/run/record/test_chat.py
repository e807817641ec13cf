"""Messages are validated strictly and come back from JSON unchanged; rendered chats are recognised,
and so are prompts that end in a space.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eab
from eab import PromptWarning
from eab.api.arguments import request_of, without_prompt
from eab.errors import PromptError
from eab.run.events import Message
from eab.run.events.chat import (
    as_json,
    messages_of_rendered,
    notices,
    parse_messages,
    prompt_or_messages,
    read_messages,
    title_of,
)

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
