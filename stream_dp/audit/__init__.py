"""Games against mechanisms, and exact or running evidence for and against a claimed guarantee."""
