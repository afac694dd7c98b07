/*
 * record_json.h - a record as members of a JSON object: the same in `once keys`, the JSON API and the console.
 */
#ifndef ONCE_CORE_JSON_RECORD_JSON_H
#define ONCE_CORE_JSON_RECORD_JSON_H

#include "core/json/out.h"
#include "once.h"

/* The members that a listing has. */
void once_record_json(struct once_json *json, const struct once_record *record);
/* Those that only a look-up has besides: whether the body was kept, and the fingerprint. Not here: checkpoint, headers
 * and body, which may be secret. */
void once_record_details_json(struct once_json *json, const struct once_record *record);
/* The member `history`. */
void once_history_json(struct once_json *json, const struct once_history *history);

#endif
