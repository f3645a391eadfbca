"""Models written for JAX: each takes a library and returns a loss function, parameters and one example."""

# mypy: untyped-calls-exclude="jax", allow-untyped-decorators

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import tree_util

from tests.control.networks import Model, adam, bidirectional_gru, clipped_and_straight, lstm, rnn, transformer
from tests.control.transform_checks import normal

# ------------------------------------------------------------------ differential equations


def rk4(jax: Any, jnp: Any) -> Model:
    def dynamics(p: Any, t: Any, y: Any) -> Any:
        return jnp.tanh(p["w"] @ y + p["b"] * t)

    def loss(p: Any, y0: Any) -> Any:
        dt = 0.1

        def step(y: Any, t: Any) -> Any:
            k1 = dynamics(p, t, y)
            k2 = dynamics(p, t + dt / 2, y + dt / 2 * k1)
            k3 = dynamics(p, t + dt / 2, y + dt / 2 * k2)
            k4 = dynamics(p, t + dt, y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

        y, ys = jax.lax.scan(step, y0, jnp.arange(4) * dt)
        return jnp.sum(y**2) + jnp.mean(ys)

    return loss, {"w": normal(2, 2), "b": normal(2, seed=1)}, normal(2, seed=2)


def adaptive(jax: Any, jnp: Any) -> Model:
    """Heun's method with adaptive steps, differentiated by the adjoint equation."""

    def heun(f: Any, y0: Any, t1: Any, *args: Any) -> Any:
        def keep_going(state: Any) -> Any:
            t, _, _, n = state
            return (t < t1) & (n < 100)

        def step(state: Any) -> Any:
            t, dt, y, n = state
            dt = jnp.minimum(dt, t1 - t)
            k1 = f(t, y, *args)
            k2 = f(t + dt, jax.tree.map(lambda y, k: y + dt * k, y, k1), *args)
            error = sum(jnp.sum(abs(a - b)) for a, b in zip(jax.tree.leaves(k1), jax.tree.leaves(k2), strict=True)) * dt
            accept = error < 0.02
            new = jax.tree.map(lambda y, a, b: jnp.where(accept, y + dt / 2 * (a + b), y), y, k1, k2)
            t = jnp.where(accept, t + dt, t)
            return t, jnp.where(accept, dt * 1.5, dt * 0.5), new, n + 1

        return jax.lax.while_loop(keep_going, step, (0.0, jnp.float32(0.1), y0, 0))[2]

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def odeint(f: Any, y0: Any, t1: Any, args: Any) -> Any:
        return heun(f, y0, t1, args)

    def forward(f: Any, y0: Any, t1: Any, args: Any) -> Any:
        y1 = heun(f, y0, t1, args)
        return y1, (y1, t1, args)

    def backward(f: Any, residuals: Any, g: Any) -> Any:
        y1, t1, args = residuals

        def augmented(s: Any, state: Any, args: Any) -> Any:
            y, a, _ = state
            dy, pull = jax.vjp(lambda y, args: f(t1 - s, y, args), y, args)
            da, dargs = pull(a)
            return -dy, da, dargs

        zeros = jax.tree.map(jnp.zeros_like, args)
        _, a, dargs = heun(augmented, (y1, g, zeros), t1, args)
        return a, jnp.sum(g * f(t1, y1, args)), dargs

    odeint.defvjp(forward, backward)

    def loss(p: Any, y0: Any) -> Any:
        return jnp.sum(odeint(lambda t, y, p: jnp.sin(p["w"] @ y) - p["b"] * t * y, y0, p["t"], p) ** 2)

    return loss, {"w": normal(2, 2), "b": normal(2, seed=1), "t": np.float32(0.5)}, normal(2, seed=2)


class Body(NamedTuple):
    position: Any
    velocity: Any


def collisions(jax: Any, jnp: Any) -> Model:
    """A ball that bounces off a floor and a wall."""

    def loss(p: Any, start: Any) -> Any:
        def bounce(b: Body) -> Body:
            return Body(b.position * jnp.array([1.0, -1.0]), b.velocity * jnp.stack([1.0, -p["restitution"]]))

        def step(b: Body, force: Any) -> Any:
            velocity = b.velocity + 0.1 * (force - jnp.array([0.0, p["gravity"]]) - p["drag"] * b.velocity)
            b = Body(b.position + 0.1 * velocity, velocity)
            b = jax.lax.cond(b.position[1] < 0, bounce, lambda b: b, b)
            case = (b.position[0] > 1.0).astype(int) + 2 * (b.position[0] < -1.0).astype(int)
            turned = b.velocity * jnp.array([-1.0, 1.0])
            b = jax.lax.switch(
                case, [lambda b: b, lambda b: b._replace(velocity=turned), lambda b: Body(-b.position, turned)], b
            )
            return b, b.position

        last, path = jax.lax.scan(step, Body(*start), p["forces"])
        return jnp.sum(last.position**2) + jnp.sum(jnp.sin(path))

    params = {
        "restitution": np.float32(0.8),
        "gravity": np.float32(9.0),
        "drag": np.float32(0.1),
        "forces": normal(6, 2),
    }
    return loss, params, (np.array([0.9, 0.2], np.float32), np.array([1.0, 0.5], np.float32))


# ------------------------------------------------------------------ statistics


def kalman(jax: Any, jnp: Any) -> Model:
    """A Kalman filter and a smoother that runs backwards over the filtered states."""

    def inverse(m: Any) -> Any:
        (a, b), (c, d) = m
        return jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)

    def loss(p: Any, ys: Any) -> Any:
        a, q = p["a"], jnp.diag(jnp.exp(p["q"]))
        r = jnp.exp(p["r"])
        h = jnp.array([[1.0, 0.0]])

        def update(state: Any, y: Any) -> Any:
            mean, cov = state
            mean, cov = a @ mean, a @ cov @ a.T + q
            s = (h @ cov @ h.T)[0, 0] + r
            gain = (cov @ h.T)[:, 0] / s
            innovation = y - mean[0]
            new = mean + gain * innovation, cov - jnp.outer(gain, gain) * s
            return new, (new, (mean, cov), -0.5 * (jnp.log(s) + innovation**2 / s))

        def smooth(state: Any, at: Any) -> Any:
            mean, cov = state
            (m, c), (m_next, c_next) = at
            g = c @ a.T @ inverse(c_next)
            new = m + g @ (mean - m_next), c + g @ (cov - c_next) @ g.T
            return new, new[0]

        last, (filtered, predicted, likelihood) = jax.lax.scan(update, (jnp.zeros(2), jnp.eye(2)), ys)
        before = jax.tree.map(lambda x: x[:-1], filtered)
        after = jax.tree.map(lambda x: x[1:], predicted)
        _, means = jax.lax.scan(smooth, last, (before, after), reverse=True)
        return -jnp.sum(likelihood) + jnp.sum(means**2)

    a = np.array([[1.0, 0.1], [-0.1, 0.9]], np.float32)
    return loss, {"a": a, "q": normal(2), "r": np.float32(0.1)}, normal(5, seed=1)


