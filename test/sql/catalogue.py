#!/usr/bin/env python3
"""What the catalogue says of the schema `once`: who may do what, pinned search paths, comments."""
import re
import sys

from sqltest import equal, finish, migrated, ok, psql

OURS = "pronamespace = to_regnamespace('once')"
# What only once_ops may call, besides all that once_app may.
OPERATORS = ["forget", "forget_record", "inbox_count", "inbox_due", "inbox_list", "inbox_put_dead", "inbox_resolve", "inbox_settle", "inbox_show", "outbox_counts", "outbox_idle", "outbox_list", "outbox_resolve", "outbox_retry_now", "outbox_settle", "outbox_show",
             "outbox_take", "outbox_upkeep", "resolve", "resolve_record"]


def may(role):
    return psql("SELECT DISTINCT proname FROM pg_proc WHERE %s AND has_function_privilege('%s', oid, 'EXECUTE') ORDER BY 1"
                % (OURS, role)).split()


migrated()
psql("CREATE ROLE stranger")
documented = set(re.findall(r"^\| `once\.(\w+)\(", open(sys.argv[1], encoding="utf-8").read(), re.M))
app, ops = may("once_app"), may("once_ops")

equal(may("stranger"), [], "nobody else may call a function")
equal(sorted(set(ops) - set(app)), OPERATORS, "once_ops may do more than once_app: resolve, relay, and look after dead letters")
equal(sorted(set(app) - set(ops)), [], "and nothing less")
equal(sorted(documented - set(ops)), [], "all that docs/sql.md lists may be called")
for role in ("once_app", "once_ops", "stranger"):
    equal(psql("SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace('once') AND c.relkind IN "
               "('r', 'p', 'v') AND has_table_privilege('%s', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, "
               "REFERENCES, TRIGGER')" % role), "", "%s has no right on any table" % role)
    equal(psql("SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace('once') AND "
               "CASE c.relkind WHEN 'S' THEN has_sequence_privilege('%s', c.oid, 'SELECT, UPDATE, USAGE') END" % role), "", "nor on any sequence")
    equal(psql("SELECT has_schema_privilege('%s', 'once', 'CREATE')" % role), "f", "nor may it make anything there")
equal(psql("SELECT has_schema_privilege('stranger', 'once', 'USAGE')"), "f", "nobody else may use the schema")
equal(psql("SELECT oid::regprocedure FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) a "
           "WHERE %s AND a.grantee = 0" % OURS), "", "PUBLIC is granted no function")
equal(psql("SELECT oid::regclass FROM pg_class, aclexplode(relacl) a "
           "WHERE relnamespace = to_regnamespace('once') AND a.grantee = 0"), "", "PUBLIC is granted no table")
equal(psql("SELECT nspname FROM pg_namespace, aclexplode(nspacl) a WHERE nspname = 'once' AND a.grantee = 0"), "",
      "PUBLIC is granted nothing of the schema")
equal(psql("SELECT oid::regprocedure FROM pg_proc WHERE %s AND (proconfig IS NULL OR NOT "
           "'search_path=pg_catalog, pg_temp' = ANY (proconfig))" % OURS), "", "every function has its search_path pinned")
# What a session's standard_conforming_strings decides, a function must not depend on (settings.py).
equal(psql("SELECT oid::regprocedure FROM pg_proc WHERE %s AND strpos(regexp_replace(regexp_replace(prosrc, "
           "E'E\\'(?:[^\\'\\\\\\\\]|\\\\\\\\.)*\\'', '', 'g'), '--[^\\n]*', '', 'g'), chr(92)) > 0" % OURS), "",
      "backslashes are in E'' strings only")
equal(psql("SELECT rolname FROM pg_roles WHERE rolname IN ('once_app', 'once_ops') AND (rolcanlogin OR rolsuper OR "
           "rolcreaterole OR rolcreatedb OR rolbypassrls)"), "", "the roles can do nothing else")
commented = set(psql("SELECT proname FROM pg_proc WHERE %s AND obj_description(oid, 'pg_proc') IS NOT NULL" % OURS).split())
ok(len(documented) >= 16, "docs/sql.md lists functions")
equal(sorted(documented - commented), [], "every function that docs/sql.md lists has a COMMENT")
finish()
