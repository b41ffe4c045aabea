"""The choice of an implementation: answers, their explanation, fallbacks, the reference, and the check of `out=`."""