def markov(jax: Any, jnp: Any) -> Model:
    """The likelihood of a hidden Markov model, by matrix products in the (logsumexp, +) semiring."""

    def product(a: Any, b: Any) -> Any:
        return jax.nn.logsumexp(a[..., :, :, None] + b[..., None, :, :], axis=-2)

    def loss(p: Any, ys: Any) -> Any:
        transition = jax.nn.log_softmax(p["t"], axis=-1)
        emission = jax.nn.log_softmax(p["e"], axis=-1)
        steps = transition[None] + emission[:, ys].T[:, None, :]
        prefixes = jax.lax.associative_scan(product, steps)
        suffixes = jax.lax.associative_scan(lambda a, b: product(b, a), steps, reverse=True)
        return -jax.nn.logsumexp(prefixes[-1][0]) + jnp.sum(jnp.tanh(suffixes))

    return loss, {"t": normal(2, 2), "e": normal(2, 3, seed=1)}, np.array([0, 2, 1, 1, 2], np.int32)


def metropolis(jax: Any, jnp: Any) -> Model:
    """Metropolis sampling with given random numbers; the carry counts accepted samples as an integer."""

    def loss(p: Any, noise: Any) -> Any:
        def log_density(x: Any) -> Any:
            return -0.5 * jnp.sum((x - p["mean"]) ** 2) / jnp.exp(p["width"])

        def step(state: Any, noise_t: Any) -> Any:
            x, density, accepted = state
            kick, u = noise_t
            new = x + 0.5 * kick
            new_density = log_density(new)
            accept = jnp.log(u) < new_density - density
            state = jax.tree.map(
                lambda a, b: jnp.where(accept, a, b), (new, new_density, accepted + 1), (x, density, accepted)
            )
            return state, (state[0], accept)

        kicks, us = noise
        init = (p["x"], log_density(p["x"]), 0)
        (_, density, accepted), (xs, _) = jax.lax.scan(step, init, (kicks, us))
        return jnp.mean(xs**2) + density + 0.1 * accepted

    params = {"mean": normal(2), "width": np.float32(0.2), "x": normal(2, seed=1)}
    uniforms = np.random.default_rng(0).uniform(size=5).astype(np.float32)
    return loss, params, (normal(5, 2, seed=2), uniforms)


