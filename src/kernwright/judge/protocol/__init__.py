"""The protocol between the judge and a worker: message pipe, message types, memory layout of a row's slots.

Both sides import it. The judge never unpickles data from a worker and validates whatever it receives.
"""
