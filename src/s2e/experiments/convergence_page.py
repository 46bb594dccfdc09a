"""`s2e reproduce convergence`: the numerical checks of the paper's claims about its search, with figures and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.convergence import conditions, convergence
from s2e.experiments.figures import write_figure
from s2e.experiments.pages import PAGE, RESULT, Section, claims_section, files, how_made, page
from s2e.plots import ORDERED_STYLES, legend, plot_style
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.samplers.relaxation import Settings
from s2e.specs import ConvergenceOptions
from s2e.workflows import SILENT, ProgressListener

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND = "reproduce convergence"

ROUNDING = 1e-6
"""Largest relative difference between Proposition 1 and finite differences that is due to rounding."""

ABOUT = """The paper's claims about the convergence of its search, checked with polynomials, for which all
expectations are known exactly. The derivations are in `s2e.experiments.convergence`."""


def reproduce_convergence(
    options: ConvergenceOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Compute all checks, and write numbers, figures and the page."""
    session = Session(COMMAND, options, location, resume=resume)
    with session.start({"data_fingerprint": "no data"}) as run:
        listener.note("Proposition 1, rates, errors of estimates, and bounds")
        found = convergence(options.seed, options.repeats)
        claims = claims_of(found)
        result = {**found, "claims": [claim.row() for claim in claims]}
        device = torch.device("cpu")

        def write() -> None:
            run.write_text("convergence.csv", csv_text(rows_of_checks(found), decimals=None))
            for name, curves in figures_of(found).items():
                write_figure(run, name, draw_curves(curves))
            made = {"all checks": {**session.made_on(device), "data_fingerprint": "no data"}}
            run.write_text(PAGE, page_of(run, found, claims, made, options))

        return session.finish(result, device, write)


# -------------------------------------------------------------------------------------------------------------- claims


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of the paper's sections on its algorithm, decided by the checks."""
    agreement, rates, errors, bound = (found[name] for name in ("proposition_1", "rates", "estimation_errors", "bound"))
    worst = max(agreement["gradient"], agreement["hessian"])
    newton, gradient = rates["newton_ratios"], rates["gradient_ratios"]
    below = all(
        norm <= bound["constant"] * epsilon * 1.001 + ROUNDING
        for name in ("random", "adversarial", "worst")
        for epsilon, norm in zip(bound["epsilons"], bound[name], strict=True)
    )
    relaxed = found["relaxed_bound"]
    below = below and all(
        norm <= limit for norm, limit in zip(relaxed["gradient_norms"], relaxed_bounds(relaxed), strict=True)
    )
    counter = found["counterexample"]
    return [
        Claim(
            "Proposition 1",
            "the Hessian of J is E[f ∇² log p] + E[f s sᵀ]",
            Verdict.of(holds=int(worst < ROUNDING), of=1),
            f"differs from finite differences by {worst:.1e}",
        ),
        Claim(
            "Section 3.4",
            "exact Newton steps converge faster than linearly",
            Verdict.of(holds=int(newton[-1] < 0.1 * gradient[-1]), of=1),
            f"last ratio of errors {newton[-1]:.1e}; gradient descent {gradient[-1]:.3f}",
        ),
        Claim(
            "Assumption 3",
            "errors of the estimates do not vanish for finite K",
            Verdict.REPRODUCED,
            f"they fall as K^{errors['gradient_slope']:.2f} (gradient) and K^{errors['hessian_slope']:.2f} (Hessian)",
        ),
        Claim(
            "Theorem 1",
            "under its conditions the gradient at a limit point is at most a constant times the error",
            Verdict.NOT,
            f"counterexample with L = {counter['smoothness']:g}, η = {counter['eta']:g}: the gradient stays "
            f"{counter['gradient_norms'][-1]:g} without any error",
        ),
        Claim(
            "Theorem 1, corrected here",
            "the same with another condition, 2η > L, and the constant L/(2η − L)",
            Verdict.of(holds=int(below), of=1),
            f"largest gradient {max(bound['worst']):.3g} at an error of {bound['epsilons'][-1]:g}, bound "
            f"{bound['constant'] * bound['epsilons'][-1]:.3g}; Newton steps of a relaxed objective: "
            f"{', '.join(f'{norm:.2g}' for norm in relaxed['gradient_norms'])}, bounds "
            f"{', '.join(f'{limit:.2g}' for limit in relaxed_bounds(relaxed))}",
        ),
    ]


def relaxed_bounds(relaxed: Mapping[str, Any]) -> list[float]:
    """Return the bound on the gradient of the relaxed objective for each error; each has its own curvatures."""
    return [constant * epsilon for constant, epsilon in zip(relaxed["constants"], relaxed["epsilons"], strict=True)]


def shipped_step() -> str:
    """Return a statement on the step of the samplers, whose curvatures lie outside the theorem's conditions."""
    settings = Settings()
    first, second, needed = conditions(settings.floor, settings.ceiling)
    return (
        f"**The step that is shipped lies outside the conditions.** The samplers clip curvatures to [η, L] = "
        f"[{settings.floor:g}, {settings.ceiling:g}] and bound each step by a trust region, a relative change of θ "
        f"by {settings.radius:g}. In the conditions of Theorem 1, 2 − Lη + η² ≥ 0 and 2η² + Lη − 2 ≥ 0, the left sides "
        f"are {first:.2f} and {second:.2f}; in 2η − L > 0, which its proof needs, {needed:.2f}. Neither the theorem "
        "nor the corrected bound says anything about that step."
    )


