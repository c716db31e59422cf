"""The users of a Postgres, one for each part of the runtime, and the rights on Sluice's tables that each gets.

`sluice schema apply --roles` makes the users, as the owner of the tables, and gives them exactly these rights on
Sluice's tables. Producers and workers may also read and write the project's own tables: when they get their first
rights in a database they get rights on its tables, and Postgres's default privileges give them rights on later ones. A
right that the project takes away is not given again.

On RDS a user who is a member of `rds_iam`, directly or through another role, logs in with a token of IAM and no longer
with a password. Since version 16 Postgres makes the creator of a user a member of it, unless he is a superuser. Whether
RDS counts that membership is not documented. So a temporary role creates the users, which is dropped with its
memberships; and before the commit it is checked that the owner can still log in with his password.

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
    *("sluice_outbox_bundle", "sluice_outbox_switch"),
    *("sluice_inbox_group", "sluice_inbox_consumer", "sluice_inbox_exception", "sluice_inbox_parked"),
    *("sluice_inbox_redrive", "sluice_inbox_audit", "sluice_inbox_attempt", "sluice_inbox_bundle"),
    "sluice_inbox_pause",
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
        "sluice_outbox_bundle": "SELECT, INSERT, DELETE",
        "sluice_outbox_switch": "SELECT",
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
        "sluice_inbox_pause": "SELECT",
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
    """Create the missing users, grant and revoke rights on Sluice's tables, and return the executed statements.

    Safe to repeat and to run in many processes at once. The caller commits.

    Raises:
        ConfigError: the database is no Postgres; or the connection's user does not own Sluice's tables, or would be
            unable to log in with his password.
        DBAPIError: the connection's user may not create users, or has no right on Sluice's tables.
    """
    if connection.dialect.name != "postgresql":
        raise ConfigError("--roles is given, allowed is a Postgres: SQLite has no users; leave it out")
    migrations.lock(connection)
    has_iam = connection.execute(_HAS_IAM).scalar_one()
    has_token = has_iam and connection.execute(_NEEDS_TOKEN).scalar_one()
    done = [*_create_missing_users(connection, has_iam=has_iam), *_adjust_rights(connection)]
    if has_iam and not has_token and connection.execute(_NEEDS_TOKEN).scalar_one():
        raise ConfigError(
            "the user who makes the database's roles is a member of them here, and so of rds_iam: his password would be"
            " refused from then on, so nothing was changed; let a user who is none make them, or declare"
            " users=DatabaseUsers.OWNER of the database"
        )
    return done


def _create_missing_users(connection: Connection, *, has_iam: bool) -> list[str]:
    """Create the missing users with their rights on database, schema and project's tables; return the statements."""
    there = set(connection.execute(_FOUND, {"names": list(_NAMES)}).scalars())
    known = {name for name, *_ in _held_privileges(connection)}  # users are the server's, rights are the database's
    database, schema = connection.execute(_PLACE).one()
    becomes_member = has_iam and connection.execute(_BECOMES_MEMBER).scalar_one()
    done = _create_users([name for name in _NAMES if name not in there], connection, becomes_member=becomes_member)
    for role in DatabaseRole:
        if role in _OWN_TABLES and role.value not in known:
            done += _give_own_tables(connection, role.value)
        if has_iam and not connection.execute(_IS_IN_IAM, {"name": role.value}).scalar_one():
            done += _execute(connection, f"GRANT rds_iam TO {role.value}")
        if connection.execute(_LACKS_DATABASE, {"name": role.value}).scalar_one():
            done += _execute(connection, f"GRANT CONNECT ON DATABASE {database} TO {role.value}")
        done += _give_schema(connection, role.value, schema)
    return done


def _create_users(names: Sequence[str], connection: Connection, *, becomes_member: bool) -> list[str]:
    """Create users, and return the statements; a temporary role creates them if their creator becomes a member.

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
    """Let a user use a schema, and return the statements; none if he may already."""
    if not connection.execute(_LACKS_SCHEMA, {"name": name, "schema": schema}).scalar_one():
        return []
    return _execute(connection, f"GRANT USAGE ON SCHEMA {schema} TO {name}")


def _give_own_tables(connection: Connection, name: str) -> list[str]:
    """Give a user rights on the project's existing and future tables, and return the statements."""
    done = []
    for kind, privileges in {"TABLES": _ALL, "SEQUENCES": "USAGE", "SCHEMAS": "USAGE"}.items():
        done += _execute(connection, f"ALTER DEFAULT PRIVILEGES GRANT {privileges} ON {kind} TO {name}")
    for found in connection.execute(_OF_PROJECT, {"relations": list(_RELATIONS)}).all():
        kind, privileges = ("SEQUENCE", "USAGE") if found.is_sequence else ("TABLE", _ALL)
        done += _give_schema(connection, name, found.schema)
        done += _execute(connection, f"GRANT {privileges} ON {kind} {found.name} TO {name}")
    return done


def _adjust_rights(connection: Connection) -> list[str]:
    """Grant each user its missing rights on Sluice's tables, revoke all others, and return the statements."""
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
    """Execute a statement, and return it in a list."""
    connection.execute(text(statement.replace(":", r"\:")))  # a name may hold what is a parameter elsewhere
    return [statement]
