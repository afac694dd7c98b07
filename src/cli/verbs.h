/* verbs.h - one function per verb; each lives in the file of its name. */
#ifndef ONCE_CLI_VERBS_H
#define ONCE_CLI_VERBS_H

int once_cli_advance(int argc, char **argv);
int once_cli_check(int argc, char **argv);
int once_cli_consume(int argc, char **argv);
int once_cli_daemon(int argc, char **argv);
int once_cli_expire(int argc, char **argv);
int once_cli_forget(int argc, char **argv);
int once_cli_inbox(int argc, char **argv);
int once_cli_key_new(int argc, char **argv);
int once_cli_keys(int argc, char **argv);
int once_cli_keys_list(int argc, char **argv);
int once_cli_keys_release(int argc, char **argv);
int once_cli_keys_resolve(int argc, char **argv);
int once_cli_keys_show(int argc, char **argv);
int once_cli_migrate(int argc, char **argv);
int once_cli_outbox(int argc, char **argv);
int once_cli_reconcile(int argc, char **argv);
int once_cli_relay(int argc, char **argv);
int once_cli_run(int argc, char **argv);
int once_cli_send(int argc, char **argv);
int once_cli_serve(int argc, char **argv);
int once_cli_status(int argc, char **argv);

#endif
