"""Passes over jaxprs that need no rules of primitives: checking, dead-code and common-subexpression elimination."""
