"""The part of the checks that runs beside a worker, with its image, network and devices, in a process of its own.

The agent packs these modules into one file (agent/preflight/job.py), which is mounted there and run by the Python it
finds, from 3.9 on: the standard library only, PyTorch where the job asks for an all-reduce. The job comes as JSON in a
variable, the answer is the last line that begins with MARK (answers.py).
"""
