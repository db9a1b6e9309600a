"""Running counterexamples: adversaries that win where a tempting rule promises that nobody can."""
