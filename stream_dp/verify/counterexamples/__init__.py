"""Running counterexamples, one file each: adversaries that win where a tempting rule promises that nobody can."""
