"""merlin export"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Export:
    """Write a run's policy as an ONNX file.

    The graph includes the normaliser, the horizon and the action bounds. It is compared with the
    policy before it is written. For example:

      merlin export runs/push --out push.onnx
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder."""
    out: Path
    """File to write, NAME.onnx; it must not exist."""
    seed: int | None = None
    """Seed of the policy; by default the first seed of the run."""
    checkpoint: str = "final"
    """Which policy to export: final, or best (selected by evaluations during training)."""
    overwrite: bool = False
    """Replace an existing --out."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.deploy.export import export

        result = export(
            self.run,
            self.out,
            seed=self.seed,
            checkpoint=self.checkpoint,
            overwrite=self.overwrite,
        )
        if not self.json:
            made_for = result["task"] or "data without a task"
            sizes = ", ".join(f"{name} {shape}" for name, shape in result["inputs"].items())
            print(
                f"{self.out}: {result['algo']} for {made_for}, {result['bytes']:,} bytes; "
                f"{sizes.replace(chr(39), '')} to {' and '.join(result['outputs'])}; "
                f"differs from the policy by at most {result['largest_difference']:.1e} "
                f"on {result['samples']:,} inputs."
            )
        return result
