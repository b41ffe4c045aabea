"""Chains of operator calls: spellings of real models, and calls that only look like a chain."""

from __future__ import annotations

import pytest

from kernwright.diagnose.chain import OpCall, chain_patterns, find_chains, word_of

# Operators of one block as eager diffusers and transformers launch them, and the chains in it.
BLOCKS = {
    "FLUX.1 double": (
        "silu gemm layer_norm addS mulB addB gemm gemm gemm rms_norm rms_norm cat cat cat neg cat to mulB to mulB addE"
        " to neg cat to mulB to mulB addE to attention gemm mulB addE layer_norm addS mulB addB gemm mulB addE",
        [
            "norm_modulation",
            "qk_norm",
            "joint_qkv_cat",
            "rope",
            "rope",
            "residual_norm_modulation",
            "residual_gate",
        ],
    ),
    "FLUX.1 single": (
        "rms_norm rms_norm neg cat to mulB to mulB addE to neg cat to mulB to mulB addE to attention gemm mulB addE",
        ["qknorm_rope", "residual_gate"],
    ),
    "Qwen-Image": (
        "layer_norm addS mulB addB gemm to pow mean addS rsqrt mulB to mulB to mulC to attention gemm mulB addE",
        ["norm_modulation", "rms_norm", "rope", "residual_gate"],
    ),
    "Wan": (
        "to layer_norm addS mulB addB to gemm rms_norm rms_norm mulB mulB subE copy mulB mulB addE copy"
        " mulB mulB subE copy mulB mulB addE copy attention gemm to mulB addE to to layer_norm to gemm",
        ["norm_modulation", "qknorm_rope", "residual_gate", "norm_with_casts"],
    ),
    "Llama": (
        "mulB neg cat mulB addE mulB neg cat mulB addE cat cat attention gemm addE to pow mean addS rsqrt mulB to mulB"
        " gemm silu gemm mulE gemm",
        ["rope", "rope", "kv_cache_cat", "add_norm", "silu_mul"],
    ),
    "a trace without shapes": ("layer_norm addU mulU addU gemm mulU addU", ["norm_modulation", "residual_gate"]),
    "no chain": ("gemm mulS addS gemm mulE silu gemm addB cat to copy pow mean mulE", []),
}


def calls(words: str) -> list[OpCall]:
    return [OpCall(word, ()) for word in words.split()]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_chains_of_a_block_are_found(block: str) -> None:
    words, expected = BLOCKS[block]
    assert [chain.pattern.name for chain in find_chains(calls(words))] == expected


def test_a_call_between_is_not_part_of_the_chain() -> None:
    (chain,) = find_chains(calls("silu gemm mulE"))
    assert [call.word for call in chain.calls] == ["silu", "mulE"]


def test_no_call_is_part_of_two_chains() -> None:
    found = find_chains(calls(" ".join(words for words, _ in BLOCKS.values())))
    members = [id(call) for chain in found for call in chain.calls]
    assert len(members) == len(set(members))


def test_every_spelling_finds_itself() -> None:
    for pattern in chain_patterns():
        assert pattern.about
        assert not pattern.pattern.match(""), pattern.name


@pytest.mark.parametrize(
    ("name", "dims", "types", "word"),
    [
        ("aten::mul", [[1, 8, 4], [1, 1, 4]], ["c10::BFloat16"] * 2, "mulB"),
        ("aten::add_", [[1, 8, 4], [1, 8, 4], []], ["float", "float", "Scalar"], "addE"),
        ("aten::add", [[1, 4], [], []], ["float", "Scalar", "Scalar"], "addS"),
        ("aten::mul", [[8, 2], [8, 2]], ["c10::complex<float>", "c10::complex<float>"], "mulC"),
        ("aten::mul", None, None, "mulU"),
        ("aten::native_layer_norm", [[1, 4]], ["float"], "layer_norm"),
        ("aten::to.dtype", None, None, "to"),
        ("aten::linear", [[1, 4], [4, 4]], ["float"] * 2, "gemm"),
    ],
)
def test_the_word_of_a_call_names_its_operands(name: str, dims: object, types: object, word: str) -> None:
    assert word_of(name, (dims, types)) == word
