"""One place decides about an attempt: load (view.py), decide (decide.py, pure), apply (apply.py)."""
