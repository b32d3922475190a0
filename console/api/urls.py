"""Addresses of the API below /api/v1/."""

from django.urls import path

from console.api import (
    clusters,
    drives,
    explanations,
    fabrics,
    machines,
    members,
    metrics,
    pools,
    runs,
    secrets,
    tokens,
    workers,
)

ORGANIZATION = "o/<slug:organization>"
CLUSTER = f"{ORGANIZATION}/clusters/<slug:cluster>"
MACHINE = f"{CLUSTER}/machines/<str:machine>"
WORKSPACE = f"{ORGANIZATION}/w/<slug:workspace>"
RUN = f"{WORKSPACE}/runs/<str:run>"
WORKER = f"{WORKSPACE}/workers/<str:worker>"

urlpatterns = [
    # Runs and workers. `…/logs` of both are streams: console/streams/logs.py and run_logs.py.
    path(f"{WORKSPACE}/runs", runs.Runs.as_view()),
    path(RUN, runs.OneRun.as_view()),
    path(f"{RUN}/stop", runs.RunStop.as_view()),
    path(f"{RUN}/restart", runs.RunRestart.as_view()),
    path(f"{RUN}/workers", runs.RunWorkers.as_view()),
    path(f"{RUN}/events", runs.RunEvents.as_view()),
    path(f"{RUN}/metrics", metrics.RunMetrics.as_view()),
    path(f"{RUN}/explanation", explanations.RunExplanation.as_view()),
    path(WORKER, workers.OneWorker.as_view()),
    path(f"{WORKER}/events", workers.WorkerEvents.as_view()),
    path(f"{WORKER}/explanation", explanations.WorkerExplanation.as_view()),
    # The workspace itself.
    path(f"{WORKSPACE}/members", members.Members.as_view()),
    path(f"{WORKSPACE}/members/<str:user>", members.OneMember.as_view()),
    path(f"{WORKSPACE}/tokens", tokens.Tokens.as_view()),
    path(f"{WORKSPACE}/tokens/<int:token>", tokens.OneToken.as_view()),
    path(f"{WORKSPACE}/secrets", secrets.Secrets.as_view()),
    path(f"{WORKSPACE}/secrets/<str:secret>", secrets.OneSecret.as_view()),
    path(f"{WORKSPACE}/registry-credentials", secrets.Credentials.as_view()),
    path(f"{WORKSPACE}/registry-credentials/<str:credential>", secrets.OneCredential.as_view()),
    path(f"{WORKSPACE}/drives", drives.WorkspaceDrives.as_view()),
    # Machines.
    path(f"{ORGANIZATION}/clusters", clusters.Clusters.as_view()),
    path(CLUSTER, clusters.OneCluster.as_view()),
    path(f"{CLUSTER}/pools", pools.Pools.as_view()),
    path(f"{CLUSTER}/pools/<str:pool>", pools.OnePool.as_view()),
    path(f"{CLUSTER}/fabrics", fabrics.Fabrics.as_view()),
    path(f"{CLUSTER}/fabrics/<str:fabric>", fabrics.OneFabric.as_view()),
    path(f"{CLUSTER}/join-tokens", clusters.JoinTokens.as_view()),
    path(f"{CLUSTER}/join-tokens/<int:token>", clusters.OneJoinToken.as_view()),
    path(f"{CLUSTER}/drives", drives.Drives.as_view()),
    path(f"{CLUSTER}/drives/<str:drive>", drives.OneDrive.as_view()),
    path(f"{CLUSTER}/machines", machines.Machines.as_view()),
    path(MACHINE, machines.OneMachine.as_view()),
    path(f"{MACHINE}/cordon", machines.MachineCordon.as_view()),
    path(f"{MACHINE}/uncordon", machines.MachineUncordon.as_view()),
    path(f"{MACHINE}/drain", machines.MachineDrain.as_view()),
    path(f"{MACHINE}/health", machines.MachineHealth.as_view()),
    path(f"{MACHINE}/failures", machines.MachineFailures.as_view()),
    path(f"{MACHINE}/credentials", machines.MachineCredentials.as_view()),
    # The organization itself.
    path(f"{ORGANIZATION}/tokens", tokens.OrganizationTokens.as_view()),
    path(f"{ORGANIZATION}/tokens/<int:token>", tokens.OneOrganizationToken.as_view()),
    path(f"{ORGANIZATION}/audit", clusters.Audit.as_view()),
]
