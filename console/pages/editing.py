"""Pages of one thing each that has a form and can be removed: a secret, a credential, a member, a drive."""

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from common.errors import Invalid
from console.pages.forms import Form
from console.pages.scope import Scope


@dataclass(frozen=True, slots=True)
class Editing:
    """One thing, what may be done to it, and the page that it is a part of."""

    name: str
    form: Form
    removal: str
    """What removing it would do."""
    change: Callable[[dict[str, str]], str]
    """Changes it as the form was filled in and returns what is said then. Raises Invalid for what the form tells."""
    remove: Callable[[], str]
    """Removes it and returns what is said then."""
    section: str
    crumb: str
    back: str


def edit_page(request: HttpRequest, scope: Scope, editing: Editing) -> HttpResponse:
    """Its form; POST changes it or, with `remove`, removes it, and goes back."""
    form = editing.form
    if request.method == "POST":
        post = request.POST.dict()
        try:
            said = editing.remove() if "remove" in post else editing.change(post)
        except Invalid as error:
            form = form.filled(post).refused(error)
        else:
            messages.success(request, said)
            return redirect(editing.back)
    context = {"scope": scope, "section": editing.section, "editing": editing, "form": form}
    return render(request, "workspace/edit.html", context, status=422 if form.wrong else 200)
