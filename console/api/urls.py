"""Addresses of the API."""

from django.urls import path, re_path

from console.api import views
from console.api.errors import unknown_address

BASE = "o/<slug:organization>/w/<slug:workspace>"

urlpatterns = [
    path(f"{BASE}/runs", views.Runs.as_view()),
    path(f"{BASE}/runs/<str:run>", views.OneRun.as_view()),
    path(f"{BASE}/runs/<str:run>/stop", views.RunAction.as_view(action="stop")),
    path(f"{BASE}/runs/<str:run>/restart", views.RunAction.as_view(action="restart")),
    path(f"{BASE}/runs/<str:run>/workers", views.RunWorkers.as_view()),
    path(f"{BASE}/runs/<str:run>/events", views.RunEvents.as_view()),
    path(f"{BASE}/runs/<str:run>/explanation", views.RunExplanation.as_view()),
    path(f"{BASE}/workers/<str:worker>", views.OneWorker.as_view()),
    path(f"{BASE}/workers/<str:worker>/explanation", views.WorkerExplanation.as_view()),
    re_path(r"^", unknown_address),
]
