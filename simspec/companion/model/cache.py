"""Keys and values of a batch of sequences, with a true rollback.

Every sequence has its own length. A pass writes its tokens at slots behind it; what the pass
leaves there counts only once :attr:`KvCache.lens` says so, and the next pass overwrites the rest.
Rejected drafts therefore cost nothing to take back. Slots of a tree hold nodes, not positions:
:meth:`KvCache.keep_path` moves the accepted ones together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tokens of a pass stand.

    Attributes
    ----------
    slots : Tensor (B, n)
        Slot of the cache that each token is written to.
    positions : Tensor (B, n)
        Its position in the text; nodes of a tree at one depth share theirs.
    visible : Tensor (B, 1, n, S)
        Which slots each token attends to, itself included.
    rows : Tensor (B,) or None
        Sequences of the cache that take part; None: all of them.
    """

    slots: Tensor
    positions: Tensor
    visible: Tensor
    rows: Tensor | None = None

    @property
    def num_slots(self) -> int:
        """S: slots that anybody looks at."""
        return int(self.visible.shape[-1])


class KvCache:
    """The cache of some layers.

    Parameters
    ----------
    num_layers, batch, num_slots, num_heads, head_dim : int
        ``num_slots`` is the most tokens that a sequence can have, drafts included.
    dtype, device
        Of the tensors.

    Attributes
    ----------
    lens : Tensor (B,)
        Tokens of each sequence that count.
    """

    def __init__(
        self,
        num_layers: int,
        batch: int,
        num_slots: int,
        num_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        shape = (num_layers, batch, num_slots, num_heads, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.lens = torch.zeros(batch, dtype=torch.long, device=device)

    @property
    def batch(self) -> int:
        """B: sequences."""
        return int(self.lens.shape[0])

    @property
    def num_slots(self) -> int:
        """Slots per sequence."""
        return int(self.keys.shape[2])

    def chain(self, num_tokens: int, ahead: int | Tensor = 0, rows: Tensor | None = None) -> Place:
        """Return the place of the next tokens of each sequence.

        Parameters
        ----------
        num_tokens : int
            n, of every sequence; where one has fewer, the rest is written and never counts.
        ahead : int or Tensor (B,)
            Tokens behind ``lens`` that are already written: the place begins after them.
        rows : Tensor (B,), optional
            Sequences that take part, all by default.
        """
        device = self.lens.device
        start = self.lens + ahead
        if rows is not None:
            start = start[rows]
        positions = start[:, None] + torch.arange(num_tokens, device=device)
        used = torch.arange(int(positions.max()) + 1, device=device)
        visible = used <= positions[:, :, None]
        return Place(positions, positions, visible[:, None], rows)

    def tree(self, depths: Tensor, ancestors: Tensor, ahead: int = 0) -> Place:
        """Return the place of a tree's nodes, whose roots follow the last token that counts.

        Parameters
        ----------
        depths : Tensor (n,) or (B, n)
            0 for a root.
        ancestors : Tensor (n, n + ahead) or (B, n, n + ahead)
            Which of the nodes written so far each node descends from, itself included; the
            first ``ahead`` columns are nodes of earlier passes.
        ahead : int
            Nodes that are already written behind ``lens``.
        """
        device = self.lens.device
        num_nodes = int(depths.shape[-1])
        start = self.lens[:, None]
        slots = start + ahead + torch.arange(num_nodes, device=device)
        positions = start + depths.to(device)
        used = torch.arange(int(slots.max()) + 1, device=device)
        among = used[None, None, :] - start[:, :, None]  # (B, 1, S): number among the nodes
        inside = (among >= 0) & (among < ahead + num_nodes)
        wanted = ancestors.to(device).expand(self.batch, -1, -1)
        index = among.clamp(0, ahead + num_nodes - 1).expand(-1, num_nodes, -1)
        descends = wanted.gather(2, index) & inside
        visible = (among < 0) | descends
        return Place(slots, positions, visible[:, None])

    def write(
        self, layer: int, place: Place, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write n tokens (B, n, h_kv, d_h) and return all slots anybody sees (B, S, h_kv, d_h)."""
        part = place.rows
        rows = torch.arange(self.batch, device=self.lens.device) if part is None else part
        self.keys[layer, rows[:, None], place.slots] = keys
        self.values[layer, rows[:, None], place.slots] = values
        seen = place.num_slots
        keys, values = self.keys[layer, :, :seen], self.values[layer, :, :seen]
        return (keys, values) if part is None else (keys[part], values[part])

    def keep_path(self, nodes: Tensor) -> None:
        """Move tree nodes behind the tokens that count, in the order of the path.

        Parameters
        ----------
        nodes : Tensor (B, k)
            Node numbers; entries beyond a sequence's accepted path may hold anything valid.
            ``lens`` is left to the caller, who knows how many of them count.
        """
        rows = torch.arange(self.batch, device=self.lens.device)[:, None]
        start = self.lens[:, None]
        source = start + nodes
        target = start + torch.arange(nodes.shape[1], device=self.lens.device)
        self.keys[:, rows, target] = self.keys[:, rows, source]
        self.values[:, rows, target] = self.values[:, rows, source]

    def select(self, rows: Tensor) -> None:
        """Keep some of the sequences."""
        self.keys = self.keys[:, rows].contiguous()
        self.values = self.values[:, rows].contiguous()
        self.lens = self.lens[rows]
