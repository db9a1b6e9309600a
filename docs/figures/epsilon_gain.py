"""What an attacker gains at most at each epsilon, for docs/choosing_epsilon.md.

Run: python docs/figures/epsilon_gain.py. Writes epsilon-gain.svg beside this file. Left, by Bayes' rule: with pure
epsilon-DP the odds that somebody is in the data change by a factor of at most e^epsilon, whatever else is known. Right,
the same from even odds: how many of 100 guesses are right at most. One count that is released once attains it.
"""

import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

EPSILONS = {0.1: "#56B4E9", 0.5: "#009E73", 1.0: "#0072B2", 2.0: "#E69F00", 4.0: "#D55E00"}


def after(before: float, epsilon: float) -> float:
    """The most that an attacker may believe, as a probability, who believed `before`."""
    odds = math.exp(epsilon)
    return before * odds / (1 + before * (odds - 1))


def draw(path: Path) -> None:
    """Write the picture; every line's id in the SVG is `gain/what`."""
    settings = {"svg.hashsalt": "epsilon", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(7.6, 3.6))
        figure.subplots_adjust(0.08, 0.14, 0.98, 0.91, wspace=0.24)
        left, right = figure.subplots(1, 2)
        before = [step / 100 for step in range(101)]
        left.plot(before, before, color="#777777", linestyle=":", label="nothing is released")
        for epsilon, colour in EPSILONS.items():
            found = [after(each, epsilon) for each in before]
            name = f"{epsilon:g}"
            left.plot(before, found, color=colour, label=f"epsilon {name}", gid=f"gain/{name}")
        left.set(xlabel="believed before", ylabel="believed after, at most")
        left.set_title("that somebody is in the data")
        left.legend(frameon=False, fontsize=8, loc="lower right")
        budgets = [step / 20 for step in range(101)]
        right.plot(
            budgets,
            [100 * after(0.5, each) for each in budgets],
            color="#333333",
            gid="gain/guesses",
        )
        for epsilon, colour in EPSILONS.items():
            right.plot([epsilon], [100 * after(0.5, epsilon)], "o", color=colour)
            right.annotate(
                f"{100 * after(0.5, epsilon):.1f}",
                (epsilon, 100 * after(0.5, epsilon)),
                (4, -11),
                textcoords="offset points",
            )
        right.set(xlabel="epsilon", ylabel="of 100 guesses right, at most", ylim=(48, 101))
        right.set_title("in or out, even odds before")
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "epsilon-gain.svg")
