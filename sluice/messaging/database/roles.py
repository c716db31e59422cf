"""The users of a Postgres, one for each part of the runtime, and the rights on Sluice's tables that each gets.

`sluice schema apply --roles` makes them as the tables' owner, and brings their rights on Sluice's tables to exactly
those here. Tables of the project itself are the producers' and the workers' to read and write, from the moment on that
these users get their first rights in a database: Postgres's default privileges give them the later ones. What a project
takes away stays away.

On RDS a user that is a member of `rds_iam` logs in with a token of IAM and no longer with a password, and a member of a
member is one, too. Since version 16 Postgres makes whoever creates a user its member, unless he is a superuser. Whether
RDS counts that was not read anywhere. So there a role creates these users that is dropped again, and its memberships
with it; and before the commit it is looked whether the owner would lock himself out.

https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.IAMDBAuth.DBAccounts.html,
https://github.com/db-operator/db-operator/issues/118, https://www.postgresql.org/docs/18/role-attributes.html,
https://www.postgresql.org/docs/18/sql-alterdefaultprivileges.html (read 2026-11-26)
"""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection, text

from sluice.declaration import DatabaseRole
from sluice.errors import ConfigError
from sluice.messaging.database import migrations

_ALL = "SELECT, INSERT, UPDATE, DELETE"
_SCHEMA = {"sluice_schema": "SELECT"}
_TABLES = (
    *("sluice_outbox", "sluice_outbox_group", "sluice_outbox_lease", "sluice_outbox_audit"),
    *("sluice_inbox_group", "sluice_inbox_consumer", "sluice_inbox_exception", "sluice_inbox_parked"),
    *("sluice_inbox_redrive", "sluice_inbox_audit", "sluice_inbox_attempt", "sluice_inbox_bundle"),
)
RIGHTS: Mapping[DatabaseRole, Mapping[str, str]] = {
    DatabaseRole.PRODUCER: {
        "sluice_outbox_group": "SELECT, INSERT, UPDATE",
        "sluice_outbox": "INSERT",
        "sluice_outbox_id_seq": "USAGE",
    },
    DatabaseRole.RELAY: {
        **_SCHEMA,
        "sluice_outbox": "SELECT, UPDATE, DELETE",
        "sluice_outbox_group": "SELECT, UPDATE, DELETE",
        "sluice_outbox_lease": "SELECT, INSERT, UPDATE",
    },
    DatabaseRole.WORKER: {
        **_SCHEMA,
        "sluice_inbox_group": _ALL,
        "sluice_inbox_exception": _ALL,
        "sluice_inbox_parked": _ALL,
        "sluice_inbox_attempt": _ALL,
        "sluice_inbox_bundle": _ALL,
        "sluice_inbox_consumer": "SELECT, INSERT, UPDATE",
        "sluice_inbox_redrive": "SELECT",
        "sluice_inbox_exception_id_seq": "USAGE",
    },
    DatabaseRole.REDRIVE: {
        **_SCHEMA,
        "sluice_inbox_exception": "SELECT",
        "sluice_inbox_redrive": "SELECT, INSERT, UPDATE",
        "sluice_inbox_audit": "SELECT, INSERT",
        "sluice_inbox_audit_id_seq": "USAGE",
    },
    DatabaseRole.OPERATOR: {
        **_SCHEMA,
        **dict.fromkeys(_TABLES, _ALL),
        "sluice_outbox_audit_id_seq": "USAGE",
        "sluice_inbox_exception_id_seq": "USAGE",
        "sluice_inbox_audit_id_seq": "USAGE",
    },
    DatabaseRole.READER: {**_SCHEMA, **dict.fromkeys(_TABLES, "SELECT")},
}
"""The rights of each user: name of a table or sequence to privileges."""
_OWN_TABLES = (DatabaseRole.PRODUCER, DatabaseRole.WORKER)
"""The users that read and write the tables of the project itself."""

