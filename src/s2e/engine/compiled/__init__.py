"""Fused kernels and compiled training steps."""
