-- Removes the job of cron_on.sql: that of this role, or, for a superuser, of all roles. Does nothing without pg_cron,
-- or without the job.
DO $once$
BEGIN
    IF to_regclass('cron.job') IS NOT NULL THEN
        PERFORM cron.unschedule(j.jobid) FROM cron.job j
          WHERE j.jobname = 'once.expire' AND j.database = current_database();
    END IF;
END $once$;
