"""Random numbers from explicit keys, as in `jax.random`: the same key gives the same numbers in both libraries.

Split a key before use, and use each key once. Functions that take a key raise TypeError for anything else, and
ValueError for an array of keys, over which `vmap` maps.

>>> from tracefx import random
>>> key = random.key(42)
>>> first, second = random.split(key)
>>> random.bits(first, (2,)).tolist() == random.bits(second, (2,)).tolist()
False
"""

from tracefx.random.choices import categorical as categorical
from tracefx.random.choices import choice as choice
from tracefx.random.choices import permutation as permutation
from tracefx.random.continuous import cauchy as cauchy
from tracefx.random.continuous import double_sided_maxwell as double_sided_maxwell
from tracefx.random.continuous import exponential as exponential
from tracefx.random.continuous import gumbel as gumbel
from tracefx.random.continuous import laplace as laplace
from tracefx.random.continuous import logistic as logistic
from tracefx.random.continuous import lognormal as lognormal
from tracefx.random.continuous import maxwell as maxwell
from tracefx.random.continuous import normal as normal
from tracefx.random.continuous import pareto as pareto
from tracefx.random.continuous import rayleigh as rayleigh
from tracefx.random.continuous import triangular as triangular
from tracefx.random.continuous import truncated_normal as truncated_normal
from tracefx.random.continuous import wald as wald
from tracefx.random.continuous import weibull_min as weibull_min
from tracefx.random.discrete import binomial as binomial
from tracefx.random.discrete import geometric as geometric
from tracefx.random.discrete import multinomial as multinomial
from tracefx.random.discrete import poisson as poisson
from tracefx.random.gammas import ball as ball
from tracefx.random.gammas import beta as beta
from tracefx.random.gammas import chisquare as chisquare
from tracefx.random.gammas import dirichlet as dirichlet
from tracefx.random.gammas import f as f
from tracefx.random.gammas import gamma as gamma
from tracefx.random.gammas import generalized_normal as generalized_normal
from tracefx.random.gammas import loggamma as loggamma
from tracefx.random.gammas import t as t
from tracefx.random.keys import PRNGKey as PRNGKey
from tracefx.random.keys import bits as bits
from tracefx.random.keys import clone as clone
from tracefx.random.keys import fold_in as fold_in
from tracefx.random.keys import key as key
from tracefx.random.keys import key_data as key_data
from tracefx.random.keys import key_dtype as key_dtype
from tracefx.random.keys import key_impl as key_impl
from tracefx.random.keys import split as split
from tracefx.random.keys import wrap_key_data as wrap_key_data
from tracefx.random.matrices import multivariate_normal as multivariate_normal
from tracefx.random.matrices import orthogonal as orthogonal
from tracefx.random.uniforms import bernoulli as bernoulli
from tracefx.random.uniforms import rademacher as rademacher
from tracefx.random.uniforms import randint as randint
from tracefx.random.uniforms import uniform as uniform
