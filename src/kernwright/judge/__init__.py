"""The judge: it measures a contender against a baseline in worker processes that it does not trust.

Packages, lowest first; each imports only from those before it: `system`, `protocol`, `numerics`, `record`, `worker`,
`process`, `session`, `device`, `contest`, `rounds`, `checks`. `judge.py` and `request.py` are on top.
"""
