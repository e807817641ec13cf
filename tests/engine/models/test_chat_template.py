"""A chat template gives what transformers gives; a hostile one ends quickly, with a message."""

import sys
import time

import pytest
from transformers import PreTrainedTokenizerFast

from eab.engine.models import prompts
from eab.engine.models.prompts import TemplateTooLarge, render

USER = [{"role": "user", "content": "w5"}]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
STRIPPING = CHATML.replace("message.content", "(message.content | trim)")
RICH = """{%- macro line(m) -%}[{{ m['role'] | upper }}] {{ m['content'] }}{{ eos_token }}{%- endmacro -%}
{%- set ns = namespace(count=0) -%}
{%- for message in messages -%}
    {%- if message.role == 'skip' %}{% continue %}{% endif -%}
    {%- set ns.count = ns.count + 1 -%}
    {{ line(message) }}
    {% generation %}{{ '-' * ns.count }}{% endgeneration %}
{%- endfor -%}
{{ {'n': ns.count, 'b': 2 ** 3} | tojson }}{{ tools is none }}{{ extra }}
{%- if add_generation_prompt %}[ASSISTANT] {% endif -%}"""
CHATS = {
    "one": USER,
    "system": [{"role": "system", "content": "be\nbrief "}, *USER],
    "turns": [*USER, {"role": "assistant", "content": "w6 "}, *USER],
    "open": [*USER, {"role": "assistant", "content": "Sure, "}],
    "open, empty": [*USER, {"role": "assistant", "content": ""}],
    "odd": [{"role": "skip", "content": "x"}, *USER],
}


@pytest.fixture
def tokenizer(words) -> PreTrainedTokenizerFast:
    return words


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS.keys())
@pytest.mark.parametrize("template", [CHATML, STRIPPING, RICH], ids=["chatml", "strip", "rich"])
def test_a_template_gives_what_transformers_gives(tokenizer, template, chat) -> None:
    tokenizer.chat_template = template
    open_ended = chat[-1]["role"] == "assistant"
    assert render(tokenizer, chat, {"extra": [1, None]}) == tokenizer.apply_chat_template(
        chat,
        tokenize=False,
        add_generation_prompt=not open_ended,
        continue_final_message=open_ended,
        extra=[1, None],
    )


def test_a_last_message_that_the_template_drops_cannot_be_continued(tokenizer) -> None:
    tokenizer.chat_template = "{{ messages[0].content }}"
    with pytest.raises(ValueError, match="the last message is not in the output of the template"):
        render(tokenizer, CHATS["open"], {})


HOSTILE = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "takes more",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}": "takes more",
    "{% for i in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}": "takes more",
    "{{ 'a' * 10 ** 9 }}": "800,000 characters",
    "{{ 10 ** 9 * 'a' }}": "800,000 characters",
    "{{ [1] * 10 ** 9 }}": "800,000 characters",
    "{{ 9 ** (9 ** 9) }}": "4,096 bits",
    "{% set n = 9 ** 99 %}{{ n ** n }}": "4,096 bits",
    "{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}": "800,000 characters",
    "{% for i in range(99999) %}w5 w6 w7 w8 w9 w10 {% endfor %}": "800,000 characters",
    "{% set x %}{% for i in range(99999) %}w5 w6 w7 w8 w9{% endfor %}{% endset %}": "800,000 characters",
}


@pytest.mark.parametrize(("template", "why"), HOSTILE.items(), ids=lambda text: text[:40])
def test_a_hostile_template_ends_quickly(tokenizer, monkeypatch, template, why) -> None:
    if why == "takes more":
        monkeypatch.setattr(prompts, "MOST_SECONDS", 0.3)
    tokenizer.chat_template = template
    start = time.thread_time()
    with pytest.raises(TemplateTooLarge, match=why):
        render(tokenizer, USER, {})
    assert time.thread_time() - start < 4


def test_endless_recursion_is_an_error(tokenizer) -> None:
    tokenizer.chat_template = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
    with pytest.raises(RecursionError):
        render(tokenizer, USER, {})


@pytest.mark.parametrize("template", [CHATML, "{{ 1 / 0 }}", "{%"])
def test_the_trace_function_of_a_debugger_is_restored(tokenizer, template) -> None:
    def trace(*_: object) -> None:
        """The trace function of a debugger."""

    tokenizer.chat_template = template
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        render(tokenizer, USER, {})
    except Exception:
        assert template != CHATML
    finally:
        found = sys.gettrace()
        sys.settrace(before)
    assert found is trace
