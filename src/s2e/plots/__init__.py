"""Figures: one style for each method, and drawings of numbers that were computed elsewhere.

Matplotlib is imported only when something is drawn.
"""

from s2e.plots.drawing import draw_line, legend, panels, plot_style, render
from s2e.plots.epoch_curves import Band, KeepRateCurve, draw_bands, draw_keep_rates
from s2e.plots.lines import Line, draw_lines, mean_line
from s2e.plots.names import data_title, display_name, noise_title
from s2e.plots.styles import ORDERED_STYLES, OTHER_COLOR, STYLES, Style, style_of

__all__ = [
    "ORDERED_STYLES",
    "OTHER_COLOR",
    "STYLES",
    "Band",
    "KeepRateCurve",
    "Line",
    "Style",
    "data_title",
    "display_name",
    "draw_bands",
    "draw_keep_rates",
    "draw_line",
    "draw_lines",
    "legend",
    "mean_line",
    "noise_title",
    "panels",
    "plot_style",
    "render",
    "style_of",
]
