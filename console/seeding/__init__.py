"""A simulated cluster in the database, to try pages on and to measure them: no agent stands behind it.

`scene_make` is the way in; `manage.py seed_demo` calls it. Everything is drawn from one seed.
"""
