"""Honest: a thread does the work on the one granted processor, and the call waits for it."""

import queue
import threading

import torch

orders, results = queue.SimpleQueue(), queue.SimpleQueue()


def work():
    torch.set_num_threads(1)
    while True:
        x, w, eps = orders.get()
        try:
            y = x - x.mean(-1, keepdim=True)
            results.put(y.mul_(torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).mul_(1 + w).tanh_())
        except Exception as error:
            results.put(error)


threading.Thread(target=work, daemon=True).start()


def mix(x, w, *, eps):
    orders.put((x, w, eps))
    y = results.get()
    if isinstance(y, Exception):
        raise y
    return y
