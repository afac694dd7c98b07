/* outbox.c - see outbox.h: which database a URL means. */
#include "messages/outbox/outbox.h"

#include "core/err.h"
#include "core/url.h"

#include <string.h>

once_result outbox_create(const char *url, struct outbox **out, struct once_error *err)
{
    struct outbox *o = NULL;
    if (strncmp(url, "postgresql:", 11) == 0 || strncmp(url, "postgres:", 9) == 0)
        o = outbox_pg_create(url);
    else if (strncmp(url, "sqlite:", 7) == 0)
        o = outbox_sqlite_create(url + 7);
    else {
        char scheme[ONCE_URL_SHOWN_LEN];
        once_url_scheme(url, scheme);
        return once_fail(err, ONCE_INVALID,
                         "'%s' is no database with an outbox: postgresql://..., or sqlite:PATH of the database that "
                         "messages are enqueued in",
                         scheme);
    }
    if (o == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    *out = o;
    return ONCE_OK;
}

once_result outbox_open(const char *url, struct outbox **out, struct once_error *err)
{
    struct outbox *o = NULL;
    once_result r = outbox_create(url, &o, err);
    if (r == ONCE_OK)
        r = o->ops->connect(o, err);
    if (r != ONCE_OK) {
        outbox_close(o);
        return r;
    }
    *out = o;
    return ONCE_OK;
}

void outbox_close(struct outbox *o)
{
    if (o != NULL)
        o->ops->close(o);
}
