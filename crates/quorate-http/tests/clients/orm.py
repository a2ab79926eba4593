"""SQLAlchemy with sqlalchemy-libsql, over HTTP: python orm.py URL [TOKEN]"""

import sys
from typing import Optional

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

# How often a transaction that the server has aborted is run.
RUNS_MAX = 10


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(30), unique=True)
    score: Mapped[Optional[float]]
    is_active: Mapped[bool] = mapped_column(default=True)
    orders: Mapped[list["Order"]] = relationship(back_populates="user", order_by="Order.id")


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"))
    item: Mapped[dict] = mapped_column(sa.JSON)
    user: Mapped[User] = relationship(back_populates="orders")


def open_engine(url, token):
    scheme, _, address = url.partition("://")
    secure = "?secure=true" if scheme == "https" else ""
    arguments = {} if token is None else {"auth_token": token}
    return sa.create_engine(f"sqlite+libsql://{address}/{secure}", connect_args=arguments)


def again(run):
    """Runs a transaction, and runs it again while the server says that it was aborted, because its leader was lost."""
    for left in reversed(range(RUNS_MAX)):
        try:
            return run()
        except ValueError as error:
            if left == 0 or "TRANSACTION_ABORTED" not in str(error):
                raise


def fails(code, run):
    """The client raises nothing but ValueError, with the code in its text."""
    try:
        again(run)
    except ValueError as error:
        assert code in str(error), error
        return
    raise AssertionError(f"{code} is missing")


def transaction(engine, run):
    def once():
        with Session(engine) as session, session.begin():
            return run(session)

    return again(once)


def count(engine, table):
    with engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(table))


def values(engine):
    with engine.connect() as connection:
        # LargeBinary needs what its driver lacks, so blobs are bound without a type.
        echoed = connection.execute(sa.text("SELECT :a, :b, :c, :d, :e"), dict(a=7, b=-1.5, c="\U0001f600", d=None, e=b"\0\xff"))
        assert echoed.one() == (7, -1.5, "\U0001f600", None, b"\0\xff")
        # It sends integers of more than 32 bits as floats, but reads them.
        assert connection.scalar(sa.text("SELECT 9223372036854775807")) == 2**63 - 1


def write_and_read(engine):
    def add(session):
        ann = User(name="ann", score=-1.5, orders=[Order(item={"of": "tea"}), Order(item={"of": "milk"})])
        session.add_all([ann, User(name="bob", is_active=False)])
        session.flush()
        return ann.id

    assert transaction(engine, add) == 1
    with Session(engine) as session:
        ann = session.scalars(sa.select(User).options(selectinload(User.orders)).where(User.name == "ann")).one()
        assert (ann.score, ann.is_active) == (-1.5, True)
        assert [order.item["of"] for order in ann.orders] == ["tea", "milk"]
        joined = sa.select(User.name, sa.func.count(Order.id)).outerjoin(Order).group_by(User.id).order_by(User.name)
        assert [tuple(row) for row in session.execute(joined)] == [("ann", 2), ("bob", 0)]

    def update(session):
        changed = sa.update(User).where(User.name == "bob").values(score=2).returning(User.id, User.score)
        assert session.execute(changed).one() == (2, 2.0)
        return session.execute(sa.delete(Order).where(Order.item["of"].as_string() == "milk")).rowcount

    assert transaction(engine, update) == 1
    assert count(engine, Order) == 1


def transactions(engine):
    def insert(name):
        return lambda session: session.execute(sa.insert(User).values(name=name))

    fails("SQLITE_CONSTRAINT_UNIQUE", lambda: transaction(engine, insert("ann")))
    missing = {"user_id": 99, "item": {}}
    fails("SQLITE_CONSTRAINT_FOREIGNKEY", lambda: transaction(engine, lambda on: on.execute(sa.insert(Order), missing)))
    fails("SQLITE_ERROR", lambda: transaction(engine, lambda session: session.execute(sa.text("SELECT * FROM missing"))))

    def many(session):
        session.execute(sa.insert(User), [{"name": f"user {n}"} for n in range(20)])
        with session.begin_nested() as nested:
            session.execute(sa.insert(User).values(name="undone"))
            nested.rollback()
        assert session.scalar(sa.select(sa.func.count()).select_from(User)) == 22

    def undone(session):
        session.execute(sa.delete(Order))
        session.rollback()

    transaction(engine, many)
    with Session(engine) as session:
        again(lambda: undone(session))
    assert (count(engine, User), count(engine, Order)) == (22, 1)


def main(url, token=None):
    if token is not None:
        fails("UNAUTHORIZED", lambda: open_engine(url, "quorate_0").connect())
    engine = open_engine(url, token)
    values(engine)
    again(lambda: Base.metadata.create_all(engine))
    assert {"orders", "users"} <= set(sa.inspect(engine).get_table_names())
    assert [column["name"] for column in sa.inspect(engine).get_columns("orders")] == ["id", "user_id", "item"]
    write_and_read(engine)
    transactions(engine)
    engine.dispose()
    print("passed")


main(*sys.argv[1:])
