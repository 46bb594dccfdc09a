"""Figures: one style for each method, and drawings of numbers that were computed elsewhere.

Matplotlib is imported only when something is drawn.
"""

from s2e.plots.drawing import draw_line, legend, panels, plot_style, render
from s2e.plots.epoch_curves import Band, KeepRateCurve, draw_bands, draw_keep_rates
from s2e.plots.names import display_name, noise_title
from s2e.plots.styles import OTHER_COLOR, STYLES, Style, style_of

__all__ = [
    "OTHER_COLOR",
    "STYLES",
    "Band",
    "KeepRateCurve",
    "Style",
    "display_name",
    "draw_bands",
    "draw_keep_rates",
    "draw_line",
    "legend",
    "noise_title",
    "panels",
    "plot_style",
    "render",
    "style_of",
]
