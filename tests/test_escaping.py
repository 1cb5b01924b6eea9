"""What cannot be seen is written out, wherever a text from outside is shown."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.escaping import ONE_LINE, escape, indented, is_one_line, one_line

UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}


def test_every_character_that_unicode_knows_is_seen_or_written_out() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        unseen = unicodedata.category(character) in UNSEEN
        if unseen or unicodedata.category(character) != "Cn":  # Those may be given a meaning yet.
            assert is_one_line(character) != unseen, hex(code)


@given(st.text())
def test_what_is_seen_stays_and_nothing_else_is_left(text: str) -> None:
    assert is_one_line(one_line(text))
    assert is_one_line(escape(text).replace("\n", "").replace("\t", ""))
    assert escape(text).count("\n") == text.count("\n")
    assert one_line(one_line(text)) == one_line(text)
    if is_one_line(text):
        assert escape(text) == one_line(text) == text


@given(st.text())
def test_the_pattern_is_the_same_rule(text: str) -> None:
    assert bool(re.search(ONE_LINE, text)) == is_one_line(text)


@pytest.mark.parametrize(
    "text", ["trail\n", "\n", "a\u2028b", "\u202etxt", "\x9b31m", "\x7f", "a\r"]
)
def test_no_pattern_lets_a_last_newline_or_an_unseen_character_pass(text: str) -> None:
    assert re.search(ONE_LINE, text) is None


def test_further_lines_look_like_none_of_ours() -> None:
    assert indented("one\ntwo", 3) == "one\n   two"
