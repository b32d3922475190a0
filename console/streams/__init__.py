"""The places that hold connections open, as plain ASGI: agents' long polls, log followers, live pages.

A Django async view would take a thread for each open poll (measured: 10,000 polls, 10,600 threads). Their
database calls run in a small thread pool (`database.py`).
"""
