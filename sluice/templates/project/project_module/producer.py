"""Places orders: python -m project_module.producer, with the database in SLUICE_DSN, or as a task of the stacks has it."""

import os
import sys

from sluice.declaration import load_task_declaration, naming
from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox, database_engine
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
    environment = load_task_declaration().environment(os.environ.get("SLUICE_ENV", "local"))
    engine = database_engine(environment.region, os.environ.get("SLUICE_DSN"))
    outbox = Outbox(naming.topic_name(environment), event_bytes_max=environment.event_bytes_max)
    with Session(engine) as session:
        order = place(session, outbox, total_cents=1250)
        session.commit()
        print(f"order {order.id} is placed")


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(f"producer: {error}")
