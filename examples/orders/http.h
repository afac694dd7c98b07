/*
 * http.h - a minimal HTTP server for both programs of this example, on libmicrohttpd.
 */
#ifndef HTTP_H
#define HTTP_H

#include <microhttpd.h>
#include <stddef.h>
#include <stdint.h>

/* A complete request. */
struct http_request {
    struct MHD_Connection *connection;
    const char *method, *path;
    char body[60000];
    size_t len;
    int too_long;
};

/* Handles a request; must answer it with http_answer(). */
typedef enum MHD_Result http_handler(void *arg, struct http_request *request);

/* Listens on 127.0.0.1:`port`, with `threads` threads, or one per connection (0). NULL: it failed. */
struct MHD_Daemon *http_listen(uint16_t port, unsigned threads, http_handler *handler, void *arg);

/* `headers`: lines "Name: value\r\n", may be NULL. */
enum MHD_Result http_answer(struct http_request *request, unsigned status, const char *headers, const void *body,
                            size_t len);

/* Blocks SIGINT and SIGTERM for all threads; then waits for one of them. */
void http_block_signals(void);
void http_wait_for_signal(void);

#endif
