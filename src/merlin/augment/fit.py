"""Training loop for the augmentation models: jitted chunks of updates with a progress bar."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.images import ahead
from merlin.io.progress import Progress
from merlin.nets.layers import descend

Model = TypeVar("Model")
UPDATES_AT_ONCE = 100


def updates_of(epochs: int, rows: int, batch: int, most: int | None) -> int:
    """Convert epochs to updates: at least one, and at most `most` if given."""
    updates = max(1, -(-epochs * rows // batch))
    return updates if most is None else min(most, updates)


def fit(
    loss: Callable[[Model, Any, PRNGKeyArray], Float[Array, ""]],
    model: Model,
    data: Any,
    *,
    part: Callable[[Model], Any],
    updates: int,
    learning_rate: optax.ScalarOrSchedule,
    key: PRNGKeyArray,
    label: str,
    quiet: bool,
    batches: Callable[[int], Any] | None = None,
) -> tuple[Model, float]:
    """Minimise `loss(model, data, key)`, which samples its own minibatch; return the last mean
    loss.

    Only `part` of the model is trained, which excludes input normalisers. The data is passed to the
    compiled loop as an argument, since it may be too large for a constant. If it does not fit on
    the device, `batches` maps the number of each update to its data, in a thread that runs ahead.
    """
    adam = optax.adam(learning_rate)

    # Single updates are compiled without a loop: XLA's convolutions are much slower inside one.
    @jax.jit
    def update(carry: Any, data: Any, key: PRNGKeyArray, step: Any) -> tuple[Any, Float[Array, ""]]:
        trained, state = carry

        def value_of(trained: Any) -> Float[Array, ""]:
            whole = eqx.tree_at(part, model, trained)
            return loss(whole, data, jax.random.fold_in(key, step))

        value, gradient = jax.value_and_grad(value_of)(trained)
        return descend(adam, trained, gradient, state), value

    @jax.jit
    def advance(
        carry: Any, data: Any, key: PRNGKeyArray, start: Any, stop: Any
    ) -> tuple[Any, Float[Array, ""]]:
        def body(step: Any, carry: Any) -> Any:
            after, value = update(carry[0], data, key, step)
            return after, carry[1] + value

        carry, total = jax.lax.fori_loop(start, stop, body, (carry, jnp.float32(0.0)))
        return carry, total / jnp.float32(stop - start)

    carry, last = (part(model), adam.init(part(model))), jnp.float32(jnp.nan)
    with Progress(label, updates, "updates", quiet=quiet) as bar:
        for start in range(0, updates, UPDATES_AT_ONCE):
            stop = min(start + UPDATES_AT_ONCE, updates)
            if batches is None:
                carry, last = advance(carry, data, key, start, stop)
            else:
                losses = []
                for step, batch in enumerate(ahead(batches, range(start, stop)), start):
                    carry, last = update(carry, batch, key, step)
                    losses.append(float(last))  # blocks, so that batches do not pile up
                last = jnp.float32(np.mean(losses))
            bar.update(stop, f"loss {float(last):.3f}")
    return eqx.tree_at(part, model, carry[0]), float(last)
