"""Row ids: the legend that explains the parts of the ids of frozen rows, and the table of a family's rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from kernwright.report.markdown import escaped, table
from kernwright.tasks.workload import Workload

STAGE = r"(?<![a-z0-9])(?:s[12]|hq[12])(?=_(?:video|audio|vself|aself|a2v|v2a))"


@dataclass(frozen=True)
class IdPart:
    """One kind of part that row ids are made of."""

    pattern: str
    shown: str
    meaning: str

    def found_in(self, row_id: str) -> bool:
        return re.search(self.pattern, row_id) is not None


def _word(pattern: str) -> str:
    """Return a pattern for one whole part of an id."""
    return rf"(?<![^_])(?:{pattern})(?![^_])"


PARTS = (
    IdPart(_word("derived"), "derived", "sizes were derived from the published model, not captured from calls"),
    IdPart(rf"(?!{STAGE}){_word('s[0-9]+')}", "s4096", "4096 tokens"),
    IdPart(_word("(?:qwen|qwenedit|zimage|joyai|hunyuan)_t[0-9]+"), "qwen_t4096", "the model, then 4096 tokens"),
    IdPart(rf"{_word('t[0-9]+')}(?=_[0-9]+x)", "t4", "4 frames"),
    IdPart(_word("d[0-9]+"), "d3072", "3072 channels"),
    IdPart(_word("c[0-9]+"), "c2048", "2048 channels"),
    IdPart(_word("h[0-9]+"), "h24", "24 heads"),
    IdPart(_word("h[0-9]+to[0-9]+"), "h24to12", "the first 12 of 24 heads, a view that is not contiguous"),
    IdPart(_word("b[0-9]+"), "b2", "batch of 2"),
    IdPart(_word("p[0-9]+"), "p3", "3 rows of channels per token"),
    IdPart(_word("k[12]"), "k1, k2", "1 or 2 cached frames"),
    IdPart(_word("half[0-9]+"), "half64", "64 angles per head: half of its channels"),
    IdPart(_word("[0-9]+x[0-9]+"), "4096x128, 240x416", "rows and channels of a matrix, or height and width"),
    IdPart(_word("[0-9]+x[0-9]+x[0-9]+x[0-9]+"), "512x2x12x10", "channels, frames, height and width of the activation"),
    IdPart(_word("(?:concat|slicecat|a2v|v2a)_[0-9_]+"), "concat_512_4096", "token counts of the two inputs"),
    IdPart(_word("(?:copy|vself|aself)_[0-9]+"), "copy_4608, vself_1536", "token count"),
    IdPart(_word("c|cl"), "c, cl", "memory layout: contiguous, or channels last"),
    IdPart(_word("plain|res"), "plain, res", "without a residual, or after a residual sum"),
    IdPart(_word("row-[a-z0-9]+"), "row-bf16", "scale and shift are one bf16 row for all tokens"),
    IdPart(_word("tok-[a-z0-9]+"), "tok-fp32", "scale and shift have an fp32 value for each token and channel"),
    IdPart(_word("scl-[a-z0-9]+"), "scl-bf16", "scale and shift are one bf16 number"),
    IdPart(_word("gnone"), "gnone", "the residual sum has no gate"),
    IdPart(_word("grow-[a-z0-9]+"), "grow-bf16", "the gate is one bf16 row for all tokens"),
    IdPart(_word("gtok-[a-z0-9]+"), "gtok-fp32", "the gate has an fp32 value for each token and channel"),
    IdPart(_word("wb"), "wb", "the norm has a weight and a bias"),
    IdPart(_word("gate_[a-z0-9]+"), "gate_qwen", "scale is one row, shift has a value for each token and channel"),
    IdPart(_word("rowmod_[a-z0-9]+"), "rowmod_qwen", "scale and shift are one row for all tokens"),
    IdPart(_word("full"), "full", "scale and shift, or the gate, have a value for each token and channel"),
    IdPart(_word("bcast"), "bcast", "the gate is one row for all tokens"),
    IdPart(_word("add4d"), "add4d", "a broadcast sum of two activations with four axes"),
    IdPart(_word("nc"), "nc", "scale is not contiguous"),
    IdPart(
        _word("(?:res)?ln01"),
        "ln01, resln01",
        "LayerNorm with one of two modulations per token; with res, after a residual",
    ),
    IdPart(_word("ln|rms"), "ln, rms", "LayerNorm or RMSNorm"),
    IdPart(_word("single|dual"), "single, dual", "one norm, or two norms in a row"),
    IdPart(_word("expl|temb"), "expl, temb", "modulation from tensors, or from a table and a timestep embedding"),
    IdPart(_word("token"), "token", "one embedding for each token instead of one for all"),
    IdPart(STAGE, "s1, s2, hq1, hq2", "stage 1 or 2 of LTX-2, in normal or high quality"),
    IdPart(_word("video|audio"), "video, audio", "the video or the audio stream of LTX-2"),
    IdPart(
        _word("vself|aself|a2v|v2a"),
        "vself, aself, a2v, v2a",
        "video or audio self-attention, audio to video, video to audio",
    ),
    IdPart(_word("std|ltx2"), "std, ltx2", "rotation of adjacent pairs, or of the split halves of LTX-2"),
    IdPart(
        _word("concat|slicecat|copy"),
        "concat, slicecat, copy",
        "join sequences, join slices of heads, copy a view",
    ),
    IdPart(_word("sa|attn|mlp"), "sa, attn, mlp", "before self-attention, after attention, after the MLP"),
    IdPart(_word("adaln"), "adaln", "norm with scale and shift"),
    IdPart(_word("smoke"), "smoke", "a small row for a CPU"),
)


def id_legend(rows: Iterable[Workload]) -> list[str]:
    """Return the legend of the parts that occur in the ids of some rows."""
    ids = [row.id for row in rows]
    known = [part for part in PARTS if any(part.found_in(row_id) for row_id in ids)]
    lines = table(["part of an id", "meaning"], [[f"`{part.shown}`", part.meaning] for part in known])
    return [*lines, "", "A part that is not listed names the model that makes the call."]


def unexplained(row: Workload) -> list[str]:
    """Return the parts of a row's id that the legend does not explain and that name none of the row's models."""
    covered = {
        place
        for part in PARTS
        for match in re.finditer(part.pattern, row.id)
        for place in range(match.start(), match.end())
    }
    models = [_letters(model) for model in row.models]
    found, start = [], 0
    for word in row.id.split("_"):
        places = range(start, start + len(word))
        is_model = any(_letters(word) in model for model in models)
        if not is_model and not covered.issuperset(places):
            found.append(word)
        start += len(word) + 1
    return found


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


def rows_table(rows: Iterable[Workload]) -> list[str]:
    """Return the table that says for each row what its call has: op, inputs, bytes and models."""
    cells = [
        [f"`{row.id}`", f"`{row.op}`", _inputs(row), escaped(", ".join(row.models)), f"{row.bytes_min / 1e6:.1f}"]
        for row in rows
    ]
    return table(["row", "op", "inputs: shape and dtype", "models", "MB"], cells, numbers=1)


def _inputs(row: Workload) -> str:
    """Return shapes and dtypes of a call. Neighbouring inputs of one shape and dtype share one entry."""
    described = [
        (f"{'x'.join(map(str, tensor.shape))} {tensor.dtype}", name) for name, tensor in row.concrete_inputs().items()
    ]
    groups = groupby(described, key=lambda pair: pair[0])
    return "; ".join(f"{', '.join(name for _, name in own)}: {shape}" for shape, own in groups)
