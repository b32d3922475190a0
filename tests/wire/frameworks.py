"""What training frameworks make of workers' environments: questions on stdin, answers on stdout, both JSON.

A program of its own: it imports the frameworks once, which takes seconds, and then forks for every process of a gang,
so that each one has a whole environment and nothing but that. Processes of a gang live at the same time, for some meet.
"""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hostlist
import pytorch_lightning as lightning
import submitit
from accelerate import PartialState
from accelerate.utils import gather_object
from accelerate.utils.environment import get_cpu_distributed_information
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy
from submitit.helpers import TorchDistributedEnvironment

Environment = Mapping[str, str]
Answer = dict[str, Any]


def lightning_trainer(devices: int) -> Answer:
    """What a Trainer of `devices` processes on each of the run's machines believes."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",  # a Trainer of one process has no environment without
        devices=devices,
        num_nodes=int(os.environ["SLURM_NNODES"]),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    assert isinstance(trainer.strategy, DDPStrategy)
    found = trainer.strategy.cluster_environment
    assert found is not None
    return {
        "kind": type(found).__name__,
        "leader": f"{found.main_address}:{found.main_port}",
        "world_size": found.world_size(),
        "global_rank": found.global_rank(),
        "local_rank": found.local_rank(),
        "node_rank": found.node_rank(),
        "starts_processes": not found.creates_processes_externally,
    }


def lightning_job() -> Answer:
    """What Lightning takes from Slurm's set besides."""
    return {
        "job": SLURMEnvironment.job_name(),
        "job_id": SLURMEnvironment.job_id(),
        "root": SLURMEnvironment.resolve_root_node_address(os.environ["SLURM_NODELIST"]),
    }


def submitit_job() -> Answer:
    os.environ["SUBMITIT_EXECUTOR"] = "slurm"  # as submitit's own start of a task sets it
    job, torch = submitit.JobEnvironment(), TorchDistributedEnvironment()
    return {
        "kind": job.cluster,
        "job_id": job.job_id,
        "nodes": job.num_nodes,
        "tasks": job.num_tasks,
        "node": job.node,
        "global_rank": job.global_rank,
        "local_rank": job.local_rank,
        "hostnames": list(job.hostnames),
        "torch": [torch.rank, torch.world_size, torch.local_rank, torch.local_world_size],
        "port": torch.master_port,
    }


def accelerate_parsed() -> Answer:
    found = get_cpu_distributed_information()
    return {"rank": found.rank, "world_size": found.world_size, "local_rank": found.local_rank}


def accelerate_met() -> Answer:
    """After a real rendezvous of all processes of the gang, which tell each other who they are."""
    state = PartialState(cpu=True)
    told = gather_object([os.environ["ASTRAEUS_TASK_NAME"]])
    return {
        "kind": str(state.distributed_type),
        "processes": state.num_processes,
        "index": state.process_index,
        "local_index": state.local_process_index,
        "main": state.is_main_process,
        "told": told,
    }


def answers(environment: Environment, devices: int, *, meets: bool) -> Answer:
    os.environ.clear()
    os.environ.update(environment)
    # Last, because Accelerate completes the environment.
    return {
        "lightning": lightning_trainer(devices),
        "job": lightning_job(),
        "submitit": submitit_job(),
        "accelerate": accelerate_parsed(),
        "met": accelerate_met() if meets else None,
    }


def forked(ask: Callable[[], Answer]) -> int:
    """Where to read what a process of its own answers."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(ask(), pipe)
            code = 0
        finally:
            # A sibling of pytest's own children: nothing of the parent is to be flushed or closed here.
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    return reading


def gang_answers(gang: Mapping[str, Any]) -> list[Answer]:
    """In the order of the environments."""

    def asked(environment: Environment) -> Callable[[], Answer]:
        return lambda: answers(environment, gang["devices"], meets=gang["meets"])

    pipes = [forked(asked(environment)) for environment in gang["environments"]]
    found = []
    for pipe in pipes:
        with os.fdopen(pipe) as answer:
            found.append(json.loads(answer.read() or "null"))
    return found


def hosts(text: str) -> Answer:
    """How three programs read one hostlist."""
    os.environ["SLURM_JOB_NODELIST"] = text
    return {
        "python-hostlist": hostlist.expand_hostlist(text),
        "submitit": list(submitit.JobEnvironment().hostnames),
        "lightning": SLURMEnvironment.resolve_root_node_address(text),
    }


def main(questions: Mapping[str, Any]) -> Mapping[str, Any]:
    os.environ["SUBMITIT_EXECUTOR"] = "slurm"
    gangs: Mapping[str, Mapping[str, Any]] = questions["gangs"]
    lists: Sequence[str] = questions["hostlists"]
    return {
        "gangs": {name: gang_answers(gang) for name, gang in gangs.items()},
        "hostlists": {text: hosts(text) for text in lists},
    }


if __name__ == "__main__":
    logging.disable(logging.INFO)  # Lightning tells at length what it found
    warnings.simplefilter("ignore")  # and what else one could install
    json.dump(main(json.load(sys.stdin)), sys.stdout)
