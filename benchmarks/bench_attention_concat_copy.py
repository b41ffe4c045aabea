"""Concatenations and dense copies around sequence-parallel attention. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("attention_concat_copy", "compile")
