"""Compiled training steps: tracing, layers of all networks as batched products, Triton kernels, kernel timing."""
