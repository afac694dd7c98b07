/* shop.c - opens the shop on SQLite or PostgreSQL, by its URL. */
#include "shop.h"

#include <string.h>

struct shop *shop_open(const char *where, char error[200])
{
    bool postgres = strncmp(where, "postgres://", 11) == 0 || strncmp(where, "postgresql://", 13) == 0;
    return postgres ? shop_open_postgres(where, error) : shop_open_sqlite(where, error);
}

void shop_close(struct shop *shop)
{
    shop->ops->close(shop);
}
