"""Starts torchrun's workers from a process that has torch and TorchRec imported already.

    fastplan run -- --nproc-per-node=8 train.py

A worker of torchrun spends seconds on imports, at every restart. Here a fork server imports once,
next to torchrun's agent, and each worker is a fork of it. To everything else the fork is torchrun's
worker: a child of the agent with its environment, streams, session and exit code.

`__main__` runs in the agent's process, `agent` replaces how the agent starts a worker, and `server`
is the fork server, a script that uses the standard library only.
"""
