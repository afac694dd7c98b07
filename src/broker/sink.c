/* sink.c - see sink.h: the sinks there are. */
#include "broker/sink.h"

#include <string.h>

static const struct sink_ops *const all[] = {
    &sink_https,
    &sink_http,
#if ONCE_HAVE_NATS
    &sink_nats,
    &sink_nats_tls,
#endif
};

const struct sink_ops *sink_ops_of(const char *url)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(url, all[i]->scheme, strlen(all[i]->scheme)) == 0)
            return all[i];
    return NULL;
}

const char *sink_schemes(void)
{
#if ONCE_HAVE_NATS
    return "https://, http://, nats://, tls://";
#else
    return "https://, http:// (this program was built without libnats)";
#endif
}
