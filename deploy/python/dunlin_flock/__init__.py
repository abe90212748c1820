# SPDX-License-Identifier: MIT
"""Any PyTorch model in a Dunlin flock. The script trains; the agent (`dunlin agent --guest`) on
the same machine keeps membership, exchanges, encryption and joining.

    import dunlin_flock as dunlin
    flock = dunlin.attach(model, optimizer, samples_per_step=64, budget="10 epochs of 60000")
    for x, y in loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()   # a hook does the rest
        flock.log(loss)                                            # optional
        if flock.done: break
    flock.finish()                                                 # merges the flock's models
"""
from .flock import Flock, FlockError, attach

__all__ = ["Flock", "FlockError", "attach"]
