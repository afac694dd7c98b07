-- Schedules once.expire as a job of pg_cron: every 10 seconds, or every minute before pg_cron 1.5.
-- A run goes on while there is more to do, at most 50 seconds, one transaction per step.
-- Running this again replaces the job. The job runs as the role that made it.
DO $once$
DECLARE
    role text := quote_ident(current_user);
    job text := $job$DO $run$
DECLARE
    more boolean;
    until timestamptz := clock_timestamp() + interval '50 seconds';
BEGIN
    LOOP
        SELECT e.more INTO more FROM once.expire(ONCE_EXPIRE_BUDGET_MAX) e;
        COMMIT;
        EXIT WHEN NOT more OR clock_timestamp() > until;
    END LOOP;
END $run$ $job$;
    home text := (SELECT setting FROM pg_settings WHERE name = 'cron.database_name');
    version integer[] := (SELECT regexp_match(extversion, '^([0-9]+)[.]([0-9]+)') FROM pg_extension WHERE extname = 'pg_cron');
BEGIN
    IF NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_cron') THEN
        RAISE EXCEPTION 'pg_cron is not installed on the server'
            USING HINT = 'install it there (Debian: postgresql-' || current_setting('server_version_num')::int / 10000 ||
                         '-cron), set shared_preload_libraries = ''pg_cron'' and cron.database_name = ''' ||
                         current_database() || ''', restart the server, and run CREATE EXTENSION pg_cron';
    END IF;
    IF home <> current_database() THEN
        RAISE EXCEPTION 'pg_cron works from the database %, this is %', quote_ident(home), quote_ident(current_database())
            USING HINT = 'set cron.database_name = ''' || current_database() || ''' and restart the server, or schedule '
                         'the job from there with cron.schedule_in_database';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron') THEN
        RAISE EXCEPTION 'the extension pg_cron is not in this database'
            USING HINT = CASE WHEN home IS NULL
                              THEN 'set shared_preload_libraries = ''pg_cron'' and cron.database_name = ''' ||
                                   current_database() || ''', restart the server, and '
                              ELSE '' END || 'run CREATE EXTENSION pg_cron';
    END IF;
    IF NOT has_schema_privilege('cron', 'USAGE') THEN
        RAISE EXCEPTION 'the role % may not use pg_cron', role USING HINT = 'GRANT USAGE ON SCHEMA cron TO ' || role;
    END IF;
    IF NOT has_function_privilege('once.expire(integer)', 'EXECUTE') THEN
        RAISE EXCEPTION 'the role % may not run once.expire', role USING HINT = 'GRANT once_app TO ' || role;
    END IF;
    PERFORM cron.schedule('once.expire', CASE WHEN version >= ARRAY[1, 5] THEN '10 seconds' ELSE '* * * * *' END, job);
END $once$;