_MAKER = "sluice_maker"
_NAMES = tuple(role.value for role in DatabaseRole)
_RELATIONS = tuple(dict.fromkeys(name for rights in RIGHTS.values() for name in rights))
_FOUND = text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:names)")
_HAS_IAM = text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_iam')")
_IS_IN_IAM = text(
    "SELECT EXISTS (SELECT FROM pg_auth_members WHERE member = CAST(:name AS regrole)"
    " AND roleid = CAST('rds_iam' AS regrole))"
)
_NEEDS_TOKEN = text(
    "SELECT NOT rolsuper AND pg_has_role(oid, 'rds_iam', 'MEMBER') FROM pg_roles WHERE rolname = session_user"
)
_BECOMES_MEMBER = text(
    "SELECT NOT rolsuper AND CAST(current_setting('server_version_num') AS int) >= 160000"
    " FROM pg_roles WHERE rolname = current_user"
)
_LACKS_DATABASE = text("SELECT NOT has_database_privilege(:name, current_database(), 'CONNECT')")
_LACKS_SCHEMA = text("SELECT NOT has_schema_privilege(:name, CAST(:schema AS regnamespace), 'USAGE')")
_HELD = text(
    "SELECT pg_get_userbyid(held.grantee), relname, held.privilege_type"
    " FROM pg_class, LATERAL aclexplode(relacl) AS held"
    " WHERE relnamespace = CAST(quote_ident(current_schema()) AS regnamespace)"
    " AND relname = ANY(:relations) AND pg_get_userbyid(held.grantee) = ANY(:names)"
)
_THERE = text(
    "SELECT relname FROM pg_class"
    " WHERE relnamespace = CAST(quote_ident(current_schema()) AS regnamespace) AND relname = ANY(:relations)"
)
_PLACE = text("SELECT quote_ident(current_database()), quote_ident(current_schema())")
_OF_PROJECT = text(
    "SELECT quote_ident(nspname) AS schema, quote_ident(nspname) || '.' || quote_ident(relname) AS name,"
    " relkind = 'S' AS is_sequence FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE pg_get_userbyid(relowner) = current_user AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')"
    " AND NOT starts_with(nspname, 'pg_') AND nspname <> 'information_schema' AND relname <> ALL(:relations)"
)


def statements(role: DatabaseRole) -> Iterator[str]:
    """Yield the SQL that gives a user its rights on Sluice's tables."""
    for name, privileges in RIGHTS[role].items():
        kind = "SEQUENCE " if name.endswith("_seq") else ""
        yield f"GRANT {privileges} ON {kind}{name} TO {role.value};"


def create(connection: Connection) -> list[str]:
    """Make the users that are not there, and give and take rights on Sluice's tables; return what was done, as SQL.

    Safe to repeat and to run in many processes at once. The transaction is the caller's; it changes nothing where
    nothing is to be done.

    Raises:
        ConfigError: the database is no Postgres; or whoever does it does not own Sluice's tables, or would be unable to
            log in with his password.
        DBAPIError: he may not create users, or has no right on Sluice's tables; or the database does not answer.
    """
    if connection.dialect.name != "postgresql":
        raise ConfigError("--roles is given, allowed is a Postgres: SQLite has no users; leave it out")
    migrations.lock(connection)
    has_iam = connection.execute(_HAS_IAM).scalar_one()
    has_token = has_iam and connection.execute(_NEEDS_TOKEN).scalar_one()
    done = [*_users(connection, has_iam=has_iam), *_rights(connection)]
    if has_iam and not has_token and connection.execute(_NEEDS_TOKEN).scalar_one():
        raise ConfigError(
            "the user who makes the database's roles is a member of them here, and so of rds_iam: his password would be"
            " refused from then on, so nothing was changed; let a user who is none make them, or declare"
            " users=DatabaseUsers.OWNER of the database"
        )
    return done


