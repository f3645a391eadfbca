"""A differential equation with its gradient (Diffrax), a root (Optimistix), a linear system (Lineax)."""

from __future__ import annotations

import json

import diffrax
import jax
import jax.numpy as jnp
import lineax
import optimistix


def solve(rate):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: -args * y),
        diffrax.Tsit5(),
        0.0,
        1.0,
        0.1,
        jnp.array([1.0, 2.0]),
        args=rate,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 4)),
        stepsize_controller=diffrax.PIDController(1e-5, 1e-6),
    ).ys


root = optimistix.root_find(lambda y, a: y - jnp.tanh(y + a), optimistix.Newton(1e-6, 1e-6), jnp.array(0.5), args=1.0)
matrix = jax.random.normal(jax.random.key(0), (4, 4))
operator = lineax.MatrixLinearOperator(matrix @ matrix.T + jnp.eye(4), lineax.positive_semidefinite_tag)
solution = lineax.linear_solve(operator, jnp.arange(4.0), lineax.CG(1e-5, 1e-5)).value
gradient = jax.grad(lambda rate: solve(rate).sum())(0.5)
print(json.dumps([float(jax.jit(solve)(0.5).sum()), float(gradient), float(root.value), *solution.tolist()]))
