"""The native gate on output in pieces of any size, against a naive search of the whole text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from kernwright.diagnose.program_run.native_gate import (
    SGLANG_SIGNS,
    STRICT_SIGNS,
    WINDOW,
    NativeGate,
    NotNative,
    missing_kernels,
    require_kernels,
)

SIGNS = ("Falling back to diffusers backend", "Using diffusers backend", "Loaded diffusers pipeline")
COLOURS = (
    "\x1b[1m",
    "\x1b[0m",
    "\x1b[38;5;196m",
    "\x1b]8;;https://x.org/diffusers\x1b\\",
    "\x1b]0;title\x07",
    "\x1b(B",
)


def pieces(data: bytes, chance: random.Random, longest: int) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        size = chance.randint(1, longest)
        yield data[place : place + size]
        place += size


def seen(data: bytes, chance: random.Random, longest: int, signs: tuple = SGLANG_SIGNS) -> str | None:  # type: ignore[type-arg]
    gate = NativeGate(signs)
    found = [line for piece in pieces(data, chance, longest) if (line := gate.feed(piece))]
    return (found or [gate.settle()])[0]


def naive(text: str) -> bool:
    visible = re.sub(r"\x1b\[[0-9;]*m|\x1b\].*?(?:\x07|\x1b\\)|\x1b\(B", "", text)
    patterns = (r"\b" + sign.replace(" ", r"[ \t]+") + r"\b" for sign in SIGNS)
    return any(re.search(pattern, visible, re.IGNORECASE) for pattern in patterns)


def test_any_cut_of_any_output_is_judged_like_the_whole() -> None:
    chance = random.Random(3)
    words = [
        "Using",
        "diffusers",
        "backend",
        "Falling",
        "back",
        "to",
        "Loaded",
        "pipeline",
        "the",
        "native",
        "sglang",
        "backends",
        "ReUsing",
    ]
    found = []
    for _ in range(1500):
        parts = [
            word
            for _ in range(chance.randint(3, 9))
            for word in (chance.choice(SIGNS).split() if chance.random() < 0.12 else [chance.choice(words)])
        ]
        cased = [chance.choice((str.upper, str.lower, str.title, str))(part) for part in parts]
        coloured = [part[:2] + chance.choice(COLOURS) + part[2:] if chance.random() < 0.3 else part for part in cased]
        text = "".join(part + chance.choice((" ", " ", " ", "  ", "\t", "\n", "\r", " \x1b[0m")) for part in coloured)
        found.append(naive(text))
        assert bool(seen(text.encode(), chance, chance.choice((1, 3, 200)))) == found[-1], text
    assert 200 < sum(found) < 1300


def test_a_sign_among_megabytes_is_found_however_it_is_cut() -> None:
    chance, sign = random.Random(7), SIGNS[1]
    noise = ("step 3: loaded diffusers config; the backend is sglang; using pipeline " * 40 + "\n") * 400
    line = f"[12-01 10:00:00] WARNING \x1b[33m{sign.upper()}\x1b[0m: no native pipeline"
    for unbroken in (noise, noise.replace("\n", " ")):
        data = (unbroken + "\n" + line + "\n" + unbroken).encode()
        found = seen(data, chance, 1 << 16)
        assert found is not None and sign.upper() in found
        assert seen((unbroken + " " + sign).encode(), chance, 5000) is not None, "at the very end, without a line's end"
        assert seen(unbroken.encode(), chance, 1 << 16) is None


@pytest.mark.parametrize(
    "text",
    [
        "Using the diffusers backend",
        "falling back to torch SDPA; diffusers backend off",
        "Using diffusers backends",
        "ReUsing diffusers backend",
        "Using diffusers\nbackend sglang",
        "Loaded diffusers pipelines.json",
        "loaded_diffusers_pipeline = None",
        "Not using diffusers backend",
        "The native path runs instead of falling back to diffusers backend",
        "backend=sglang: using sglang backend, loaded sglang pipeline",
        "\x1b]8;;file:///Using diffusers backend\x1b\\log\x1b]8;;\x1b\\",  # the address of a link is not shown
    ],
)
def test_other_words_do_not_stop_a_run(text: str) -> None:
    chance = random.Random(1)
    for longest in (1, 7, 1000):
        assert seen(text.encode(), chance, longest) is None
    assert seen(f"{text}\nUsing diffusers backend\n".encode(), chance, 7) == "Using diffusers backend"


def test_a_line_without_an_end_is_not_judged_again() -> None:
    gate = NativeGate()
    start = b"not using diffusers backend " + b"x" * 10
    found = [gate.feed(piece) for piece in [start, *[b"." * 1000] * (3 * WINDOW // 1000)]]
    assert found == [None] * len(found)
    assert gate.feed(b" using diffusers backend, ") is not None


def test_fallbacks_of_our_ops_are_signs_in_strict_runs() -> None:
    chance = random.Random(5)
    printed = "/site-packages/model.py:212: Fallback: norm_scale_shift: the reference runs: no kernel\n  y = f(x)\n"
    logged = "ERROR skipped block 3: kernwright.runtime.choice.fallback.CannotRun: norm_scale_shift: x is on a CPU\n"
    for text in (printed, logged):
        assert seen(text.encode(), chance, 9, STRICT_SIGNS) and seen(text.encode(), chance, 9) is None
    for text in ("Fallback: none\n", "a.py:3: UserWarning: Fallback is near\n"):
        assert seen(text.encode(), chance, 9, STRICT_SIGNS) is None


def test_a_census_must_have_the_expected_kernels() -> None:
    census = ["void sglang::norm_scale_shift<256>(float*)", "triton_poi_fused_add_3", "ampere_bf16_gemm"] * 3
    assert missing_kernels(census, ["norm_scale_shift", r"^triton_\w+_fused"]) == []
    assert missing_kernels(census, ["norm_scale_shift", "flash_fwd"]) == ["flash_fwd"]
    require_kernels(census, ["gemm"])
    for names in (census, []):
        with pytest.raises(NotNative, match="flash_fwd"):
            require_kernels(names, ["flash_fwd"])
