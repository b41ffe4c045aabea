"""The wiki for kernel authors: pages, search, pages that fit a bottleneck, and the check of every claim."""