# ------------------------------------------------------------------ implicit equations


def fixed_point(jax: Any, jnp: Any) -> Model:
    """A layer whose output is a fixed point, with the implicit-function derivative of JAX's tutorial."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def fixed(f: Any, params: Any, x: Any) -> Any:
        def keep_going(pair: Any) -> Any:
            before, now = pair
            return jnp.max(jnp.abs(before - now)) > 1e-6

        _, x = jax.lax.while_loop(keep_going, lambda pair: (pair[1], f(params, pair[1])), (x, f(params, x)))
        return x

    def forward(f: Any, params: Any, x: Any) -> Any:
        solution = fixed(f, params, x)
        return solution, (params, solution)

    def backward(f: Any, residuals: Any, g: Any) -> Any:
        params, solution = residuals
        _, pull_params = jax.vjp(lambda p: f(p, solution), params)
        _, pull = jax.vjp(lambda x: f(params, x), solution)
        (dparams,) = pull_params(fixed(lambda given, u: given[1] + pull(u)[0], (params, g), g))
        return dparams, jnp.zeros_like(solution)

    fixed.defvjp(forward, backward)

    def loss(p: Any, x: Any) -> Any:
        z = fixed(lambda q, z: jnp.tanh(q["w"] @ z + q["x"]), {"w": p["w"], "x": p["u"] @ x}, jnp.zeros(3))
        return jnp.sum(z**2)

    return loss, {"w": normal(3, 3) * 0.2, "u": normal(3, 2, seed=1)}, normal(2, seed=2)


def equilibrium(jax: Any, jnp: Any) -> Model:
    """The same layer with `custom_root`, and conjugate gradients for the tangent equation."""

    def richardson(matvec: Any, b: Any) -> Any:
        return jax.lax.fori_loop(0, 40, lambda _, x: x + 0.7 * (b - matvec(x)), jnp.zeros_like(b))

    def loss(p: Any, x: Any) -> Any:
        def residual(z: Any) -> Any:
            return z - jnp.tanh(p["w"] @ z + p["u"] @ x)

        def solve(f: Any, z: Any) -> Any:
            return jax.lax.while_loop(lambda z: jnp.sum(f(z) ** 2) > 1e-12, lambda z: z - f(z), z)

        def tangent_solve(g: Any, y: Any) -> Any:
            return jax.lax.custom_linear_solve(g, y, richardson, transpose_solve=richardson)

        z = jax.lax.custom_root(residual, jnp.zeros(3), solve, tangent_solve)
        return jnp.sum(z**2)

    return loss, {"w": normal(3, 3) * 0.2, "u": normal(3, 2, seed=1)}, normal(2, seed=2)


def conjugate_gradients(jax: Any, jnp: Any) -> Model:
    def cg(matvec: Any, b: Any) -> Any:
        def step(state: Any) -> Any:
            x, r, p, rs, k = state
            q = matvec(p)
            alpha = rs / jnp.vdot(p, q)
            x, r = x + alpha * p, r - alpha * q
            new = jnp.vdot(r, r)
            return x, r, r + new / rs * p, new, k + 1

        def keep_going(state: Any) -> Any:
            return jnp.logical_and(state[3] > 1e-10, state[4] < 20)

        return jax.lax.while_loop(keep_going, step, (jnp.zeros_like(b), b, b, jnp.vdot(b, b), 0))[0]

    def loss(p: Any, b: Any) -> Any:
        def matvec(x: Any) -> Any:
            return p["m"].T @ (p["m"] @ x) + jnp.exp(p["d"]) * x

        x = jax.lax.custom_linear_solve(matvec, b, cg, symmetric=True)
        return jnp.sum(jnp.sin(x))

    return loss, {"m": normal(3, 3), "d": np.float32(0.5)}, normal(3, seed=1)


def sinkhorn(jax: Any, jnp: Any) -> Model:
    def loss(p: Any, points: Any) -> Any:
        cost = jnp.sum((p["at"][:, None] - points[None]) ** 2, axis=-1)
        log_a, log_b = jax.nn.log_softmax(p["a"]), -jnp.log(jnp.full(4, 4.0))

        def step(potentials: Any, _: None) -> Any:
            f, g = potentials
            f = log_a - jax.nn.logsumexp(g[None, :] - cost, axis=1)
            g = log_b - jax.nn.logsumexp(f[:, None] - cost, axis=0)
            return (f, g), None

        (f, g), _ = jax.lax.scan(step, (jnp.zeros(3), jnp.zeros(4)), None, length=5)
        return jnp.sum(jnp.exp(f[:, None] + g[None] - cost) * cost)

    return loss, {"at": normal(3, 2), "a": normal(3, seed=1)}, normal(4, 2, seed=2)


def newton(jax: Any, jnp: Any) -> Model:
    """Newton's method with a data-dependent number of steps, inside a root with a custom derivative."""

    @jax.custom_jvp
    def root(a: Any, b: Any) -> Any:
        def f(x: Any) -> Any:
            return x**3 + a * x - b

        return jax.lax.while_loop(lambda x: abs(f(x)) > 1e-4, lambda x: x - f(x) / jax.grad(f)(x), jnp.ones_like(a))

    @root.defjvp
    def root_jvp(primals: Any, tangents: Any) -> Any:
        a, b = primals
        da, db = tangents
        x = root(a, b)
        return x, (db - da * x) / (3 * x**2 + a)

    def loss(p: Any, x: Any) -> Any:
        return root(jnp.exp(p["a"]), jnp.sum(p["b"] * x)) ** 2

    return loss, {"a": np.float32(0.3), "b": normal(3)}, normal(3, seed=1)


