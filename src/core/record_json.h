/* record_json.h - a record as members of a JSON object: the same wherever one is printed. */
#ifndef ONCE_CORE_RECORD_JSON_H
#define ONCE_CORE_RECORD_JSON_H

#include "core/json_out.h"
#include "once.h"

/* All but fingerprint, checkpoint, headers, body and whether that was kept, which a listing does not have. */
void once_record_json(struct once_json *json, const struct once_record *record);

#endif
