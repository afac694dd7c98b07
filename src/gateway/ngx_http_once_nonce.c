/*
 * ngx_http_once_nonce.c - random bytes that name a call.
 *
 * Two system calls per request are a twentieth of its cost: the kernel is asked for sixteen nonces
 * at a time. Only workers ask, after they were forked: none has the bytes of another.
 */
#include "ngx_http_once.h"

#include <sys/random.h>

ngx_int_t
ngx_http_once_nonce(uint8_t nonce[16])
{
    static u_char  pool[256];  /* as many as getrandom() gives without a break */
    static size_t  used = sizeof(pool);

    if (used == sizeof(pool)) {
        if (getrandom(pool, sizeof pool, 0) != sizeof pool) {
            return NGX_ERROR;
        }

        used = 0;
    }

    ngx_memcpy(nonce, pool + used, 16);
    used += 16;

    return NGX_OK;
}
