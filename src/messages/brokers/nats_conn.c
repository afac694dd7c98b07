/* nats_conn.c - see nats_conn.h. */
#include "messages/brokers/nats_conn.h"

#include <string.h>

natsStatus nats_conn_configure(const struct nats_peer *peer, natsOptions **out)
{
    natsStatus status = natsOptions_Create(out);
    if (status == NATS_OK)
        status = natsOptions_SetURL(*out, peer->url);
    if (status == NATS_OK)
        status = natsOptions_SetName(*out, peer->name);
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(*out, peer->timeout_ms);
    if (status == NATS_OK)
        status = natsOptions_SetAllowReconnect(*out, false);
    if (status == NATS_OK && strncmp(peer->url, "tls:", 4) == 0)
        status = natsOptions_SetSecure(*out, true);
    if (status == NATS_OK && peer->ca_file != NULL)
        status = natsOptions_LoadCATrustedCertificates(*out, peer->ca_file);
    if (status == NATS_OK && peer->creds != NULL)
        status = natsOptions_SetUserCredentialsFromFiles(*out, peer->creds, NULL);
    return status;
}
