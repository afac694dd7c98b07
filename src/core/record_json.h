/* record_json.h - a record as members of a JSON object, the same for the CLI, the API and the console. */
#ifndef ONCE_CORE_RECORD_JSON_H
#define ONCE_CORE_RECORD_JSON_H

#include "core/json_out.h"
#include "once.h"

/* All members but fingerprint, checkpoint, headers, body and body_dropped, which a listing does not have. */
void once_record_json(struct once_json *json, const struct once_record *record);

#endif
