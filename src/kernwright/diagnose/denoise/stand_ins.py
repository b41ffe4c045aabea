"""Stand-ins for the files of tokenizers: they return fixed token numbers, as many as the preset says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

FIRST_TOKEN, TOKENS = 8, 48  # the first token number and how many are used; smaller numbers are special tokens


class StandInTokenizer:
    """Implements the calls that pipelines make to a tokenizer.

    Args:
        tokens: number of tokens of a text that contains the prompt.
        negative_tokens: number of tokens of other texts; default: `tokens`.
        max_length: length of a text that is padded to the model's limit.
        prompt: the prompt of the request.
    """

    padding_side = "right"
    pad_token = eos_token = "<pad>"
    pad_token_id = eos_token_id = 1
    added_tokens_encoder: ClassVar[dict[str, int]] = {}

    def __init__(
        self, tokens: int, negative_tokens: int | None = None, max_length: int = 512, prompt: str = ""
    ) -> None:
        self.tokens = tokens
        self.negative_tokens = tokens if negative_tokens is None else negative_tokens
        self.model_max_length = max_length
        self.prompt = _letters(prompt)

    def __call__(
        self,
        text: str | Sequence[str],
        padding: bool | str = False,
        max_length: int | None = None,
        truncation: bool = False,
        **unused: Any,
    ) -> Any:
        rows = [self.row(each) for each in ([text] if isinstance(text, str) else text)]
        limit = self.model_max_length if max_length is None else max_length
        if truncation:
            rows = [row[:limit] for row in rows]
        longest = max(map(len, rows))
        return self.batch(rows, limit if padding == "max_length" else longest)

    def row(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        count = self.tokens if self.prompt and self.prompt in _letters(text) else self.negative_tokens
        return [FIRST_TOKEN + 7 * at % TOKENS for at in range(count)]

    def batch(self, rows: list[list[int]], length: int) -> Any:
        """Return padded rows as transformers returns them."""
        import torch
        from transformers import BatchEncoding

        ids = torch.full((len(rows), length), self.pad_token_id)
        mask = torch.zeros((len(rows), length), dtype=torch.long)
        for at, row in enumerate(rows):
            start = length - len(row) if self.padding_side == "left" else 0
            ids[at, start : start + len(row)] = torch.tensor(row)
            mask[at, start : start + len(row)] = 1
        return BatchEncoding({"input_ids": ids, "attention_mask": mask})

    def apply_chat_template(self, messages: Any, tokenize: bool = True, **options: Any) -> Any:
        """Return the texts of a conversation, or of several, as text or as tokens."""
        several = bool(messages) and isinstance(messages[0], list)
        texts = [" ".join(_texts(each)) for each in (messages if several else [messages])]
        if tokenize:
            return self(texts, **options)
        return texts if several else texts[0]

    def tokenize(self, text: str) -> list[str]:
        return [str(token) for token in self.row(text)]

    def batch_decode(self, rows: Any, **unused: Any) -> list[str]:
        return ["" for _ in rows]


class StandInVisionProcessor(StandInTokenizer):
    """Implements the calls that pipelines make to a processor of text and images.

    Args:
        patch_size: side of a patch, in pixels.
        merge_size: patches along each side that become one token.
        temporal_patch_size: frames of a patch.
        image_token: number of the token that is replaced by a patch of an image.
        vision_start_token: number of the token before an image.
        text: arguments of the tokenizer.
    """

    def __init__(
        self,
        *,
        patch_size: int,
        merge_size: int,
        temporal_patch_size: int,
        image_token: int,
        vision_start_token: int,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        self.patch_size, self.merge_size, self.temporal = patch_size, merge_size, temporal_patch_size
        self.image_token, self.vision_start = image_token, vision_start_token

    def __call__(self, text: Any, images: Any = None, **unused: Any) -> Any:  # type: ignore[override]
        import torch

        found = images if isinstance(images, (list, tuple)) else [] if images is None else [images]
        grids = [self._grid(*_size(image)) for image in found]
        rows = []
        for each in [text] if isinstance(text, str) else text:
            row = self.row(each)
            for height, width in grids:
                count = height * width // self.merge_size**2
                row += [self.vision_start, *[self.image_token] * count, FIRST_TOKEN]
            rows.append(row)
        batch = self.batch(rows, max(map(len, rows)))
        if grids:
            patches = sum(height * width for height, width in grids) * len(rows)
            values = 3 * self.temporal * self.patch_size**2
            generator = torch.Generator().manual_seed(patches)
            batch["pixel_values"] = torch.randn(patches, values, generator=generator)
            batch["image_grid_thw"] = torch.tensor([[1, *grid] for grid in grids * len(rows)])
        return batch

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the number of patches along each side, in whole tokens."""
        side = self.patch_size * self.merge_size
        rounded = (max(side, round(height / side) * side), max(side, round(width / side) * side))
        return rounded[0] // self.patch_size, rounded[1] // self.patch_size


def _size(image: Any) -> tuple[int, int]:
    """Return width and height of a PIL image or of a tensor."""
    if hasattr(image, "shape"):
        return int(image.shape[-1]), int(image.shape[-2])
    width, height = image.size
    return math.ceil(width), math.ceil(height)


def _texts(message: Any) -> list[str]:
    if isinstance(message, str):
        return [message]
    if isinstance(message, dict):
        return _texts(message.get("content", message.get("text", "")))
    return [text for each in message for text in _texts(each)]


def _letters(text: str) -> str:
    """Return a text in a form for comparison, because pipelines change spaces and case."""
    return re.sub(r"\W+", " ", text).strip().casefold()
