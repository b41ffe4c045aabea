"""Commands that judge: a candidate, a sweep, the sanitizer and the corpus of exploits."""
