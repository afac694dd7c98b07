/*
 * place_order.h - the flow: an order, its charge, its receipt.
 */
#ifndef PLACE_ORDER_H
#define PLACE_ORDER_H

#include "shop.h"

/* What a run, and a completer, is given. */
struct context {
    struct shop *shop;
    const char *provider; /* "http://127.0.0.1:9100" */
    long timeout_ms;      /* for the provider's answer */
};

extern struct once_flow place_order;

/* The provider may be one that does not know keys, or can be asked: "idempotent", "probeable"
 * (or "probeable-by-url", with the library's own probe), "opaque". False: none of these. */
bool place_order_callee(const char *kind, bool intent);

#endif
