"""A small GPT, trained on many devices with the data and the weights in parallel."""
