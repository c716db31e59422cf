"""Places orders: python -m project_module.producer, with the database in SLUICE_DSN."""

import os
import sys

from sluice.declaration import load_declaration, naming
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sqlalchemy.orm import Mapped, Session, mapped_column

from project_module.handlers import Base


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    total_cents: Mapped[int]


def place(session: Session, outbox: Outbox, total_cents: int) -> Order:
    """Add an order and its event to the session: the commit keeps both, a rollback neither."""
    order = Order(total_cents=total_cents)
    session.add(order)
    session.flush()  # gives the order its id
    outbox.add(session, Event(type="order.placed", group=f"order-{order.id}", data={"total_cents": total_cents}))
    return order


def main() -> None:
    """Place an order of 12.50."""
    if "SLUICE_DSN" not in os.environ:
        sys.exit("producer: no database is named; set SLUICE_DSN, such as sqlite:///local.db")
    environment = load_declaration().environment(os.environ.get("SLUICE_ENV", "local"))
    engine = engines.engine(os.environ["SLUICE_DSN"])
    Base.metadata.create_all(engine)  # in production, a migration does this
    with Session(engine) as session:
        order = place(session, Outbox(naming.topic_name(environment)), total_cents=1250)
        session.commit()
        print(f"order {order.id} is placed")


if __name__ == "__main__":
    main()