def _users(connection: Connection, *, has_iam: bool) -> list[str]:
    """Create the missing users, and give rights on the project's own tables to users that are new in this database."""
    there = set(connection.execute(_FOUND, {"names": list(_NAMES)}).scalars())
    known = {name for name, *_ in _held_privileges(connection)}  # users are the server's, rights are the database's
    database, schema = connection.execute(_PLACE).one()
    becomes_member = has_iam and connection.execute(_BECOMES_MEMBER).scalar_one()
    done = _make([name for name in _NAMES if name not in there], connection, becomes_member=becomes_member)
    for role in DatabaseRole:
        if role in _OWN_TABLES and role.value not in known:
            done += _give_own_tables(connection, role.value)
        if has_iam and not connection.execute(_IS_IN_IAM, {"name": role.value}).scalar_one():
            done += _execute(connection, f"GRANT rds_iam TO {role.value}")
        if connection.execute(_LACKS_DATABASE, {"name": role.value}).scalar_one():
            done += _execute(connection, f"GRANT CONNECT ON DATABASE {database} TO {role.value}")
        done += _give_schema(connection, role.value, schema)
    return done


def _make(names: Sequence[str], connection: Connection, *, becomes_member: bool) -> list[str]:
    """Create users; if their creator becomes a member of them, through a temporary role that is dropped afterwards.

    https://www.postgresql.org/docs/18/runtime-config-client.html#GUC-CREATEROLE-SELF-GRANT,
    https://www.postgresql.org/docs/18/sql-grant.html (read 2026-11-26)
    """
    made = [f"CREATE ROLE {name} LOGIN" for name in names]
    if made and becomes_member:
        made = [
            f"CREATE ROLE {_MAKER} CREATEROLE",
            f"GRANT {_MAKER} TO CURRENT_USER WITH SET TRUE",
            f"SET LOCAL ROLE {_MAKER}",
            *made,
            "RESET ROLE",
            f"DROP ROLE {_MAKER}",
        ]
    return [statement for each in made for statement in _execute(connection, each)]


def _give_schema(connection: Connection, name: str, schema: str) -> list[str]:
    if not connection.execute(_LACKS_SCHEMA, {"name": name, "schema": schema}).scalar_one():
        return []
    return _execute(connection, f"GRANT USAGE ON SCHEMA {schema} TO {name}")


def _give_own_tables(connection: Connection, name: str) -> list[str]:
    """Give a user rights on the project's tables, both existing and future ones."""
    done = []
    for kind, privileges in {"TABLES": _ALL, "SEQUENCES": "USAGE", "SCHEMAS": "USAGE"}.items():
        done += _execute(connection, f"ALTER DEFAULT PRIVILEGES GRANT {privileges} ON {kind} TO {name}")
    for found in connection.execute(_OF_PROJECT, {"relations": list(_RELATIONS)}).all():
        kind, privileges = ("SEQUENCE", "USAGE") if found.is_sequence else ("TABLE", _ALL)
        done += _give_schema(connection, name, found.schema)
        done += _execute(connection, f"GRANT {privileges} ON {kind} {found.name} TO {name}")
    return done


def _rights(connection: Connection) -> list[str]:
    """Grant each user its missing rights on the existing tables, and revoke all others."""
    there = set(connection.execute(_THERE, {"relations": list(_RELATIONS)}).scalars())
    held = _held_privileges(connection)
    wanted = {
        (role.value, relation, privilege)
        for role, rights in RIGHTS.items()
        for relation, privileges in rights.items()
        for privilege in privileges.split(", ")
        if relation in there
    }
    done = []
    for name, relation, privilege in sorted(wanted - held):
        done += _execute(connection, f"GRANT {privilege} ON {relation} TO {name}")
    for name, relation, privilege in sorted(held - wanted):
        done += _execute(connection, f"REVOKE {privilege} ON {relation} FROM {name}")
    if done and (lacking := sorted(wanted - _held_privileges(connection))):
        name, relation, privilege = lacking[0]
        raise ConfigError(
            f"the user who makes the database's roles does not own {relation}, and Postgres gave {name} no {privilege}"
            " on it, so nothing was changed; let the owner of Sluice's tables do it"
        )
    return done


def _held_privileges(connection: Connection) -> set[tuple[str, str, str]]:
    """Return the users' rights on Sluice's tables: user, table or sequence, privilege."""
    found = connection.execute(_HELD, {"relations": list(_RELATIONS), "names": list(_NAMES)})
    return {(name, relation, privilege) for name, relation, privilege in found}


def _execute(connection: Connection, statement: str) -> list[str]:
    connection.execute(text(statement.replace(":", r"\:")))  # a name may hold what is a parameter elsewhere
    return [statement]
