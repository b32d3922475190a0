"""`python -m astra`."""

from astra.main import main

main()
