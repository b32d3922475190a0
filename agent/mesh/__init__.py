"""The mesh on this machine: a WireGuard interface, its peers, routes and the rules of who reaches whom.

The machine's own key never leaves it. Everything else follows from what the console says (`wire.mesh.MeshOrder`) and is
compared with what is there again and again, so that an agent that was restarted adopts it, and what somebody took away
comes back. `plan` decides, without looking at anything; `system` looks and does; `mesh` is the thread between them.
"""
