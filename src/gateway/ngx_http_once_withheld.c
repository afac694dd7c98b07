/*
 * ngx_http_once_withheld.c - the bytes of a withheld answer.
 *
 * Model:      in memory up to the location's limit; a longer answer goes to an unlinked temporary file, as in nginx's
 *             own buffering. So a slow upstream or client costs little memory. Readers map the file, and get one piece
 *             of memory either way.
 * Invariants: an append that fails leaves the bytes before it unchanged.
 * Not here:   when an answer is complete, and what becomes of it (ngx_http_once_capture.c).
 */
#include "ngx_http_once.h"

#include "core/span.h"

#include <sys/mman.h>

void
ngx_http_once_withhold_begin(ngx_http_once_ctx_t *ctx)
{
    once_buf_init(&ctx->withheld.memory, ctx->conf->response_memory);
}

/* From memory to a file. */
static ngx_int_t
ngx_http_once_move_to_file(ngx_http_once_ctx_t *ctx)
{
    ngx_file_t                *file;
    ngx_http_request_t        *r = ctx->request;
    ngx_http_once_withheld_t  *w = &ctx->withheld;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    file = ngx_pcalloc(r->pool, sizeof(ngx_file_t));
    if (file == NULL) {
        return NGX_ERROR;
    }

    file->fd = NGX_INVALID_FILE;
    file->log = r->connection->log;

    /* unlinked at once, closed with the pool */
    if (ngx_create_temp_file(file, clcf->client_body_temp_path, r->pool, 0, 0, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    if (w->memory.len > 0 && ngx_write_file(file, w->memory.ptr, w->memory.len, 0) == NGX_ERROR) {
        return NGX_ERROR;
    }

    w->file = file;
    w->len = w->memory.len;
    once_buf_release(&w->memory);

    return NGX_OK;
}

ngx_int_t
ngx_http_once_withhold(ngx_http_once_ctx_t *ctx, u_char *bytes, size_t len)
{
    ngx_http_once_withheld_t  *w = &ctx->withheld;
    size_t                     have = w->file != NULL ? w->len : w->memory.len;

    if (len > ctx->conf->max_response - have) {
        return NGX_DECLINED;
    }

    if (w->file == NULL && have + len <= ctx->conf->response_memory) {
        once_buf_add(&w->memory, once_span_of(bytes, len));
        return w->memory.result == ONCE_OK ? NGX_OK : NGX_ERROR;
    }

    if ((w->file == NULL && ngx_http_once_move_to_file(ctx) != NGX_OK)
        || ngx_write_file(w->file, bytes, len, w->len) == NGX_ERROR)
    {
        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                      "once: no room to withhold an answer; it is not kept");
        return NGX_DECLINED;
    }

    w->len += len;

    return NGX_OK;
}

/* Private, because filters may change the bytes they send; copied if it cannot be mapped. */
static ngx_int_t
ngx_http_once_map(ngx_http_once_ctx_t *ctx)
{
    ngx_log_t                 *log = ctx->request->connection->log;
    ngx_http_once_withheld_t  *w = &ctx->withheld;

    w->bytes = mmap(NULL, w->len, PROT_READ|PROT_WRITE, MAP_PRIVATE, w->file->fd, 0);

    if (w->bytes != MAP_FAILED) {
        w->mapped = 1;
        return NGX_OK;
    }

    w->bytes = ngx_alloc(w->len, log);

    if (w->bytes == NULL || ngx_read_file(w->file, w->bytes, w->len, 0) != (ssize_t) w->len) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "once: cannot read back an answer of %uz bytes", w->len);
        ngx_free(w->bytes);
        w->bytes = NULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_withheld(ngx_http_once_ctx_t *ctx, once_span *bytes)
{
    ngx_http_once_withheld_t  *w = &ctx->withheld;

    if (w->file == NULL || w->len == 0) {
        *bytes = once_buf_span(&w->memory);
        return NGX_OK;
    }

    if (w->bytes == NULL && ngx_http_once_map(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    *bytes = once_span_of(w->bytes, w->len);

    return NGX_OK;
}

void
ngx_http_once_withheld_release(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_withheld_t  *w = &ctx->withheld;

    once_buf_release(&w->memory);

    if (w->mapped) {
        munmap(w->bytes, w->len);

    } else if (w->bytes != NULL) {
        ngx_free(w->bytes);
    }

    w->bytes = NULL;
}
