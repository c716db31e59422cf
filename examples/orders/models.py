"""The business rows: orders and what was ordered."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

OPEN, PAID, CANCELLED = "open", "paid", "cancelled"


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """An order. Its version counts its committed changes, so a change that was lost or came twice shows."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    status: Mapped[str] = mapped_column(default=OPEN)
    version: Mapped[int] = mapped_column(default=0)
    lines: Mapped[list["OrderLine"]] = relationship(back_populates="order", order_by="OrderLine.id")

    @property
    def group(self) -> str:
        """Return the message group of its events: what happens to one order stays in order."""
        return f"order-{self.id}"

    @property
    def total_cents(self) -> int:
        """Return the price of the order."""
        return sum(line.quantity * line.price_cents for line in self.lines)


class OrderLine(Base):
    """One article of an order."""

    __tablename__ = "order_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"), index=True)
    article: Mapped[str]
    quantity: Mapped[int]
    price_cents: Mapped[int]
    order: Mapped[Order] = relationship(back_populates="lines")
