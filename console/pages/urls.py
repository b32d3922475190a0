"""Addresses of the pages. Names of runs and workers are DNS labels; those of machines may have dots."""

from allauth.account import views as account
from django.urls import path
from django.views.generic import RedirectView

from console.pages import machine_list, machine_page, run_list, run_new, run_page, signin, worker_page

WORKSPACE = "o/<slug:organization>/w/<slug:workspace>"
RUN = f"{WORKSPACE}/jobs/<slug:cluster>/<str:run>"
MACHINES = "o/<slug:organization>/clusters/<slug:cluster>/machines"

urlpatterns = [
    path("", signin.home, name="home"),
    # Sign-in. Only what has a page here: people are made by owners, who also give new passwords.
    path("accounts/login/", account.login, name="account_login"),
    path("accounts/logout/", account.logout, name="account_logout"),
    path("accounts/password/change/", account.password_change, name="account_change_password"),
    path("accounts/inactive/", account.account_inactive, name="account_inactive"),
    path("demo-login/<str:token>", signin.demo_login, name="demo_login"),
    path("theme", signin.theme_set, name="theme"),
    # Runs and workers.
    path(WORKSPACE, RedirectView.as_view(pattern_name="runs"), name="workspace"),
    path(f"{WORKSPACE}/jobs", run_list.run_list, name="runs"),
    path(f"{WORKSPACE}/jobs/new", run_new.run_new, name="run_new"),
    path(RUN, run_page.run_page, name="run"),
    path(f"{RUN}/stop", run_page.run_stop, name="run_stop"),
    path(f"{RUN}/restart", run_page.run_restart, name="run_restart"),
    path(f"{RUN}/delete", run_page.run_delete, name="run_delete"),
    path(f"{WORKSPACE}/workers/<str:worker>", worker_page.worker_page, name="worker"),
    # Machines.
    path(MACHINES, machine_list.machine_list, name="machines"),
    path(f"{MACHINES}/add", machine_list.machine_add, name="machine_add"),
    path(f"{MACHINES}/<str:machine>", machine_page.machine_page, name="machine"),
    path(f"{MACHINES}/<str:machine>/label", machine_page.machine_label, name="machine_label"),
    path(f"{MACHINES}/<str:machine>/cordon", machine_page.machine_cordon, name="machine_cordon"),
    path(f"{MACHINES}/<str:machine>/uncordon", machine_page.machine_uncordon, name="machine_uncordon"),
]
