"""Claims: which sentences claim something about speed or size, and which do not."""

from __future__ import annotations

import pytest

from kernwright.wiki.claims import sentences_of, unclosed_code

CLAIMS = [
    "It takes 26.9 us.",
    "It takes 27 microseconds.",
    "This reaches 93 % of a copy.",
    "The ratio is 1.14x.",
    "It moves 4.2 TB/s.",
    "The cache has 50 MiB.",
    "This is faster.",
    "A launch is cheaper than a copy.",
    "It runs twice as often.",
    "It needs three times the traffic.",
    "It is as fast as the published kernel.",
    "- one item: 5% less",
    "| a row of a table | 12 ms |",
    "## A heading with 2x",
    "The first sentence is plain. The second one is slower.",
    "It takes five microseconds.",
    "It needs half the time.",
    "It is better by a factor of three.",
    "It saves ten percent.",
    "It is an order of magnitude ahead.",
    "A threefold gain.",
    "It takes 5 µs.",
    "It beats the compiler.",
    "The kernel is very slow.",
    "A smaller block improves the latency.",
    "It takes `5 us`, or `1.5x`.",
    "```\nkernwright judge TASK   # 3x faster\n```",
    "<!-- my-table: begin -->\nIt takes 5 us.\n<!-- my-table: end -->",
]
PLAIN = [
    "A thread loads 16 bytes, and a warp has 32 threads.",
    "Start with 4 warps of 3 vectors on sm_90.",
    "The verdict is `faster`.",
    "Rows of 3072 elements, in float32 or bf16.",
    "See version 13.0 of the guide, section 5.",
    "The x axis has 4096x3072 elements.",
]


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_is_recognised(text: str) -> None:
    assert [sentence.is_claim for sentence in sentences_of(text)].count(True) == 1


@pytest.mark.parametrize("text", PLAIN)
def test_a_statement_without_a_claim_is_none(text: str) -> None:
    assert not any(sentence.is_claim for sentence in sentences_of(text))


def test_code_and_tables_of_gpus_are_left_out() -> None:
    text = "```\n5 us faster\n```\n\n<!-- gpu-table: begin -->\n| 5 us |\n<!-- gpu-table: end -->\nPlain.\n"
    assert [sentence.text for sentence in sentences_of(text)] == ["Plain."]


def test_a_figure_in_a_link_is_quoted_and_one_beside_it_is_not() -> None:
    (sentence,) = sentences_of('It takes [5 us](a.md "row | column") instead of 7 us.')
    assert sentence.bare_figures == ["7 us"]
    assert [(link.text, link.target, link.title) for link in sentence.links] == [("5 us", "a.md", "row | column")]


def test_lines_are_those_of_the_file() -> None:
    text = "One line\ngoes on. It is faster.\n\n- an item of 5 us\n- another\n"
    assert [(each.line, each.is_claim) for each in sentences_of(text, first_line=10)] == [
        (11, False), (11, True), (14, True), (15, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["See [it][1].", "See <https://example.org>.", "See https://example.org", "<a href='x'>"]
)
def test_a_link_that_nobody_checks_is_found(text: str) -> None:
    (sentence,) = sentences_of(text)
    assert sentence.unread_link
    (checked,) = sentences_of('See [it](https://example.org "title") and `https://example.org`.')
    assert checked.unread_link is None


def test_code_without_an_end_is_found() -> None:
    assert unclosed_code("Text.\n```\nIt takes 5 us.\n")
    assert not unclosed_code("```\nx\n```\n")
