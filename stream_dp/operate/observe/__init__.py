"""Views of a run for people and monitoring: page, operator's figures, log of phases, traces."""
