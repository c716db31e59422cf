"""Business as usual, from a seed: many small transactions, some of which are rolled back."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from examples.orders.models import OPEN, Order
from examples.orders.service import OrderClosedError, Shop

_ARTICLES = ("apples", "bread", "coffee")
_ENDING_SHARE = 0.1  # of what happens to an open order


@dataclass(slots=True)
class TradeCounts:
    """Counts of the changes that were tried.

    Args:
        committed: type of change to how many were committed.
        rolled_back: how many were taken back on purpose.
        too_late: how many met an order that another thread had closed meanwhile.
    """

    committed: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0
    too_late: int = 0


def trade(
    engine: Engine, shop: Shop, *, count: int, groups: int, seed: int, rollbacks: float = 0.0, threads: int = 1
) -> TradeCounts:
    """Do `count` transactions and return what was done. With one thread, the same ones for the same seed.

    Args:
        engine: of the shop's database, which is the outbox's too.
        shop: takes the orders.
        count: of transactions.
        groups: how many orders are open at once, at most; a few more where threads place at the same time.
        seed: of the choices.
        rollbacks: share of transactions that are rolled back, 0 to 1.
        threads: that trade at once.
    """
    shares = [count // threads + (number < count % threads) for number in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        traded = [
            pool.submit(_trade, engine, shop, share, groups, random.Random(f"{seed}.{number}"), rollbacks)  # noqa: S311
            for number, share in enumerate(shares)
        ]
    done = TradeCounts()
    for customer in (each.result() for each in traded):
        done.committed += customer.committed
        done.rolled_back += customer.rolled_back
        done.too_late += customer.too_late
    return done


def _trade(engine: Engine, shop: Shop, count: int, groups: int, rng: random.Random, rollbacks: float) -> TradeCounts:
    done = TradeCounts()
    for _ in range(count):
        with Session(engine) as session:
            try:
                what = _change_something(session, shop, groups, rng)
            except OrderClosedError:
                done.too_late += 1
                continue
            if rng.random() < rollbacks:
                session.rollback()
                done.rolled_back += 1
            else:
                session.commit()
                done.committed[what] += 1
    return done


def _change_something(session: Session, shop: Shop, groups: int, rng: random.Random) -> str:
    """Change one order and return how."""
    open_ids = session.scalars(select(Order.id).where(Order.status == OPEN).order_by(Order.id)).all()
    bought, quantity, price_cents = rng.choice(_ARTICLES), rng.randint(1, 9), rng.randint(100, 999)
    if len(open_ids) < groups:
        shop.place(session, f"customer-{rng.randint(1, 99)}", bought, quantity=quantity, price_cents=price_cents)
        return "placed"
    order_id, drawn = rng.choice(open_ids), rng.random()
    if drawn < _ENDING_SHARE / 2:
        shop.pay(session, order_id)
        return "paid"
    if drawn < _ENDING_SHARE:
        shop.cancel(session, order_id)
        return "cancelled"
    shop.add_line(session, order_id, bought, quantity=quantity, price_cents=price_cents)
    return "line added"
