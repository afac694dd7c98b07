/*
 * place_order.h - the flow: an order, its charge, its receipt.
 */
#ifndef PLACE_ORDER_H
#define PLACE_ORDER_H

#include "shop.h"

/* The argument of the steps, for runs and for the completer. */
struct context {
    struct shop *shop;
    const char *provider; /* "http://127.0.0.1:9100" */
    long timeout_ms;      /* for the provider's answer */
};

extern struct once_flow place_order;

/* Sets the abilities of the provider: "idempotent", "probeable" (or "probeable-by-url", with the
 * library's own probe), or "opaque", which does not know keys. False: another word. */
bool place_order_callee(const char *kind, bool intent);

#endif
