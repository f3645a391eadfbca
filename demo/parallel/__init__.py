"""Training of a small GPT on several devices, with data and tensor parallelism."""
