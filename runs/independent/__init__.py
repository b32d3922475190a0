"""Runs whose workers start on their own (`start: Independent`).

Such a run is a parent with one hidden child for each worker. A child is an ordinary gang of one: it waits, is placed,
restarts, is preempted and explained by what does that for every run. The parent is in no queue and holds nothing: it
is what people see, and it gathers its children: view.py loads, decide.py is pure, apply.py carries out.
"""
