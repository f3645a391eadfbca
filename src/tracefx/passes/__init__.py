"""Passes over jaxprs that need no rule of a primitive: checking, dead-code and common-subexpression elimination."""
