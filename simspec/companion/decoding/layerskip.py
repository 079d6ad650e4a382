"""LayerSkip with one cache: the exit reads the target's own head.

Elhoushi et al., ACL 2024, arXiv 2404.16710, section 4.3. Nothing is computed twice: shallow keys,
values and exit states of the drafts are verification's own. A round in which all m drafts are kept
yields m + 1 tokens.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from simspec.companion.decoding._early_exit import EarlyExitLoop


class LayerSkip(EarlyExitLoop):
    """The bare exit drafts."""

    name: ClassVar[str] = "layerskip"

    def exit_logits(self, states: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Read the exit with the target's norm and head."""
        return self.decoder.logits(states)
