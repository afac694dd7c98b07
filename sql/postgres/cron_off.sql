-- Takes the job of cron_on.sql away: that of this role, or, for a superuser, everybody's. Without
-- pg_cron, or without the job, there is nothing to do.
DO $once$
BEGIN
    IF to_regclass('cron.job') IS NOT NULL THEN
        PERFORM cron.unschedule(j.jobid) FROM cron.job j
          WHERE j.jobname = 'once.expire' AND j.database = current_database();
    END IF;
END $once$;
