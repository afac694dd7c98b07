/*
 * send.h - shared by the parts of `once send`: send_args.c reads the command line, send.c sends, send/pending.c lists
 * and forgets pending requests, send/folder.c stores them, send/out.c writes answers.
 */
#ifndef ONCE_SEND_SEND_H
#define ONCE_SEND_SEND_H

#include "once_client.h"
#include "os/signals.h"
#include "program/cli.h"
#include "program/otlp_setup.h"
#include "send/folder.h"

enum send_mode { SEND_NEW, SEND_RESUME, SEND_LIST, SEND_FORGET };

struct send {
    struct once_cli cli;
    enum send_mode mode;
    unsigned modes; /* given */
    struct once_client_options options;
    struct once_client_request request;
    once_span headers[ONCE_CLIENT_HEADER_COUNT_MAX];
    struct once_buf header_text; /* all header lines; the spans in `headers` are set when all are read */
    size_t offsets[ONCE_CLIENT_HEADER_COUNT_MAX + 1];
    size_t header_count;
    struct once_buf body;
    bool has_body, include, of_request; /* of_request: an option that --resume does not take */
    const char *output, *state, *id;
    int64_t max_age_ms;
    struct send_folder folder;
    struct send_pending pending;
    struct once_client *client;
    struct once_signals signals;
    bool resumed;
    bool trace;              /* the request gets our traceparent */
    struct once_trace own;   /* our traceparent: its span is the whole operation, with all tries and resumptions */
    struct once_trace outer; /* from $TRACEPARENT; zeros: none */
    size_t trace_header;     /* its index in the headers */
    char trace_line[16 + ONCE_TRACEPARENT_LEN];
    uint64_t start_ns;
    struct otlp_setup otlp;
};

/* send/trace.c: adds a traceparent to a new request. False: after a message. */
bool send_trace_begin(struct send *s, bool (*add)(struct send *s, once_span line));
/* A resumed request continues its trace, if it has one. */
void send_trace_adopt(struct send *s);
/* Exports the span, when there is a final answer. */
void send_trace_end(struct send *s, const struct once_client_answer *answer);

/* Fills `s` from the command line; false: return s->cli.exit. */
bool send_parse(struct send *s, int argc, char **argv);

/* Opens the folder and finds the request whose id begins with s->id, or whose key is s->id; without s->id, the only
 * one. 0, or an exit code after a message. */
int send_find(struct send *s, char id[SEND_ID_LEN_MAX + 1]);
int send_no_such(const struct send *s, const char *id);
/* Prints the error of a request that was not begun; returns its exit code. */
int send_cannot(const struct send *s, const struct once_error *err);

int send_list(struct send *s);
int send_forget(struct send *s);

#endif
