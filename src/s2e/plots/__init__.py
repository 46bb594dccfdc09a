"""Figures: one palette, numbers apart from drawings."""
