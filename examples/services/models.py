"""Tables of the services."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The tables of the services."""


class Invoice(Base):
    """The current price of an order. Its version is that of the last change billing knows."""

    __tablename__ = "billing_invoices"

    order: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    cents: Mapped[int]
    status: Mapped[str]


class Shipment(Base):
    """A parcel: one for each order that was paid."""

    __tablename__ = "shipping_shipments"

    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str] = mapped_column(index=True)
    cents: Mapped[int]


class Entry(Base):
    """A line of the audit's book, in the order they were written."""

    __tablename__ = "audit_entries"

    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str] = mapped_column(index=True)
    version: Mapped[int]
    what: Mapped[str]
