"""The shop's pages: the admin, and an order that is placed."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from sluice.django import AtomicOutbox
from sluice.messaging import Event
from tests.support.shop.models import Invoice

TOPIC = "sluice-local-events.fifo"


def place(request: HttpRequest, order: str) -> HttpResponse:
    """Place an order; fail after that, if the request says so."""
    Invoice.objects.create(order=order)
    AtomicOutbox(TOPIC).add(Event(type="order.placed", group=order, data={}))
    if "fails" in request.GET:
        raise ValueError(order)
    return HttpResponse(status=201)


urlpatterns = [path("admin/", admin.site.urls), path("orders/<order>", place)]
