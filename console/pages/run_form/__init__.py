"""The New run form: a view of a run document that changes what one changes in it, and keeps all else."""