# ------------------------------------------------------------------------------------------------------------- figures


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves over numbers, with logarithmic axes.

    Attributes:
        x_label: label of the horizontal axis.
        y_label: label of the vertical axis.
        lines: numbers (n,) and values (n,) by name; values of 0 are not drawn.
        log_x: whether the horizontal axis is logarithmic.
    """

    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = True


def figures_of(found: Mapping[str, Any]) -> dict[str, Curves]:
    """Return the numbers of each figure, by file name."""
    rates, errors, bound, relaxed = (found[name] for name in ("rates", "estimation_errors", "bound", "relaxed_bound"))
    steps = {name: rates[f"{name}_errors"] for name in ("newton", "gradient")}
    positive = [index for index, epsilon in enumerate(bound["epsilons"]) if epsilon > 0]
    epsilons = [bound["epsilons"][index] for index in positive]
    tails = {name: [bound[name][index] for index in positive] for name in ("random", "adversarial", "worst")}
    return {
        "rates": Curves(
            "step",
            "distance to the minimum",
            {
                "Newton": (range(len(steps["newton"])), steps["newton"]),
                "gradient descent": (range(len(steps["gradient"])), steps["gradient"]),
            },
            log_x=False,
        ),
        "estimation-errors": Curves(
            "K, points in a generation",
            "root mean square error",
            {
                "gradient": (errors["counts"], errors["gradient"]),
                "Hessian": (errors["counts"], errors["hessian"]),
            },
        ),
        "bound": Curves(
            "norm of the errors",
            "largest gradient at the end",
            {
                "bound, L/(2η − L) times the error": (epsilons, [bound["constant"] * each for each in epsilons]),
                "worst direction, smallest curvatures": (epsilons, tails["worst"]),
                "worst direction, random curvatures": (epsilons, tails["adversarial"]),
                "random directions and curvatures": (epsilons, tails["random"]),
                "Newton steps of a relaxed objective": (relaxed["epsilons"], relaxed["gradient_norms"]),
                "bound of these steps": (relaxed["epsilons"], relaxed_bounds(relaxed)),
            },
        ),
    }


def draw_curves(curves: Curves) -> Figure:
    """Draw curves in one panel."""
    from matplotlib.figure import Figure

    styles = dict(zip(curves.lines, ORDERED_STYLES, strict=False))
    with plot_style():
        figure = Figure(figsize=(5.6, 3.0), layout="constrained")
        axes = figure.add_subplot()
        for name, (numbers, values) in curves.lines.items():
            style, shown = styles[name], np.asarray(values, dtype=np.float64)
            axes.plot(
                list(numbers),
                np.where(shown > 0, shown, np.nan),
                color=style.color,
                linestyle=style.linestyle,
                linewidth=style.width,
                marker="o" if curves.log_x else None,
                markersize=3,
            )
        axes.set_yscale("log")
        if curves.log_x:
            axes.set_xscale("log")
        axes.set_xlabel(curves.x_label)
        axes.set_ylabel(curves.y_label)
        legend(figure, styles)
    return figure


def rows_of_checks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each point of each curve."""
    return [
        {"figure": figure, "line": name, "x": float(number), "y": float(value)}
        for figure, curves in figures_of(found).items()
        for name, (numbers, values) in curves.lines.items()
        for number, value in zip(numbers, values, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------- page


def page_of(
    run: Run,
    found: Mapping[str, Any],
    claims: Sequence[Claim],
    made: Mapping[str, Mapping[str, Any]],
    options: ConvergenceOptions,
) -> str:
    """Return the page of the checks."""
    errors, rates, bound = (found[name] for name in ("estimation_errors", "rates", "bound"))
    about = Section("", [ABOUT, shipped_step(), f"Files: {files(['convergence.csv', RESULT, 'config.json'])}."])
    sections = [
        Section(
            "Newton and gradient descent with exact expectations",
            [
                "Distance of two free parameters of the distribution to the minimum of J, for a quadratic of two "
                "variables. The slope of gradient descent is that of its theory: the ratio of successive distances is "
                f"{rates['gradient_ratios'][-1]:.3f}, predicted {rates['predicted_gradient_ratio']:.3f}.",
                "![distance to the minimum by step](rates.png)",
            ],
        ),
        Section(
            "Errors of estimates from K points",
            [
                f"Root mean square norm of the errors over {options.repeats} repeats. Both fall as 1/√K: in logarithms "
                f"the slopes are {errors['gradient_slope']:.2f} and {errors['hessian_slope']:.2f}.",
                "![errors of estimated gradients and Hessians](estimation-errors.png)",
            ],
        ),
        Section(
            "Theorem 1 with the condition that its proof needs",
            [
                f"Steps on a quadratic in five dimensions, whose curvatures and those of the step lie in [η, L] = "
                f"[{bound['eta']:g}, {bound['smoothness']:g}], so that L/(2η − L) = {bound['constant']:g}: the largest "
                "norm of the gradient in the second half of the steps, with errors in random directions, in the worst "
                "direction, and in the worst direction with the smallest curvatures, which attain the bound; and "
                "Newton steps of a relaxed objective with errors in random directions.",
                "![largest gradients and their bound](bound.png)",
            ],
        ),
    ]
    made_by = how_made(run, ConvergenceOptions, COMMAND, made)
    return page("Convergence of the search", [about, claims_section(claims, "paper"), *sections, made_by])
