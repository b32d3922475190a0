"""The one way machines tells the apps above it that something changed (it may not import them)."""

from django.dispatch import Signal

cluster_changed = Signal()
"""Sent inside the transaction with `cluster_id`: what placement sees of this cluster is different now."""
