# SPDX-License-Identifier: Apache-2.0
"""Who follows whom in a batch of token trees.

A sample is a tree of tokens laid out in one row: the history is its trunk, answers and questions
aside are branches (see chat.py). A token sees the tokens on its path to the start and itself.
"""

import torch


class Paths:
    """The ancestry of a batch: `mask` [batch, 1, length, length] tells which columns a row sees,
    `parents` [batch, length] the token before each one on its path (-1: none)."""

    def __init__(self, mask, parents):
        self.mask, self.parents = mask, parents
        self._bias, self._rows = None, None

    @classmethod
    def of_branches(cls, branches):
        """From branch numbers: 0 is the trunk, and a branch leaves it where the branch begins."""
        length = branches.shape[1]
        columns = torch.arange(length)
        seen = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
        seen &= columns[None, :] <= columns[:, None]
        trunk = torch.where(branches == 0, columns, -1).cummax(dim=1).values
        follows = branches[:, 1:] == branches[:, :-1]
        parents = torch.full_like(branches, -1)
        parents[:, 1:] = torch.where(follows, columns[:-1], trunk[:, :-1])
        return cls(seen[:, None], parents)

    @classmethod
    def left_padded(cls, lengths, longest):
        """Plain sequences that end together; the padding before them sees only itself."""
        columns = torch.arange(longest)
        begins = longest - torch.tensor(lengths)
        real = columns[None, :] >= begins[:, None]
        seen = (columns[None, :] <= columns[:, None])[None] & real[:, None, :]
        seen = seen | torch.eye(longest, dtype=torch.bool)[None]
        parents = torch.where(columns[None, :] > begins[:, None], columns - 1, -1)
        return cls(seen[:, None], parents)

    def without_first(self):
        """The same, but nothing else sees the first token of a path."""
        first = (self.parents < 0)[:, None, None, :]
        itself = torch.eye(self.mask.shape[-1], dtype=torch.bool)
        return Paths(self.mask & (~first | itself), self.parents)

    @property
    def bias(self):
        """What masks exponents: 0 where a column is seen, minus infinity elsewhere."""
        if self._bias is None:
            self._bias = torch.zeros(self.mask.shape).masked_fill_(~self.mask, float("-inf"))
        return self._bias

    def along(self, values):
        """Sums of values [batch, length, n] over the path of each token, itself included."""
        return self.mask[:, 0].to(values.dtype) @ values

    def before(self, values, count):
        """Values [batch, length, n] of the tokens 1 ... count places before, zeros if none."""
        batch, length, size = values.shape
        table = torch.cat([values.reshape(batch * length, size), values.new_zeros(1, size)])
        return [table.index_select(0, rows).view(values.shape)
                for rows in self._rows_before(count)]

    def _rows_before(self, count):
        """For each distance the rows of the flattened batch; the row after the last: no token."""
        if self._rows is None or len(self._rows) < count:
            batch, length = self.parents.shape
            none = batch * length
            first = torch.arange(batch)[:, None] * length
            parents = torch.where(self.parents < 0, none, self.parents + first).flatten()
            parents = torch.cat([parents, torch.tensor([none])])
            self._rows = [parents[:-1]]
            while len(self._rows) < count:
                self._rows.append(parents[self._rows[-1]])
        return self._rows[:count]