# ------------------------------------------------------------------ searching


def beam(jax: Any, jnp: Any) -> Model:
    """A greedy decoder: each step selects the best token and feeds its embedding to the next step."""

    def loss(p: Any, start: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            h, token, score = state
            h = jnp.tanh(p["w"] @ h + p["embedding"][token])
            logits = jax.nn.log_softmax(p["embedding"] @ h)
            token = jnp.argmax(logits).astype(jnp.int32)
            return (h, token, score + logits[token]), (token, jnp.take(logits, token))

        (_, _, score), (tokens, logits) = jax.lax.scan(step, (start, jnp.int32(0), 0.0), None, length=4)
        history = jnp.zeros(5).at[tokens].add(logits)
        return (
            score + jnp.sum(history**2) + jnp.sum(jnp.take_along_axis(p["embedding"].T, tokens[:, None], axis=1) ** 2)
        )

    return loss, {"w": normal(4, 4), "embedding": normal(5, 4, seed=1)}, normal(4, seed=2)


def edit_distance(jax: Any, jnp: Any) -> Model:
    """Soft edit distance, row by row, with nested scans."""

    def loss(p: Any, words: Any) -> Any:
        one, other = words
        soft = jnp.exp(p["temperature"])

        def softmin(*xs: Any) -> Any:
            return -soft * jax.nn.logsumexp(-jnp.stack(xs) / soft)

        def row(above: Any, x: Any) -> Any:
            def cell(left: Any, inputs: Any) -> Any:
                y, up, corner = inputs
                new = softmin(left + p["delete"], up + p["insert"], corner + jnp.sum((x - y) ** 2))
                return new, new

            first = above[0] + p["insert"]
            _, rest = jax.lax.scan(cell, first, (other, above[1:], above[:-1]))
            return jnp.concatenate([first[None], rest]), None

        last, _ = jax.lax.scan(row, jnp.arange(4) * p["delete"], one)
        return last[-1]

    params = {"temperature": np.float32(-1), "delete": np.float32(0.7), "insert": np.float32(1.1)}
    return loss, params, (normal(3, 2), normal(3, 2, seed=1))


# ------------------------------------------------------------------ custom pytrees and dtypes


@dataclasses.dataclass
class Moments:
    mean: Any
    square: Any
    count: Any
    label: str = "moments"


# tracefx also uses types that are registered with JAX's pytree registry.
tree_util.register_dataclass(Moments, ["mean", "square", "count"], ["label"])


def moments(jax: Any, jnp: Any) -> Model:
    """Carries and slices of a registered dataclass with static metadata; NumPy scalars."""

    def loss(p: Any, xs: Any) -> Any:
        def step(m: Moments, x: Any) -> Any:
            n = m.count + 1
            mean = m.mean + (x - m.mean) / n
            new = Moments(mean, m.square + p * (x - m.mean) * (x - mean), n, m.label)
            return new, new

        last, path = jax.lax.scan(step, Moments(np.float64(0), np.float32(0), np.int32(0)), xs)
        return last.square / last.count + jnp.sum(path.mean) + jax.lax.map(lambda m: m.mean * m.square, path).sum()

    return loss, np.float32(0.5), normal(5)


def kinds(jax: Any, jnp: Any) -> Model:
    """Integer, boolean and complex carries together with float carries."""

    def loss(p: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            i, seen, z, total = carry
            z = z * jnp.exp(1j * p * x) + x
            seen = seen | (x > 0.5)
            i = jnp.where(seen, i + 1, i * 2)
            total = total + jnp.abs(z) * jnp.where(seen, i.astype(jnp.float32), 0.5)
            return (i, seen, z, total), (i % 3, ~seen)

        init = (jnp.int32(1), False, jnp.complex64(1.0), 0.0)
        (_, _, z, total), (kinds, unseen) = jax.lax.scan(step, init, xs)
        return total + z.real * z.imag + jnp.sum(kinds) + jnp.sum(unseen)

    return loss, np.float32(0.3), normal(4)


def powers(jax: Any, jnp: Any) -> Model:
    """A custom rule with a non-array argument, in a scan, under nested gradients."""

    @functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
    def safe(x: Any, f: Any, n: int) -> Any:
        return f(x) ** n

    @safe.defjvp
    def safe_jvp(f: Any, n: int, primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        value, slope = jax.jvp(f, (x,), (jnp.ones_like(x),))
        return safe(x, f, n), n * value ** (n - 1) * slope * dx

    def loss(p: Any, xs: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            inner = jax.vmap(jax.grad(lambda w: jnp.sum(safe(w * x, jnp.sin, 3))))(p)
            return total + jnp.sum(inner * x), None

        return jax.lax.scan(step, 0.0, xs)[0]

    return loss, normal(3), normal(4, seed=1)


def synchronized(jax: Any, jnp: Any) -> Model:
    """Normalization over a named axis in the body of a scan, in jit, in cond."""

    def loss(p: Any, xs: Any) -> Any:
        @jax.jit
        def normalized(x: Any) -> Any:
            mean = jax.lax.pmean(x, "examples")
            return (x - mean) / jnp.sqrt(jax.lax.pmean((x - mean) ** 2, "examples") + 1e-3)

        def one(x: Any) -> Any:
            def step(h: Any, w: Any) -> Any:
                h = normalized(jnp.tanh(w @ h))
                h = jax.lax.cond(p["on"] > 0, lambda h: h + jax.lax.psum(h, "examples"), lambda h: h, h)
                return h, jax.lax.axis_index("examples")

            h, _ = jax.lax.scan(step, x, p["w"])
            return jnp.sum(h**3)

        return jnp.sum(jax.vmap(one, axis_name="examples")(xs))

    return loss, {"w": normal(2, 3, 3), "on": np.float32(1)}, normal(4, 3, seed=1)


MODELS: dict[str, Callable[[Any, Any], Model]] = {
    f.__name__: f
    for f in [
        rnn, lstm, bidirectional_gru, transformer, adam, clipped_and_straight, rk4, adaptive, collisions, kalman,
        markov, metropolis, fixed_point, equilibrium, conjugate_gradients, sinkhorn, newton, beam, edit_distance,
        moments, kinds, powers, synchronized,
    ]
}  # fmt: skip
