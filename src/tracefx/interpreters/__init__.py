"""The interpreters: forward-mode differentiation, batching, staging, partial evaluation, transposition."""
