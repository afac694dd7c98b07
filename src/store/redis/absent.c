/* absent.c - the Redis tier of a program that was built without it (-Dredis=disabled): its URLs are refused. */
#include "core/err.h"
#include "store/store.h"

once_result once_store_redis_url_check(once_span url, struct once_error *err)
{
    (void)url;
    return once_fail(err, ONCE_INVALID,
                     "this program was built without the Redis tier; it has sqlite:, postgresql: and once:");
}

once_result once_store_redis_open(once_span url, const struct once_options *options, struct once_store **out,
                                  struct once_error *err)
{
    (void)options;
    (void)out;
    return once_store_redis_url_check(url, err);
}

const struct once_gap *once_store_redis_gaps(size_t *count)
{
    *count = 0;
    return NULL;
}
