"""Why a run waits, or why it landed where it did: the parts that `runs/explanations.py` puts together."""
