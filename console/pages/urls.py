"""Addresses of the pages. Names of runs and workers are DNS labels; those of machines may have dots."""

from allauth.account import views as account
from django.urls import path
from django.views.generic import RedirectView

from console.pages import (
    drives,
    explanation,
    fabrics,
    machine_actions,
    machine_add,
    machine_health,
    machine_labels,
    machine_list,
    machine_map,
    machine_page,
    mesh,
    pools,
    queue,
    run_list,
    run_log,
    run_new,
    run_offer,
    run_page,
    run_stop_many,
    signin,
    styleguide,
    worker_page,
    workspace_people,
    workspace_stores,
)
from console.pages import workspace as workspace_page

WORKSPACE = "o/<slug:organization>/w/<slug:workspace>"
RUN = f"{WORKSPACE}/jobs/<slug:cluster>/<str:run>"
MACHINES = "o/<slug:organization>/clusters/<slug:cluster>/machines"
MACHINE = f"{MACHINES}/<str:machine>"
SETTINGS = f"{WORKSPACE}/settings"
FABRICS = "o/<slug:organization>/clusters/<slug:cluster>/fabrics"
POOLS = "o/<slug:organization>/clusters/<slug:cluster>/pools"
DRIVES = "o/<slug:organization>/clusters/<slug:cluster>/drives"

urlpatterns = [
    path("", signin.home, name="home"),
    # Sign-in. Only what has a page here: people are made by owners, who also give new passwords.
    path("accounts/login/", account.login, name="account_login"),
    path("accounts/logout/", account.logout, name="account_logout"),
    path("accounts/password/change/", account.password_change, name="account_change_password"),
    path("accounts/inactive/", account.account_inactive, name="account_inactive"),
    path("demo-login/<str:token>", signin.demo_login, name="demo_login"),
    path("theme", signin.theme_set, name="theme"),
    path("styleguide", styleguide.styleguide, name="styleguide"),
    # Runs and workers.
    path(WORKSPACE, RedirectView.as_view(pattern_name="runs"), name="workspace"),
    path(f"{WORKSPACE}/jobs", run_list.run_list, name="runs"),
    path(f"{WORKSPACE}/jobs/queue", queue.queue, name="queue"),
    path(f"{WORKSPACE}/jobs/stop", run_stop_many.runs_stop_page, name="runs_stop"),
    path(f"{WORKSPACE}/jobs/new", run_new.run_new, name="run_new"),
    path(RUN, run_page.run_page, name="run"),
    path(f"{RUN}/edit", run_new.run_edit_page, name="run_edit"),
    path(f"{RUN}/explanation", explanation.run_explanation, name="run_explanation"),
    path(f"{RUN}/log", run_log.run_log, name="run_log"),
    path(f"{RUN}/log/lines", run_log.run_log_lines, name="run_log_lines"),
    path(f"{RUN}/log/folds", run_log.run_log_folds, name="run_log_folds"),
    path(f"{RUN}/log/search", run_log.run_log_search, name="run_log_search"),
    path(f"{RUN}/offers/<str:offer>", run_offer.run_offer, name="run_offer"),
    path(f"{RUN}/metrics", run_page.run_metrics, name="run_metrics"),
    path(f"{RUN}/stop", run_page.run_stop, name="run_stop"),
    path(f"{RUN}/restart", run_page.run_restart, name="run_restart"),
    path(f"{RUN}/delete", run_page.run_delete, name="run_delete"),
    path(f"{WORKSPACE}/workers/<str:worker>", worker_page.worker_page, name="worker"),
    # The workspace itself.
    path(SETTINGS, workspace_page.settings, name="settings"),
    path(f"{SETTINGS}/secrets", workspace_stores.secret_add, name="secret_add"),
    path(f"{SETTINGS}/secrets/<str:secret>", workspace_stores.secret_page, name="secret"),
    path(f"{SETTINGS}/credentials", workspace_stores.credential_add, name="credential_add"),
    path(f"{SETTINGS}/credentials/<str:credential>", workspace_stores.credential_page, name="credential"),
    path(f"{SETTINGS}/members", workspace_people.member_add, name="member_add"),
    path(f"{SETTINGS}/members/<str:user>", workspace_people.member_page, name="member"),
    path(f"{SETTINGS}/tokens", workspace_people.token_add, name="token_add"),
    path(f"{SETTINGS}/tokens/<int:token>/revoke", workspace_people.token_revoke, name="token_revoke"),
    # Machines, fabrics, pools and drives.
    path(MACHINES, machine_list.machine_list, name="machines"),
    path(f"{MACHINES}/map", machine_map.machine_map, name="machine_map"),
    path(f"{MACHINES}/add", machine_add.machine_add, name="machine_add"),
    path(FABRICS, fabrics.fabric_list, name="fabrics"),
    path(f"{FABRICS}/<str:fabric>/rename", fabrics.fabric_rename, name="fabric_rename"),
    path(f"{FABRICS}/<str:fabric>/use", fabrics.fabric_use, name="fabric_use"),
    path("o/<slug:organization>/clusters/<slug:cluster>/mesh", mesh.mesh_page, name="mesh"),
    path(POOLS, pools.pools_page, name="pools"),
    path(f"{POOLS}/<str:pool>", pools.pool_page, name="pool"),
    path(f"{POOLS}/<str:pool>/machines", pools.pool_machines, name="pool_machines"),
    path(DRIVES, drives.drives_page, name="drives"),
    path(f"{DRIVES}/<str:drive>", drives.drive_page, name="drive"),
    path(MACHINE, machine_page.machine_page, name="machine"),
    path(f"{MACHINE}/label", machine_labels.machine_label, name="machine_label"),
    path(f"{MACHINE}/cordon", machine_actions.machine_cordon, name="machine_cordon"),
    path(f"{MACHINE}/uncordon", machine_actions.machine_uncordon, name="machine_uncordon"),
    path(f"{MACHINE}/drain", machine_actions.machine_drain, name="machine_drain"),
    path(f"{MACHINE}/move", machine_actions.machine_move, name="machine_move"),
    path(f"{MACHINE}/rename", machine_actions.machine_rename, name="machine_rename"),
    path(f"{MACHINE}/health", machine_health.machine_health, name="machine_health"),
    path(f"{MACHINE}/health/end", machine_health.machine_health_end, name="machine_health_end"),
    path(f"{MACHINE}/forget", machine_health.machine_forget, name="machine_forget"),
    path(f"{MACHINE}/revoke", machine_actions.machine_revoke, name="machine_revoke"),
    path(f"{MACHINE}/remove", machine_actions.machine_remove, name="machine_remove"),
]
