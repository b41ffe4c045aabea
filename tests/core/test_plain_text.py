"""Foreign text on a terminal, and names that could be mistaken for others."""

from __future__ import annotations

import unicodedata

import pytest

from kernwright.core.plain_text import comparable_name, plain

HOSTILE = ("\x1b[2J", "\u202e", "\u200b", "\u2066", "\ufe0f", "\u3164", "\udc80", "\x85", "\u2028", "\U000e0101", "\r")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_character_acts_on_a_terminal_or_hides(text: str) -> None:
    shown = plain(f"a{text}b\nc", newlines=True)
    assert shown.isascii() and shown != f"a{text}b\nc"
    assert all(unicodedata.category(char)[0] != "C" for char in shown.replace("\n", ""))
    assert "\n" not in plain("a\nb")


def test_readable_text_stays() -> None:
    for text in ("größer — 2.1×", "名前", "[b]bold[/b]", "C:\\u202e"):
        assert plain(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "Kernwright", "kernwright ", "\tkernwright\n", "ＫＥＲＮＷＲＩＧＨＴ", "kern\u200bwright", "kernwr\u0131ght",
        "\u043a\u0435rnwright", "kérnwright", "kernwr1ght", "\u202ekernwright", "kernwright\u3164",
    ],
)  # fmt: skip
def test_a_name_that_reads_the_same_compares_equal(name: str) -> None:
    assert comparable_name(name) == comparable_name("kernwright")


@pytest.mark.parametrize("name", ["kernwright_v2", "my_kernwright", "wright", "kern wright", "[b]kernwright"])
def test_other_names_stay_apart(name: str) -> None:
    assert comparable_name(name) != comparable_name("kernwright")
