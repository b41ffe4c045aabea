"""Numbers in the notations of locales, and units with prefixes."""

from __future__ import annotations

import random

import pytest

from kernwright.diagnose.ncu.report.quantity import MixedSeparators, Notation, in_words, notation_of, to_base

# Thousands separator and decimal point of locales: en, de, fr, sv, de_CH, C.
LOCALES = [(",", "."), (".", ","), ("\u202f", ","), ("\u00a0", ","), ("’", "."), ("", ".")]


@pytest.mark.parametrize(("thousands", "decimal"), LOCALES)
def test_a_number_is_read_back_from_every_locale(thousands: str, decimal: str) -> None:
    numbers = random.Random(thousands + decimal)
    values = [round(numbers.uniform(-1, 1) * 10 ** numbers.randint(0, 13), numbers.randint(0, 6)) for _ in range(300)]
    texts = [f"{value:,.6f}".replace(",", "\0").replace(".", decimal).replace("\0", thousands) for value in values]
    notation = notation_of(texts)
    assert [notation.number(text) for text in texts] == values


@pytest.mark.parametrize(
    ("cells", "decimal"),
    [
        (["1,234"], "."),  # the only evidence is a group of three digits: read as en does
        (["1,234", "0,5"], ","),
        (["0,125"], ","),  # no number starts with a group of one zero
        (["1.234.567"], ","),
        (["1234,567"], ","),
        (["12.5", "1,000"], "."),
        (["n/a", "", "no data", "PolicySpread", "(128, 1, 1)"], "."),
    ],
)
def test_the_decimal_point_is_found_from_the_evidence(cells: list[str], decimal: str) -> None:
    assert notation_of(cells).decimal == decimal


def test_notations_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(MixedSeparators):
        notation_of(["1.5", "2,25"])


@pytest.mark.parametrize("text", ["", "n/a", "nan", "inf", "no data", "all", "12 (3; 4)", "0x1F", "7.5.1.2-3"])
def test_what_is_no_number_has_no_value(text: str) -> None:
    assert Notation().number(text) is None


@pytest.mark.parametrize(
    ("value", "unit", "base"),
    [
        (3.06, "Tbyte/s", (3.06e12, "byte/s")),
        (3.06, "Tbyte/second", (3.06e12, "byte/s")),
        (31.3, "Gbyte/second", (31.3e9, "byte/s")),
        (51.77, "Mbyte", (51.77e6, "byte")),
        (32.77, "Kbyte/block", (32.77e3, "byte/block")),
        (1.504, "Kbyte/cycle", (1504.0, "byte/cycle")),
        (26.4, "us", (26.4e-6, "s")),
        (26.4, "usecond", (26.4e-6, "s")),
        (840.0, "nsecond", (8.4e-7, "s")),
        (1.25, "msecond", (1.25e-3, "s")),
        (1.97, "Ghz", (1.97e9, "hz")),
        (1.97, "cycle/nsecond", (1.97e9, "hz")),
        (661.0, "Mhz", (661e6, "hz")),
        (62.0, "sector/ns", (62e9, "sector/s")),
        (63.68, "%", (63.68, "%")),
        (8.67, "warp", (8.67, "warp")),
        (4.0, "", (4.0, "")),
    ],
)
def test_units_of_all_versions_become_base_units(value: float, unit: str, base: tuple[float, str]) -> None:
    found, name = to_base(value, unit)
    assert (found, name) == (pytest.approx(base[0]), base[1])


def test_values_are_shown_with_a_prefix() -> None:
    assert in_words(3.0583e12, "byte/s") == "3.06 TB/s"
    assert in_words(26.4e-6, "s") == "26.40 us"
    assert in_words(0.0, "byte") == "0.00 B"
    assert in_words(63.682, "%") == "63.7 %"
