# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule over whole token trees at once, with its gradients written out.

Per value head, with q and k normalised, beta the strength of a write and gamma the sum of the log
decays along a token's path (D_ij = exp(gamma_i - gamma_j) where i sees j, else 0):

    A = diag(beta) K K' * D, strictly below the diagonal
    U = (I + A)^-1 diag(beta) V
    O = (Q K' * D) U

U holds what each token writes into the memory after correcting what it reads there. As the
memory starts empty no state is needed, and a tree costs no more than a sequence. Time and memory
grow with the square of the length.

Gradients: with Z = (I + A)^-T (Q K' * D)' dO, most of them reduce to sums over rows of O, U and
Z, because the row and column sums of A * dA and of (Q K' * D) * its gradient are products of these.
"""

import torch

# What decays further counts as this: next to nothing, and exp of it is many times faster than of
# numbers whose result underflows.
LEAST_EXPONENT = -80.0


def solve(q, k, v, beta, gamma, bias):
    """O, U, D, A with rubbish on and above the diagonal, and Q K' * D.

    q, k, v are [batch, heads, length, size], beta and gamma [batch, heads, length].
    """
    decay = gamma[..., :, None] - gamma[..., None, :]
    decay.add_(bias).clamp_(min=LEAST_EXPONENT).exp_()
    turned = k.transpose(-2, -1)
    below = (k @ turned).mul_(decay).mul_(beta[..., None])
    writes = torch.linalg.solve_triangular(below, v * beta[..., None], upper=False,
                                           unitriangular=True)
    scores = (q @ turned).mul_(decay)
    return scores @ writes, writes, decay, below, scores


class DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, beta, gamma, bias):
        out, writes, decay, below, scores = solve(q, k, v, beta, gamma, bias)
        ctx.save_for_backward(q, k, v, beta, out, writes, decay, below, scores)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, beta, out, writes, decay, below, scores = ctx.saved_tensors
        strength = beta[..., None]
        z = torch.linalg.solve_triangular(below.transpose(-2, -1),
                                          scores.transpose(-2, -1) @ grad, upper=True,
                                          unitriangular=True)
        turned = writes.transpose(-2, -1)
        of_scores = (grad @ turned).mul_(decay)
        of_below = ((z * -strength) @ turned).mul_(decay)
        of_below.diagonal(dim1=-2, dim2=-1).zero_()
        grad_q = of_scores @ k
        grad_k = of_scores.transpose(-2, -1) @ q
        grad_k += of_below @ k
        grad_k += of_below.transpose(-2, -1) @ k
        grad_v = z * strength
        grad_beta = (z * writes).sum(-1) / beta
        grad_gamma = (grad * out).sum(-1) - (grad_v * v).sum(-1)
        return grad_q, grad_k, grad_v, grad_beta, grad_gamma, None


def step(state, q, k, v, beta, decay):
    """One token: the new state [batch, heads, key size, value size] and the output.

    q, k, v are [batch, heads, size], beta and decay (between 0 and 1) [batch, heads].
    """
    state = state * decay[..., None, None]
    read = torch.einsum("bhkv,bhk->bhv", state, k)
    write = (v - read) * beta[..., None]
    state = state + k[..., None] * write[..., None, :]
    return state, torch.einsum("bhkv,bhk->bhv", state, q)
